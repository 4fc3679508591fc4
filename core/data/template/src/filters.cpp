// Filters on texts and single values; those on sequences are in sequence_filters.cpp.
#include "filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "attributes.h"
#include "format.h"
#include "iteration.h"
#include "json_text.h"
#include "methods.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

template <std::string (*convert)(std::string_view)>
Value converted(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "the filter", {});
  const Value text = soft_string(heap, input);
  heap.step(text.text().size() / kBytesPerCaseStep);
  return heap.string(convert(text.text()), text.as_string().markup);
}

/// Jinja's own title: unlike str.title, words begin only after white space and opening signs.
std::string filter_title(std::string_view text) {
  std::string result;
  std::string word;
  const auto flush = [&result, &word]() {
    if (word.empty()) return;
    const std::size_t first = byte_offset(word, 1);
    result += upper(std::string_view(word).substr(0, first)) + lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    const std::string_view character = text.substr(start, position - start);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      result += character;
    } else {
      word += character;
    }
  }
  flush();
  return result;
}

Value trim(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "trim", {"chars"});
  Arguments chars;
  if (!bound.get(0).is_none()) chars.positional.push_back(bound.get(0));
  return call_string_method(heap, soft_string(heap, input), "strip", chars);
}

Value replace(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "replace", {"old", "new", "count"}, 2);
  const auto text = [&heap](const Value& value) { return heap.string(to_text(heap, value)); };
  const std::int64_t count = bound.get(2).is_none() ? -1 : bound.integer(2, -1);
  return replace_text(heap, text(input), text(bound.get(0)), text(bound.get(1)), count);
}

Value default_value(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "default", {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.flag(1) && !truth(input))) return input;
  return bound.has(0) ? bound.get(0) : heap.string("");
}

Value indent(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "indent", {"width", "first", "blank"});
  if (!input.is_string()) throw Failure{fmt::format("indent needs a str, not {}", type_name(input))};
  const Value width = bound.has(0) ? bound.get(0) : Value::integer(4);
  const std::string margin =
      width.is_string() ? width.text() : repeat(heap, heap.string(" "), bound.integer(0, 4)).text();
  const std::string text = input.text() + "\n";
  const auto lines = split_lines(text, false);
  if (margin.size() > heap.limits().output_bytes / lines.size())
    heap.charge(static_cast<std::size_t>(heap.limits().output_bytes) + 1);
  std::string result = bound.flag(1) ? margin : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += "\n";
    if (i > 0 && (bound.flag(2) || !lines[i].empty())) result += margin;
    result += lines[i];
  }
  return heap.string(std::move(result), input.as_string().markup);
}

std::string json_indent(const Value& indent) {
  if (indent.is_string()) return indent.text();
  if (!indent.is_integral()) throw Failure{"tojson needs an integer or a text as its indent"};
  return std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(indent.as_int(), 0, 1000)), ' ');
}

Value tojson(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (!bound.get(1).is_none()) {
    style.multiline = true;
    style.indent = json_indent(bound.get(1));
    style.item_separator = ",";
  }
  if (const Value separators = bound.get(2); !separators.is_none()) {
    const std::vector<Value> pair = collect(heap, separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      throw Failure{"tojson needs two texts as its separators"};
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return heap.string(to_json(heap, input, style));
}

Value safe(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "safe", {});
  return heap.string(to_text(heap, input), true);
}

Value escape(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "escape", {});
  if (input.is_string() && input.as_string().markup) return input;
  return heap.string(escape_html(to_text(heap, input)), true);
}

Value string(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "string", {});
  return soft_string(heap, input);
}

/// A number's text without the underscores that Python allows between digits; nothing where it has others.
std::optional<std::string> plain_number(std::string_view text) {
  std::string result;
  text = strip_space(text, Side::kBoth);
  const auto is_alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || i + 1 >= text.size() || !is_alnum(text[i - 1]) || !is_alnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return result;
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  const auto plain = plain_number(text);
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = !digits.empty() && digits.front() == '-';
  if (!digits.empty() && (negative || digits.front() == '+')) digits.remove_prefix(1);
  const char radix = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  if ((base == 16 && radix == 'x') || (base == 8 && radix == 'o') || (base == 2 && radix == 'b'))
    digits.remove_prefix(2);
  std::uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  const std::uint64_t most = static_cast<std::uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (error != std::errc() || magnitude > most) throw Failure{"a number does not fit in 64 bits"};
  return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
}

std::optional<double> parse_real(std::string_view text) {
  const auto plain = plain_number(text);
  // strtod also reads hexadecimal and nan(...), which Python's float() does not.
  if (!plain || plain->empty() || plain->find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain->c_str(), &end);
  if (end != plain->c_str() + plain->size()) return std::nullopt;
  return value;
}

