#include "rondo/partition/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "rondo/base/disk.h"

namespace rondo::partition {
namespace {

Bytes aligned(Bytes bytes) { return round_up(bytes, kAlignment); }

class Carver {
 public:
  Bytes take(Bytes bytes) {
    const Bytes offset = size_;
    size_ += aligned(bytes);
    return offset;
  }
  Bytes size() const { return size_; }

 private:
  Bytes size_ = 0;
};

/// Outputs of one microbatch of a slot: activations at published_cuts(), or the gradient. `starts`: starts_of_rounds().
std::size_t outputs_of(const ModelShape& model, const Slot& slot, const std::vector<std::vector<LayerIndex>>& starts) {
  if (slot.phase == SlotPhase::kForward) return starts_within(slot, starts[slot.round]).size() + 1;
  return sends_gradient(model, slot) ? 1 : 0;
}

/// Where a visit leaves what its weight gradients will read, or finds it.
void lay_out_held(const ModelShape& model, const Workload& work, const Slot& slot, WorkspaceLayout& layout) {
  Carver carver;
  for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
    const LayerShape& shape = model.layers[layer];
    layout.held.push_back(carver.take(shape.held_bytes));
    const bool comes_from_within = shape.holds_gradient && layer < slot.last_layer;
    layout.held_gradients.push_back(carver.take(comes_from_within ? work.boundary_bytes : 0));
  }
  layout.held_size = carver.size();
}

/// Slots that read the activation of a cut in a round.
BoundaryReaders activation_readers(const std::vector<Slot>& slots, std::uint32_t round, LayerIndex cut) {
  BoundaryReaders readers;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].round != round || slots[i].first_layer != cut || catches_up(slots[i])) continue;
    (slots[i].phase == SlotPhase::kBackward ? readers.second : readers.first) = i;
  }
  return readers;
}

/// Slots that read the gradient of a cut in a round.
BoundaryReaders gradient_readers(const ModelShape& model, const std::vector<Slot>& slots, std::uint32_t round,
                                 LayerIndex cut) {
  BoundaryReaders readers;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].round != round || slots[i].last_layer + 1 != cut || !reads_gradient(model, slots[i])) continue;
    (catches_up(slots[i]) ? readers.second : readers.first) = i;
  }
  return readers;
}

/// When boundaries are written, and when they are needed no more: as indexes of slots, by round.
class BoundaryTurns {
 public:
  BoundaryTurns(const ModelShape& model, const std::vector<Slot>& slots, std::size_t rounds) : rounds_(rounds) {
    std::vector<std::vector<std::uint32_t>> by_round(rounds);
    for (std::uint32_t i = 0; i < slots.size(); ++i) by_round[slots[i].round].push_back(i);
    // Inputs are kept until the gradients of their group are home.
    const std::vector<std::uint32_t> ends = group_ends(slots);
    for (std::uint32_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = slots[i];
      if (reads_activation(slot)) {
        Turn& turn = turn_of(false, slot.first_layer, slot.round);
        turn.free = std::max(turn.free, ends[i]);
        for (const std::uint32_t other : by_round[slot.round]) {
          if (feeds(slots[other], slot)) turn.written = other;
        }
      }
      if (slot.phase == SlotPhase::kBackward) turn_of(true, slot.last_layer + 1, slot.round).free = ends[i];
      if (sends_gradient(model, slot)) turn_of(true, slot.first_layer, slot.round).written = i;
    }
  }

  /// Rounds whose boundaries must have places of their own, if the slots ran one after another.
  std::uint32_t least_rounds() const {
    std::size_t most = 1;
    for (const auto& [boundary, turns] : turns_) {
      for (std::size_t round = 0; round < rounds_; ++round) {
        for (std::size_t before = 0; before + most <= round; ++before) {
          if (turns[before].free >= turns[round].written) most = round - before + 1;
        }
      }
    }
    return static_cast<std::uint32_t>(most);
  }

 private:
  struct Turn {
    std::uint32_t written = kNoSlot;
    std::uint32_t free = 0;  // by the slot that is the last to need it
  };

