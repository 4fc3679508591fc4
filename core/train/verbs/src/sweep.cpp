// The key sweep of the verbs plan and profile: the same run over several global batches and pools, where its throughput
// bends.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/train/calibration.h"
#include "rondo/train/config_sweep.h"
#include "rondo/train/host_account.h"
#include "rondo/train/plan_document.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kKnee = 0.95;  // share of a pool's best throughput

/// Opens once what all points share.
class PlanSweep {
 public:
  absl::Status open(const Config& config) {
    RONDO_ASSIGN_OR_RETURN(model_, open_model(config, Purpose::kTrain, false));
    if (config.dataset.empty() || !reads_data()) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(model_.documents));
    RONDO_ASSIGN_OR_RETURN(data_, load_data(config, model_.documents, text));
    text_and_data_ = own_memory();
    return absl::OkStatus();
  }

  /// False when the model is known by its name alone.
  bool reads_data() const { return !model_.folder.empty(); }

  absl::Status open_pool(const Config& config, std::vector<std::string>& notes) {
    RONDO_ASSIGN_OR_RETURN(machine_, open_machine(config));
    // Seen once: pools stand side by side, not moments of this machine.
    if (!host_) host_ = machine_->host;
    machine_->host.memory_bandwidth = host_->memory_bandwidth;
    machine_->host.optimizer_parameters_per_second = host_->optimizer_parameters_per_second;
    machine_->shape.host = machine_->host;
    RONDO_RETURN_IF_ERROR(find_disk_speed(config, *machine_));
    RONDO_ASSIGN_OR_RETURN(const Loader::Lengths lengths, lengths_of(config));
    RONDO_RETURN_IF_ERROR(count_host_taken(config, *model_.architecture, lengths, text_and_data_, *machine_));
    calibrate(*model_.architecture, lengths, optimizer_of(config), *machine_, speeds_,
              [&](const std::string& note) { notes.push_back(note); });
    return absl::OkStatus();
  }

  absl::StatusOr<Json> point(const Config& config) const {
    RONDO_ASSIGN_OR_RETURN(const Loader::Lengths lengths, lengths_of(config));
    RONDO_ASSIGN_OR_RETURN(const PlannedRun run,
                           plan_on_known(config, *model_.architecture, *machine_, lengths, Purpose::kTrain));
    const partition::Prediction& predicted = run.plan.predicted;
    return Json{{"step_seconds", predicted.step_seconds},
                {"tokens_per_second", predicted.tokens_per_second},
                {"bubble", predicted.bubble},
                {"limited_by", predicted.limited_by}};
  }

 private:
  absl::StatusOr<Loader::Lengths> lengths_of(const Config& config) const {
    if (!data_) return assumed_lengths(config);
    Loader loader(data_->train, loader_options(config));
    RONDO_ASSIGN_OR_RETURN(const std::uint64_t steps, steps_of_run(config, loader));
    std::optional<Loader> evaluation = evaluation_loader(config, *data_);
    return lengths_of_run(loader, steps, evaluation);
  }

  devices::CalibrationStore speeds_ = devices::CalibrationStore::of_user();
  OpenModel model_;
  std::optional<RunData> data_;
  Bytes text_and_data_ = 0;
  std::optional<Machine> machine_;
  std::optional<devices::HostProfile> host_;  // of the first pool
};

/// What was measured, what was predicted beside it.
absl::StatusOr<Json> profile_point(const Config& config, const StopFlag& stop, std::vector<std::string>& notes) {
  RONDO_ASSIGN_OR_RETURN(ProfileView view, run_profile(config, stop));
  for (std::string& note : view.notes) notes.push_back(std::move(note));
  const Json& measured = view.json.at("measured");
  const Json& predicted = view.json.at("predicted");
  return Json{{"step_seconds", measured.at("step_seconds")},
              {"tokens_per_second", measured.at("tokens_per_second")},
              {"bubble", measured.at("bubble")},
              {"limited_by", predicted.at("limited_by")},
              {"predicted_step_seconds", predicted.at("step_seconds")},
              {"predicted_tokens_per_second", predicted.at("tokens_per_second")}};
}

