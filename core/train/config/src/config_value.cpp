// Values of keys: from text to the member that holds them and back, each checked by itself.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "config_keys.h"
#include "rondo/base/status.h"
#include "rondo/base/text.h"
#include "rondo/base/utf8.h"
#include "rondo/train/config_text.h"

namespace rondo::train::config {
namespace {

bool is_true(const std::string& lower) { return lower == "true" || lower == "yes" || lower == "on" || lower == "1"; }
bool is_false(const std::string& lower) { return lower == "false" || lower == "no" || lower == "off" || lower == "0"; }

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

absl::Status unexpected(const Key& key, const std::string& origin, std::string_view text) {
  return invalid_input("{}: expected {}, found {}", origin, expectation(key), in_quotes(text));
}

absl::Status not_available(const Key& key, const std::string& origin, std::string_view text) {
  return invalid_input("{}: {} is not available in this build; expected {}", origin, in_quotes(text), expectation(key));
}

/// Of a list its parts, else the value alone.
std::vector<std::string> elements(const Key& key, const std::string& value) {
  if (!key.list) return {value};
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    parts.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Of a list, any element is. "*" stands for every value but the empty one.
bool is_refused(const Key& key, const std::string& value) {
  for (const std::string& element : elements(key, value)) {
    for (const std::string& word : key.unavailable) {
      if (word == element || (word == "*" && !element.empty())) return true;
    }
  }
  return false;
}

/// Every element of a list is one of the choices.
bool is_chosen(const Key& key, const std::string& value) {
  const std::vector<std::string> all = elements(key, value);
  return std::all_of(all.begin(), all.end(), [&](const std::string& element) {
    return std::count(key.choices.begin(), key.choices.end(), element) > 0;
  });
}

bool in_range(const Range& range, double value) {
  if (range.above_low ? value <= range.low : value < range.low) return false;
  return range.below_high ? value < range.high : value <= range.high;
}

/// "a, b or c"
std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i].empty() ? "none" : words[i];
  }
  return text;
}

/// The elements without spaces around them; false when one is empty.
bool tidy_list(std::string& text) {
  std::string tidy;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view element = trimmed(std::string_view(text).substr(begin, comma - begin));
    if (element.empty()) return false;
    if (begin > 0) tidy += ',';
    tidy += element;
    if (comma == text.size()) break;
    begin = comma + 1;
  }
  text = std::move(tidy);
  return true;
}

bool may_be_empty(const Key& key, const std::string& fallback) {
  return fallback.empty() || std::count(key.choices.begin(), key.choices.end(), "") > 0;
}

/// What another tool's spelling means, or else the text itself.
std::string meaning_of(const Key& key, std::string_view text) {
  const auto found = std::ranges::find_if(key.spellings, [&](const auto& spelling) { return spelling.first == text; });
  return found == key.spellings.end() ? std::string(text) : found->second;
}

absl::Status set_text(const Key& key, std::string_view text, const std::string& origin, std::string Config::*member,
                      Config& config) {
  std::string value(text);
  if (!is_utf8(value) || value.find('\0') != std::string::npos) {
    return invalid_input("{}: expected UTF-8 text, found other bytes in {}", origin, in_quotes(text));
  }
  if (key.list && !value.empty() && !tidy_list(value)) {
    return invalid_input("{}: expected names with a comma between them, found an empty one in {}", origin,
                         in_quotes(text));
  }
  value = meaning_of(key, value);
  if (is_refused(key, value)) return not_available(key, origin, text);
  if (!key.choices.empty() && !is_chosen(key, value)) {
    return unexpected(key, origin, text);
  }
  if (value.empty() && !may_be_empty(key, Config{}.*member)) return unexpected(key, origin, text);
  config.*member = std::move(value);
  return absl::OkStatus();
}

absl::Status set_boolean(const Key& key, std::string_view text, const std::string& origin, bool Config::*member,
                         Config& config) {
  const std::string lower = lowered(text);
  if (!is_true(lower) && !is_false(lower)) return unexpected(key, origin, text);
  if (is_refused(key, is_true(lower) ? "true" : "false")) return not_available(key, origin, text);
  config.*member = is_true(lower);
  return absl::OkStatus();
}

template <typename Number>
absl::Status set_number(const Key& key, std::string_view text, const std::string& origin, Number Config::*member,
                        Config& config) {
  Number value = 0;
  const std::string meant = meaning_of(key, text);
  const char* end = meant.data() + meant.size();
  const std::from_chars_result read = std::from_chars(meant.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || meant.empty()) return unexpected(key, origin, text);
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return unexpected(key, origin, text);
    if (value == 0) value = 0;  // -0 is 0
    if (key.of_run && value > 1 && value != std::floor(value)) return unexpected(key, origin, text);
  }
  if (is_refused(key, fmt::format("{}", value))) return not_available(key, origin, text);
  if (!in_range(key.range, static_cast<double>(value))) return unexpected(key, origin, text);
  config.*member = value;
  return absl::OkStatus();
}

/// "from 1 to 65536", "above 0 and below 1", "at least 0".
std::string range_text(const Range& range) {
  const auto number = [](double value) {
    return value == std::floor(value) && std::fabs(value) < 1e16 ? fmt::format("{:.0f}", value)
                                                                 : fmt::format("{}", value);
  };
  if (range.high > 1e15) return fmt::format("{} {}", range.above_low ? "above" : "of at least", number(range.low));
  if (!range.above_low && !range.below_high) {
    return fmt::format("from {} to {}", number(range.low), number(range.high));
  }
  return fmt::format("{} {} and {} {}", range.above_low ? "above" : "of at least", number(range.low),
                     range.below_high ? "below" : "at most", number(range.high));
}

}  // namespace

bool is_boolean(std::string_view text) {
  const std::string lower = lowered(text);
  return is_true(lower) || is_false(lower);
}

std::string expectation(const Key& key) {
  return std::visit(
      [&key](auto member) -> std::string {
        using Value = std::remove_reference_t<decltype(std::declval<Config&>().*member)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return is_refused(key, "true") ? "false" : "true or false";
        } else if constexpr (std::is_same_v<Value, std::string>) {
          if (!key.choices.empty()) return alternatives(key.choices) + (key.list ? ", or a list of them" : "");
          if (!key.unavailable.empty()) return "none: leave the key out";
          if (key.map) return "a map of names and values, or name=value with a comma between them";
          return key.list ? "names with a comma between them" : "text";
        } else {
          if (key.range.low == key.range.high) return fmt::format("{}", key.range.low);
          const bool whole = !std::is_floating_point_v<Value> || key.of_run;
          return fmt::format("a {}number {}{}", whole ? "whole " : "", range_text(key.range),
                             key.of_run ? ", or below 1 a share of the run's steps" : "");
        }
      },
      key.member);
}

std::string value_text(const Config& config, const Key& key) {
  return std::visit(
      [&config](auto member) -> std::string {
        using Value = std::remove_cv_t<std::remove_reference_t<decltype(config.*member)>>;
        if constexpr (std::is_same_v<Value, std::string>) return config.*member;
        return fmt::format("{}", config.*member);
      },
      key.member);
}

absl::Status set_value(const Key& key, std::string_view text, const std::string& origin, Config& config) {
  return std::visit(
      [&](auto member) -> absl::Status {
        using Value = std::remove_reference_t<decltype(config.*member)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return set_text(key, text, origin, member, config);
        } else if constexpr (std::is_same_v<Value, bool>) {
          return set_boolean(key, text, origin, member, config);
        } else {
          return set_number<Value>(key, text, origin, member, config);
        }
      },
      key.member);
}

}  // namespace rondo::train::config
