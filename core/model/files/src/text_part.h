// The text part of a model that reads pictures too, which alone is trained.
#pragma once

#include <optional>

#include "json_fields.h"
#include "json_reader.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// ModelConfig::picture_turns in a config.json, outside of rotary settings: none of transformers' keys.
inline constexpr const char* kPicturePairs = "mrope_section";
inline constexpr const char* kDeepBlocks = "num_deepstack_layers";

/// What stands around it about tokens and numbers wins. Nothing of other models.
std::optional<Json> text_part_of(const Json& document);

/// Sets `config.picture_turns` of a Qwen that has kPicturePairs. Errors land in `fields`.
void parse_picture_turns(Fields& fields, ModelConfig& config);
void add_picture_turns(const ModelConfig& config, OrderedJson& out);

}  // namespace rondo::model
