// The verbs plan and devices: what the partitioner decided, and what the pool's members can do, as INTERFACE's JSON.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "rondo/base/status.h"
#include "rondo/devices/calibration_store.h"
#include "rondo/devices/pool.h"
#include "rondo/partition/schedules.h"
#include "rondo/train/calibration.h"
#include "rondo/train/host_account.h"
#include "rondo/train/plan_document.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

Json schedules_json(const std::vector<partition::ComparedSchedule>& rows) {
  Json schedules = Json::object();
  for (const partition::ComparedSchedule& row : rows) {
    schedules[row.name] = {{"bubble", row.bubble},         {"tokens_per_second", row.tokens_per_second},
                           {"peak_bytes", row.peak_bytes}, {"stages_per_device", row.stages_per_device},
                           {"recompute", row.recompute},   {"fits", row.fits}};
  }
  return schedules;
}

/// A described card's figures are known; a real device's are measured now, remembered, or unknown (0).
absl::StatusOr<devices::DeviceProfile> speeds_of(const Config& config, const devices::PoolMember& member,
                                                 devices::CalibrationStore& store) {
  const devices::DeviceCaps& caps = member.device->caps();
  const devices::DeviceKey key = devices::DeviceKey::of(*member.device);
  if (config.bench && caps.does_arithmetic) {
    RONDO_ASSIGN_OR_RETURN(devices::DeviceProfile profile, devices::measure_device(*member.device));
    if (member.described) return profile;
    store.forget_ops(key);
    store.put(key, devices::speeds_of(profile));
    return profile;
  }
  if (member.described) return member.profile;
  devices::DeviceProfile unknown;
  unknown.link_latency_seconds = 0;
  for (const devices::DType dtype : caps.compute_dtypes) unknown.flops[dtype] = 0;
  return devices::profile_of(*member.device, store.find(key)).value_or(unknown);
}

/// How many shapes of ops are known of a device, on how many measurements and runs they stand, and when the last was
/// (seconds since 1970; null: never).
Json calibration_json(const devices::Speeds& speeds) {
  std::int64_t shapes = 0;
  std::int64_t samples = 0;
  std::int64_t seen = 0;
  for (const auto& [key, speed] : speeds) {
    if (!key.shape()) continue;
    ++shapes;
    samples = std::max(samples, speed.samples);
    seen = std::max(seen, speed.seen);
  }
  return {{"shapes", shapes}, {"samples", samples}, {"seen", seen > 0 ? Json(seen) : Json(nullptr)}};
}

Json speeds_json(const devices::DeviceProfile& profile) {
  Json flops = Json::object();
  for (const auto& [dtype, speed] : profile.flops) {
    flops[devices::name_of(dtype)] = speed > 0 ? Json(speed) : Json(nullptr);
  }
  if (profile.fp8_flops > 0) flops["fp8"] = profile.fp8_flops;
  const auto number = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"flops", std::move(flops)},
          {"memory_bandwidth", number(profile.memory_bandwidth)},
          {"link",
           {{"up_bytes_per_second", number(profile.link_up)},
            {"down_bytes_per_second", number(profile.link_down)},
            {"latency_seconds", number(profile.link_latency_seconds)}}}};
}

Json names_of(const std::vector<devices::DType>& dtypes) {
  Json names = Json::array();
  for (const devices::DType dtype : dtypes) names.push_back(devices::name_of(dtype));
  return names;
}

}  // namespace

absl::StatusOr<PlanView> run_plan(const Config& config) {
  devices::CalibrationStore store = devices::CalibrationStore::of_user();  // open in a run too: it takes some memory
  RONDO_ASSIGN_OR_RETURN(Machine machine, open_machine(config));
  RONDO_ASSIGN_OR_RETURN(const OpenModel open, open_model(config, Purpose::kTrain, false));
  Loader::Lengths lengths = assumed_lengths(config);
  Bytes text_and_data = 0;
  PlanView view;
  if (!config.dataset.empty() && open.folder.empty()) {
    view.notes.push_back(dataset_not_read(config));
  } else if (!config.dataset.empty()) {
    RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(open.documents));
    RONDO_ASSIGN_OR_RETURN(const RunData data, load_data(config, open.documents, text));
    Loader loader(data.train, loader_options(config));
    RONDO_ASSIGN_OR_RETURN(const std::uint64_t steps, steps_of_run(config, loader));
    std::optional<Loader> evaluation = evaluation_loader(config, data);
    lengths = lengths_of_run(loader, steps, evaluation);
    text_and_data = memory_beside_drivers(machine) + loader.order_bytes();  // a run makes batches ahead with another
  }
  RONDO_RETURN_IF_ERROR(count_host_taken(config, *open.architecture, lengths, text_and_data, machine));
  if (machine.phantom) {
    view.notes.emplace_back(
        "host memory leaves out what drivers and libraries hold: that is seen only where the cards are");
  }
  calibrate(*open.architecture, lengths, optimizer_of(config), machine, store,
            [&](const std::string& note) { view.notes.push_back(note); });
  RONDO_ASSIGN_OR_RETURN(const PlannedRun run, plan_run(config, *open.architecture, machine, lengths, Purpose::kTrain));
  view.plan = run.plan;
  view.json = plan_document(run);
  if (config.compare) {
    Config dealt = config;
    dealt.schedule = partition::name_of(partition::Schedule::kRoundPipe);
    RONDO_ASSIGN_OR_RETURN(const PlannedRun own,
                           plan_run(dealt, *open.architecture, machine, lengths, Purpose::kTrain));
    view.schedules = partition::compare(own.plan, own.shape, own.work, machine.shape);
    view.json["schedules"] = schedules_json(view.schedules);
  }
  return view;
}

absl::StatusOr<nlohmann::ordered_json> run_devices(const Config& config) {
  devices::ThreadPool threads(config.threads);
  // What `auto` leaves out is listed too: a list of devices is asked for to choose from.
  const std::string wanted = config.devices == "auto" ? "all" : config.devices;
  RONDO_ASSIGN_OR_RETURN(const auto pool, devices::open_pool({wanted, config.memory_limit}, threads));
  devices::CalibrationStore store = devices::CalibrationStore::of_user();
  Json list = Json::array();
  for (const devices::PoolMember& member : pool) {
    const devices::DeviceCaps& caps = member.device->caps();
    RONDO_ASSIGN_OR_RETURN(const devices::DeviceProfile profile, speeds_of(config, member, store));
    Json entry = {{"name", caps.name},
                  {"backend", caps.backend},
                  {"description", caps.description},
                  {"memory_bytes", caps.memory_bytes},
                  {"dtypes", names_of(caps.compute_dtypes)},
                  {"matrix_dtypes", names_of(caps.matrix_dtypes)}};
    if (caps.weights_in_place) entry["weights_in_place"] = true;
    entry.update(speeds_json(profile));
    if (!member.described) entry["calibration"] = calibration_json(store.find(devices::DeviceKey::of(*member.device)));
    list.push_back(std::move(entry));
  }
  Json document = {{"devices", std::move(list)}};
  if (!config.catalogue) return document;
  Json cards = Json::array();
  for (const devices::DeviceProfile& card : devices::card_catalogue()) {
    Json entry = {{"name", card.name}, {"memory_bytes", card.memory_bytes}};
    entry.update(speeds_json(card));
    entry["efficiency"] = card.efficiency;
    if (card.weights_in_place) entry["weights_in_place"] = true;
    entry["source"] = card.source;
    cards.push_back(std::move(entry));
  }
  document["catalogue"] = std::move(cards);
  return document;
}

}  // namespace rondo::train
