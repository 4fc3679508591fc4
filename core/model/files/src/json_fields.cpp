// Each look-up checks the JSON type before it reads: nlohmann's get<>() would throw or convert.
#include "json_fields.h"

#include <utility>

namespace rondo::model {
namespace {

/// The value of an integer literal that fits `Integer`'s range [low, high].
std::optional<std::int64_t> integer_in(const Json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

}  // namespace

Fields::Fields(const Json& object, std::string origin, std::string path)
    : object_(object), origin_(std::move(origin)), path_(std::move(path)) {}

bool Fields::has(const std::string& key) const { return !at(key).is_null(); }

const Json& Fields::at(const std::string& key) const {
  static const Json kNull;
  const auto found = object_.find(key);
  return found == object_.end() ? kNull : *found;
}

void Fields::refuse(const std::string& key, const std::string& message) {
  if (status_.ok()) status_ = invalid_input("{}: {}{}: {}", origin_, path_, key, message);
}

void Fields::expected(const std::string& key, const std::string& what) {
  refuse(key, fmt::format("expected {}, found {}", what, present(key) ? excerpt(at(key)) : "nothing"));
}

std::uint32_t Fields::integer(const std::string& key, std::uint32_t low, std::uint32_t high,
                              std::optional<std::uint32_t> fallback) {
  if (!has(key) && fallback) return *fallback;
  const auto value = integer_in(at(key), low, high);
  if (value) return static_cast<std::uint32_t>(*value);
  expected(key, fmt::format("an integer from {} to {}", low, high));
  return low;
}

std::optional<double> Fields::number_or_none(const std::string& key, Limits limits) {
  const Json& value = at(key);
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  // Written so that NaN, should a parser ever let one through, is refused.
  if (!(number >= limits.low && number <= limits.high)) return std::nullopt;
  return number;
}

double Fields::number(const std::string& key, Limits limits, std::optional<double> fallback) {
  if (!has(key) && fallback) return *fallback;
  const auto value = number_or_none(key, limits);
  if (value) return *value;
  expected(key, fmt::format("a number from {:g} to {:g}", limits.low, limits.high));
  return limits.low;
}

std::optional<double> Fields::optional_number(const std::string& key, Limits limits) {
  if (!has(key)) return std::nullopt;
  return number(key, limits);
}

bool Fields::flag(const std::string& key, bool fallback) {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) {
    expected(key, "true or false");
    return fallback;
  }
  return at(key).get<bool>();
}

std::string Fields::word(const std::string& key, std::optional<std::string> fallback) {
  if (!has(key) && fallback) return *std::move(fallback);
  if (!at(key).is_string()) {
    expected(key, "a string");
    return "";
  }
  return at(key).get<std::string>();
}

std::vector<std::int32_t> Fields::token_ids(const std::string& key, std::optional<std::int32_t> fallback) {
  if (!present(key)) return fallback ? std::vector<std::int32_t>{*fallback} : std::vector<std::int32_t>{};
  constexpr std::int64_t kHighest = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> ids;
  const auto add = [&](const Json& value) {
    const auto id = integer_in(value, -1, kHighest);
    if (!id) {
      expected(key, fmt::format("a token id from 0 to {}, a list of them or null", kHighest));
    } else if (*id >= 0) {
      ids.push_back(static_cast<std::int32_t>(*id));
    }
  };
  const Json& value = at(key);
  if (value.is_array()) {
    for (const Json& element : value) add(element);
  } else if (!value.is_null()) {
    add(value);
  }
  return ids;
}

}  // namespace rondo::model
