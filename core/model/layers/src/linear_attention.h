// Attention by the gated delta rule: what Qwen3.5 has in three of four blocks.
#pragma once

#include "layer_parts.h"
#include "linear_recorder.h"

namespace rondo::model {

LinearAttentionParts linear_attention_parts(PartsBuilder& builder, const std::string& path,
                                            const LinearAttentionConfig& linear);

/// What the last linear layer reads: norm(delta_rule(silu(conv(q, k, v)), gates(a, b))) * silu(z) of the normed input.
/// `decodes`: with states, for generation.
TensorId record_linear_attention(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                                 const LayerParts& parts, const ModelConfig& config, bool decodes);

}  // namespace rondo::model
