// Both notations share one specification of a field:
//
//   field = [[fill] align] [sign] ["#"] ["0"] [width] [","] ["." precision] [type]
#include "format.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "attributes.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

constexpr std::size_t kMaxFieldSize = 1U << 16U;

struct Field {
  std::string fill = " ";
  char align = '\0';  // < > ^, or = for padding after the sign
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t read_number(std::string_view text, std::size_t& position) {
  std::size_t number = 0;
  while (position < text.size() && is_digit(text[position])) {
    number = number * 10 + static_cast<std::size_t>(text[position++] - '0');
    if (number > kMaxFieldSize) throw Failure{"a format's width or precision is too large"};
  }
  return number;
}

std::string padded(const Field& field, const std::string& sign, const std::string& body, char default_align) {
  const std::size_t size = sign.size() + code_point_count(body);
  const char align = field.align == '\0' ? default_align : field.align;
  const std::size_t missing = field.width > size ? field.width - size : 0;
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string left;
  std::string right;
  for (std::size_t i = 0; i < before; ++i) left += field.fill;
  for (std::size_t i = before; i < missing; ++i) right += field.fill;
  return align == '=' ? sign + left + body : left + sign + body + right;
}

std::string sign_of(const Field& field, bool negative) {
  if (negative) return "-";
  return field.sign == '+' || field.sign == ' ' ? std::string(1, field.sign) : "";
}

std::string grouped(std::string digits, char separator) {
  if (separator == '\0') return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
  return digits;
}

std::string format_integer(const Field& field, std::int64_t value) {
  const std::uint64_t magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  std::string body;
  switch (field.type) {
    case 'x':
      body = fmt::format("{}{:x}", field.alternate ? "0x" : "", magnitude);
      break;
    case 'X':
      body = fmt::format("{}{:X}", field.alternate ? "0X" : "", magnitude);
      break;
    case 'o':
      body = fmt::format("{}{:o}", field.alternate ? "0o" : "", magnitude);
      break;
    case 'b':
      body = fmt::format("{}{:b}", field.alternate ? "0b" : "", magnitude);
      break;
    case 'c':
      if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) throw Failure{"%c needs a character"};
      append_utf8(body, static_cast<char32_t>(value));
      return padded(field, "", body, '<');
    default:
      body = grouped(std::to_string(magnitude), field.grouping);
  }
  return padded(field, sign_of(field, value < 0), body, '>');
}

std::string format_real(const Field& field, double value) {
  const double magnitude = std::fabs(value);
  std::string body;
  char type = field.type;
  if (std::isnan(value) || std::isinf(value)) {
    body = std::isnan(value) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') body = upper(body);
  } else if (type == '\0' && !field.precision) {
    body = float_text(magnitude);
  } else {
    const bool percent = type == '%';
    if (percent) type = 'f';
    const bool general = type == '\0';
    if (general) type = 'g';
    const std::size_t precision = std::min<std::size_t>(field.precision.value_or(6), 400);
    const std::string format = fmt::format("{{:{}.{{}}{}}}", field.alternate ? "#" : "", type);
    body = fmt::format(fmt::runtime(format), percent ? magnitude * 100.0 : magnitude, precision);
    if (general && body.find_first_not_of("0123456789") == std::string::npos) body += ".0";
    if (percent) body += '%';
  }
  return padded(field, sign_of(field, std::signbit(value) && !std::isnan(value)), grouped(body, field.grouping), '>');
}

std::string format_text(const Field& field, std::string text) {
  if (field.precision) text.resize(byte_offset(text, *field.precision));
  return padded(field, "", text, '<');
}

bool is_integer_type(char type) { return std::string_view("dxXobcn").find(type) != std::string_view::npos; }
bool is_real_type(char type) { return std::string_view("eEfFgG%").find(type) != std::string_view::npos; }

// `{}` notation.

