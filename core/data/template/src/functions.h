// The global functions of chat templates.
#pragma once

#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// The global's name in static memory, or empty.
std::string_view function_name(std::string_view name);
/// Throws Failure where Python raises, and with the message of raise_exception.
Value call_function(Heap& heap, std::string_view name, const Arguments& arguments);
/// Throws Failure for a name that a namespace may not hold.
void set_namespace_entry(NamespaceObject& space, const Value& name, const Value& value);

}  // namespace rondo::data::jinja
