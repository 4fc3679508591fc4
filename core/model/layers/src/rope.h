// Rotary frequencies of a model.
#pragma once

#include "rondo/devices/op.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// Frequencies [head_dim / 2] and amplitude as transformers' modeling_rope_utils computes them for each kind. `rope`:
/// the config's for all layers or for those with a window.
devices::RopeAttributes rope_attributes(const ModelConfig& config, const RopeConfig& rope);

}  // namespace rondo::model
