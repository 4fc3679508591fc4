// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include "functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "iteration.h"
#include "operators.h"
#include "representation.h"

namespace rondo::data::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // the sandbox's own limit
constexpr std::size_t kMaxTimeText = 4096;

Value range(Heap& heap, const Arguments& arguments) {
  const BoundArguments bound(arguments, "range", {"start", "stop", "step"}, 1);
  auto& result = heap.make<RangeObject>();
  result.start = bound.has(1) ? bound.integer(0, 0) : 0;
  result.stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  result.step = bound.integer(2, 1);
  if (result.step == 0) throw Failure{"range needs a step that is not zero"};
  const bool up = result.step > 0;
  if (up ? result.start < result.stop : result.start > result.stop) {
    const auto low = static_cast<std::uint64_t>(up ? result.start : result.stop);
    const auto high = static_cast<std::uint64_t>(up ? result.stop : result.start);
    const std::uint64_t step =
        up ? static_cast<std::uint64_t>(result.step) : 0 - static_cast<std::uint64_t>(result.step);
    const std::uint64_t length = (high - low - 1) / step + 1;
    if (length > kMaxRange) throw Failure{fmt::format("range of {} numbers is more than {}", length, kMaxRange)};
    result.length = static_cast<std::int64_t>(length);
  }
  return Value::of(Type::kRange, &result);
}

DictObject& make_dict(Heap& heap, std::string_view function, const Arguments& arguments) {
  auto& dict = heap.make<DictObject>();
  if (arguments.positional.size() > 1) throw Failure{fmt::format("{} takes at most one value by position", function)};
  const auto set = [&heap, &dict](const Value& key, const Value& value) {
    require_hashable(key);
    heap.step(dict.steps_to_find(key));
    dict.set(key, value);
  };
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    for (const auto& [key, value] : arguments.positional[0].as_dict().entries) set(key, value);
  } else if (!arguments.positional.empty()) {
    IteratorObject& iterator = iterate(heap, arguments.positional[0]);
    for (Value item; iterator.next(item);) {
      const std::vector<Value> pair = collect(heap, item);
      if (pair.size() != 2) throw Failure{fmt::format("{} needs pairs of key and value", function)};
      set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.keyword) set(heap.string(name), value);
  return dict;
}

Value dict(Heap& heap, const Arguments& arguments) {
  return Value::of(Type::kDict, &make_dict(heap, "dict", arguments));
}

Value make_namespace(Heap& heap, const Arguments& arguments) {
  auto& space = heap.make<NamespaceObject>(heap.make<DictObject>());
  for (const auto& [name, value] : make_dict(heap, "namespace", arguments).entries)
    set_namespace_entry(space, name, value);
  return Value::of(Type::kNamespace, &space);
}

Value cycler(Heap& heap, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.keyword.empty()) throw Failure{"cycler needs values by position"};
  return Value::of(Type::kCycler, &heap.make<CyclerObject>(arguments.positional));
}

Value joiner(Heap& heap, const Arguments& arguments) {
  const BoundArguments bound(arguments, "joiner", {"sep"});
  const Value separator = bound.has(0) ? bound.get(0) : heap.string(", ");
  return Value::of(Type::kJoiner, &heap.make<JoinerObject>(separator));
}

Value raise_exception(Heap& heap, const Arguments& arguments) {
  const BoundArguments bound(arguments, "raise_exception", {"message"}, 1);
  std::string message = to_text(heap, bound.get(0));
  std::replace(message.begin(), message.end(), '\n', ' ');
  throw Failure{fmt::format("the template refuses this conversation: {}", message)};
}

Value strftime_now(Heap& heap, const Arguments& arguments) {
  const BoundArguments bound(arguments, "strftime_now", {"format"}, 1);
  if (!bound.get(0).is_string()) throw Failure{"strftime_now needs a text"};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(kMaxTimeText, '\0');
  // A mark keeps an empty result apart from one that is too long.
  const std::string format = bound.get(0).text() + ".";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
#pragma GCC diagnostic pop
  if (size == 0) throw Failure{"strftime_now makes too long a text"};
  text.resize(size - 1);
  return heap.string(std::move(text));
}

struct NamedFunction {
  std::string_view name;
  Value (*call)(Heap& heap, const Arguments& arguments);
};

constexpr NamedFunction kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"cycler", cycler},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

const NamedFunction* find_function(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                         [name](const NamedFunction& entry) { return entry.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace

std::string_view function_name(std::string_view name) {
  const NamedFunction* const entry = find_function(name);
  return entry == nullptr ? std::string_view() : entry->name;
}

Value call_function(Heap& heap, std::string_view name, const Arguments& arguments) {
  return find_function(name)->call(heap, arguments);
}

void set_namespace_entry(NamespaceObject& space, const Value& name, const Value& value) {
  if (name.is_string() && !name.text().empty() && name.text().front() == '_') {
    throw Failure{fmt::format("a namespace cannot hold '{}': names must not begin with an underscore", name.text())};
  }
  space.attributes.set(name, value);
}

}  // namespace rondo::data::jinja
