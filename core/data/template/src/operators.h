// Python's operators over values: truth, equality, order, membership, arithmetic.
//
// All throw Failure where Python raises.
#pragma once

#include <cstdint>
#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

/// Python's name of the value's type, for messages.
std::string_view type_name(const Value& value);
bool truth(const Value& value);
/// Equality of dict keys: needs no Heap because keys do not nest deeply (see require_hashable).
bool same_key(const Value& left, const Value& right);
/// Throws Failure unless the value may be a dict key.
void require_hashable(const Value& value);
bool equal(Heap& heap, const Value& left, const Value& right);
bool identical(const Value& left, const Value& right);
/// left < right.
bool less(Heap& heap, const Value& left, const Value& right);
bool compare(Heap& heap, CompareOp op, const Value& left, const Value& right);
bool contains(Heap& heap, const Value& container, const Value& value);
/// len(); throws Failure for what has none.
std::size_t length_of(const Value& value);
bool has_length(const Value& value);

Value binary(Heap& heap, BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& value);
Value positive(const Value& value);
/// `count` copies one after the other.
Value repeat(Heap& heap, const Value& value, std::int64_t count);
/// What raises when an undefined value is used.
[[noreturn]] void fail_undefined(const Value& value);

}  // namespace rondo::data::jinja
