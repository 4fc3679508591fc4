// The search for a plan: how many microbatches a round, which devices, which stages.
//
// Stages: for a set of candidate times t the layers are packed greedily so that no slot takes longer than t on its
// device; the published objective (M S + G (G - 1)) t for like devices is what the simulation of a candidate comes to
// when links are free, so the simulation decides between candidates, with links, the optimizer and unlike devices
// counted in.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "packing.h"
#include "rondo/base/status.h"
#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

constexpr std::size_t kCandidates = 96;  // stage times tried for one set of devices
constexpr std::uint32_t kSimulatedSteps = 3;

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
    std::vector<Keep> keeps = {Keep::kSelective, Keep::kNothing};
    if (request_.keep) keeps = {*request_.keep};
    for (const Keep keep : keeps) search(keep);
    if (!best_) return refusal_.ok() ? resource_exhausted("no plan fits") : refusal_;
    finish(*best_);
    return *std::move(best_);
  }

 private:
  /// Devices from the fastest to the slowest; any prefix of them is a pool to try.
  std::vector<DeviceIndex> by_speed() const {
    std::vector<DeviceIndex> order(machine_.devices.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [&](DeviceIndex a, DeviceIndex b) {
      return machine_.devices[a].profile.speed(work_.dtype) > machine_.devices[b].profile.speed(work_.dtype);
    });
    return order;
  }

  void search(Keep keep) {
    const TimeTable times(model_, work_, machine_, keep);
    const std::vector<DeviceIndex> fastest = by_speed();
    for (std::size_t used = 1; used <= fastest.size(); ++used) {
      std::vector<DeviceIndex> order(fastest.begin(), fastest.begin() + static_cast<std::ptrdiff_t>(used));
      std::ranges::sort(order);
      std::set<std::vector<std::pair<LayerIndex, DeviceIndex>>> seen;
      for (const double limit : candidate_limits(times, order)) {
        auto slots = pack_best(times, order, limit);
        if (!slots) continue;
        std::vector<std::pair<LayerIndex, DeviceIndex>> key;
        for (const Slot& slot : *slots) key.emplace_back(slot.first_layer, slot.device);
        if (seen.insert(std::move(key)).second) consider(*slots, order, keep);
      }
    }
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
      const absl::Status fits = fill_memory(plan);
      if (fits.ok()) break;
      if (refusal_.ok()) refusal_ = fits;
      const bool host = plan.host_peak_bytes > machine_.host_budget_bytes;
      if (!host || per_round <= work_.reduction_group) return;
      per_round -= work_.reduction_group;
    }
    const Simulation simulation = simulate(plan, model_, work_, machine_, kSimulatedSteps);
    plan.predicted = simulation.prediction;
    for (std::size_t i = 0; i < plan.devices.size(); ++i) plan.devices[i].busy = simulation.busy[i];
    if (!best_ || plan.predicted.step_seconds < best_->predicted.step_seconds * (1.0 - 1e-6)) best_ = std::move(plan);
  }

  bool alike(const std::vector<DeviceIndex>& order) const {
    return std::ranges::all_of(order, [&](DeviceIndex i) {
      const auto& a = machine_.devices[i].profile;
      const auto& b = machine_.devices[order[0]].profile;
      return a.flops == b.flops && a.efficiency == b.efficiency && a.memory_bandwidth == b.memory_bandwidth;
    });
  }

  /// Every round gets all stages; among like devices the rotation's cursor carries on from round to round.
  std::vector<Slot> deal_rounds(const std::vector<Slot>& stages, const std::vector<DeviceIndex>& order,
                                const std::vector<Round>& rounds) const {
    std::vector<Slot> slots;
    const bool carries = alike(order);
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
          "reduction_group",
          format_bytes(plan.host_peak_bytes), format_bytes(machine_.host_budget_bytes));
    }
    return absl::OkStatus();
  }

  void finish(Plan& plan) const {
    for (DeviceIndex i = 0; i < plan.devices.size(); ++i) {
      const bool used = std::ranges::any_of(plan.slots, [&](const Slot& slot) { return slot.device == i; });
      if (!used) plan.devices[i].unused_because = "it would not make the step shorter";
    }
  }

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  const PlanRequest& request_;
  std::optional<Plan> best_;
  absl::Status refusal_;
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
