// A method wins over a dict's key with `.name` and loses with `['name']`, as in Python's Jinja2.
#include "attributes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ast.h"
#include "iteration.h"
#include "methods.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

std::string object_name(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", type_name(object));
}

Value missing_attribute(Heap& heap, const Value& object, std::string_view name) {
  return heap.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value unsafe(Heap& heap, const Value& object, std::string_view name) {
  return heap.undefined(fmt::format("access to attribute '{}' of '{}' is unsafe", name, object_name(object)));
}

std::optional<Value> loop_attribute(LoopObject& loop, std::string_view name) {
  const auto integer = [](std::int64_t value) { return Value::integer(value); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.last());
  if (name == "length") return integer(static_cast<std::int64_t>(loop.length()));
  if (name == "revindex") return integer(static_cast<std::int64_t>(loop.length()) - loop.index0);
  if (name == "revindex0") return integer(static_cast<std::int64_t>(loop.length()) - loop.index0 - 1);
  if (name == "previtem") return loop.previous_item();
  if (name == "nextitem") return loop.next_item();
  if (name == "depth") return integer(1);
  if (name == "depth0") return integer(0);
  if (name == "cycle") return loop.heap.method(Value::of(Type::kLoop, &loop), "cycle");
  if (name == "changed") return loop.heap.method(Value::of(Type::kLoop, &loop), "changed");
  return std::nullopt;
}

std::optional<Value> range_attribute(const RangeObject& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  if (name == "step") return Value::integer(range.step);
  return std::nullopt;
}

std::optional<Value> macro_attribute(Heap& heap, const CallableObject& callable, std::string_view name) {
  if (callable.kind != CallableObject::Kind::kMacro) return std::nullopt;
  const Statement& macro = *callable.macro;
  if (name == "name") return macro.text.empty() ? Value::none() : heap.string(macro.text);
  if (name == "caller") return Value::boolean(macro.takes_caller);
  if (name == "catch_kwargs") return Value::boolean(macro.takes_keywords);
  if (name == "catch_varargs") return Value::boolean(macro.takes_positionals);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& parameter : macro.targets) names.push_back(heap.string(parameter->text));
    return heap.tuple(std::move(names));
  }
  return std::nullopt;
}

/// The element at a possibly negative index, or nothing.
std::optional<Value> element(Heap& heap, const Value& object, std::int64_t index) {
  const auto length = static_cast<std::int64_t>(length_of(object));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  if (object.is_sequence()) return object.items()[at];
  if (object.is(Type::kRange))
    return Value::integer(object.as<RangeObject>().start + index * object.as<RangeObject>().step);
  const StringObject& string = object.as_string();
  if (string.ascii()) return heap.string(string.text.substr(at, 1), string.markup);
  heap.charge(string.text.size());
  const std::size_t start = byte_offset(string.text, at);
  std::size_t end = start;
  next_code_point(string.text, end);
  return heap.string(string.text.substr(start, end - start), string.markup);
}

std::int64_t slice_bound(const Value& bound, std::int64_t otherwise) {
  if (bound.is_none()) return otherwise;
  if (!bound.is_integral()) throw Failure{fmt::format("a slice needs integers, not {}", type_name(bound))};
  return bound.as_int();
}

std::int64_t clamp_bound(std::int64_t bound, std::int64_t length, std::int64_t low, std::int64_t high) {
  return std::clamp(bound < 0 ? bound + length : bound, low, high);
}

Value slice_text(Heap& heap, const StringObject& string, const std::vector<std::size_t>& indices, bool forward) {
  heap.charge(string.text.size());
  if (indices.empty()) return heap.string("", string.markup);
  if (forward) {
    const std::size_t start = byte_offset(string.text, indices.front());
    const std::size_t size = byte_offset(std::string_view(string.text).substr(start), indices.size());
    return heap.string(string.text.substr(start, size), string.markup);
  }
  std::vector<std::size_t> offsets;
  for (std::size_t position = 0; position < string.text.size();) {
    offsets.push_back(position);
    next_code_point(string.text, position);
  }
  offsets.push_back(string.text.size());
  std::string result;
  for (const std::size_t index : indices)
    result += string.text.substr(offsets[index], offsets[index + 1] - offsets[index]);
  return heap.string(std::move(result), string.markup);
}

}  // namespace

