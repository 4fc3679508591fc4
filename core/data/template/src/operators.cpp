// Numbers are 64-bit here where Python's are unbounded: an overflow is an error, never a wrong value.
#include "operators.h"

#include <fmt/format.h>

#include <cmath>

#include "format.h"
#include "iteration.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

constexpr std::uint32_t kMaxKeyDepth = 16;

[[noreturn]] void fail_operands(std::string_view symbol, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  throw Failure{fmt::format("'{}' cannot take {} and {}", symbol, type_name(left), type_name(right))};
}

[[noreturn]] void fail_overflow() { throw Failure{"a number does not fit in 64 bits"}; }

std::string_view symbol_of(BinaryOp op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<std::size_t>(op)];
}

void require_hashable(const Value& value, std::uint32_t depth) {
  if (value.is(Type::kList) || value.is_dict() || depth > kMaxKeyDepth) {
    throw Failure{fmt::format("{} cannot be a key", type_name(value))};
  }
  if (value.is(Type::kTuple)) {
    for (const Value& item : value.items()) require_hashable(item, depth + 1);
  }
}

bool scalar_equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_int() == right.as_int();
    return left.as_real() == right.as_real();
  }
  if (left.type() != right.type()) return false;
  switch (left.type()) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return left.text() == right.text();
    case Type::kRange: {
      const auto& a = left.as<RangeObject>();
      const auto& b = right.as<RangeObject>();
      return a.length == b.length && (a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step)));
    }
    default:
      return left.object() == right.object();
  }
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value integer_binary(BinaryOp op, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  const bool divides = op == BinaryOp::kFloorDiv || op == BinaryOp::kMod || op == BinaryOp::kDiv;
  if (divides && right == 0) throw Failure{"division by zero"};
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kDiv:
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOp::kFloorDiv:
      if (right == -1) return integer_binary(BinaryOp::kSub, 0, left);
      result = left / right;
      return Value::integer(left % right != 0 && (left < 0) != (right < 0) ? result - 1 : result);
    case BinaryOp::kMod:
      if (right == -1) return Value::integer(0);
      result = left % right;
      return Value::integer(result != 0 && (result < 0) != (right < 0) ? result + right : result);
    case BinaryOp::kPow:
      if (right >= 0) return Value::integer(integer_power(left, right));
      if (left == 0) throw Failure{"zero cannot be raised to a negative power"};
      return Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  return Value::none();
}

Value real_binary(BinaryOp op, double left, double right) {
  const bool divides = op == BinaryOp::kFloorDiv || op == BinaryOp::kMod || op == BinaryOp::kDiv;
  if (divides && right == 0.0) throw Failure{"division by zero"};
  double remainder = divides ? std::fmod(left, right) : 0.0;
  if (remainder != 0.0 && (remainder < 0.0) != (right < 0.0)) remainder += right;
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(left + right);
    case BinaryOp::kSub:
      return Value::real(left - right);
    case BinaryOp::kMul:
      return Value::real(left * right);
    case BinaryOp::kDiv:
      return Value::real(left / right);
    case BinaryOp::kFloorDiv: {
      const double quotient = (left - remainder) / right;
      if (quotient == 0.0) return Value::real(std::copysign(0.0, left / right));
      const double floored = std::floor(quotient);
      return Value::real(quotient - floored > 0.5 ? floored + 1.0 : floored);
    }
    case BinaryOp::kMod:
      return Value::real(remainder == 0.0 ? std::copysign(0.0, right) : remainder);
    case BinaryOp::kPow: {
      if (left == 0.0 && right < 0.0) throw Failure{"zero cannot be raised to a negative power"};
      const double result = std::pow(left, right);
      if (std::isinf(result) && !std::isinf(left) && !std::isinf(right)) fail_overflow();
      if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) {
        throw Failure{"a power of a negative number is not real"};
      }
      return Value::real(result);
    }
  }
  return Value::none();
}

Value add_strings(Heap& heap, const StringObject& left, const StringObject& right) {
  const bool markup = left.markup || right.markup;
  std::string result = markup && !left.markup ? escape_html(left.text) : left.text;
  result += markup && !right.markup ? escape_html(right.text) : right.text;
  return heap.string(std::move(result), markup);
}

bool less_sequence(Heap& heap, const std::vector<Value>& left, const std::vector<Value>& right) {
  const std::size_t common = std::min(left.size(), right.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!equal(heap, left[i], right[i])) return less(heap, left[i], right[i]);
  }
  return left.size() < right.size();
}

bool equal_dicts(Heap& heap, const DictObject& left, const DictObject& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* const other = right.find(key);
    if (other == nullptr || !equal(heap, value, *other)) return false;
  }
  return true;
}

}  // namespace

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {"undefined", "undefined", "none",  "bool",   "int",    "float",
                                         "str",       "list",      "tuple", "dict",   "range",  "dict view",
                                         "generator", "namespace", "loop",  "cycler", "joiner", "function"};
  return kNames[static_cast<std::size_t>(value.type())];
}

void fail_undefined(const Value& value) { throw Failure{value.as<UndefinedObject>().message}; }

bool truth(const Value& value) {
  switch (value.type()) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.as_int() != 0;
    case Type::kFloat:
      return value.as_real() != 0.0;
    default:
      return !has_length(value) || length_of(value) > 0;
  }
}

bool has_length(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kRange:
    case Type::kView:
    case Type::kLoop:
      return true;
    default:
      return false;
  }
}

