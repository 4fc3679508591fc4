// The part of a config.json that says which blocks have a state space in the place of attention.
#pragma once

#include <cstdint>
#include <string>

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

/// Of one layer's heads.
inline constexpr std::uint32_t kMostSpaceHeads = 1U << 14U;

/// StateSpaceConfig::groups, from `key`, `by_default` where it is absent. `heads_key`: what said how many heads there
/// are, which must be a multiple.
std::uint32_t parse_space_groups(Fields& fields, const std::string& key, std::uint32_t by_default,
                                 const char* heads_key, std::uint32_t heads);

/// Sizes, and blocks by layer_types: all of them where there is no such list. Attention turns nothing unless the file
/// says so. In Bamba it always does, and attn_layer_indices has the blocks without a state space; in Falcon-H1 all
/// have both.
void parse_state_space(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// What parse_state_space() reads.
void add_state_space(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out);

}  // namespace rondo::model
