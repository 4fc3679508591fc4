// The search for a plan: how many microbatches a round, which devices, which stages.
//
// Stages: for a set of candidate times t the layers are packed greedily so that no slot takes longer than t on its
// device; the published objective (M S + G (G - 1)) t for like devices is what the simulation of a candidate comes to
// when links are free, so the simulation decides between candidates, with links, the optimizer and unlike devices
// counted in.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "packing.h"
#include "rondo/base/status.h"
#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

constexpr std::size_t kCandidates = 96;  // stage times tried for one set of devices
constexpr std::uint32_t kSimulatedSteps = 3;
/// Shares of a device's budget that one slot may take. Forward slots, the longest, give way first.
constexpr MemoryShares kMemoryShares[] = {{1, 1},      {0.7, 1},    {0.5, 1},    {0.35, 1},  {0.5, 0.7},
                                          {0.35, 0.7}, {0.25, 0.7}, {0.25, 0.5}, {0.15, 0.5}};
constexpr std::size_t kMostSets = 256;  // of devices, tried one by one
constexpr double kSame = 1e-6;          // share by which step times differ if at all
constexpr double kOptimizerBytes = 28;  // read and written per parameter

std::vector<Round> rounds_of(const Workload& work, std::uint32_t microbatches_per_round) {
  std::vector<Round> rounds;
  for (std::uint32_t first = 0; first < work.microbatches; first += microbatches_per_round) {
    rounds.push_back({first, std::min(microbatches_per_round, work.microbatches - first)});
  }
  return rounds;
}

class Planner {
 public:
  Planner(const ModelShape& model, const Workload& work, const MachineShape& machine, const PlanRequest& request)
      : model_(model), work_(work), machine_(machine), request_(request) {}

  absl::StatusOr<Plan> run() {
    find_kinds();
    std::vector<Keep> keeps = {Keep::kSelective, Keep::kNothing};
    if (request_.keep) keeps = {*request_.keep};
    for (const Keep keep : keeps) search(keep);
    if (!best_) return refusal_.ok() ? refuse_largest_layer(keeps.back()) : refusal_;
    finish(*best_);
    return *std::move(best_);
  }

 private:
  /// Devices that are alike, and how many of them a set takes: which ones makes no difference.
  using Kind = std::vector<DeviceIndex>;
  using Counts = std::vector<std::size_t>;

