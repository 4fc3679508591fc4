#include "rondo/train/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "rondo/base/status.h"
#include "rondo/devices/measure_ops.h"
#include "rondo/schedule/shape.h"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;
using devices::CalibrationStore;
using devices::DeviceKey;
using devices::DeviceProfile;
using devices::OpShape;
using partition::OpRates;

constexpr double kSeconds = 1.5;  // of measuring a device
constexpr double kNearRows = 2;   // a rate holds for so many times the tokens, and as many fewer

bool is_real(const devices::PoolMember& member) { return !member.described && member.device->caps().does_arithmetic; }

/// The programs of a model's layers, as describe_model() counts their costs.
class Programs {
 public:
  Programs(const model::Architecture& model, const Loader::Lengths& lengths, devices::OpList update)
      : dtype_(model.method().dtype), sequence_(lengths.longest_sequence) {
    const std::uint32_t tokens = devices::token_bucket(lengths.longest);
    std::set<std::uint32_t> classes;
    for (model::LayerIndex i = 0; i < model.layers().size(); ++i) {
      const model::Layer& layer = model.layers()[i];
      for (const model::ParameterUse& use : layer.parameters) {
        const model::Parameter part = model.part_of(use);
        weights_ += schedule::device_bytes(model, use) + (part.trained ? part.elements() * sizeof(float) : 0);
      }
      if (!classes.insert(layer.program_class).second) continue;
      const bool head = layer.kind == model::LayerKind::kHead;
      const bool part = head && i + 1 < model.layers().size();
      add(model.record(i, head && !part ? model::Phase::kEvaluate : model::Phase::kForward, model::Keep::kNothing,
                       tokens));
      if (!layer.has_backward) continue;
      for (std::size_t keep = 0; keep < partition::kKeeps; ++keep) {
        add(model.record(i, head && !part ? model::Phase::kFused : model::Phase::kBackward,
                         static_cast<model::Keep>(keep), tokens));
      }
      if (part) add(model.record(i, model::Phase::kFused, model::Keep::kNothing, tokens));
    }
    if (!update.ops.empty()) add(std::move(update));
  }

  devices::DType dtype() const { return dtype_; }
  /// One for each shape.
  std::vector<devices::OpProbe> probes() const {
    std::set<OpShape> shapes;
    std::vector<devices::OpProbe> probes;
    for (const auto& list : lists_) {
      for (std::size_t op = 0; op < list->ops.size(); ++op) {
        const devices::OpProbe probe{list.get(), op, sequence_, weights_};
        if (shapes.insert(probe.shape()).second) probes.push_back(probe);
      }
    }
    return probes;
  }

 private:
  void add(devices::OpList list) { lists_.push_back(std::make_unique<devices::OpList>(std::move(list))); }

  const devices::DType dtype_;
  const std::uint32_t sequence_;
  Bytes weights_ = 0;  // and their gradients
  std::vector<std::unique_ptr<devices::OpList>> lists_;
};

bool is_known(const OpShape& shape, const devices::Speeds& speeds) {
  return std::ranges::any_of(speeds, [&](const auto& entry) {
    const std::optional<OpShape> known = entry.first.shape();
    if (!known) return false;
    OpShape same = *known;
    same.rows = shape.rows;
    const auto rows = static_cast<double>(known->rows);
    return same == shape && rows <= kNearRows * static_cast<double>(shape.rows) &&
           static_cast<double>(shape.rows) <= kNearRows * rows;
  });
}

bool is_complete(const DeviceProfile& profile, const devices::DeviceCaps& caps, devices::DType dtype) {
  const auto flops = profile.flops.find(dtype);
  return flops != profile.flops.end() && flops->second > 0 && profile.memory_bandwidth > 0 &&
         (caps.unified_memory || (profile.link_up > 0 && profile.link_down > 0));
}

/// `measured` where it says something, else `estimate`.
DeviceProfile merged(DeviceProfile estimate, const DeviceProfile& measured) {
  for (auto& entry : estimate.flops) entry.second *= estimate.efficiency;
  estimate.fp8_flops *= estimate.efficiency;
  estimate.efficiency = 1;
  for (const auto& [dtype, flops] : measured.flops) {
    if (flops > 0) estimate.flops[dtype] = flops;
  }
  if (measured.memory_bandwidth > 0) estimate.memory_bandwidth = measured.memory_bandwidth;
  if (measured.link_up <= 0 || measured.link_down <= 0) return estimate;
  estimate.link_up = measured.link_up;
  estimate.link_down = measured.link_down;
  if (measured.link_latency_seconds > 0) estimate.link_latency_seconds = measured.link_latency_seconds;
  return estimate;
}

