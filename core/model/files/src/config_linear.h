// The part of a config.json that says which blocks have linear attention.
#pragma once

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

/// Sizes, and blocks by layer_types or each but the so-many-th.
void parse_linear_attention(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

}  // namespace rondo::model
