// What every plan must satisfy, whoever made it.
#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/partition/layout.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {
namespace {

absl::Status check_rounds(const Plan& plan, const Workload& work) {
  std::uint32_t next = 0;
  for (const Round& round : plan.rounds) {
    if (round.first_microbatch != next || round.microbatches == 0) {
      return invalid_input("plan: a round begins at microbatch {}, expected {}", round.first_microbatch, next);
    }
    next += round.microbatches;
    const std::uint32_t group = work.reduction_group;
    const bool whole = round.first_microbatch % group == 0 && completes_group(next, group, work.microbatches);
    if (!whole && round.first_microbatch / group != (next - 1) / group) {
      return invalid_input(
          "plan: a round of {} microbatches holds neither whole reduction groups of {} nor a part of one",
          round.microbatches, group);
    }
  }
  if (next != work.microbatches) {
    return invalid_input("plan: its rounds hold {} microbatches, the step has {}", next, work.microbatches);
  }
  return absl::OkStatus();
}

/// Slots of one round in dealing order: forward up to the fused slot without a gap, then down.
absl::Status check_round(const Plan& plan, const ModelShape& model, const MachineShape& machine, std::uint32_t round) {
  const auto layers = static_cast<LayerIndex>(model.layers.size());
  LayerIndex lowest = 0;
  while (lowest < layers && !model.layers[lowest].has_backward) ++lowest;
  lowest = std::max<LayerIndex>(lowest, 1);
  LayerIndex next_forward = 0;
  LayerIndex next_backward = 0;
  bool fused = false;
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.round != round || catches_up(slot)) continue;
    if (slot.device >= machine.devices.size() || slot.last_layer >= layers || slot.first_layer > slot.last_layer) {
      return invalid_input("plan: slot {} names a device or layers that do not exist", i);
    }
    if (slot.phase != SlotPhase::kBackward) {
      if (fused || slot.first_layer != next_forward) {
        return invalid_input("plan: slot {} begins at layer {}, expected {}", i, slot.first_layer, next_forward);
      }
      next_forward = slot.last_layer + 1;
      if (slot.phase == SlotPhase::kFused) {
        if (next_forward != layers) return invalid_input("plan: the fused slot {} does not end at the last layer", i);
        fused = true;
        next_backward = slot.first_layer;
      } else if (next_forward == layers) {
        return invalid_input("plan: slot {} runs the head without its loss", i);
      }
    } else {
      if (!fused || slot.last_layer + 1 != next_backward || slot.first_layer < lowest) {
        return invalid_input("plan: slot {} goes back through layers {} to {}, expected to end at {}", i,
                             slot.first_layer, slot.last_layer, next_backward);
      }
      next_backward = slot.first_layer;
    }
  }
  if (!fused) return invalid_input("plan: round {} has no fused slot", round);
  if (next_backward > lowest) {
    return invalid_input("plan: round {} has no backward slot for layers {} to {}", round, lowest, next_backward - 1);
  }
  return absl::OkStatus();
}

/// What a slot defers is done later on the same device, once, before the next reduction group of the stage begins.
absl::Status check_deferred(const Plan& plan, const ModelShape& model, const Workload& work) {
  struct Stage {
    DeviceIndex device = 0;
    std::deque<std::uint32_t> rounds;  // whose weight gradients wait
  };
  std::map<SlotStage, Stage> stages;
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.phase == SlotPhase::kForward) {
      if (slot.defers_weights) return invalid_input("plan: slot {} defers gradients and goes forward", i);
      continue;
    }
    Stage& stage = stages[stage_of(slot)];
    std::deque<std::uint32_t>& waiting = stage.rounds;
    if (catches_up(slot)) {
      if (waiting.empty() || waiting.front() != slot.round || stage.device != slot.device || slot.defers_weights) {
        return invalid_input("plan: slot {} has weight gradients of round {} to add that no slot of its device left", i,
                             slot.round);
      }
      waiting.pop_front();
      continue;
    }
    if (!waiting.empty() && (!slot.defers_weights ||
                             group_of(plan.rounds[waiting.front()], work) != group_of(plan.rounds[slot.round], work))) {
      return invalid_input("plan: slot {} adds gradients before the weight gradients of round {} are added", i,
                           waiting.front());
    }
    if (!slot.defers_weights) continue;
    if (plan.rounds[slot.round].microbatches != 1) {
      return invalid_input("plan: slot {} defers gradients of {} microbatches at a time", i,
                           plan.rounds[slot.round].microbatches);
    }
    bool defers = false;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      defers = defers || defers_weights(model, slot, layer);
    }
    if (!defers) return invalid_input("plan: slot {} has no weight gradients to defer", i);
    stage.device = slot.device;
    waiting.push_back(slot.round);
  }
  for (const auto& [key, stage] : stages) {
    if (stage.rounds.empty()) continue;
    return invalid_input("plan: the weight gradients of layers {} to {} in round {} are never added", std::get<1>(key),
                         std::get<2>(key), stage.rounds.front());
  }
  return absl::OkStatus();
}

