// Numbers and texts laid out in a field.
#include "format_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "representation.h"
#include "rondo/base/utf8.h"
#include "text.h"
#include "value.h"

namespace rondo::data::jinja {
namespace {

std::string grouped(std::string digits, char separator) {
  if (separator == '\0') return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
  return digits;
}

}  // namespace

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

}  // namespace rondo::data::jinja
