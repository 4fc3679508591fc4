// JSON of one record: parsing with a position in the error, and words for what was found.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rondo::data {

using Json = nlohmann::ordered_json;

/// Parses one JSON value, which must fill `text`. Errors: InvalidArgument with the byte of `text` (from 1) at fault and
/// the reason, without a file name: the caller puts the place before it.
absl::StatusOr<Json> parse_json(std::string_view text);

/// "a string", "null", "an empty list": what stands where something else was expected.
std::string describe_json(const Json& value);

/// The keys of an object as "`a`, `b`", 12 at most; "no keys" when there are none.
std::string list_keys(const Json& object);

}  // namespace rondo::data