Field parse_field(std::string_view spec) {
  Field field;
  std::size_t position = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!spec.empty()) {
    std::size_t after = 0;
    next_code_point(spec, after);
    if (after < spec.size() && is_align(spec[after])) {
      field.fill = std::string(spec.substr(0, after));
      field.align = spec[after];
      position = after + 1;
    } else if (is_align(spec[0])) {
      field.align = spec[0];
      position = 1;
    }
  }
  const auto at = [spec, &position]() { return position < spec.size() ? spec[position] : '\0'; };
  if (at() == '+' || at() == '-' || at() == ' ') field.sign = spec[position++];
  if (at() == '#') {
    field.alternate = true;
    ++position;
  }
  if (at() == '0') {
    if (field.align == '\0') {
      field.fill = "0";
      field.align = '=';
    }
    ++position;
  }
  field.width = read_number(spec, position);
  if (at() == ',' || at() == '_') field.grouping = spec[position++];
  if (at() == '.') {
    ++position;
    if (!is_digit(at())) throw Failure{fmt::format("the format '{}' lacks a precision", spec)};
    field.precision = read_number(spec, position);
  }
  if (at() != '\0') field.type = spec[position++];
  if (position != spec.size()) throw Failure{fmt::format("the format '{}' is not valid", spec)};
  return field;
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(heap, value);
  Field field = parse_field(spec);
  const bool number = value.is_number() && !(value.is(Type::kBool) && field.type == '\0');
  if (number && (value.is(Type::kFloat) ? field.type == '\0' || is_real_type(field.type) : is_real_type(field.type))) {
    return format_real(field, value.as_real());
  }
  if (value.is_integral() && number && (field.type == '\0' || is_integer_type(field.type)) && !field.precision) {
    return format_integer(field, value.as_int());
  }
  if ((value.is_string() || !number) && (field.type == '\0' || field.type == 's') && field.align != '=') {
    return format_text(field, to_text(heap, value));
  }
  throw Failure{fmt::format("the format '{}' does not fit {}", spec, type_name(value))};
}

class BraceFormatter {
 public:
  BraceFormatter(Heap& heap, const Arguments& arguments) : heap_(heap), arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 1) throw Failure{"a format nests too deeply"};
    std::string result;
    for (std::size_t i = 0; i < format.size(); ++i) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        result += c;
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        result += c;
        ++i;
      } else {
        const std::size_t end = c == '{' ? end_of_field(format, i + 1) : std::string_view::npos;
        if (end == std::string_view::npos) throw Failure{fmt::format("single '{}' in a format", c)};
        result += field(format.substr(i + 1, end - i - 1), depth);
        i = end;
      }
    }
    return result;
  }

 private:
  static std::size_t end_of_field(std::string_view format, std::size_t position) {
    for (int open = 1; position < format.size(); ++position) {
      if (format[position] == '{') ++open;
      if (format[position] == '}' && --open == 0) return position;
    }
    return std::string_view::npos;
  }

  std::string field(std::string_view text, int depth) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::size_t mark = std::min(text.substr(0, colon).find('!'), colon);
    Value value = lookup(text.substr(0, mark));
    if (mark < colon) {
      const std::string_view conversion = text.substr(mark + 1, colon - mark - 1);
      if (conversion == "r") {
        value = heap_.string(represent(heap_, value));
      } else if (conversion == "s") {
        value = heap_.string(to_text(heap_, value));
      } else {
        throw Failure{fmt::format("a format's conversion '!{}' is not supported", conversion)};
      }
    }
    return format_value(heap_, value, colon < text.size() ? run(text.substr(colon + 1), depth + 1) : "");
  }

  Value lookup(std::string_view path) {
    const std::size_t first = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, first));
    for (std::size_t position = first; position < path.size();) {
      if (path[position] == '.') {
        const std::size_t end = std::min(path.find_first_of(".[", position + 1), path.size());
        value = get_attribute(heap_, value, path.substr(position + 1, end - position - 1));
        position = end;
        continue;
      }
      const std::size_t end = path.find(']', position);
      if (path[position] != '[' || end == std::string_view::npos) throw Failure{"a format's field name is not valid"};
      std::string_view key = path.substr(position + 1, end - position - 1);
      std::size_t digits = 0;
      const std::size_t index = read_number(key, digits);
      const bool numeric = !key.empty() && digits == key.size();
      value = get_item(heap_, value,
                       numeric ? Value::integer(static_cast<std::int64_t>(index)) : heap_.string(std::string(key)));
      position = end + 1;
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t digits = 0;
    std::size_t index = read_number(name, digits);
    if (name.empty()) index = next_++;
    if (digits == name.size()) {
      if (index >= arguments_.positional.size()) throw Failure{"a format names more values than it is given"};
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.keyword) {
      if (key == name) return value;
    }
    throw Failure{fmt::format("a format names '{}', which it is not given", name)};
  }

  Heap& heap_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