  Turn& turn_of(bool gradient, LayerIndex cut, std::uint32_t round) {
    return turns_.try_emplace({gradient, cut}, rounds_).first->second[round];
  }

  const std::size_t rounds_;
  std::map<std::pair<bool, LayerIndex>, std::vector<Turn>> turns_;
};

bool in_order_of_rounds(const std::vector<Slot>& slots) { return std::ranges::is_sorted(slots, {}, &Slot::round); }

bool holds_whole_groups(const std::vector<Slot>& slots) {
  return std::ranges::none_of(slots, [](const Slot& slot) { return slot.group_goes_on; });
}

}  // namespace

WorkspaceLayout layout_workspace(const ModelShape& model, const Workload& work, const Slot& slot, Keep keep) {
  WorkspaceLayout layout;
  Carver carver;
  const std::size_t count = slot.last_layer - slot.first_layer + 1;
  layout.activations.assign(count, 0);
  layout.saved.assign(count, 0);
  if (slot.defers_weights || catches_up(slot)) lay_out_held(model, work, slot, layout);
  if (catches_up(slot)) {
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      layout.size = std::max(layout.size, aligned(model.layers[layer].scratch_bytes));
    }
    return layout;
  }
  Bytes scratch = 0;
  Bytes rows = 0;
  const bool forward_only = slot.phase == SlotPhase::kForward;
  const Bytes turns[2] = {forward_only && count > 1 ? carver.take(work.boundary_bytes) : 0,
                          forward_only && count > 2 ? carver.take(work.boundary_bytes) : 0};
  for (std::size_t i = 0; i < count; ++i) {
    const auto layer = static_cast<LayerIndex>(slot.first_layer + i);
    const LayerShape& shape = model.layers[layer];
    if (i > 0 && forward_only) layout.activations[i] = turns[(i + 1) % 2];
    if (i > 0 && !forward_only) {
      // The parts of a head in a fused visit are one program; on the way back those above the first read the same.
      const bool beginning = layer <= model.first_head_layer() + (slot.phase == SlotPhase::kFused ? 0U : 1U);
      layout.activations[i] = beginning ? carver.take(work.boundary_bytes) : layout.activations[i - 1];
    }
    const auto kept = static_cast<std::size_t>(keep_of(model, slot, layer, keep));
    const bool apart = defers_weights(model, slot, layer);
    layout.saved[i] = carver.take(shape.saved_bytes[kept] - (apart ? shape.saved_and_held_bytes[kept] : 0));
    scratch = std::max(scratch, shape.scratch_bytes);
  }
  if (!forward_only) {
    layout.gradients[0] = carver.take(work.boundary_bytes);
    layout.gradients[1] = carver.take(work.boundary_bytes);
    if (lowest_gradient_layer(model, slot) == 0) {
      rows = model.layers[0].row_gradient_bytes;
      scratch = std::max(scratch, model.layers[0].scratch_bytes);
    }
  }
  layout.rows = carver.take(rows);
  layout.scratch = carver.take(scratch);
  layout.size = carver.size();
  return layout;
}

Bytes DeviceLayout::total() const {
  return resident + weights * weight_buffers + boundary * (input_buffers + output_buffers) + batch * batch_buffers +
         workspace + gradients * gradient_buffers + held * held_places + state;
}

MemoryTable DeviceLayout::table() const {
  MemoryTable table = {{"resident weights", resident},
                       {"weights", weights * weight_buffers},
                       {"boundaries", boundary * (input_buffers + output_buffers)},
                       {"batch", batch * batch_buffers},
                       {"activations and scratch", workspace},
                       {"gradients", gradients * gradient_buffers}};
  if (held_places > 0) table.emplace_back("held for weight gradients", held * held_places);
  if (state > 0) table.emplace_back("trained weights and optimizer state", state);
  return table;
}

std::uint32_t groups_at_a_time(const std::vector<Slot>& slots, DeviceIndex device) {
  std::size_t most = 1;
  if (!holds_whole_groups(slots)) {
    std::set<SlotStage> growing;
    for (const Slot& slot : slots) {
      if (slot.device != device || slot.phase == SlotPhase::kForward) continue;
      growing.insert(stage_of(slot));
      most = std::max(most, growing.size());
      if (!slot.group_goes_on) growing.erase(stage_of(slot));
    }
  }
  return static_cast<std::uint32_t>(most) + 1;
}

