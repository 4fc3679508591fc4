// What a slot of a plan reads, computes and sends, and which reduction groups it adds to: asked by the planner, the
// simulator and the executor alike.
#pragma once

#include <span>
#include <tuple>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Cuts (index of the layer above the cut) whose activations a forward slot publishes: its end, and every start of a
/// fused or backward slot of its round within it. In the order in which they are sent, the end first: the next forward
/// slot waits for it, the others are read on the way back. Empty for other slots.
std::vector<LayerIndex> published_cuts(const Slot& slot, const std::vector<Slot>& slots);
/// Where the fused and backward slots of each round begin, rising.
std::vector<std::vector<LayerIndex>> starts_of_rounds(const std::vector<Slot>& slots);
/// Those of its round's starts that a forward slot publishes besides its end.
std::span<const LayerIndex> starts_within(const Slot& slot, std::span<const LayerIndex> starts);

/// Whether activations pass through a slot: forward ones and fused ones, which alone run in an evaluation.
bool goes_forward(const Slot& slot);
/// Whether gradients of activations pass through a slot: fused ones and backward ones.
bool goes_back(const Slot& slot);
/// Whether a slot computes the weight gradients that another one has deferred.
bool catches_up(const Slot& slot);
/// Whether a layer's gradients of weights wait for a slot of their own.
bool defers_weights(const ModelShape& model, const Slot& slot, LayerIndex layer);
/// Whether a slot reads the activation that arrives at its first layer; the lookup table has none.
bool reads_activation(const Slot& slot);
/// Whether a slot reads the gradient that arrives at the layer above its last.
bool reads_gradient(const ModelShape& model, const Slot& slot);

/// Layers whose gradients a fused or backward slot computes, lowest first index; the lookup table's (layer 0, which has
/// no FLOPs) belongs to the slot that begins at layer 0 or 1.
LayerIndex lowest_gradient_layer(const ModelShape& model, const Slot& slot);

/// Whether a slot sends a gradient down to the layer below its first.
bool sends_gradient(const ModelShape& model, const Slot& slot);

/// What a layer of a slot saves: nothing where it is recomputed whole (Keep::kNothing, and the last layer of a backward
/// slot). Of a slot of weight gradients: what the one before it has saved.
Keep keep_of(const ModelShape& model, const Slot& slot, LayerIndex layer, Keep keep);

/// A slot's layers and whether it has gradients, whatever its round: what these are sums of.
using SlotStage = std::tuple<bool, LayerIndex, LayerIndex>;
SlotStage stage_of(const Slot& slot);

/// Whether a forward slot publishes the activation with which another slot of its round begins.
bool feeds(const Slot& forward, const Slot& reader);

/// By slot: the one with which its reduction group is complete; a forward slot itself.
std::vector<std::uint32_t> group_ends(const std::vector<Slot>& slots);

/// Reduction groups of a step.
std::uint32_t groups_of(const Workload& work);

/// Whether the last reduction group among a step's first `end` microbatches is complete: `group` microbatches long, or
/// cut short by the end of the step.
bool completes_group(std::uint32_t end, std::uint32_t group, std::uint32_t microbatches);
/// The reduction group in which a round begins.
std::uint32_t group_of(const Round& round, const Workload& work);

}  // namespace rondo::partition
