// Behind slots.h.
#include "rondo/partition/slots.h"

#include <algorithm>
#include <map>

namespace rondo::partition {
namespace {

bool is_head(const ModelShape& model, LayerIndex layer) {
  return layer + 1 == model.layers.size() || model.layers[layer].head_part;
}

/// In rising order, each once.
void sort_once(std::vector<LayerIndex>& layers) {
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
}

}  // namespace

std::uint32_t groups_of(const Workload& work) {
  return (work.microbatches + work.reduction_group - 1) / work.reduction_group;
}

bool completes_group(std::uint32_t end, std::uint32_t group, std::uint32_t microbatches) {
  return end % group == 0 || end == microbatches;
}

std::uint32_t group_of(const Round& round, const Workload& work) {
  return round.first_microbatch / work.reduction_group;
}

SlotStage stage_of(const Slot& slot) { return {slot.phase != SlotPhase::kForward, slot.first_layer, slot.last_layer}; }

bool goes_forward(const Slot& slot) { return slot.phase == SlotPhase::kForward || slot.phase == SlotPhase::kFused; }

bool goes_back(const Slot& slot) { return slot.phase == SlotPhase::kFused || slot.phase == SlotPhase::kBackward; }

bool catches_up(const Slot& slot) { return slot.phase == SlotPhase::kWeightGradient; }

bool defers_weights(const ModelShape& model, const Slot& slot, LayerIndex layer) {
  return slot.defers_weights && !model.layers[layer].weight_gradients.ops.empty();
}

bool reads_activation(const Slot& slot) { return slot.first_layer > 0 && !catches_up(slot); }

bool reads_gradient(const ModelShape& model, const Slot& slot) {
  if (slot.phase == SlotPhase::kBackward) return true;
  return catches_up(slot) && model.layers[slot.last_layer].holds_gradient;
}

bool feeds(const Slot& forward, const Slot& reader) {
  return forward.phase == SlotPhase::kForward && !catches_up(reader) && forward.first_layer < reader.first_layer &&
         reader.first_layer <= forward.last_layer + 1;
}

std::vector<LayerIndex> published_cuts(const Slot& slot, const std::vector<Slot>& slots) {
  if (slot.phase != SlotPhase::kForward) return {};
  std::vector<LayerIndex> starts;
  for (const Slot& other : slots) {
    if (goes_back(other) && other.round == slot.round) starts.push_back(other.first_layer);
  }
  sort_once(starts);
  const std::span<const LayerIndex> within = starts_within(slot, starts);
  std::vector<LayerIndex> cuts = {slot.last_layer + 1};
  cuts.insert(cuts.end(), within.rbegin(), within.rend());
  return cuts;
}

std::vector<std::vector<LayerIndex>> starts_of_rounds(const std::vector<Slot>& slots) {
  std::vector<std::vector<LayerIndex>> starts;
  for (const Slot& slot : slots) {
    starts.resize(std::max<std::size_t>(starts.size(), slot.round + 1));
    if (goes_back(slot)) starts[slot.round].push_back(slot.first_layer);
  }
  for (std::vector<LayerIndex>& round : starts) sort_once(round);
  return starts;
}

std::span<const LayerIndex> starts_within(const Slot& slot, std::span<const LayerIndex> starts) {
  return {std::ranges::upper_bound(starts, slot.first_layer), std::ranges::upper_bound(starts, slot.last_layer)};
}

LayerIndex lowest_gradient_layer(const ModelShape& model, const Slot& slot) {
  LayerIndex first = slot.first_layer == 1 ? 0 : slot.first_layer;
  while (first < slot.last_layer && !model.layers[first].has_backward) ++first;
  return first;
}

bool sends_gradient(const ModelShape& model, const Slot& slot) {
  if (!goes_back(slot) || slot.first_layer <= 1) return false;
  return model.layers[slot.first_layer - 1].has_backward;
}

Keep keep_of(const ModelShape& model, const Slot& slot, LayerIndex layer, Keep keep) {
  if (slot.phase == SlotPhase::kForward || is_head(model, layer) || !model.layers[layer].has_backward) {
    return Keep::kNothing;
  }
  return layer == slot.last_layer ? Keep::kNothing : keep;
}

std::vector<std::uint32_t> group_ends(const std::vector<Slot>& slots) {
  std::vector<std::uint32_t> ends(slots.size());
  std::map<SlotStage, std::uint32_t> next;
  for (auto i = static_cast<std::uint32_t>(slots.size()); i-- > 0;) {
    ends[i] = i;
    if (slots[i].phase == SlotPhase::kForward) continue;
    std::uint32_t& end = next.try_emplace(stage_of(slots[i]), i).first->second;
    if (!slots[i].group_goes_on) end = i;
    ends[i] = end;
  }
  return ends;
}

}  // namespace rondo::partition
