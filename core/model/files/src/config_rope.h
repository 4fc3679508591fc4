// The rotary settings of a config.json, of either spelling.
#pragma once

#include <cstdint>
#include <vector>

#include "family.h"
#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// The most positions that a config.json may speak of.
inline constexpr std::uint32_t kMaxPositions = 0x7fffffffU;

/// Sets `config.rope` and `config.window_rope`; `config.max_positions` and `config.head_dim` must be set. Errors land
/// in `fields`.
void parse_ropes(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// `layer_rope_theta`, where the family reads that; `config.rope` and `config.sliding_window` must be set.
void parse_listed_thetas(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// What that says of a model, [num_layers].
std::vector<double> listed_thetas(const ModelConfig& config);

}  // namespace rondo::model
