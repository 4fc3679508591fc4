// How one device's memory is shared out over what a plan needs there: the one place that says so, for the planner and
// the executor alike.
//
// A device that is not unified holds the weights of its resident layers, two weight buffers for those of the others
// (the slot at work and the next one), boundary buffers for two microbatches each way, two batches, one workspace, the
// gradient sums of the group at work and of the one before it, and what gradients of weights will read that wait for
// later. A unified device works on host memory in place: it holds the workspace, what waits, and gradient sums only
// when a step has several reduction groups.
#pragma once

#include <optional>
#include <vector>

#include "rondo/partition/slots.h"

namespace rondo::partition {

inline constexpr Bytes kAlignment = 256;
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

/// Where a visit keeps things in its workspace. Layers are indexed from the slot's first.
struct WorkspaceLayout {
  std::vector<Bytes>
      activations;  // offset of the input of layer first + i, i >= 1 (entry 0 is unused: it is the slot's input)
  std::vector<Bytes> saved;     // offset of what layer first + i saves
  Bytes gradients[2] = {0, 0};  // of activations, in turn
  // Within the memory for what a microbatch leaves to its weight gradients, in slots that defer or catch up:
  std::vector<Bytes> held;            // of what those of layer first + i read
  std::vector<Bytes> held_gradients;  // of the gradient that layer first + i + 1 sends to it
  Bytes held_size = 0;
  Bytes rows = 0;  // sparse rows of a lookup table and their ids
  Bytes scratch = 0;
  Bytes size = 0;
};
WorkspaceLayout layout_workspace(const ModelShape& model, const Workload& work, const Slot& slot, Keep keep);

/// Reduction groups whose sums may be on a device at a time: those that grow, and one on its way home.
std::uint32_t groups_at_a_time(const std::vector<Slot>& slots, DeviceIndex device);

/// By slot: which of its device's places it leaves what its weight gradients will read in, or takes that from; kNoSlot
/// of the others. A place is free again when the slot that takes from it has been enqueued.
std::vector<std::uint32_t> held_places(const std::vector<Slot>& slots);

struct DeviceLayout {
  Bytes resident = 0;  // weights that stay
  Bytes weights = 0;   // of one buffer: the largest slot's weights that do not stay
  std::uint32_t weight_buffers = 0;
  Bytes boundary = 0;                // of one boundary buffer
  std::uint32_t input_buffers = 0;   // activation and gradient, for two microbatches
  std::uint32_t output_buffers = 0;  // as many cuts as the busiest slot publishes, for two microbatches
  Bytes batch = 0;                   // of one microbatch, the loss beside it
  std::uint32_t batch_buffers = 0;
  Bytes workspace = 0;
  Bytes gradients = 0;  // of one buffer: the largest slot's
  std::uint32_t gradient_buffers = 0;
  Bytes held = 0;  // of one place (held_places)
  std::uint32_t held_places = 0;
  Bytes state = 0;          // of what is trained, where the model's shape says that it is held
  Bytes largest_state = 0;  // of it in one block

  Bytes total() const;
  MemoryTable table() const;
};

DeviceLayout layout_device(const ModelShape& model, const Workload& work, const DeviceShape& device, DeviceIndex index,
                           const std::vector<Slot>& slots, Keep keep, const std::vector<LayerIndex>& resident = {});

/// As device_memory(), which lays the slots out first.
MemoryTable device_memory(const DeviceLayout& layout, const DeviceShape& device);

/// Of the block that a layer's weights have where they stay.
Bytes resident_bytes(const ModelShape& model, LayerIndex layer);

/// Whether a device gives the blocks that a layout is made of: none is larger than what it gives at once.
bool blocks_fit(const DeviceLayout& layout, const DeviceShape& device);

/// Layers that are to stay on a device: those that save most traffic for their bytes, as long as they fit beside
/// everything else. None on a unified device.
std::vector<LayerIndex> choose_residents(const ModelShape& model, const Workload& work, const DeviceShape& device,
                                         DeviceIndex index, const std::vector<Slot>& slots, Keep keep);

/// Boundaries that the host keeps for `rounds` rounds under way.
struct BoundaryLayout {
  std::vector<LayerIndex> activation_cuts;
  std::vector<LayerIndex> gradient_cuts;
  std::uint32_t rounds = 1;        // that may be under way at a time
  std::uint32_t microbatches = 1;  // of the largest round
  std::uint64_t places() const;
  Bytes bytes(const Workload& work) const;
  /// On disk behind so many working buffers: in memory, and there.
  static Bytes buffer_bytes(const Workload& work, std::uint32_t buffers);
  Bytes disk_bytes(const Workload& work) const;
};
/// `staleness`: 1 lets the next step's first round begin while this step's last one is under way. A boundary's place is
/// free when the gradients of the reduction group are home for which it was read.
BoundaryLayout layout_boundaries(const ModelShape& model, const std::vector<Slot>& slots,
                                 const std::vector<Round>& rounds, std::uint32_t staleness = 0);

/// Whole blocks of the disk that a boundary takes there, and in a working buffer.
Bytes boundary_stride(const Workload& work);
/// Working buffers that boundaries on disk need at least: what all workers may have in use at a time, and a few that
/// are being read or written. A worker has two microbatches in flight, each with an activation, a gradient and the cuts
/// that it publishes; one on unified memory may leave as many behind when its device is lost. That holds in whatever
/// order the slots and microbatches are run.
std::uint32_t least_boundary_buffers(const MachineShape& machine, const ModelShape& model,
                                     const std::vector<Slot>& slots);
/// Slots that read a boundary of a round, in the order of the plan. Of an activation: the forward or fused slot that
/// begins there, and the backward slot that does. Of a gradient: the backward slot that ends there, and the one for the
/// weight gradients that it defers. kNoSlot where there is none.
struct BoundaryReaders {
  std::uint32_t first = kNoSlot;
  std::uint32_t second = kNoSlot;
};
struct PublishedBoundary {
  LayerIndex cut = 0;
  BoundaryReaders readers;
};
/// What a slot publishes of each microbatch: activations at its cuts (published_cuts), or the gradient that it sends
/// down.
std::vector<PublishedBoundary> published_boundaries(const ModelShape& model, const Slot& slot,
                                                    const std::vector<Slot>& slots);

}  // namespace rondo::partition
