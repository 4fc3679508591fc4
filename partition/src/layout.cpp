#include "rondo/partition/layout.h"

#include <algorithm>
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

/// Outputs of one microbatch of a slot: activations at cuts, or the gradient.
std::size_t outputs_of(const ModelShape& model, const Slot& slot, const std::vector<Slot>& slots) {
  if (slot.phase == SlotPhase::kForward) return published_cuts(slot, slots).size();
  return sends_gradient(model, slot) ? 1 : 0;
}

/// Slots that read the activation of a cut in a round.
BoundaryReaders activation_readers(const std::vector<Slot>& slots, std::uint32_t round, LayerIndex cut) {
  BoundaryReaders readers;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].round != round || slots[i].first_layer != cut) continue;
    (slots[i].phase == SlotPhase::kBackward ? readers.backward : readers.forward) = i;
  }
  return readers;
}

/// The slot that reads the gradient of a cut in a round.
BoundaryReaders gradient_readers(const std::vector<Slot>& slots, std::uint32_t round, LayerIndex cut) {
  BoundaryReaders readers;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const bool reads = slots[i].phase == SlotPhase::kBackward && slots[i].last_layer + 1 == cut;
    if (slots[i].round == round && reads) readers.backward = i;
  }
  return readers;
}

bool is_head(const ModelShape& model, LayerIndex layer) { return layer + 1 == model.layers.size(); }

}  // namespace

std::uint32_t groups_of(const Workload& work) {
  return (work.microbatches + work.reduction_group - 1) / work.reduction_group;
}

std::vector<LayerIndex> published_cuts(const Slot& slot, const std::vector<Slot>& slots) {
  if (slot.phase != SlotPhase::kForward) return {};
  std::set<LayerIndex> cuts = {slot.last_layer + 1};
  for (const Slot& other : slots) {
    if (other.phase == SlotPhase::kForward || other.round != slot.round) continue;
    if (other.first_layer > slot.first_layer && other.first_layer <= slot.last_layer) cuts.insert(other.first_layer);
  }
  return {cuts.begin(), cuts.end()};
}

LayerIndex lowest_gradient_layer(const ModelShape& model, const Slot& slot) {
  LayerIndex first = slot.first_layer == 1 ? 0 : slot.first_layer;
  while (first < slot.last_layer && !model.layers[first].has_backward) ++first;
  return first;
}

bool sends_gradient(const ModelShape& model, const Slot& slot) {
  if (slot.phase == SlotPhase::kForward || slot.first_layer <= 1) return false;
  return model.layers[slot.first_layer - 1].has_backward;
}

Keep keep_of(const ModelShape& model, const Slot& slot, LayerIndex layer, Keep keep) {
  if (slot.phase == SlotPhase::kForward || is_head(model, layer) || !model.layers[layer].has_backward) {
    return Keep::kNothing;
  }
  if (slot.phase == SlotPhase::kBackward && layer == slot.last_layer) return Keep::kNothing;
  return keep;
}

WorkspaceLayout layout_workspace(const ModelShape& model, const Workload& work, const Slot& slot, Keep keep) {
  WorkspaceLayout layout;
  Carver carver;
  const std::size_t count = slot.last_layer - slot.first_layer + 1;
  layout.activations.assign(count, 0);
  layout.saved.assign(count, 0);
  Bytes scratch = 0;
  Bytes rows = 0;
  const bool forward_only = slot.phase == SlotPhase::kForward;
  const Bytes turns[2] = {forward_only && count > 1 ? carver.take(work.boundary_bytes) : 0,
                          forward_only && count > 2 ? carver.take(work.boundary_bytes) : 0};
  for (std::size_t i = 0; i < count; ++i) {
    const auto layer = static_cast<LayerIndex>(slot.first_layer + i);
    const LayerShape& shape = model.layers[layer];
    if (i > 0) layout.activations[i] = forward_only ? turns[(i + 1) % 2] : carver.take(work.boundary_bytes);
    layout.saved[i] = carver.take(shape.saved_bytes[static_cast<std::size_t>(keep_of(model, slot, layer, keep))]);
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
         workspace + gradients * gradient_buffers;
}

MemoryTable DeviceLayout::table() const {
  return {{"resident weights", resident},
          {"weights", weights * weight_buffers},
          {"boundaries", boundary * (input_buffers + output_buffers)},
          {"batch", batch * batch_buffers},
          {"activations and scratch", workspace},
          {"gradients", gradients * gradient_buffers}};
}

DeviceLayout layout_device(const ModelShape& model, const Workload& work, const DeviceShape& device, DeviceIndex index,
                           const std::vector<Slot>& slots, Keep keep, const std::vector<LayerIndex>& resident) {
  DeviceLayout layout;
  std::size_t most_cuts = 0;
  bool reads_boundary = false;
  bool used = false;
  for (const Slot& slot : slots) {
    if (slot.device != index) continue;
    used = true;
    Bytes weights = 0;
    Bytes gradients = 0;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      if (!std::ranges::binary_search(resident, layer)) weights += model.layers[layer].weight_bytes;
      if (slot.phase != SlotPhase::kForward) gradients += model.layers[layer].gradient_bytes;
    }
    layout.weights = std::max(layout.weights, aligned(weights));
    layout.gradients = std::max(layout.gradients, aligned(gradients));
    layout.workspace = std::max(layout.workspace, aligned(layout_workspace(model, work, slot, keep).size));
    most_cuts = std::max(most_cuts, outputs_of(model, slot, slots));
    reads_boundary = reads_boundary || slot.first_layer > 0;
  }
  if (!used) return {};
  layout.gradient_buffers = layout.gradients > 0 && groups_of(work) > 1 ? 2 : 0;
  if (device.unified_memory) {
    layout.weights = 0;
    return layout;
  }
  if (layout.gradients > 0) layout.gradient_buffers = 2;
  for (const LayerIndex layer : resident) layout.resident += aligned(model.layers[layer].weight_bytes);
  layout.weight_buffers = layout.weights > 0 ? 2 : 0;
  layout.boundary = aligned(work.boundary_bytes);
  layout.input_buffers = reads_boundary ? 4 : 0;
  layout.output_buffers = static_cast<std::uint32_t>(2 * most_cuts);
  layout.batch = aligned(work.batch_bytes);
  layout.batch_buffers = 2;
  return layout;
}

std::optional<Bytes> resident_offset(const ModelShape& model, const std::vector<LayerIndex>& resident,
                                     LayerIndex layer) {
  Bytes offset = 0;
  for (const LayerIndex kept : resident) {
    if (kept == layer) return offset;
    offset += aligned(model.layers[kept].weight_bytes);
  }
  return std::nullopt;
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
  for (const Slot& slot : slots) {
    cuts = std::max(cuts, outputs_of(model, slot, slots));
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
    boundaries.push_back({slot.first_layer, gradient_readers(slots, slot.round, slot.first_layer)});
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
  layout.rounds = rounds.size() > 1 || staleness > 0 ? 2 : 1;
  return layout;
}

}  // namespace rondo::partition
