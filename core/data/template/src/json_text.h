// JSON in and out: the rendering's context from nlohmann::json, and `tojson`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// Throws Failure for text that is not UTF-8, numbers beyond 64 bits, and nesting too deep.
Value from_json(Heap& heap, const nlohmann::ordered_json& json);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;  // of one level, where multiline
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// json.dumps(value). Throws Failure for what JSON cannot hold.
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace rondo::data::jinja
