// str.format.
#include <fmt/format.h>

#include <algorithm>

#include "attributes.h"
#include "format.h"
#include "format_field.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

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
      field.zeros = true;
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
  const bool number = value.is_number();
  if (number && (value.is(Type::kFloat) ? field.type == '\0' || is_real_type(field.type) : is_real_type(field.type))) {
    return format_real(field, value.as_real());
  }
  if (value.is_integral() && number && (field.type == '\0' || is_integer_type(field.type)) && !field.precision) {
    return format_integer(field, value.as_int());
  }
  const bool of_numbers = field.sign != '-' || field.alternate || field.grouping != '\0';
  if (value.is_string() && (field.type == '\0' || field.type == 's') && !of_numbers) {
    if (field.zeros) field.align = '<';
    if (field.align != '=') return format_text(field, to_text(heap, value));
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

}  // namespace

Value format_braces(Heap& heap, const Value& format, const Arguments& arguments) {
  if (format.as_string().markup) throw Failure{"formatting of text marked safe is not supported"};
  heap.charge(format.text().size());
  return heap.string(BraceFormatter(heap, arguments).run(format.text(), 0));
}

}  // namespace rondo::data::jinja
