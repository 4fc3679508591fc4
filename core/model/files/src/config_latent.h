// What config.json says of attention by a latent.
#pragma once

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

/// Sets `config.latent_attention` and `config.head_dim`; the numbers of heads must be set. Errors land in `fields`.
void parse_latent_attention(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

}  // namespace rondo::model
