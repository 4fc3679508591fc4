// `object.name` and `object[key]`, as Jinja2's sandbox resolves them.
#pragma once

#include <optional>
#include <string_view>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// The object's own attribute (a method, a loop's property, a namespace's entry) first, then its item of that name.
/// Undefined when there is neither. Throws Failure on an undefined object.
Value get_attribute(Heap& heap, const Value& object, std::string_view name);
/// The item first, then the attribute of that name.
Value get_item(Heap& heap, const Value& object, const Value& key);
/// The attribute alone.
std::optional<Value> own_attribute(Heap& heap, const Value& object, std::string_view name);
/// `a.b.0` as filters name attributes: items all the way, digits as indices. `otherwise`, unless none, stands in for
/// each step that is undefined.
Value get_path(Heap& heap, Value object, const Value& path, const Value& otherwise = Value::none());

/// Python's slice; each bound is an integer or none. Throws Failure for what cannot be sliced.
Value get_slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace rondo::data::jinja
