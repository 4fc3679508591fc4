// What config.json says of Gemma 4's smaller models: inputs of each block, and blocks that share keys and values.
#pragma once

#include "family.h"
#include "json_fields.h"
#include "json_reader.h"

namespace rondo::model {

/// Sets `config.block_inputs`, `sharing_blocks` and `widens_sharing`; windows and experts must be set. Errors land in
/// `fields`.
void parse_block_inputs(Fields& fields, const FamilyTraits& traits, ModelConfig& config);

/// Writes them back.
void add_block_inputs(const ModelConfig& config, OrderedJson& out);

}  // namespace rondo::model