/// Sums of gradients grow by microbatch: backward through a layer rounds come in order, and those of one reduction
/// group are the same slots on the same devices.
absl::Status check_groups(const Plan& plan, const ModelShape& model, const Workload& work) {
  std::vector<const Slot*> last(model.layers.size(), nullptr);  // by layer
  const auto group_of_slot = [&](const Slot& slot) { return group_of(plan.rounds[slot.round], work); };
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    const Round& round = plan.rounds[slot.round];
    const std::uint32_t end = round.first_microbatch + round.microbatches;
    const bool complete = !slot.defers_weights && completes_group(end, work.reduction_group, work.microbatches);
    if (slot.group_goes_on != (slot.phase != SlotPhase::kForward && !complete)) {
      return invalid_input("plan: slot {} {} its reduction group though its round ends at microbatch {}", i,
                           complete ? "does not end" : "ends", end);
    }
    if (!goes_back(slot)) continue;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      const Slot* before = std::exchange(last[layer], &slot);
      if (before != nullptr && before->round >= slot.round) {
        return invalid_input("plan: slot {} adds gradients of layer {} after those of a later round", i, layer);
      }
      const bool same = before != nullptr && stage_of(*before) == stage_of(slot) && before->device == slot.device;
      const bool goes_on = before != nullptr && before->group_goes_on && group_of_slot(*before) == group_of_slot(slot);
      if (goes_on && !same) {
        return invalid_input("plan: slot {} goes on with a reduction group of other layers or of another device", i);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status check_residents(const Plan& plan, const ModelShape& model, const MachineShape& machine) {
  for (DeviceIndex i = 0; i < plan.resident.size(); ++i) {
    const std::vector<LayerIndex>& layers = plan.resident[i];
    if (layers.empty()) continue;
    if (i >= machine.devices.size() || !machine.devices[i].fetches_weights()) {
      return invalid_input("plan: weights are to stay on device {}, which reads them in main memory", i);
    }
    if (layers.back() >= model.layers.size() || !std::ranges::is_sorted(layers, std::ranges::less_equal())) {
      return invalid_input("plan: the layers that stay on {} are not in rising order", machine.devices[i].name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine) {
  if (plan.reduction_group != work.reduction_group || work.reduction_group == 0) {
    return invalid_input("plan: reduction_group is {}, the run's is {}", plan.reduction_group, work.reduction_group);
  }
  if (model.holds_state && (machine.devices.size() != 1 || !machine.devices[0].fetches_weights() ||
                            groups_of(work) > 1 || work.staleness > 0 || plan.first_layer_on_disk != kNoLayer)) {
    return invalid_input(
        "plan: the state of what is trained lies on a device, which it can on the only one, with memory of its own, of "
        "a pool whose steps are one reduction group and wait for each other");
  }
  RONDO_RETURN_IF_ERROR(check_rounds(plan, work));
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].round >= plan.rounds.size()) return invalid_input("plan: slot {} belongs to no round", i);
  }
  for (std::uint32_t round = 0; round < plan.rounds.size(); ++round) {
    RONDO_RETURN_IF_ERROR(check_round(plan, model, machine, round));
  }
  RONDO_RETURN_IF_ERROR(check_deferred(plan, model, work));
  RONDO_RETURN_IF_ERROR(check_groups(plan, model, work));
  RONDO_RETURN_IF_ERROR(check_residents(plan, model, machine));
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const DeviceLayout layout =
        layout_device(model, work, machine.devices[i], i, plan.slots, plan.keep, residents_of(plan, i));
    if (!blocks_fit(layout, machine.devices[i])) {
      return resource_exhausted("{}: the plan needs more in one block than {}", machine.devices[i].name,
                                format_bytes(machine.devices[i].most_block_bytes));
    }
    const Bytes need = total_of(device_memory(layout, machine.devices[i]));
    if (need > machine.devices[i].budget_bytes) {
      return resource_exhausted("{}: the plan needs {} and {} may be used", machine.devices[i].name, format_bytes(need),
                                format_bytes(machine.devices[i].budget_bytes));
    }
  }
  if (plan.boundary_buffers > 0 && plan.boundary_buffers < least_boundary_buffers(machine, model, plan.slots)) {
    return invalid_input("plan: {} buffers for the boundaries on disk, its slots need {}", plan.boundary_buffers,
                         least_boundary_buffers(machine, model, plan.slots));
  }
  const Bytes host = total_of(host_memory(model, work, machine, plan.slots, plan.rounds, plan.keep,
                                          plan.first_layer_on_disk, plan.boundary_buffers));
  if (host > machine.host_budget_bytes) {
    return resource_exhausted("host memory: the plan needs {} and {} may be used", format_bytes(host),
                              format_bytes(machine.host_budget_bytes));
  }
  const Bytes disk = total_of(disk_memory(plan, model, work));
  if (disk != plan.disk_bytes) {
    return invalid_input("plan: it says {} on disk, its layers and boundaries come to {}",
                         format_bytes(plan.disk_bytes), format_bytes(disk));
  }
  if (disk > machine.disk_budget_bytes) {
    return resource_exhausted(
        "nvme_path: the plan needs {} there and {} may be used: free space, name another folder or raise "
        "host_memory_limit",
        format_bytes(disk), format_bytes(machine.disk_budget_bytes));
  }
  return absl::OkStatus();
}

}  // namespace rondo::partition