/// Another device on the same hardware, so that what it takes is not counted as the run's. A second member of a card
/// bears the card's name and a number of its own.
absl::StatusOr<std::vector<devices::PoolMember>> open_again(const devices::Device& device,
                                                            devices::ThreadPool& threads) {
  std::string name = device.caps().unified_memory ? device.caps().backend : device.caps().name;
  if (std::ranges::count(name, ':') > 1) name.resize(name.rfind(':'));
  return devices::open_pool({name, ""}, threads);
}

/// What is missing in `known`. Errors: the device cannot be opened once more, or does not multiply.
absl::StatusOr<devices::MeasuredSpeeds> measure(const devices::PoolMember& member, const DeviceProfile& known,
                                                devices::DType dtype, std::vector<devices::OpProbe> missing,
                                                devices::ThreadPool& threads) {
  const Clock::time_point begin = Clock::now();
  RONDO_ASSIGN_OR_RETURN(auto pool, open_again(*member.device, threads));
  devices::Device& device = *pool.front().device;
  DeviceProfile profile = known;
  if (!is_complete(profile, device.caps(), dtype)) {
    RONDO_ASSIGN_OR_RETURN(profile.flops[dtype], devices::measure_flops(device, dtype));
    RONDO_RETURN_IF_ERROR(devices::measure_memory(device, profile));
    if (!device.caps().unified_memory) RONDO_RETURN_IF_ERROR(devices::measure_links(device, profile));
  }
  devices::MeasuredSpeeds speeds = devices::speeds_of(profile);
  // A driver that compiles late may have taken all of it for the plain speeds.
  const bool compiles_late = device.caps().first_use_seconds > 0;
  const double left = kSeconds - (compiles_late ? 0 : std::chrono::duration<double>(Clock::now() - begin).count());
  const DeviceProfile expected = merged(member.profile, profile);
  for (const devices::MeasuredOp& op : devices::measure_ops(device, std::move(missing), expected, left)) {
    speeds.emplace_back(devices::SpeedKey::of(op.shape), op.rate);
  }
  return speeds;
}

std::shared_ptr<const OpRates> rates_of(const devices::Speeds& speeds, double slower) {
  OpRates rates;
  for (const auto& [key, speed] : speeds) {
    if (const std::optional<OpShape> shape = key.shape()) rates.set(*shape, speed.rate / slower);
  }
  return rates.empty() ? nullptr : std::make_shared<const OpRates>(std::move(rates));
}

void take_speeds(const devices::Speeds& speeds, double slower, std::size_t i, Machine& machine) {
  const devices::PoolMember& member = machine.pool[i];
  const auto known = devices::profile_of(*member.device, speeds);
  if (!known) return;
  DeviceProfile profile = merged(member.profile, *known);
  profile.slow_down(slower);
  machine.set_profile(i, profile);
  machine.shape.devices[i].rates = rates_of(speeds, slower);
}

}  // namespace

bool calibrate(const model::Architecture& model, const Loader::Lengths& lengths,
               const offload::OptimizerSettings& optimizer, Machine& machine, CalibrationStore& store,
               const TellUser& tell) {
  if (std::ranges::none_of(machine.pool, is_real)) return false;
  if (!store.note().empty()) tell(store.note());
  bool measures = false;
  const bool may_update = machine.pool.size() == 1 && machine.pool.front().device->caps().updates;
  const Programs programs(model, lengths, may_update ? schedule::update_probe(model, optimizer) : devices::OpList{});
  const std::vector<devices::OpProbe> probes = programs.probes();
  // Members that compute with the host's processor take turns.
  const auto on_host = static_cast<double>(
      std::max<std::ptrdiff_t>(std::ranges::count_if(machine.pool, &devices::PoolMember::on_host), 1));
  std::map<std::string, devices::Speeds> known_by_device;  // several members may be one
  for (std::size_t i = 0; i < machine.pool.size(); ++i) {
    const devices::PoolMember& member = machine.pool[i];
    if (!is_real(member)) continue;
    const DeviceKey key = DeviceKey::of(*member.device);
    const auto [entry, fresh] = known_by_device.try_emplace(key.device + key.driver);
    devices::Speeds& speeds = entry->second;
    if (fresh) {
      speeds = store.find(key);
      const DeviceProfile known = devices::profile_of(*member.device, speeds).value_or(DeviceProfile{});
      std::vector<devices::OpProbe> missing;
      for (const devices::OpProbe& probe : probes) {
        if (!is_known(probe.shape(), speeds)) missing.push_back(probe);
      }
      if (!missing.empty() || !is_complete(known, member.device->caps(), programs.dtype())) {
        measures = true;
        const auto measured = measure(member, known, programs.dtype(), std::move(missing), *machine.threads);
        if (measured.ok()) {
          store.put(key, *measured);
          const bool kept = !store.find(key).empty();
          tell(fmt::format("{}: its speeds on this model's shapes were measured first; {}", member.device->caps().name,
                           kept ? "later runs know them"
                                : "there is no place to keep them (XDG_CACHE_HOME, HOME), so each run measures anew"));
          for (const auto& [what, rate] : *measured) speeds[what] = {rate, 0, 1, 0};
        }
      }
    }
    take_speeds(speeds, member.on_host() ? on_host : 1.0, i, machine);
  }
  return measures;
}