// `%` notation.

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, std::string_view format, const Value& operand)
      : heap_(heap), format_(format), operand_(operand) {}

  std::string run() {
    while (position_ < format_.size()) {
      const char c = format_[position_++];
      if (c == '%') {
        place();
      } else {
        result_ += c;
      }
    }
    const bool leftover = operand_.is(Type::kTuple) ? used_ < operand_.items().size()
                                                    : used_ == 0 && !operand_.is_dict() && !operand_.is(Type::kList);
    if (leftover) throw Failure{"not all values were used in formatting"};
    return std::move(result_);
  }

 private:
  char at() const { return position_ < format_.size() ? format_[position_] : '\0'; }

  Value next_operand() {
    if (operand_.is(Type::kTuple)) {
      if (used_ >= operand_.items().size()) throw Failure{"not enough values for the format"};
      return operand_.items()[used_++];
    }
    if (used_++ > 0) throw Failure{"not enough values for the format"};
    return operand_;
  }

  Field flags() {
    Field field;
    field.align = '>';
    for (; std::string_view("-+ #0").find(at()) != std::string_view::npos && at() != '\0'; ++position_) {
      if (at() == '-') field.align = '<';
      if (at() == '+' || (at() == ' ' && field.sign != '+')) field.sign = at();
      if (at() == '#') field.alternate = true;
      if (at() == '0') field.fill = "0";
    }
    if (field.align == '<') field.fill = " ";
    if (field.fill == "0") field.align = '=';
    return field;
  }

  std::size_t size() {
    if (at() != '*') return read_number(format_, position_);
    ++position_;
    const Value value = next_operand();
    if (!value.is_integral() || value.as_int() < 0 || value.as_int() > static_cast<std::int64_t>(kMaxFieldSize)) {
      throw Failure{"* in a format needs a small integer"};
    }
    return static_cast<std::size_t>(value.as_int());
  }

  void place() {
    std::optional<Value> named;
    if (at() == '(') {
      const std::size_t end = format_.find(')', position_);
      if (end == std::string_view::npos || !operand_.is_dict()) throw Failure{"a format with names needs a dict"};
      const Value* const found = operand_.as_dict().find(format_.substr(position_ + 1, end - position_ - 1));
      if (found == nullptr) throw Failure{"a format names a key that the dict lacks"};
      named = *found;
      position_ = end + 1;
    }
    Field field = flags();
    field.width = size();
    if (at() == '.') {
      ++position_;
      field.precision = size();
    }
    field.type = at();
    ++position_;
    if (field.type == '%') {
      result_ += '%';
    } else {
      result_ += convert(field, named ? *named : next_operand());
    }
  }

  std::string convert(Field field, const Value& value) {
    if (field.type == 's' || field.type == 'r') {
      if (field.align == '=') field.align = '>';
      field.fill = " ";
      return format_text(field, field.type == 's' ? to_text(heap_, value) : represent(heap_, value));
    }
    if (field.type == 'i' || field.type == 'u') field.type = 'd';
    if (field.type == 'c' && value.is_string() && value.as_string().length == 1)
      return format_text(field, value.text());
    if (!value.is_number()) {
      if (value.is_undefined()) fail_undefined(value);
      throw Failure{fmt::format("%{} needs a number, not {}", field.type, type_name(value))};
    }
    if (is_real_type(field.type)) {
      if (!field.precision) field.precision = 6;
      return format_real(field, value.as_real());
    }
    if (!is_integer_type(field.type) || field.type == 'b' || (field.type != 'd' && value.is(Type::kFloat))) {
      throw Failure{fmt::format("the format %{} is not valid for {}", field.type, type_name(value))};
    }
    if (value.is_integral()) {
      if (!field.precision) return format_integer(field, value.as_int());
      Field digits;
      digits.type = field.type;
      digits.fill = "0";
      digits.align = '=';
      digits.width = *field.precision;
      const std::string body = format_integer(digits, std::abs(value.as_int()));
      return padded(field, sign_of(field, value.as_int() < 0), body, '>');
    }
    if (!(std::fabs(value.as_real()) < 9.2e18)) throw Failure{"a number does not fit in 64 bits"};
    return format_integer(field, static_cast<std::int64_t>(value.as_real()));
  }

  Heap& heap_;
  std::string_view format_;
  const Value& operand_;
  std::size_t position_ = 0;
  std::size_t used_ = 0;
  std::string result_;
};

}  // namespace

Value format_percent(Heap& heap, const Value& format, const Value& operand) {
  if (format.as_string().markup) throw Failure{"formatting of text marked safe is not supported"};
  heap.charge(format.text().size());
  return heap.string(PercentFormatter(heap, format.text(), operand).run());
}

Value format_braces(Heap& heap, const Value& format, const Arguments& arguments) {
  if (format.as_string().markup) throw Failure{"formatting of text marked safe is not supported"};
  heap.charge(format.text().size());
  return heap.string(BraceFormatter(heap, arguments).run(format.text(), 0));
}

}  // namespace rondo::data::jinja
