// Typed look-ups in one JSON object, each with its limits. The first error is kept and every later look-up returns a
// harmless value, so that a reader of thirty keys is thirty lines and one check of status().
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "json_reader.h"
#include "rondo/base/status.h"

namespace rondo::model {

/// Numbers allowed, the ends included.
struct Limits {
  double low = 0.0;
  double high = std::numeric_limits<double>::max();
};

/// Of the width inside an MLP, and of a model's blocks.
inline constexpr std::uint32_t kMaxIntermediate = 1U << 24U;
inline constexpr std::uint32_t kMaxLayers = 10'000;

class Fields {
 public:
  /// `object` must outlive this. `origin` is the file; `path` stands before each key in messages, e.g. "rope_scaling.".
  Fields(const Json& object, std::string origin, std::string path = "");

  /// Present and not null.
  bool has(const std::string& key) const;
  bool present(const std::string& key) const { return object_.contains(key); }
  const Json& at(const std::string& key) const;  // null when absent
  const Json& object() const { return object_; }

  /// Absent and null both give `fallback`; without one they are an error.
  std::uint32_t integer(const std::string& key, std::uint32_t low, std::uint32_t high,
                        std::optional<std::uint32_t> fallback = std::nullopt);
  double number(const std::string& key, Limits limits, std::optional<double> fallback = std::nullopt);
  std::optional<double> optional_number(const std::string& key, Limits limits);
  bool flag(const std::string& key, bool fallback);
  std::string word(const std::string& key, std::optional<std::string> fallback = std::nullopt);
  /// One token id or a list of them; null and -1 (an old spelling of none) give an empty list.
  std::vector<std::int32_t> token_ids(const std::string& key, std::optional<std::int32_t> fallback);

  /// Records "file: key: message" unless an error is there already.
  void refuse(const std::string& key, const std::string& message);
  void expected(const std::string& key, const std::string& what);

  /// Takes over the error of an inner object.
  void adopt(const absl::Status& inner) { status_.Update(inner); }

  const absl::Status& status() const { return status_; }
  const std::string& origin() const { return origin_; }

 private:
  std::optional<double> number_or_none(const std::string& key, Limits limits);

  const Json& object_;
  std::string origin_;
  std::string path_;
  absl::Status status_;
};

}  // namespace rondo::model
