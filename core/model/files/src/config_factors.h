// Where norms stand, and by what a model multiplies, in a config.json.
#pragma once

#include "family.h"
#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// REQUIRES: `config.head_dim` and its biases are set. Errors land in `fields`.
void parse_factors(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// What parse_factors() reads of ModelConfig::linear_factors and beside them.
void add_linear_factors(const ModelConfig& config, OrderedJson& out);

/// MiniCPM's three, of the factors that they stand for.
void add_depth_scale(const ModelConfig& config, OrderedJson& out);

}  // namespace rondo::model
