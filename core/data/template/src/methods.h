// The methods that values have in templates.
#pragma once

#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// The method's name in static memory, or empty when this type of value has no such method.
std::string_view method_name(Type type, std::string_view name);
/// True for the methods that the sandbox withholds because they change their object.
bool changes_object(Type type, std::string_view name);
/// Throws Failure where Python raises.
Value call_method(Heap& heap, const Value& self, std::string_view name, const Arguments& arguments);

/// String methods (string_methods.cpp).
std::string_view string_method_name(std::string_view name);
Value call_string_method(Heap& heap, const Value& self, std::string_view name, const Arguments& arguments);

/// str(old) by str(new) in `self`, as both the method and the filter do; keeps Markup.
Value replace_text(Heap& heap, const Value& self, const Value& from, const Value& to, std::int64_t count);
/// `separator`.join over texts that the caller made.
Value join_texts(Heap& heap, const Value& separator, const std::vector<Value>& items);

}  // namespace rondo::data::jinja
