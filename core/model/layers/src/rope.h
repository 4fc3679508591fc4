// Rotary frequencies of a model.
#pragma once

#include "rondo/devices/op.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// Frequencies, for each two channels that turn, and amplitude as transformers' modeling_rope_utils computes them for
/// each kind. `rope`: the config's for all layers or for those with a window, whose heads have `size` channels.
devices::RopeAttributes rope_attributes(const ModelConfig& config, const RopeConfig& rope, std::uint32_t size);

/// For tokens that come one after the other, `capacity` at most: what stands in a cache has been turned already, so the
/// frequencies of a sequence of that many tokens hold for all.
devices::RopeAttributes settled_rope(devices::RopeAttributes rope, std::uint32_t capacity);

}  // namespace rondo::model
