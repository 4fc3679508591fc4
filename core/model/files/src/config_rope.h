// The rotary settings of a config.json, of either spelling.
#pragma once

#include <cstdint>

#include "family.h"
#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// The most positions that a config.json may speak of.
inline constexpr std::uint32_t kMaxPositions = 0x7fffffffU;

/// Sets `config.rope` and `config.window_rope`; `config.max_positions` and `config.head_dim` must be set. Errors land
/// in `fields`.
void parse_ropes(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

}  // namespace rondo::model
