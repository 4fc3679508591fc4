// Attention by a latent (DeepSeek, arXiv 2405.04434), between a block's norm and its last linear layer.
#pragma once

#include "linear_recorder.h"

namespace rondo::model {

/// What o_proj reads [T, H, value size], from normed [T, C]. Keys and values are made of their latent before attention
/// sees them; what a cache holds are these, values filled up with zeros to the width of keys. capacity > 0: with a
/// cache.
TensorId record_latent_attention(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                                 const LayerParts& parts, const ModelConfig& config,
                                 const devices::RopeAttributes& rope, const devices::AttentionAttributes& attributes,
                                 std::uint32_t capacity);

}  // namespace rondo::model