std::int64_t truncated(double value) {
  if (!(std::fabs(value) < 9.2233720368547758e18)) throw Failure{"a number does not fit in 64 bits"};
  return static_cast<std::int64_t>(value);
}

Value to_int(Heap&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "int", {"default", "base"});
  const Value otherwise = bound.has(0) ? bound.get(0) : Value::integer(0);
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) throw Failure{"int needs a base from 2 to 36"};
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_integral()) return Value::integer(input.as_int());
  if (input.is(Type::kFloat)) {
    return std::isnan(input.as_real()) ? otherwise : Value::integer(truncated(input.as_real()));
  }
  if (!input.is_string()) return otherwise;
  if (const auto integer = parse_integer(input.text(), static_cast<int>(base))) return Value::integer(*integer);
  const auto real = parse_real(input.text());
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value::integer(truncated(*real));
}

Value to_float(Heap&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "float", {"default"});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_number()) return Value::real(input.as_real());
  if (input.is_string()) {
    if (const auto real = parse_real(input.text())) return Value::real(*real);
  }
  return bound.has(0) ? bound.get(0) : Value::real(0.0);
}

Value absolute(Heap&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "abs", {});
  if (!input.is_number()) throw Failure{fmt::format("abs needs a number, not {}", type_name(input))};
  if (input.is(Type::kFloat)) return Value::real(std::fabs(input.as_real()));
  return input.as_int() < 0 ? negate(input) : Value::integer(input.as_int());
}

Value rounded_integer(std::int64_t value, std::int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  std::int64_t unit = 1;
  for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
  const std::int64_t remainder = ((value % unit) + unit) % unit;
  // What lies below is a multiple of the unit; it or the one above may be none that fits.
  std::int64_t result = 0;
  bool over = __builtin_sub_overflow(value, remainder, &result);
  const bool odd = ((value / unit) - (value < 0 && remainder != 0 ? 1 : 0)) % 2 != 0;
  const bool up = remainder * 2 > unit || (remainder * 2 == unit && odd);
  if (up) over = __builtin_add_overflow(value, unit - remainder, &result);
  if (over) throw Failure{"a number does not fit in 64 bits"};
  return Value::integer(result);
}

Value round(Heap&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "round", {"precision", "method"});
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_number()) throw Failure{fmt::format("round needs a number, not {}", type_name(input))};
  const std::int64_t precision = bound.integer(0, 0);
  const std::string method = bound.has(1) && bound.get(1).is_string() ? bound.get(1).text() : "common";
  if (method == "ceil" || method == "floor") {
    const double unit = std::pow(10.0, static_cast<double>(precision));
    if (unit == 0.0) throw Failure{"division by zero"};
    const double scaled = input.as_real() * unit;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
  }
  if (method != "common") throw Failure{"round's method must be common, ceil or floor"};
  if (input.is_integral()) return rounded_integer(input.as_int(), precision);
  const double value = input.as_real();
  if (!std::isfinite(value) || precision > 323) return input;
  if (precision >= 0) return Value::real(std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr));
  if (precision < -308) return Value::real(std::copysign(0.0, value));  // the unit is more than any number
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return Value::real(std::nearbyint(value / unit) * unit);
}

Value format(Heap& heap, const Value& input, const Arguments& arguments) {
  const Value text = soft_string(heap, input);
  if (arguments.keyword.empty()) return format_percent(heap, text, heap.tuple(arguments.positional));
  if (!arguments.positional.empty()) throw Failure{"format takes values by position or by name, not both"};
  auto& dict = heap.make<DictObject>();
  for (const auto& [name, value] : arguments.keyword) dict.set(heap.string(name), value);
  return format_percent(heap, text, Value::of(Type::kDict, &dict));
}

Value attribute(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "attr", {"name"}, 1);
  if (input.is_undefined()) fail_undefined(input);
  const std::string name = to_text(heap, bound.get(0));
  if (const auto own = own_attribute(heap, input, name)) return *own;
  return heap.undefined(fmt::format("{} has no attribute '{}'", type_name(input), name));
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {
    {"trim", trim},
    {"upper", converted<upper>},
    {"lower", converted<lower>},
    {"capitalize", converted<capitalize>},
    {"title", converted<filter_title>},
    {"replace", replace},
    {"default", default_value},
    {"d", default_value},
    {"indent", indent},
    {"tojson", tojson},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"string", string},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
    {"format", format},
    {"attr", attribute},
};

Filter find_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                         [name](const NamedFilter& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? find_sequence_filter(name) : found->filter;
}

}  // namespace

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Heap& heap, std::string_view name, const Value& input, const Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) throw Failure{fmt::format("the filter '{}' does not exist or is not supported here", name)};
  return filter(heap, input, arguments);
}

}  // namespace rondo::data::jinja
