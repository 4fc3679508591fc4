// The part of a config.json that says which blocks have a short convolution in attention's place.
#pragma once

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

/// Its width, and blocks by layer_types or all but full_attn_idxs.
void parse_short_convolution(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

}  // namespace rondo::model
