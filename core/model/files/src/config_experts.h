// Mixture of experts in a config.json.
#pragma once

#include "family.h"
#include "json_fields.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// For families that have none.
void refuse_experts(Fields& fields);

/// REQUIRES: the sizes are there.
void parse_experts(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

}  // namespace rondo::model