Config config_of(const Config& config, const std::string& devices, std::uint32_t batch) {
  Config one = config;
  one.devices = devices;
  one.gradient_accumulation_steps = batch / config.per_device_train_batch_size;
  return one;
}

/// The plans of one pool, by global batch: independent of each other, so that every processor may make one.
std::vector<absl::StatusOr<Json>> plan_points(const PlanSweep& plans, const Config& config, const std::string& devices,
                                              const std::vector<std::uint32_t>& batches) {
  std::vector<absl::StatusOr<Json>> points(batches.size(), absl::StatusOr<Json>(Json()));
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < batches.size(); i = next++) {
      points[i] = plans.point(config_of(config, devices, batches[i]));
    }
  };
  std::vector<std::thread> threads;
  const std::size_t wanted = std::min<std::size_t>(batches.size(), std::max(std::thread::hardware_concurrency(), 1U));
  for (std::size_t i = 1; i < wanted; ++i) {
    absl::StatusOr<std::thread> thread = start_thread("plans", work);
    if (!thread.ok()) break;  // those that are there make all of them
    threads.push_back(*std::move(thread));
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return points;
}

/// The first global batch from which on more of it brings little.
std::uint32_t knee_of(const SweepLine& line) {
  double best = 0;
  for (const auto& [batch, tokens] : line.points) best = std::max(best, tokens);
  for (const auto& [batch, tokens] : line.points) {
    if (tokens >= kKnee * best) return batch;
  }
  return 0;
}

}  // namespace

absl::StatusOr<SweepView> run_sweep(const Config& config, bool measured, const StopFlag& stop) {
  RONDO_ASSIGN_OR_RETURN(const config::Sweep sweep, config::parse_sweep(config));
  PlanSweep plans;
  if (!measured) RONDO_RETURN_IF_ERROR(plans.open(config));
  SweepView view;
  if (!measured && !config.dataset.empty() && !plans.reads_data()) view.notes.push_back(dataset_not_read(config));
  Json points = Json::array();
  Json knees = Json::array();
  absl::Status refusal;
  for (const std::string& devices : sweep.devices) {
    std::vector<absl::StatusOr<Json>> planned;
    if (!measured) {
      RONDO_RETURN_IF_ERROR(plans.open_pool(config_of(config, devices, sweep.global_batches.front()), view.notes));
      planned = plan_points(plans, config, devices, sweep.global_batches);
    }
    SweepLine line{devices, {}, 0};
    for (std::size_t i = 0; i < sweep.global_batches.size(); ++i) {
      const std::uint32_t batch = sweep.global_batches[i];
      const Config one = config_of(config, devices, batch);
      Json point = {{"devices", devices},
                    {"global_batch", batch},
                    {"gradient_accumulation_steps", one.gradient_accumulation_steps}};
      const absl::StatusOr<Json> found = measured ? profile_point(one, stop, view.notes) : planned[i];
      if (found.ok()) {
        point.update(*found);
        line.points.emplace_back(batch, found->at("tokens_per_second").get<double>());
      } else if (found.status().code() == absl::StatusCode::kResourceExhausted) {
        point["error"] = message_of(found.status());
        refusal = found.status();
      } else {
        return found.status();
      }
      points.push_back(std::move(point));
    }
    line.knee = knee_of(line);
    if (line.knee > 0) knees.push_back({{"devices", devices}, {"global_batch", line.knee}});
    view.lines.push_back(std::move(line));
  }
  if (knees.empty()) return refusal;
  view.json = {{"sweep", std::move(points)}, {"knees", std::move(knees)}};
  return view;
}

}  // namespace rondo::train
