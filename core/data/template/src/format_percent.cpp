// The % operator on texts.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "format.h"
#include "format_field.h"
#include "operators.h"
#include "representation.h"

namespace rondo::data::jinja {
namespace {

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
      const bool negative = value.as_int() < 0;
      digits.width = *field.precision + (negative ? 1 : 0);
      std::string body = format_integer(digits, value.as_int());
      if (negative) body.erase(0, 1);  // its sign comes before the field's own padding
      return padded(field, sign_of(field, negative), body, '>');
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

}  // namespace rondo::data::jinja
