#include "bound_stages.h"

#include <algorithm>

#include "rondo/partition/layout.h"

namespace rondo::partition {

std::optional<BoundStages> BoundStages::make(const ModelShape& model, const TimeTable& times,
                                             const std::vector<DeviceIndex>& order, std::size_t loops) {
  const std::vector<StageLayers> layers = even_stages(model, order.size() * loops);
  if (layers.empty()) return std::nullopt;
  BoundStages bound;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const DeviceIndex device = order[s % order.size()];
    const auto visit = [&](SlotPhase phase, LayerIndex first) {
      const LayerIndex last = layers[s].last;
      return Slot{phase, first, last, device, 0, times.seconds(device, phase, first, last)};
    };
    const bool deepest = s + 1 == layers.size();
    const LayerIndex lowest = std::max(layers[s].first, times.lowest_backward());
    Stage& stage = bound.stages_.emplace_back();
    stage.forward = visit(deepest ? SlotPhase::kFused : SlotPhase::kForward, layers[s].first);
    if (!deepest && lowest <= layers[s].last) stage.backward = visit(SlotPhase::kBackward, lowest);
  }
  return bound;
}

std::vector<Slot> BoundStages::breadth_first(std::size_t rounds) const {
  std::vector<Slot> slots;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto add = [&](const std::optional<Slot>& visit) {
      if (visit) slots.emplace_back(*visit).round = round;
    };
    for (const Stage& stage : stages_) add(stage.forward);
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) add(stage->backward);
  }
  return slots;
}

std::vector<Slot> BoundStages::following(const PipelineSchedule& schedule, const std::vector<Round>& rounds,
                                         const Workload& work) const {
  const auto goes_back = [](const Stage& stage) { return stage.forward->phase == SlotPhase::kFused; };
  std::vector<StageSeconds> seconds;
  for (const Stage& stage : stages_) {
    StageSeconds& of_stage = seconds.emplace_back();
    if (stage.backward) of_stage.backward = stage.backward->seconds;
    (goes_back(stage) ? of_stage.backward : of_stage.forward) = stage.forward->seconds;
  }
  std::vector<Slot> slots;
  for (const PipelineOp& piece : in_order(schedule, seconds)) {
    const Stage& stage = stages_[piece.stage];
    const bool forward = piece.work == Work::kForward;
    if (goes_back(stage) && forward) continue;  // a part of the fused visit
    const std::optional<Slot>& visit = forward || goes_back(stage) ? stage.forward : stage.backward;
    if (!visit) continue;
    const Round& round = rounds[piece.microbatch];
    const std::uint32_t end = round.first_microbatch + round.microbatches;
    const bool complete = completes_group(end, work.reduction_group, work.microbatches);
    Slot& slot = slots.emplace_back(*visit);
    slot.round = piece.microbatch;
    slot.group_goes_on = slot.phase != SlotPhase::kForward && !complete;
  }
  return slots;
}

}  // namespace rondo::partition
