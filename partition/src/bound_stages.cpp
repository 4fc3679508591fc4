#include "bound_stages.h"

#include <algorithm>
#include <deque>

#include "rondo/partition/slots.h"

namespace rondo::partition {

std::optional<BoundStages> BoundStages::make(const ModelShape& model, const TimeTable& times,
                                             const std::vector<DeviceIndex>& devices) {
  const std::vector<StageLayers> layers = even_stages(model, devices.size());
  if (layers.empty()) return std::nullopt;
  BoundStages bound;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const auto visit = [&](SlotPhase phase, LayerIndex first) {
      const LayerIndex last = layers[s].last;
      return Slot{phase, first, last, devices[s], 0, times.seconds(devices[s], phase, first, last)};
    };
    const bool deepest = s + 1 == layers.size();
    const LayerIndex lowest = std::max(layers[s].first, times.lowest_backward());
    Stage& stage = bound.stages_.emplace_back();
    stage.forward = visit(deepest ? SlotPhase::kFused : SlotPhase::kForward, layers[s].first);
    if (!deepest && lowest <= layers[s].last) stage.backward = visit(SlotPhase::kBackward, lowest);
    if (!stage.back()) continue;
    const Slot weights = visit(SlotPhase::kWeightGradient, stage.back()->first_layer);
    if (weights.seconds > 0) stage.weights = weights;
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

std::vector<StageSeconds> BoundStages::seconds() const {
  std::vector<StageSeconds> seconds;
  for (const Stage& stage : stages_) {
    StageSeconds& of_stage = seconds.emplace_back();
    if (!stage.fuses()) of_stage.forward = stage.forward->seconds;
    if (stage.back()) of_stage.backward = stage.back()->seconds;
    if (stage.weights) of_stage.weight_gradient = stage.weights->seconds;
    of_stage.input_gradient = of_stage.backward - of_stage.weight_gradient;
  }
  return seconds;
}

std::vector<Slot> BoundStages::following(const PipelineSchedule& schedule, const std::vector<Round>& rounds,
                                         const Workload& work) const {
  std::vector<Slot> slots;
  const auto add = [&](const Slot& visit, std::uint32_t round) -> Slot& {
    Slot& slot = slots.emplace_back(visit);
    slot.round = round;
    const std::uint32_t end = rounds[round].first_microbatch + rounds[round].microbatches;
    const bool complete = completes_group(end, work.reduction_group, work.microbatches);
    slot.group_goes_on = slot.phase != SlotPhase::kForward && !complete;
    return slot;
  };
  std::vector<std::deque<std::uint32_t>> deferred(stages_.size());  // rounds whose weight gradients wait
  const auto catch_up = [&](std::uint32_t stage) {
    add(*stages_[stage].weights, deferred[stage].front());
    deferred[stage].pop_front();
  };
  for (const PipelineOp& piece : in_order(schedule, seconds())) {
    const Stage& stage = stages_[piece.stage];
    std::deque<std::uint32_t>& waiting = deferred[piece.stage];
    switch (piece.work) {
      case Work::kForward:
      case Work::kVisit:
        // Of the deepest stage it is a part of the fused visit.
        if (!stage.fuses()) add(*stage.forward, piece.microbatch);
        break;
      case Work::kBackward:
        if (stage.back()) add(*stage.back(), piece.microbatch);
        break;
      case Work::kInputGradient:
        if (!stage.back()) break;
        while (!waiting.empty() && group_of(rounds[waiting.front()], work) != group_of(rounds[piece.microbatch], work))
          catch_up(piece.stage);
        if (stage.weights) {
          Slot& slot = add(*stage.back(), piece.microbatch);
          slot.defers_weights = slot.group_goes_on = true;
          slot.seconds -= stage.weights->seconds;
          waiting.push_back(piece.microbatch);
        } else {
          add(*stage.back(), piece.microbatch);
        }
        break;
      case Work::kWeightGradient:
        // Unless that had to be done before.
        if (!waiting.empty() && waiting.front() == piece.microbatch) catch_up(piece.stage);
        break;
    }
  }
  return slots;
}

}  // namespace rondo::partition
