// The verb profile: steps of the real executor, timed, beside what the plan said of them.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <span>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/schedule/trace.h"
#include "rondo/train/calibration.h"
#include "rondo/train/host_account.h"
#include "rondo/train/plan_document.h"
#include "rondo/train/rate.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"
#include "watcher.h"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using schedule::TraceSpan;

constexpr std::size_t kQueues = 3;
constexpr Bytes kChunk = 4_MiB;                // of a transfer: a span each
constexpr std::size_t kMostSpans = 1U << 22U;  // of a device in a step

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// What a device did in steps 2 to N.
struct DeviceTimes {
  std::array<double, kQueues> queues{};                 // seconds in which they worked
  std::array<double, partition::kSlotPhases> phases{};  // seconds of computing
};

/// Room for the spans of one step on the busiest device, on the safe side: clears and chunks are counted for all.
std::size_t spans_of_step(const PlannedRun& run) {
  std::size_t spans = 4096;
  for (const partition::Slot& slot : run.plan.slots) {
    const std::size_t layers = slot.last_layer - slot.first_layer + 1;
    std::size_t pieces = 0;
    for (partition::LayerIndex i = slot.first_layer; i <= slot.last_layer; ++i) {
      pieces += static_cast<std::size_t>(run.shape.layers[i].weight_bytes / kChunk) + 64;
    }
    const auto boundary = static_cast<std::size_t>(run.work.boundary_bytes / kChunk) + 1;
    spans += run.plan.rounds[slot.round].microbatches * (2 * layers + 8 * boundary + 64) + 2 * pieces;
  }
  return std::min(spans, kMostSpans);
}

class Profiler {
 public:
  Profiler(const Config& config, const StopFlag& stop) : config_(config), stop_(stop) {}

  absl::StatusOr<ProfileView> run() {
    if (!config_.trace.empty()) RONDO_RETURN_IF_ERROR(with_context(check_writable(config_.trace), "trace"));
    RONDO_RETURN_IF_ERROR(open());
    RONDO_RETURN_IF_ERROR(measure());
    ProfileView view;
    view.json["predicted"] = plan_document(run_);
    view.json["measured"] = measured();
    view.notes = std::move(notes_);
    if (!config_.trace.empty()) RONDO_RETURN_IF_ERROR(write_trace());
    return view;
  }

