// nlohmann::json without exceptions: the parser's own message and position are taken through the SAX interface, and
// nesting is bounded before anything recursive sees the value.
#include "json_text.h"

#include <algorithm>
#include <cstdint>

#include "rondo/base/status.h"

namespace rondo::data {
namespace {

// Templates and destructors walk values recursively; no real record comes near this.
constexpr std::size_t kMaxNesting = 100;

/// Accepts everything and keeps the first error.
class ErrorFinder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*last*/,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    reason_ = error.what();
    return false;
  }

  std::size_t position() const { return position_; }
  /// The library's message without its own prefix ("[json.exception...] parse error at line 1, column 2: ").
  std::string reason() const {
    const std::size_t start = reason_.find("syntax error");
    if (start != std::string::npos) return reason_.substr(start);
    const std::size_t bracket = reason_.find("] ");
    return bracket == std::string::npos ? reason_ : reason_.substr(bracket + 2);
  }

 private:
  std::size_t position_ = 0;
  std::string reason_;
};

/// Byte at which brackets outside strings nest deeper than kMaxNesting, or npos.
std::size_t too_deep_at(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return i;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return std::string_view::npos;
}

/// Control characters would break the one line of an error.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20U; }, ' ');
  constexpr std::size_t kLongest = 200;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

absl::StatusOr<Json> parse_json(std::string_view text) {
  if (const std::size_t at = too_deep_at(text); at != std::string_view::npos) {
    return invalid_input("JSON nests deeper than {} levels at byte {}", kMaxNesting, at + 1);
  }
  Json value = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!value.is_discarded()) return value;
  ErrorFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  return invalid_input("not valid JSON at byte {}: {}", finder.position(), one_line(finder.reason()));
}

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return value.get_ref<const std::string&>().empty() ? "an empty string" : "a string";
    case Json::value_t::array:
      return value.empty() ? "an empty list" : "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return fmt::format("the number {}", value.dump());
  }
}

std::string list_keys(const Json& object) {
  constexpr std::size_t kMost = 12;
  std::string keys;
  std::size_t count = 0;
  for (const auto& item : object.items()) {
    if (count++ == kMost) return keys + ", ...";
    keys += fmt::format("{}`{}`", keys.empty() ? "" : ", ", one_line(item.key()));
  }
  return keys.empty() ? "no keys" : keys;
}

}  // namespace rondo::data
