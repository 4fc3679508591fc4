// str() and repr() of values, and the writing of numbers that both share with JSON.
#pragma once

#include <string>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// str(value): what printing it gives.
std::string to_text(Heap& heap, const Value& value);
std::string represent(Heap& heap, const Value& value);
std::string represent_text(std::string_view text);
/// The shortest decimal that reads back the same, written as Python does; `inf` and `nan` for those.
std::string float_text(double value);
/// `value` where it is a string, else str(value); keeps what is Markup.
Value soft_string(Heap& heap, const Value& value);

}  // namespace rondo::data::jinja
