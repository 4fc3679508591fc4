#include "rondo/schedule/program_times.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "slot_runner.h"

namespace rondo::schedule {
namespace {

/// Spans of a visit's programs are named after its phase; those of clearing memory are not.
bool is_program(const TraceSpan& span, const partition::Plan& plan, std::uint32_t step) {
  return span.role == devices::QueueRole::kCompute && span.tag.step == step && span.tag.slot < plan.slots.size() &&
         std::string_view(span.tag.name) == name_of(plan.slots[span.tag.slot].phase);
}

}  // namespace

partition::PhaseCost ProgramTime::cost(const partition::ModelShape& shape) const {
  const partition::LayerShape& entry = shape.layers[layer];
  if (last_layer > layer) {
    partition::PhaseCost joint = phase == model::Phase::kEvaluate || !entry.has_backward
                                     ? shape.layers[last_layer].forward
                                     : shape.layers[last_layer].backward[0];
    for (partition::LayerIndex part = layer; part < last_layer; ++part) {
      const auto& ops = shape.layers[part].fused.ops;
      joint.ops.insert(joint.ops.end(), ops.begin(), ops.end());
    }
    return joint;
  }
  const bool forward = phase == model::Phase::kForward || phase == model::Phase::kEvaluate;
  if (phase == model::Phase::kWeightGradient) return entry.weight_gradients;
  if (forward || !entry.has_backward) return entry.forward;
  const auto& backward = phase == model::Phase::kInputGradient ? entry.input_gradient : entry.backward;
  return backward[static_cast<std::size_t>(keep)];
}

std::vector<ProgramTime> program_times(const model::Architecture& model, const partition::ModelShape& shape,
                                       const partition::Plan& plan, const std::string& device,
                                       const std::vector<TraceSpan>& spans, std::uint32_t step) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<const TraceSpan*>> visits;  // by slot and microbatch
  for (const TraceSpan& span : spans) {
    if (is_program(span, plan, step)) visits[{span.tag.slot, span.tag.microbatch}].push_back(&span);
  }
  std::vector<ProgramTime> times;
  std::vector<ChainLink> chain;
  std::uint32_t chain_of = ~0U;
  for (auto& [place, runs] : visits) {
    const auto& [slot, microbatch] = place;
    if (plan.devices[plan.slots[slot].device].name != device) continue;
    if (chain_of != slot) {
      chain = make_chain(model, shape, plan.slots[slot], plan.slots, plan.keep, false);
      chain_of = slot;
    }
    if (runs.size() != chain.size()) continue;  // an evaluation, or a visit that was broken off
    std::ranges::sort(runs, {}, [](const TraceSpan* span) { return span->begin; });
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const bool forward = chain[i].phase == model::Phase::kForward;
      // The norm alone, for the other parts of a head.
      if (forward && model.is_head(chain[i].layer) && chain[i].keep != model::Keep::kNothing) continue;
      times.push_back({chain[i].layer, model.layers()[chain[i].layer].program_class, chain[i].phase,
                       forward ? model::Keep::kNothing : chain[i].keep, microbatch,
                       std::chrono::duration<double>(runs[i]->end - runs[i]->begin).count(), chain[i].last_layer});
    }
  }
  return times;
}

}  // namespace rondo::schedule
