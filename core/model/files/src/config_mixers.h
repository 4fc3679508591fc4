// The part of a config.json that says what each block is, where a block is one half alone: Nemotron-H's.
#pragma once

#include <vector>

#include "family.h"
#include "json_fields.h"

namespace rondo::model {

enum class Mixer { kSpace, kAttention, kMlp, kExperts };

/// Of each block, by layer_types, layers_block_type or, where neither is there, hybrid_override_pattern, a letter a
/// block: M, *, - or E. There is at least one.
std::vector<Mixer> parse_mixers(Fields& fields);

/// Which halves blocks have, and of the state spaces among them the sizes. None turns anything.
void parse_lone_halves(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// What both read.
void add_lone_halves(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out);

}  // namespace rondo::model
