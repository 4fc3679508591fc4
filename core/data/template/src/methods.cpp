// Methods of dicts, lists, tuples, ranges, loops and cyclers.
#include "methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "iteration.h"
#include "operators.h"

namespace rondo::data::jinja {
namespace {

template <std::size_t N>
std::string_view pick(const std::string_view (&names)[N], std::string_view name) {
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? std::string_view() : *found;
}

constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kListChanges[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kTupleMethods[] = {"index", "count"};
constexpr std::string_view kCyclerMethods[] = {"next", "reset"};

Value dict_method(Heap& heap, const DictObject& dict, std::string_view name, const Arguments& arguments) {
  if (name == "get") {
    if (!arguments.keyword.empty()) throw Failure{"get takes no named arguments"};
    const BoundArguments bound(arguments, "get", {"key", "default"}, 1);
    require_hashable(bound.get(0));
    heap.step(dict.steps_to_find(bound.get(0)));
    const Value* const found = dict.find(bound.get(0));
    return found == nullptr ? bound.get(1) : *found;
  }
  const BoundArguments bound(arguments, name, {});
  if (name == "items") return heap.view(ViewObject::Kind::kItems, dict);
  if (name == "keys") return heap.view(ViewObject::Kind::kKeys, dict);
  if (name == "values") return heap.view(ViewObject::Kind::kValues, dict);
  auto& copy = heap.make<DictObject>();
  for (const auto& [key, value] : dict.entries) {
    heap.step(copy.steps_to_find(key));
    copy.set(key, value);
  }
  return Value::of(Type::kDict, &copy);
}

Value sequence_method(Heap& heap, const Value& self, std::string_view name, const Arguments& arguments) {
  if (name == "copy") {
    const BoundArguments bound(arguments, name, {});
    return heap.list(self.items());
  }
  const BoundArguments bound(arguments, name, {"value", "start", "stop"}, 1);
  const std::vector<Value> items = collect(heap, self);
  const auto length = static_cast<std::int64_t>(items.size());
  const auto clamp = [length](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + length : i, 0, length); };
  const std::int64_t stop = clamp(bound.integer(2, length));
  std::int64_t count = 0;
  for (std::int64_t i = clamp(bound.integer(1, 0)); i < stop; ++i) {
    if (!equal(heap, items[static_cast<std::size_t>(i)], bound.get(0))) continue;
    if (name == "index") return Value::integer(i);
    ++count;
  }
  if (name == "index") throw Failure{"index: the value is not in the list"};
  return Value::integer(count);
}

Value loop_method(Heap& heap, LoopObject& loop, std::string_view name, const Arguments& arguments) {
  if (!arguments.keyword.empty()) throw Failure{fmt::format("loop.{} takes no named arguments", name)};
  if (name == "cycle") {
    if (arguments.positional.empty()) throw Failure{"loop.cycle needs at least one argument"};
    return arguments.positional[static_cast<std::size_t>(loop.index0) % arguments.positional.size()];
  }
  const Value now = heap.tuple(arguments.positional);
  const bool changed = !loop.changed_called || !equal(heap, heap.tuple(loop.changed_value), now);
  loop.changed_called = true;
  loop.changed_value = arguments.positional;
  return Value::boolean(changed);
}

Value cycler_method(CyclerObject& cycler, std::string_view name, const Arguments& arguments) {
  const BoundArguments bound(arguments, name, {});
  if (name == "reset") {
    cycler.position = 0;
    return Value::none();
  }
  const Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

}  // namespace

std::string_view method_name(Type type, std::string_view name) {
  switch (type) {
    case Type::kString:
      return string_method_name(name);
    case Type::kDict:
      return pick(kDictMethods, name);
    case Type::kList:
      return pick(kListMethods, name);
    case Type::kTuple:
    case Type::kRange:
      return pick(kTupleMethods, name);
    case Type::kCycler:
      return pick(kCyclerMethods, name);
    default:
      return {};
  }
}

bool changes_object(Type type, std::string_view name) {
  return (type == Type::kDict && !pick(kDictChanges, name).empty()) ||
         (type == Type::kList && !pick(kListChanges, name).empty());
}

Value call_method(Heap& heap, const Value& self, std::string_view name, const Arguments& arguments) {
  switch (self.type()) {
    case Type::kString:
      return call_string_method(heap, self, name, arguments);
    case Type::kDict:
      return dict_method(heap, self.as_dict(), name, arguments);
    case Type::kLoop:
      return loop_method(heap, self.as<LoopObject>(), name, arguments);
    case Type::kCycler:
      return cycler_method(self.as<CyclerObject>(), name, arguments);
    default:
      return sequence_method(heap, self, name, arguments);
  }
}

}  // namespace rondo::data::jinja
