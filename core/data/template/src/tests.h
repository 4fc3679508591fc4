// The tests: `value is name(arguments)`.
#pragma once

#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

bool has_test(std::string_view name);
/// Throws Failure for an unknown test and where Python raises.
bool apply_test(Heap& heap, std::string_view name, const Value& input, const Arguments& arguments);

}  // namespace rondo::data::jinja
