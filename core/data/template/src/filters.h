// The filters: `value|name(arguments)`.
#pragma once

#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

bool has_filter(std::string_view name);
/// Throws Failure for an unknown filter and where Python raises.
Value apply_filter(Heap& heap, std::string_view name, const Value& input, const Arguments& arguments);

using Filter = Value (*)(Heap& heap, const Value& input, const Arguments& arguments);
/// Those that work on sequences (sequence_filters.cpp), or null.
Filter find_sequence_filter(std::string_view name);

}  // namespace rondo::data::jinja
