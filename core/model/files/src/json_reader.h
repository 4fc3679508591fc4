// Strict reading of JSON files written by others: a repeated key, deep nesting or an absurd number of values is an
// error with its position, never a crash, an exception or a silent choice.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rondo::model {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// The most bytes of a file of settings, a model's or an adapter's.
inline constexpr std::size_t kMaxConfigBytes = 16U << 20U;

/// `origin` names the text in errors. Errors: InvalidArgument with the byte at which reading stopped.
absl::StatusOr<Json> parse_json(std::string_view text, const std::string& origin);

/// The same of a whole file. Errors: InvalidArgument also when it is larger than `limit` bytes.
absl::StatusOr<Json> read_json_file(const std::filesystem::path& path, std::size_t limit);

/// A value as it stands in a message: one line, cut after some 60 characters.
std::string excerpt(const Json& value);

/// A name out of a file, in quotes, escaped so that the message stays one line.
std::string quoted_name(std::string_view name);

/// Text of a document as it goes into a file: two spaces of indentation, a final newline. Bytes that are no UTF-8
/// (a path may hold them) become U+FFFD.
std::string to_text(const OrderedJson& document);

}  // namespace rondo::model
