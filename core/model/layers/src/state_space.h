// A state space in the place of attention or beside it (Mamba 2, arXiv 2405.21060): what Granite 4 has in nine of ten
// blocks, and Falcon-H1 in all.
#pragma once

#include "layer_parts.h"
#include "linear_recorder.h"

namespace rondo::model {

StateSpaceParts state_space_parts(PartsBuilder& builder, const std::string& path, const StateSpaceConfig& space);

/// Of a layer, the first ones: what it reads is linear in by z, x, b, c and dt, and what it gives.
inline constexpr std::size_t kLinearsOfSpace = 6;

/// Of generation its states are those of the layer from here on, where it stands beside attention: that has two.
inline constexpr std::uint32_t kStatesOfAttention = 2;

/// What the last linear layer reads: norm(silu(z) * (scan(x, b, c, steps) + passed * x)) of the normed input, x, b and
/// c being convolved; or it is normed before it is gated, or not at all. A state of more than kMaxDeltaSize numbers a
/// channel is two, whose rows part those of b and c. The layer's first linear layers are its own. `decodes`: with
/// states, for generation.
TensorId record_state_space(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                            const LayerParts& parts, const ModelConfig& config, bool decodes);

}  // namespace rondo::model