std::vector<std::uint32_t> held_places(const std::vector<Slot>& slots) {
  using Key = std::tuple<SlotStage, std::uint32_t>;  // and round
  struct OfDevice {
    std::vector<bool> taken;
    std::map<Key, std::uint32_t> places;
  };
  std::map<DeviceIndex, OfDevice> devices;
  std::vector<std::uint32_t> found;
  for (const Slot& slot : slots) {
    std::uint32_t& place = found.emplace_back(kNoSlot);
    if (!slot.defers_weights && !catches_up(slot)) continue;
    OfDevice& of_device = devices[slot.device];
    const Key key = {stage_of(slot), slot.round};
    if (slot.defers_weights) {
      const auto free = std::ranges::find(of_device.taken, false);
      place = static_cast<std::uint32_t>(free - of_device.taken.begin());
      if (free == of_device.taken.end()) of_device.taken.push_back(false);
      of_device.taken[place] = true;
      of_device.places[key] = place;
    } else if (const auto left = of_device.places.find(key); left != of_device.places.end()) {
      place = left->second;
      of_device.taken[place] = false;
      of_device.places.erase(left);
    }
  }
  return found;
}

ModelShape hold_state(ModelShape model) {
  model.holds_state = true;
  model.row_place_bytes = aligned(model.layers[0].row_gradient_bytes);
  model.state_bytes += model.row_place_bytes;
  model.largest_state_bytes = std::max(model.largest_state_bytes, model.row_place_bytes);
  for (LayerShape& layer : model.layers) {
    layer.held_weight_bytes = layer.trained_weight_bytes;
    layer.weight_bytes -= layer.trained_weight_bytes;
    layer.trained_weight_bytes = layer.gradient_bytes = layer.moment_bytes = layer.state_disk_bytes = 0;
    layer.row_gradient_bytes = 0;
    layer.trained_parameters = 0;
  }
  std::erase_if(model.host_bytes, [](const auto& entry) { return entry.first == kGradients; });
  model.host_bytes.emplace_back("update staging", model.update_host_bytes);
  return model;
}

DeviceLayout layout_device(const ModelShape& model, const Workload& work, const DeviceShape& device, DeviceIndex index,
                           const std::vector<Slot>& slots, Keep keep, const std::vector<LayerIndex>& resident) {
  DeviceLayout layout;
  std::size_t most_cuts = 0;
  bool reads_boundary = false;
  bool used = false;
  const std::vector<std::uint32_t> places = held_places(slots);
  const auto starts = starts_of_rounds(slots);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.device != index) continue;
    used = true;
    Bytes weights = 0;
    Bytes gradients = 0;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      const bool streams =
          device.fetches_weights() && !catches_up(slot) && !std::ranges::binary_search(resident, layer);
      if (streams) weights += model.layers[layer].weight_bytes;
      if (slot.phase != SlotPhase::kForward) gradients += model.layers[layer].gradient_bytes;
    }
    layout.weights = std::max(layout.weights, aligned(weights));
    layout.gradients = std::max(layout.gradients, aligned(gradients));
    const WorkspaceLayout workspace = layout_workspace(model, work, slot, keep);
    layout.workspace = std::max(layout.workspace, aligned(workspace.size));
    layout.held = std::max(layout.held, aligned(workspace.held_size));
    if (places[i] != kNoSlot) layout.held_places = std::max(layout.held_places, places[i] + 1);
    most_cuts = std::max(most_cuts, outputs_of(model, slot, starts));
    reads_boundary = reads_boundary || slot.first_layer > 0;
  }
  if (!used) return {};
  const std::uint32_t groups = groups_at_a_time(slots, index);
  layout.gradient_buffers = layout.gradients > 0 && groups_of(work) > 1 ? groups : 0;
  if (device.unified_memory) {
    layout.weights = 0;
    return layout;
  }
  if (layout.gradients > 0) layout.gradient_buffers = groups;
  if (model.holds_state) {
    layout.state = model.state_bytes;
    layout.largest_state = model.largest_state_bytes;
  }
  for (const LayerIndex layer : resident) layout.resident += resident_bytes(model, layer);
  layout.weight_buffers = layout.weights > 0 ? 2 : 0;
  layout.boundary = aligned(work.boundary_bytes);
  layout.input_buffers = reads_boundary ? 4 : 0;
  layout.output_buffers = static_cast<std::uint32_t>(2 * most_cuts);
  layout.batch = aligned(work.batch_bytes);
  layout.batch_buffers = 2;
  return layout;
}

