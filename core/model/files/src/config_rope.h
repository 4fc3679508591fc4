// The rotary settings of a config.json, of either spelling.
#pragma once

#include <cstdint>

#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// The most positions that a config.json may speak of.
inline constexpr std::uint32_t kMaxPositions = 0x7fffffffU;

/// `config.max_positions` and `config.head_dim` must be set. Errors land in `fields`.
RopeConfig parse_rope(Fields& fields, const ModelConfig& config);

}  // namespace rondo::model
