// How one device's memory is shared out over what a plan needs there: the one place that says so, for the planner and
// the executor alike.
//
// A device that is not unified holds two weight buffers (the slot at work and the next one), boundary buffers for two
// microbatches each way, one workspace, and the gradient sums of the slot at work and of the one before it. A unified
// device works on host memory in place and holds the workspace alone.
#pragma once

#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Sizes in bytes, each rounded up to kAlignment; the offsets within a region are the executor's.
struct DeviceLayout {
  Bytes weights = 0;                 // of one buffer: the largest slot's weights
  Bytes boundary = 0;                // of one boundary buffer
  std::uint32_t input_buffers = 0;   // activation and gradient, for two microbatches
  std::uint32_t output_buffers = 0;  // as many cuts as the busiest slot publishes, for two microbatches
  Bytes batch = 0;                   // ids, positions, targets, bounds and keys, for two microbatches
  Bytes workspace = 0;               // activations inside a slot, what is saved, scratch, rows
  Bytes gradients = 0;               // of one buffer
  std::uint32_t weight_buffers = 2;
  std::uint32_t gradient_buffers = 2;

  Bytes total() const;
  MemoryTable table() const;
};

inline constexpr Bytes kAlignment = 256;

/// Cuts (index of the layer above the cut) that a forward slot publishes: its end, and every start of a fused or
/// backward slot within it. Sorted.
std::vector<LayerIndex> published_cuts(const Slot& slot, const std::vector<Slot>& slots);

/// Bytes that one slot's visit needs besides weights and boundary buffers: activations between its layers, what they
/// save under `keep`, the largest scratch, sparse rows.
Bytes workspace_bytes(const ModelShape& model, const Workload& work, const Slot& slot, Keep keep);

DeviceLayout layout_device(const ModelShape& model, const Workload& work, const DeviceShape& device,
                           const std::vector<Slot>& slots_of_device, const std::vector<Slot>& all_slots, Keep keep);

}  // namespace rondo::partition