std::size_t length_of(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return value.as_string().length;
    case Type::kList:
    case Type::kTuple:
      return value.items().size();
    case Type::kDict:
      return value.as_dict().entries.size();
    case Type::kRange:
      return static_cast<std::size_t>(value.as<RangeObject>().length);
    case Type::kView:
      return value.as<ViewObject>().dict.entries.size();
    case Type::kLoop:
      return value.as<LoopObject>().length();
    default:
      throw Failure{fmt::format("{} has no length", type_name(value))};
  }
}

void require_hashable(const Value& value) { require_hashable(value, 0); }

bool same_key(const Value& left, const Value& right) {
  if (!left.is(Type::kTuple) || !right.is(Type::kTuple)) return scalar_equal(left, right);
  if (left.items().size() != right.items().size()) return false;
  for (std::size_t i = 0; i < left.items().size(); ++i) {
    if (!same_key(left.items()[i], right.items()[i])) return false;
  }
  return true;
}

bool equal(Heap& heap, const Value& left, const Value& right) {
  heap.step();
  if (left.type() != right.type() || !(left.is_sequence() || left.is_dict())) return scalar_equal(left, right);
  if (left.object() == right.object()) return true;
  const Heap::Level level(heap);
  if (left.is_dict()) return equal_dicts(heap, left.as_dict(), right.as_dict());
  if (left.items().size() != right.items().size()) return false;
  for (std::size_t i = 0; i < left.items().size(); ++i) {
    if (!equal(heap, left.items()[i], right.items()[i])) return false;
  }
  return true;
}

bool identical(const Value& left, const Value& right) {
  if (left.type() != right.type()) return false;
  if (left.is_none() || left.is_integral()) return left.as_int() == right.as_int();
  if (left.is(Type::kFloat)) return false;
  return left.object() == right.object();
}

bool less(Heap& heap, const Value& left, const Value& right) {
  heap.step();
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_int() < right.as_int();
    return left.as_real() < right.as_real();
  }
  // The order of UTF-8 bytes is the order of code points.
  if (left.is_string() && right.is_string()) return left.text() < right.text();
  if (left.type() == right.type() && left.is_sequence()) {
    const Heap::Level level(heap);
    return less_sequence(heap, left.items(), right.items());
  }
  fail_operands("<", left, right);
}

bool compare(Heap& heap, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return equal(heap, left, right);
    case CompareOp::kNe:
      return !equal(heap, left, right);
    case CompareOp::kLt:
      return less(heap, left, right);
    case CompareOp::kGt:
      return less(heap, right, left);
    case CompareOp::kLe:
      return less(heap, left, right) || equal(heap, left, right);
    case CompareOp::kGe:
      return less(heap, right, left) || equal(heap, left, right);
    case CompareOp::kIn:
      return contains(heap, right, left);
    case CompareOp::kNotIn:
      return !contains(heap, right, left);
  }
  return false;
}

bool contains(Heap& heap, const Value& container, const Value& value) {
  if (container.is_string()) {
    if (!value.is_string()) throw Failure{fmt::format("'in' of a str needs a str, not {}", type_name(value))};
    heap.charge(container.text().size());
    return find_text(container.text(), value.text()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    require_hashable(value);
    heap.step(container.as_dict().steps_to_find(value));
    return container.as_dict().find(value) != nullptr;
  }
  IteratorObject& iterator = iterate(heap, container);
  for (Value item; iterator.next(item);) {
    if (equal(heap, item, value)) return true;
  }
  return false;
}

Value repeat(Heap& heap, const Value& value, std::int64_t count) {
  const auto copies = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
  const std::uint64_t unit = value.is_string() ? value.text().size() : value.items().size() * sizeof(Value);
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(unit, copies, &total)) fail_overflow();
  heap.charge(total);
  if (value.is_string()) {
    std::string text;
    text.reserve(total);
    for (std::uint64_t i = 0; i < copies && unit > 0; ++i) text += value.text();
    return heap.string(std::move(text), value.as_string().markup);
  }
  std::vector<Value> items;
  for (std::uint64_t i = 0; i < copies && unit > 0; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Type::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

Value binary(Heap& heap, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return integer_binary(op, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return real_binary(op, left.as_real(), right.as_real());
  if (op == BinaryOp::kAdd && left.is_string() && right.is_string()) {
    return add_strings(heap, left.as_string(), right.as_string());
  }
  if (op == BinaryOp::kAdd && left.is_sequence() && left.type() == right.type()) {
    std::vector<Value> items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return left.is(Type::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
  }
  if (op == BinaryOp::kMul) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral()) return repeat(heap, left, right.as_int());
    if ((right.is_string() || right.is_sequence()) && left.is_integral()) return repeat(heap, right, left.as_int());
  }
  if (op == BinaryOp::kMod && left.is_string()) return format_percent(heap, left, right);
  fail_operands(symbol_of(op), left, right);
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Type::kFloat)) return Value::real(-value.as_real());
  if (!value.is_integral()) throw Failure{fmt::format("{} cannot be negated", type_name(value))};
  return integer_binary(BinaryOp::kSub, 0, value.as_int());
}

Value positive(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_integral()) return Value::integer(value.as_int());
  if (!value.is_number()) throw Failure{fmt::format("{} is not a number", type_name(value))};
  return value;
}

}  // namespace rondo::data::jinja
