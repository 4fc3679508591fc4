// Reading tokenizer.json's components: every field's type is checked before it is used, every error says where it is.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/documents.h"

namespace rondo::data::tok {

using Json = nlohmann::json;

/// A JSON value and its place in the file, such as `pre_tokenizer.pretokenizers[1]`.
class Fields {
 public:
  Fields(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& value() const { return *value_; }
  const std::string& where() const { return where_; }
  /// The member `key`, a JSON null when absent. The value must be an object.
  Fields member(const char* key) const;
  bool has(const char* key) const;

  absl::Status expect_object() const;
  absl::StatusOr<std::string> text(const char* key) const;
  absl::StatusOr<bool> flag(const char* key) const;
  absl::StatusOr<bool> flag_or(const char* key, bool absent) const;
  absl::StatusOr<std::size_t> count(const char* key) const;
  /// A string of one character.
  absl::StatusOr<std::string> character(const char* key) const;
  /// The elements of the array `key`.
  absl::StatusOr<std::vector<Fields>> list(const char* key) const;
  /// The member `type` of an object.
  absl::StatusOr<std::string> type() const;

  /// InvalidArgument: `what` at this place.
  absl::Status error(std::string_view what) const;

 private:
  const Json* value_;
  std::string where_;
};

/// A document's value. Errors: InvalidArgument naming its place.
absl::StatusOr<Json> read_json(const Documents& documents, const std::string& name);

/// Ids beyond this are taken for a damaged file.
inline constexpr std::size_t kLargestId = (std::size_t{1} << 24U) - 1;

/// A token id. Errors: InvalidArgument naming the place.
absl::StatusOr<std::int32_t> token_id(const Fields& value);

}  // namespace rondo::data::tok