 private:
  absl::Status open() {
    RONDO_ASSIGN_OR_RETURN(machine_, open_machine(config_));
    RONDO_ASSIGN_OR_RETURN(model_, open_model(config_, Purpose::kTrain, !machine_.phantom));
    Bytes text_and_data = 0;
    if (config_.dataset.empty()) {
      data_.train = assumed_data(config_, model_.architecture->config().vocab_size);
    } else {
      if (model_.folder.empty())
        return find_model(config_.model_name_or_path, config_.model_revision).status();  // data needs its tokenizer
      RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(model_.documents));
      RONDO_ASSIGN_OR_RETURN(data_, load_data(config_, model_.documents, text));
    }
    if (data_.train.samples.empty()) return invalid_input("dataset: {} holds no sample", config_.dataset);
    loader_.emplace(data_.train, loader_options(config_));
    if (!config_.dataset.empty()) text_and_data = memory_beside_drivers(machine_);
    if (config_.packing) notes_.push_back(data::describe_packing(loader_->packing()));
    const Loader::Lengths lengths =
        config_.dataset.empty() ? assumed_lengths(config_) : loader_->lengths(config_.steps);
    RONDO_RETURN_IF_ERROR(count_host_taken(config_, *model_.architecture, lengths, text_and_data, machine_));
    calibrate(*model_.architecture, lengths, optimizer_of(config_), machine_, speeds_,
              [this](const auto& note) { notes_.push_back(note); });
    RONDO_ASSIGN_OR_RETURN(run_, plan_run(config_, *model_.architecture, machine_, lengths, Purpose::kTrain));
    programs_.emplace(*model_.architecture, run_, machine_);
    RONDO_ASSIGN_OR_RETURN(store_, open_store(config_, model_, machine_, run_.plan));
    schedule::ExecutorParts parts = executor_parts(model_, machine_, run_, *store_);
    parts.trace_spans = spans_of_step(run_) * (1 + config_.staleness);
    RONDO_ASSIGN_OR_RETURN(executor_, schedule::StepExecutor::make(parts));
    return absl::OkStatus();
  }

  absl::Status measure() {
    Watcher watcher;
    RONDO_RETURN_IF_ERROR(watcher.start(stop_, *executor_));
    std::deque<std::vector<schedule::Microbatch>> batches;  // of steps that have begun, and of the next one
    std::uint64_t begun = 0;
    batches.push_back(loader_->step(0));
    for (std::uint64_t step = 0; step < config_.steps; ++step) {
      for (; begun < std::min(step + 1 + config_.staleness, config_.steps); ++begun) {
        executor_->begin(batches.back(), begun + 1 == config_.steps);
        batches.push_back(loader_->step(begun + 1));
      }
      look_at_spans();  // of the step before, while this one runs: nothing stands between two steps
      const auto result = executor_->finish({config_.learning_rate, config_.max_grad_norm});
      for (std::string& note : executor_->take_notes()) notes_.push_back(std::move(note));
      if (stop_.load(std::memory_order_relaxed)) return absl::CancelledError("interrupted");
      RONDO_RETURN_IF_ERROR(result.status());
      if (!executor_->lost_devices().empty()) {
        return internal_error("step {}: {}; a profile of the rest of the pool would not be one of this plan", step + 1,
                              notes_.back());
      }
      if (step > 0) {
        for (const schedule::Microbatch& batch : batches.front()) tokens_ += batch.ids.size();
      }
      buckets_.clear();
      for (const schedule::Microbatch& batch : batches.front()) {
        buckets_.push_back(devices::token_bucket(static_cast<std::uint32_t>(batch.ids.size())));
      }
      batches.pop_front();
      taken_step_ = static_cast<std::uint32_t>(step + 1);
      executor_->take_spans(taken_, dropped_);
    }
    look_at_spans();
    executor_->wait_for_update();
    executor_->take_spans(taken_, dropped_);  // of an update on a device
    look_at_spans();
    programs_->fold_back(speeds_);
    return executor_->update_status();
  }

  /// Times of the step's work; the first step fills the pipeline and only its end counts.
  void look_at_spans() {
    times_.resize(taken_.size());
    names_.resize(taken_.size());
    if (!config_.trace.empty()) kept_.resize(taken_.size());
    for (std::size_t device = 0; device < taken_.size(); ++device) {
      schedule::StepExecutor::TakenSpans& taken = taken_[device];
      names_[device] = taken.device;
      if (taken.count > 0) {
        const std::vector<TraceSpan> spans(taken.spans.begin(),
                                           taken.spans.begin() + static_cast<std::ptrdiff_t>(taken.count));
        programs_->step(run_.plan, taken.device, spans, buckets_, taken_step_);
      }
      for (std::size_t i = 0; i < taken.count; ++i) {
        take_span(taken.spans[i], times_[device]);
        if (!config_.trace.empty()) kept_[device].push_back(taken.spans[i]);
      }
      taken.count = 0;
    }
  }

  void take_span(const TraceSpan& span, DeviceTimes& times) {
    const std::uint32_t step = span.tag.step;
    const bool computes = span.role == devices::QueueRole::kCompute;
    if (computes && step == 1) first_end_ = std::max(first_end_, span.end);
    if (computes) last_end_ = std::max(last_end_, span.end);
    if (step == 1) return;
    const double worked = seconds(span.end - span.begin);
    times.queues[static_cast<std::size_t>(span.role)] += worked;
    if (computes) times.phases[static_cast<std::size_t>(run_.plan.slots.at(span.tag.slot).phase)] += worked;
  }

  Json measured() {
    const double whole = seconds(last_end_ - first_end_);
    const auto periods = static_cast<double>(config_.steps - 1);
    double speeds = 0;
    double working = 0;
    // Sums of spans that fill a period may round to a little more than it.
    const auto share = [whole](double worked) { return std::min(worked / whole, 1.0); };
    Json devices = Json::array();
    for (partition::DeviceIndex i = 0; i < machine_.pool.size(); ++i) {
      const devices::Device& device = *machine_.pool[i].device;
      const auto found = std::ranges::find(names_, device.caps().name);
      DeviceTimes times;
      if (found != names_.end()) {
        times = times_[static_cast<std::size_t>(found - names_.begin())];
        const double speed = machine_.pool[i].profile.speed(run_.work.dtype);
        speeds += speed;
        working += speed * share(times.queues[0]);
      }
      devices.push_back({{"name", device.caps().name},
                         {"busy", share(times.queues[0])},
                         {"peak_bytes", device.peak_bytes()},
                         {"up_busy", share(times.queues[1])},
                         {"down_busy", share(times.queues[2])},
                         {"phases", phases_json(times.phases, periods)},
                         {"predicted_phases", phases_json(predicted_phases(i), 1)}});
    }
    if (dropped_ > 0) {
      notes_.push_back(fmt::format("{} pieces of work found no room in the trace: busy counts too little", dropped_));
    }
    return {{"step_seconds", whole / periods},
            {"tokens_per_second", static_cast<double>(tokens_) / whole},
            {"bubble", speeds > 0 ? 1 - working / speeds : 0.0},
            {"devices", std::move(devices)}};
  }

  std::array<double, partition::kSlotPhases> predicted_phases(partition::DeviceIndex device) const {
    std::array<double, partition::kSlotPhases> phases{};
    for (const partition::Slot& slot : run_.plan.slots) {
      if (slot.device != device) continue;
      phases[static_cast<std::size_t>(slot.phase)] += slot.seconds * run_.plan.rounds[slot.round].microbatches;
    }
    return phases;
  }

  /// Seconds a step.
  static Json phases_json(const std::array<double, partition::kSlotPhases>& phases, double steps) {
    Json json = Json::object();
    for (std::size_t phase = 0; phase < partition::kSlotPhases; ++phase) {
      json[partition::name_of(static_cast<partition::SlotPhase>(phase))] = phases[phase] / steps;
    }
    return json;
  }

  absl::Status write_trace() const {
    std::vector<std::unique_ptr<schedule::DeviceTrace>> whole;
    std::vector<const schedule::DeviceTrace*> devices;
    for (const devices::PoolMember& member : machine_.pool) {
      const std::string& name = member.device->caps().name;
      const auto found = std::ranges::find(names_, name);
      std::span<const TraceSpan> spans;  // none of a device without slots
      if (found != names_.end()) spans = kept_[static_cast<std::size_t>(found - names_.begin())];
      whole.push_back(std::make_unique<schedule::DeviceTrace>(name, spans.size()));
      for (const TraceSpan& span : spans) whole.back()->on_work(span.role, span.tag, span.begin, span.end);
      devices.push_back(whole.back().get());
    }
    return schedule::write_trace(config_.trace, devices, run_.plan);
  }

  const Config& config_;
  const StopFlag& stop_;
  Machine machine_;
  OpenModel model_;
  RunData data_;
  std::optional<Loader> loader_;
  PlannedRun run_;
  devices::CalibrationStore speeds_ = devices::CalibrationStore::of_user();
  std::optional<ProgramWatch> programs_;
  std::uint32_t taken_step_ = 0;
  std::vector<std::uint32_t> buckets_;  // of its microbatches
  std::optional<offload::ParameterStore> store_;
  std::unique_ptr<schedule::StepExecutor> executor_;
  std::vector<schedule::StepExecutor::TakenSpans> taken_;  // of the last step
  std::vector<std::string> names_;                         // of the used devices
  std::vector<DeviceTimes> times_;                         // likewise
  std::vector<std::vector<TraceSpan>> kept_;
  std::vector<std::string> notes_;
  Clock::time_point first_end_ = Clock::time_point::min();
  Clock::time_point last_end_ = Clock::time_point::min();
  std::uint64_t tokens_ = 0;
  std::size_t dropped_ = 0;
};

}  // namespace

absl::StatusOr<ProfileView> run_profile(const Config& config, const StopFlag& stop) {
  return Profiler(config, stop).run();
}

}  // namespace rondo::train
