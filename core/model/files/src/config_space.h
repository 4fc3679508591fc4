// The part of a config.json that says which blocks have a state space in the place of attention.
#pragma once

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

/// Of one layer's heads.
inline constexpr std::uint32_t kMostSpaceHeads = 1U << 14U;

/// Sizes, and blocks by layer_types: all of them where there is no such list. Attention turns nothing unless the file
/// says so.
void parse_state_space(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// What parse_state_space() reads.
void add_state_space(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out);

}  // namespace rondo::model
