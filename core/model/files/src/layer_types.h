// layer_types of a config.json: which layers are of one other kind than full_attention.
#pragma once

#include <cstdint>
#include <vector>

#include "json_fields.h"
#include "json_reader.h"

namespace rondo::model {

/// [layers] true where it says `kind`; empty when the key is absent. Refuses what is neither that nor full_attention.
std::vector<bool> parse_layer_types(Fields& fields, std::uint32_t layers, const char* kind);

void add_layer_types(const std::vector<bool>& of_kind, const char* kind, OrderedJson& out);

}  // namespace rondo::model
