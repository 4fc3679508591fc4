// What the partitioner knows of a model, a workload and a machine: plain numbers, no weights, no devices.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/units.h"
#include "rondo/devices/op_shape.h"
#include "rondo/devices/profile.h"
#include "rondo/devices/tensor.h"
#include "rondo/partition/op_rates.h"

namespace rondo::partition {

using LayerIndex = std::uint32_t;
using DeviceIndex = std::uint32_t;

/// What one microbatch costs in one layer and phase, op by op: each takes its measured time, or is bound by arithmetic
/// or by memory.
struct PhaseCost {
  struct OpCost {
    double flops = 0;
    double bytes = 0;  // read and written on the device
    devices::OpShape shape = {};
    double conversion_bytes = 0;

    double seconds(const DeviceShape& device, devices::DType dtype) const;
  };
  std::vector<OpCost> ops;

  double flops() const;
  double seconds(const DeviceShape& device, devices::DType dtype) const;
};

/// What a backward visit starts from (model::Keep, in its order): nothing, products and attention, everything.
enum class Keep : std::uint8_t { kNothing, kSelective, kAll };
inline constexpr std::size_t kKeeps = 3;

struct LayerShape {
  std::string name;
  std::uint64_t parameters = 0;          // tied weights count in the first layer that uses them
  Bytes weight_bytes = 0;                // on the device, all weights that the layer's programs read
  Bytes trained_weight_bytes = 0;        // of these: weights that every step changes
  Bytes held_weight_bytes = 0;           // beside these: trained weights that stay with their state (hold_state)
  std::uint64_t trained_parameters = 0;  // their gradients: 4 bytes each
  Bytes gradient_bytes = 0;              // sent home per reduction group
  Bytes moment_bytes = 0;                // what the optimizer keeps of them, in memory
  Bytes state_disk_bytes = 0;            // of masters and moments, were they on disk
  Bytes row_gradient_bytes = 0;          // sparse gradients of a lookup table, sent home per microbatch
  bool has_backward = false;
  bool head_part = false;                  // of a head in parts all but the last, which has the loss
  PhaseCost fused;                         // of a head_part: what it adds to a fused visit, whose parts are one program
  PhaseCost forward;                       // head: loss without gradients
  std::array<PhaseCost, kKeeps> backward;  // gradients, with the recomputation that this Keep leaves; head: forward,
                                           // loss and gradients in one program, the same for every Keep
  PhaseCost weight_gradients;              // of `backward`: what may be computed later by itself, if anything
  std::array<PhaseCost, kKeeps> input_gradient;  // the rest of it
  std::array<Bytes, kKeeps> saved_bytes{};       // per microbatch
  Bytes held_bytes = 0;                          // per microbatch: what weight_gradients read, until they are computed
  std::array<Bytes, kKeeps> saved_and_held_bytes{};
  bool holds_gradient = false;  // they read the gradient from the layer above as well, which held_bytes leave out
  Bytes scratch_bytes = 0;      // arena of the largest of the layer's programs
};

/// One optimizer step.
struct Workload {
  devices::DType dtype = devices::DType::kBfloat16;
  std::uint32_t microbatches = 1;  // B
  std::uint32_t microbatch_sequences = 1;
  std::uint32_t microbatch_tokens = 0;  // of the longest bucket: arenas and boundaries are sized for it
  std::uint32_t sequence_length = 0;    // of the longest sequence: how far attention looks back
  double mean_tokens = 0;               // of a microbatch, padding included: times are predicted for it
  std::uint32_t reduction_group = 1;    // R, divides nothing: the last group may be short
  Bytes boundary_bytes = 0;             // activation between two layers for microbatch_tokens
  Bytes batch_bytes = 0;                // ids, positions, targets, bounds and keys of a microbatch
  std::uint64_t trained_parameters = 0;
  bool resident_weights = true;  // may stay on a device
  std::uint32_t staleness = 0;   // 1: a step computes on the weights of the step before last, and nothing drains
};

/// Entries of the host's table that a disk can take over.
inline constexpr const char* kBoundaries = "boundaries";
inline constexpr const char* kMasterWeights = "master weights";
inline constexpr const char* kMoments = "optimizer moments";
/// And one that is not there where a device sums them up.
inline constexpr const char* kGradients = "gradients";

struct ModelShape {
  std::vector<LayerShape> layers;  // in model order
  /// Bytes on the host that do not depend on the plan, by purpose: weights in the compute dtype, masters, moments,
  /// gradients.
  std::vector<std::pair<std::string, Bytes>> host_bytes;
  /// The head's only layer, or its first part.
  LayerIndex first_head_layer() const {
    auto first = static_cast<LayerIndex>(layers.size() - 1);
    while (first > 0 && layers[first - 1].head_part) --first;
    return first;
  }
  Bytes disk_buffer_bytes = 0;  // memory through which state on disk passes
  /// By direction (up, down): bytes of the longest that travels in one.
  std::array<Bytes, 2> longest_transfer = {~Bytes{0}, ~Bytes{0}};
  /// Trained weights, their masters, moments and sums of gradients, were they on a device: what they take there, and
  /// what an update reads and writes of it.
  Bytes state_bytes = 0;
  Bytes largest_state_bytes = 0;  // of these, what has to lie in one block
  Bytes update_bytes = 0;
  std::optional<devices::OpShape> update_shape;  // what a device's measured rate of updates is found under
  Bytes update_host_bytes = 0;                   // of main memory, through which factors go up and squares come down
  bool holds_state = false;                      // they are, see hold_state()
  Bytes row_place_bytes = 0;                     // then: of a microbatch's rows of a lookup table's gradient
};

/// The model as it is to a pool's only device that holds the state of all that is trained and updates it: trained
/// weights do not travel, nor do gradients, and the host has nothing to update. REQUIRES: a step is one reduction
/// group, staleness 0.
ModelShape hold_state(ModelShape model);

/// Of host memory, what computing with the processor takes for a device that has slots.
struct ProcessorMemory {
  std::vector<std::pair<std::string, Bytes>> always;  // by purpose, whatever the slots
  /// What a layer's programs work in: [0] in slots that only go forward, [1] on the way back. They run one at a time,
  /// so that of a device's slots the neediest layer's counts.
  std::vector<std::array<Bytes, 2>> scratch_of_layers;  // by layer; empty: nothing
  std::string scratch_purpose;
};

struct DeviceShape {
  std::string name;
  devices::DeviceProfile profile;
  Bytes budget_bytes = 0;         // what the plan may use of it
  bool unified_memory = false;    // programs work on host memory in place: no copies, no buffers for them
  bool weights_in_place = false;  // they read weights in host memory: these alone are not copied and have no buffers
  bool on_host = false;   // computes with the processor that the optimizer needs: first the updates, then a step
  Bytes fixed_bytes = 0;  // what the backend itself holds (kernel scratch)
  Bytes most_block_bytes = ~Bytes{0};  // of its memory, what it gives at once
  /// Of host memory, where it has slots: pieces that its transfers pass through, by direction (up, down), each of so
  /// many bytes if there is a transfer that long.
  std::array<std::uint32_t, 2> staging_pieces = {0, 0};
  Bytes staging_bytes = 0;
  /// Of host memory, where it has slots. Null: nothing.
  std::shared_ptr<const ProcessorMemory> host_taken = nullptr;
  /// Measured times; null: everything follows from the profile. Shared, because a search copies machines by the
  /// thousand.
  std::shared_ptr<const OpRates> rates = nullptr;

  bool fetches_weights() const { return !unified_memory && !weights_in_place; }
};

struct MachineShape {
  std::vector<DeviceShape> devices;
  devices::HostProfile host;
  Bytes host_budget_bytes = 0;
  std::vector<std::pair<std::string, Bytes>> host_taken;  // by purpose: what is held of it whatever the plan
  Bytes disk_budget_bytes = 0;                            // for state and boundaries; 0: there is no disk for them
  /// Copies and the optimizer share the host's memory bandwidth. Not so on timed pools, whose links are each other's
  /// only rivals.
  bool copies_use_host_memory = false;
};

}  // namespace rondo::partition
