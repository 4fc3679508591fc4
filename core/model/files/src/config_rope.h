// The rotary settings of a config.json, of either spelling.
#pragma once

#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// `config.max_positions` and `config.head_dim` must be set. Errors land in `fields`.
RopeConfig parse_rope(Fields& fields, const ModelConfig& config);

}  // namespace rondo::model