std::optional<Value> own_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is(Type::kNamespace)) {
    const Value* const found = object.as<NamespaceObject>().attributes.find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (object.is(Type::kLoop)) return loop_attribute(object.as<LoopObject>(), name);
  if (object.is(Type::kCallable)) return macro_attribute(heap, object.as<CallableObject>(), name);
  if (object.is(Type::kCycler) && name == "current") {
    return object.as<CyclerObject>().items[object.as<CyclerObject>().position];
  }
  if (object.is(Type::kRange)) {
    if (const auto found = range_attribute(object.as<RangeObject>(), name)) return found;
  }
  if (changes_object(object.type(), name)) return unsafe(heap, object, name);
  if (const std::string_view method = method_name(object.type(), name); !method.empty())
    return heap.method(object, method);
  return std::nullopt;
}

Value get_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto own = own_attribute(heap, object, name)) return *own;
  if (object.is_dict()) {
    if (const Value* const item = object.as_dict().find(name)) return *item;
  }
  return missing_attribute(heap, object, name);
}

Value get_item(Heap& heap, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_dict()) {
    if (!key.is(Type::kList) && !key.is_dict()) {
      heap.step(object.as_dict().steps_to_find(key));
      if (const Value* const item = object.as_dict().find(key)) return *item;
    }
  } else if (key.is_integral() && (object.is_sequence() || object.is_string() || object.is(Type::kRange))) {
    if (const auto item = element(heap, object, key.as_int())) return *item;
  }
  if (key.is_string()) {
    if (const auto own = own_attribute(heap, object, key.text())) return *own;
    return missing_attribute(heap, object, key.text());
  }
  return heap.undefined(fmt::format("{} has no element {}", object_name(object), represent(heap, key)));
}

Value get_path(Heap& heap, Value object, const Value& path, const Value& otherwise) {
  if (path.is_none()) return object;
  if (!path.is_string()) {
    object = get_item(heap, object, path);
    return object.is_undefined() && !otherwise.is_none() ? otherwise : object;
  }
  const std::string& text = path.text();
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t dot = std::min(text.find('.', start), text.size());
    const std::string part = text.substr(start, dot - start);
    const bool index = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    object = get_item(heap, object, index ? Value::integer(std::stoll(part)) : heap.string(part));
    if (object.is_undefined() && !otherwise.is_none()) object = otherwise;
    start = dot + 1;
  }
  return object;
}

Value get_slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  if (!object.is_sequence() && !object.is_string() && !object.is(Type::kRange)) {
    throw Failure{fmt::format("{} cannot be sliced", type_name(object))};
  }
  const auto length = static_cast<std::int64_t>(length_of(object));
  const std::int64_t stride = slice_bound(step, 1);
  if (stride == 0) throw Failure{"the step of a slice cannot be zero"};
  const std::int64_t low = stride > 0 ? 0 : -1;
  const std::int64_t high = stride > 0 ? length : length - 1;
  const std::int64_t first =
      start.is_none() ? (stride > 0 ? low : high) : clamp_bound(slice_bound(start, 0), length, low, high);
  const std::int64_t last =
      stop.is_none() ? (stride > 0 ? high : low) : clamp_bound(slice_bound(stop, 0), length, low, high);
  std::vector<std::size_t> indices;
  const std::int64_t bounded = std::clamp(stride, -length - 1, length + 1);
  for (std::int64_t i = first; bounded > 0 ? i < last : i > last; i += bounded)
    indices.push_back(static_cast<std::size_t>(i));
  heap.charge(indices.size() * sizeof(std::size_t));
  if (object.is_string()) return slice_text(heap, object.as_string(), indices, stride == 1);
  if (object.is(Type::kRange)) {
    const auto& range = object.as<RangeObject>();
    auto& part = heap.make<RangeObject>();
    part.step = range.step * bounded;
    part.start = range.start + first * range.step;
    part.stop = range.start + last * range.step;
    part.length = static_cast<std::int64_t>(indices.size());
    return Value::of(Type::kRange, &part);
  }
  std::vector<Value> items;
  for (const std::size_t index : indices) items.push_back(object.items()[index]);
  return object.is(Type::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

}  // namespace rondo::data::jinja
