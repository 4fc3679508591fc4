// A state space in the place of attention (Mamba 2, arXiv 2405.21060): what Granite 4 has in nine of ten blocks.
#pragma once

#include "layer_parts.h"
#include "linear_recorder.h"

namespace rondo::model {

StateSpaceParts state_space_parts(PartsBuilder& builder, const std::string& path, const StateSpaceConfig& space);

/// What the last linear layer reads: norm(silu(z) * (scan(x, b, c, steps) + passed * x)) of the normed input, x, b and
/// c being convolved. A state of more than kMaxDeltaSize numbers a channel is two, whose rows part those of b and c.
/// `decodes`: with states, for generation.
TensorId record_state_space(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                            const LayerParts& parts, const ModelConfig& config, bool decodes);

}  // namespace rondo::model