  /// From the fastest on. The order is that of the kinds, not of the pool: so a pool offers all that a smaller one
  /// does.
  void find_kinds() {
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const auto kind = std::ranges::find_if(
          kinds_, [&](const Kind& other) { return alike(machine_.devices[other[0]], machine_.devices[i]); });
      if (kind == kinds_.end()) {
        kinds_.push_back({i});
      } else {
        kind->push_back(i);
      }
    }
    const auto rank = [&](const Kind& kind) {
      const DeviceShape& device = machine_.devices[kind[0]];
      return std::tuple(device.profile.speed(work_.dtype), device.profile.memory_bandwidth, device.profile.link_up,
                        device.profile.link_down, device.budget_bytes);
    };
    std::ranges::stable_sort(kinds_, std::ranges::greater(), rank);
  }

  /// Every choice of devices, the largest first; of very mixed pools the fastest ones and all but one.
  std::vector<Counts> sets() const {
    std::size_t choices = 1;
    for (const Kind& kind : kinds_) choices = std::min(choices * (kind.size() + 1), kMostSets + 1);
    std::vector<Counts> sets;
    Counts counts(kinds_.size(), 0);
    if (choices <= kMostSets) {
      for (std::size_t i = 1; i < choices; ++i) {
        for (std::size_t kind = 0; ++counts[kind] > kinds_[kind].size(); ++kind) counts[kind] = 0;
        sets.push_back(counts);
      }
    } else {
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        Counts others(kinds_.size());
        for (std::size_t i = 0; i < others.size(); ++i) others[i] = kinds_[i].size() - (i == kind ? 1 : 0);
        sets.push_back(std::move(others));
        for (; counts[kind] < kinds_[kind].size(); sets.push_back(counts)) ++counts[kind];
      }
    }
    std::ranges::stable_sort(sets, std::ranges::greater(),
                             [](const Counts& set) { return std::accumulate(set.begin(), set.end(), std::size_t{0}); });
    return sets;
  }

  void search(Keep keep) {
    ladder_.clear();
    const TimeTable& times = table(keep, 0);
    for (const Counts& counts : sets()) {
      std::vector<DeviceIndex> order;
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        order.insert(order.end(), kinds_[kind].begin(),
                     kinds_[kind].begin() + static_cast<std::ptrdiff_t>(counts[kind]));
      }
      const double bound = work_.microbatches * times.least_seconds(order);
      if (best_ && bound >= best_->predicted.step_seconds) {
        remember(counts, bound);
        continue;
      }
      std::set<std::vector<std::pair<LayerIndex, DeviceIndex>>> seen;
      for (const double limit : candidate_limits(times, order)) try_limit(limit, order, keep, seen);
    }
  }

  /// A device's memory is the sum of what its most demanding slots need by purpose: when slots that fit one by one do
  /// not fit together, smaller ones are tried.
  void try_limit(double limit, const std::vector<DeviceIndex>& order, Keep keep,
                 std::set<std::vector<std::pair<LayerIndex, DeviceIndex>>>& seen) {
    for (std::size_t rung = 0; rung < std::size(kMemoryShares); ++rung) {
      const auto slots = pack_best(table(keep, rung), order, limit);
      std::vector<std::pair<LayerIndex, DeviceIndex>> key;
      for (const Slot& slot : slots.value_or(std::vector<Slot>())) key.emplace_back(slot.first_layer, slot.device);
      if (key.empty() || !seen.insert(std::move(key)).second) {
        if (rung == 0) return;
        continue;
      }
      device_refused_ = false;
      consider(*slots, order, keep);
      if (!device_refused_) return;
    }
  }

  const TimeTable& table(Keep keep, std::size_t rung) {
    while (ladder_.size() <= rung) ladder_.emplace_back(model_, work_, machine_, keep, kMemoryShares[ladder_.size()]);
    return ladder_[rung];
  }

  /// From the time of the longest single visit to that of the whole model in one.
  std::vector<double> candidate_limits(const TimeTable& times, const std::vector<DeviceIndex>& order) const {
    double least = 0;
    const LayerIndex last = times.layers() - 1;
    const auto quickest = [&](SlotPhase phase, LayerIndex first, LayerIndex end) {
      double seconds = times.seconds(order[0], phase, first, end);
      for (const DeviceIndex device : order) seconds = std::min(seconds, times.seconds(device, phase, first, end));
      return seconds;
    };
    for (LayerIndex i = 0; i < last; ++i) {
      least = std::max(least, quickest(SlotPhase::kForward, i, i));
      if (i >= times.lowest_backward()) least = std::max(least, quickest(SlotPhase::kBackward, i, i));
    }
    least = std::max(least, quickest(SlotPhase::kFused, last, last));
    const double most = times.seconds(order[0], SlotPhase::kFused, 0, last) * 1.000001;
    std::vector<double> limits;
    for (std::size_t i = 0; i < kCandidates; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(kCandidates - 1);
      limits.push_back(least * std::pow(std::max(most / least, 1.0), exponent));
    }
    return limits;
  }

  void consider(const std::vector<Slot>& stages, const std::vector<DeviceIndex>& order, Keep keep) {
    Plan plan;
    plan.keep = keep;
    plan.reduction_group = work_.reduction_group;
    std::uint32_t per_round =
        request_.microbatches_per_round != 0
            ? static_cast<std::uint32_t>(round_up(request_.microbatches_per_round, work_.reduction_group))
            : work_.microbatches;
    for (;;) {
      plan.rounds = rounds_of(work_, std::min(per_round, work_.microbatches));
      plan.slots = deal_rounds(stages, order, plan.rounds);
      if (best_ && compute_seconds(plan) >= best_->predicted.step_seconds) break;
      const absl::Status fits = fill_memory(plan);
      if (fits.ok()) break;
      if (refusal_.ok()) refusal_ = fits;
      const bool host = plan.devices.size() == machine_.devices.size();
      device_refused_ = device_refused_ || !host;
      if (!host || per_round <= work_.reduction_group) return;
      per_round -= work_.reduction_group;
    }
    const Counts used = used_by(plan);
    const double at_least = compute_seconds(plan);
    if (best_ && at_least >= best_->predicted.step_seconds) return remember(used, at_least);
    keep_resident(plan);
    const Simulation simulation = simulate(plan, model_, work_, machine_, kSimulatedSteps);
    plan.predicted = simulation.prediction;
    for (std::size_t i = 0; i < plan.devices.size(); ++i) plan.devices[i].busy = simulation.busy[i];
    remember(used, plan.predicted.step_seconds);
    // A device that is of no use stays unused.
    const bool fewer = best_ && devices_of(used) < devices_of(used_by(*best_));
    const double enough = fewer ? 1.0 + kSame : 1.0 - kSame;
    if (!best_ || plan.predicted.step_seconds < best_->predicted.step_seconds * enough) best_ = std::move(plan);
  }

  /// What no step can beat: the compute time of the device that has most to do.
  double compute_seconds(const Plan& plan) const {
    std::vector<double> seconds(machine_.devices.size(), 0.0);
    for (const Slot& slot : plan.slots) seconds[slot.device] += slot.seconds * plan.rounds[slot.round].microbatches;
    return std::ranges::max(seconds);
  }

  Counts used_by(const Plan& plan) const {
    std::vector<bool> used(machine_.devices.size(), false);
    for (const Slot& slot : plan.slots) used[slot.device] = true;
    Counts counts;
    for (const Kind& kind : kinds_) {
      counts.push_back(static_cast<std::size_t>(std::ranges::count_if(kind, [&](DeviceIndex i) { return used[i]; })));
    }
    return counts;
  }
  static std::size_t devices_of(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  void remember(const Counts& used, double seconds) {
    const auto [entry, added] = quickest_.try_emplace(used, seconds);
    if (!added) entry->second = std::min(entry->second, seconds);
  }

  /// Every round gets all stages; among like devices the rotation's cursor carries on from round to round.
  std::vector<Slot> deal_rounds(const std::vector<Slot>& stages, const std::vector<DeviceIndex>& order,
                                const std::vector<Round>& rounds) const {
    std::vector<Slot> slots;
    const bool carries = std::ranges::all_of(
        order, [&](DeviceIndex i) { return alike(machine_.devices[i], machine_.devices[order[0]]); });
    std::size_t cursor = 0;
    for (std::uint32_t round = 0; round < rounds.size(); ++round) {
      for (Slot slot : stages) {
        slot.round = round;
        if (carries) slot.device = order[cursor++ % order.size()];
        slots.push_back(slot);
      }
    }
    return slots;
  }

  absl::Status fill_memory(Plan& plan) const {
    plan.devices.clear();
    plan.host = host_memory(model_, work_, machine_, plan.slots, plan.rounds, plan.keep);
    plan.first_layer_on_disk = choose_disk_layers(model_, machine_, plan.host);
    plan.disk_bytes = disk_bytes_from(model_, plan.first_layer_on_disk);
    if (plan.disk_bytes > 0) {
      plan.host = host_memory(model_, work_, machine_, plan.slots, plan.rounds, plan.keep, plan.first_layer_on_disk);
    }
    plan.host_peak_bytes = total_of(plan.host);
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const DeviceShape& device = machine_.devices[i];
      DevicePlan entry;
      entry.name = device.name;
      entry.memory = device_memory(model_, work_, device, i, plan.slots, plan.keep);
      entry.peak_bytes = total_of(entry.memory);
      entry.budget_bytes = device.budget_bytes;
      if (entry.peak_bytes > entry.budget_bytes) {
        return resource_exhausted(
            "{}: the plan needs {} and {} may be used: lower cutoff_len or per_device_train_batch_size, or set "
            "recompute: full",
            entry.name, format_bytes(entry.peak_bytes), format_bytes(entry.budget_bytes));
      }
      plan.devices.push_back(std::move(entry));
    }
    if (plan.host_peak_bytes > machine_.host_budget_bytes) {
      return resource_exhausted(
          "host memory: the plan needs {} and {} may be used: lower cutoff_len, per_device_train_batch_size or "
          "reduction_group{}",
          format_bytes(plan.host_peak_bytes), format_bytes(machine_.host_budget_bytes),
          machine_.disk_budget_bytes > 0 ? "" : ", or name a folder on a disk with nvme_path");
    }
    return absl::OkStatus();
  }

  /// What memory is left holds weights that then need not come again.
  void keep_resident(Plan& plan) const {
    plan.resident.clear();
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const DeviceShape& device = machine_.devices[i];
      plan.resident.push_back(choose_residents(model_, work_, device, i, plan.slots, plan.keep));
      plan.devices[i].memory = device_memory(model_, work_, device, i, plan.slots, plan.keep, plan.resident[i]);
      plan.devices[i].peak_bytes = total_of(plan.devices[i].memory);
    }
  }

  /// Not even one layer at a time fits: says which and where it came nearest.
  absl::Status refuse_largest_layer(Keep keep) const {
    const auto roomiest =
        std::ranges::max_element(machine_.devices, {}, [](const DeviceShape& device) { return device.budget_bytes; });
    Bytes most = 0;
    LayerIndex largest = 0;
    const auto last = static_cast<LayerIndex>(model_.layers.size() - 1);
    for (LayerIndex i = 0; i <= last; ++i) {
      const bool back = model_.layers[i].has_backward && i > 0;
      const SlotPhase phase = i == last ? SlotPhase::kFused : back ? SlotPhase::kBackward : SlotPhase::kForward;
      const Bytes need = total_of(device_memory(model_, work_, *roomiest, 0, {{phase, i, i, 0, 0, 0}}, keep));
      if (need > most) largest = i;
      most = std::max(most, need);
    }
    return resource_exhausted(
        "{}: {} alone needs {} and {} may be used: lower cutoff_len or per_device_train_batch_size, or take a device "
        "with more memory",
        roomiest->name, model_.layers[largest].name, format_bytes(most), format_bytes(roomiest->budget_bytes));
  }

  void finish(Plan& plan) const {
    plan.predicted.limited_by = limit_of(plan);
    const Counts used = used_by(plan);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      double with = 0;
      for (const auto& [counts, seconds] : quickest_) {
        if (counts[kind] > used[kind]) with = with > 0 ? std::min(with, seconds) : seconds;
      }
      for (const DeviceIndex i : kinds_[kind]) {
        if (std::ranges::any_of(plan.slots, [&](const Slot& slot) { return slot.device == i; })) continue;
        plan.devices[i].unused_because =
            with > 0 ? fmt::format("a step with it takes {:.4g} s or more, without it {:.4g} s",
                                   std::max(with, plan.predicted.step_seconds), plan.predicted.step_seconds)
                     : fmt::format("no plan that uses it fits its memory of {}",
                                   format_bytes(machine_.devices[i].budget_bytes));
      }
    }
  }

  /// What a step would gain most from if it took no time.
  std::string limit_of(const Plan& plan) const {
    const auto gain = [&](const Plan& other, const MachineShape& machine) {
      return plan.predicted.step_seconds -
             simulate(other, model_, work_, machine, kSimulatedSteps).prediction.step_seconds;
    };
    Plan instant = plan;
    for (Slot& slot : instant.slots) slot.seconds = 0;
    MachineShape near = machine_;
    for (DeviceShape& device : near.devices) device.unified_memory = true;
    MachineShape quick = machine_;
    quick.host.memory_bandwidth = quick.host.optimizer_parameters_per_second = quick.host.disk_bandwidth = 0;
    MachineShape instant_disk = machine_;
    instant_disk.host.disk_bandwidth = 0;
    const double compute = gain(instant, machine_);
    const double link = gain(plan, near);
    const double host = gain(plan, quick);
    if (compute >= std::max(link, host)) return "compute";
    if (link >= host) return "link";
    if (plan.disk_bytes > 0 && gain(plan, instant_disk) > 0.5 * host) return "disk";
    const devices::HostProfile& profile = machine_.host;
    const double memory = profile.memory_bandwidth / kOptimizerBytes;
    const bool starved = memory > 0 && memory < 0.99 * profile.optimizer_parameters_per_second;
    return starved ? "host_memory" : "optimizer";
  }

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  const PlanRequest& request_;
  std::vector<Kind> kinds_;
  std::map<Counts, double> quickest_;  // by devices used: no step with these is shorter
  std::deque<TimeTable> ladder_;       // by rung of kMemoryShares, of the Keep under search
  std::optional<Plan> best_;
  absl::Status refusal_;
  bool device_refused_ = false;  // by the memory of a device, the candidate under consideration
};

}  // namespace

absl::StatusOr<Plan> make_plan(const ModelShape& model, const Workload& work, const MachineShape& machine,
                               const PlanRequest& request) {
  if (machine.devices.empty()) return invalid_input("devices: the pool is empty");
  auto plan = Planner(model, work, machine, request).run();
  if (plan.ok()) RONDO_RETURN_IF_ERROR(validate(*plan, model, work, machine));
  return plan;
}

}  // namespace rondo::partition