Bytes watching_bytes(const model::Architecture& model, std::uint32_t microbatches, const Machine& machine) {
  if (std::ranges::none_of(machine.pool, is_real)) return 0;
  // A copy of the trace, by visit, and what is made of it, in a list that grows by doubling.
  constexpr Bytes kOfProgram = sizeof(schedule::TraceSpan) + 2 * sizeof(void*) + sizeof(schedule::ProgramTime) * 3 / 2;
  const std::size_t programs = 2 * model.layers().size() * microbatches;  // forward and back
  return std::min(programs, kWatchedPrograms) * kOfProgram;
}

ProgramWatch::ProgramWatch(const model::Architecture& model, const PlannedRun& run, const Machine& machine)
    : model_(model), run_(run), machine_(machine) {
  std::set<std::size_t> used;
  for (const partition::Slot& slot : run.plan.slots) used.insert(slot.device);
  for (const std::size_t i : used) {
    const devices::PoolMember& member = machine.pool[i];
    // Who shares the host's processor with others shows what they leave it, not what it can do.
    if (is_real(member) && (!member.on_host() || used.size() == 1)) {
      members_.push_back({i, member.device->caps().name, 0, {}});
    }
  }
}

bool ProgramWatch::watches() const {
  return std::ranges::any_of(members_, [](const Member& member) { return member.steps < kSteps; });
}

void ProgramWatch::step(const partition::Plan& plan, const std::string& name,
                        const std::vector<schedule::TraceSpan>& spans, const std::vector<std::uint32_t>& buckets,
                        std::uint32_t step) {
  const auto member = std::ranges::find(members_, name, &Member::name);
  if (member == members_.end() || member->steps >= kSteps || step < 2) return;
  ++member->steps;
  for (const schedule::ProgramTime& time : schedule::program_times(model_, run_.shape, plan, name, spans, step)) {
    if (time.microbatch >= buckets.size() || buckets[time.microbatch] == 0) continue;
    Seen& seen = member->seen[{time.program_class, time.phase, time.keep}];
    seen.cost = time.cost(run_.shape);
    seen.seconds.add(time.seconds * run_.work.microbatch_tokens / buckets[time.microbatch]);
  }
}

devices::MeasuredSpeeds ProgramWatch::rates(std::size_t member) const {
  constexpr std::size_t kLeastSteps = 2;
  devices::MeasuredSpeeds speeds;
  const auto watched = std::ranges::find(members_, member, &Member::index);
  if (watched == members_.end() || watched->steps < kLeastSteps) return speeds;
  std::vector<partition::ObservedProgram> programs;
  for (const auto& entry : watched->seen) {
    const SpreadSample& seconds = entry.second.seconds;
    programs.push_back({&entry.second.cost, seconds.median(), static_cast<double>(seconds.seen())});
  }
  const partition::DeviceShape& device = machine_.shape.devices[member];
  for (const auto& [shape, rate] : partition::fit_rates(programs, device, run_.work.dtype).list()) {
    speeds.emplace_back(devices::SpeedKey::of(shape), rate);
  }
  return speeds;
}

void ProgramWatch::fold_back(CalibrationStore& store) const {
  for (const Member& member : members_) {
    store.refine(DeviceKey::of(*machine_.pool[member.index].device), rates(member.index));
  }
}

}  // namespace rondo::train