Bytes resident_bytes(const ModelShape& model, LayerIndex layer) { return aligned(model.layers[layer].weight_bytes); }

bool blocks_fit(const DeviceLayout& layout, const DeviceShape& device) {
  const Bytes held = layout.held * layout.held_places;
  return std::max({layout.weights, layout.boundary, layout.batch, layout.workspace, layout.gradients, held,
                   layout.largest_state}) <= device.most_block_bytes;
}

std::uint64_t BoundaryLayout::places() const {
  return (activation_cuts.size() + gradient_cuts.size()) * std::uint64_t{microbatches} * rounds;
}

Bytes BoundaryLayout::bytes(const Workload& work) const { return places() * work.boundary_bytes; }

Bytes BoundaryLayout::buffer_bytes(const Workload& work, std::uint32_t buffers) {
  return disk_buffers_bytes(buffers, work.boundary_bytes);
}

Bytes BoundaryLayout::disk_bytes(const Workload& work) const { return places() * boundary_stride(work); }

Bytes boundary_stride(const Workload& work) { return whole_disk_blocks(work.boundary_bytes); }

std::uint32_t least_boundary_buffers(const MachineShape& machine, const ModelShape& model,
                                     const std::vector<Slot>& slots) {
  constexpr std::uint32_t kMoving = 8;
  std::size_t cuts = 1;
  std::set<DeviceIndex> used;
  const auto starts = starts_of_rounds(slots);
  for (const Slot& slot : slots) {
    cuts = std::max(cuts, outputs_of(model, slot, starts));
    used.insert(slot.device);
  }
  std::size_t workers = 0;
  for (const DeviceIndex device : used) workers += machine.devices[device].unified_memory ? 2U : 1U;
  return static_cast<std::uint32_t>(workers * 2 * (2 + cuts)) + kMoving;
}

std::vector<PublishedBoundary> published_boundaries(const ModelShape& model, const Slot& slot,
                                                    const std::vector<Slot>& slots) {
  std::vector<PublishedBoundary> boundaries;
  for (const LayerIndex cut : published_cuts(slot, slots)) {
    boundaries.push_back({cut, activation_readers(slots, slot.round, cut)});
  }
  if (sends_gradient(model, slot)) {
    boundaries.push_back({slot.first_layer, gradient_readers(model, slots, slot.round, slot.first_layer)});
  }
  return boundaries;
}

BoundaryLayout layout_boundaries(const ModelShape& model, const std::vector<Slot>& slots,
                                 const std::vector<Round>& rounds, std::uint32_t staleness) {
  BoundaryLayout layout;
  std::set<LayerIndex> activations;
  std::set<LayerIndex> gradients;
  for (const Slot& slot : slots) {
    if (slot.first_layer > 0) activations.insert(slot.first_layer);
    if (sends_gradient(model, slot)) gradients.insert(slot.first_layer);
  }
  layout.activation_cuts.assign(activations.begin(), activations.end());
  layout.gradient_cuts.assign(gradients.begin(), gradients.end());
  for (const Round& round : rounds) layout.microbatches = std::max(layout.microbatches, round.microbatches);
  // One more than when slots run one after another: a round need not wait for the last reader of one before.
  std::uint32_t least = 1;
  const bool plain = in_order_of_rounds(slots) && holds_whole_groups(slots);
  if (!plain) least = BoundaryTurns(model, slots, rounds.size()).least_rounds();
  layout.rounds = std::min(least + 1, static_cast<std::uint32_t>(rounds.size()));
  if (staleness > 0) layout.rounds = std::max(layout.rounds, 2U);
  return layout;
}

}  // namespace rondo::partition
