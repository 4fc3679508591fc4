// Filters on sequences. Those that are generators in Jinja2 are generators here: they work when they are walked, once.
#include <fmt/format.h>

#include <algorithm>

#include "attributes.h"
#include "filters.h"
#include "iteration.h"
#include "methods.h"
#include "operators.h"
#include "representation.h"
#include "tests.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

Value folded(Heap& heap, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return heap.string(lower(value.text()));
}

Value length(Heap&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "length", {});
  return Value::integer(static_cast<std::int64_t>(length_of(input)));
}

Value first(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "first", {});
  Value item;
  return iterate(heap, input).next(item) ? item : heap.undefined("there is no first item, the sequence is empty");
}

Value last(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "last", {});
  const auto backwards = reversed(heap, input);
  if (!backwards) throw Failure{fmt::format("last cannot take {}", type_name(input))};
  Value item;
  return iterate(heap, *backwards).next(item) ? item : heap.undefined("there is no last item, the sequence is empty");
}

Value list(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "list", {});
  return heap.list(collect(heap, input));
}

Value reverse(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "reverse", {});
  if (input.is_string()) return get_slice(heap, input, Value::none(), Value::none(), Value::integer(-1));
  if (const auto backwards = reversed(heap, input)) return *backwards;
  std::vector<Value> items = collect(heap, input);
  std::reverse(items.begin(), items.end());
  return heap.list(std::move(items));
}

Value join(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "join", {"d", "attribute"});
  const Value separator = heap.string(bound.has(0) ? to_text(heap, bound.get(0)) : "");
  std::vector<Value> texts;
  IteratorObject& iterator = iterate(heap, input);
  for (Value item; iterator.next(item);) {
    const Value part = bound.get(1).is_none() ? item : get_path(heap, item, bound.get(1));
    texts.push_back(part.is_string() ? part : heap.string(to_text(heap, part)));
  }
  return join_texts(heap, separator, texts);
}

Value map(Heap& heap, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return make_generator(heap, [](Value&) { return false; });
  const Value source = Value::of(Type::kIterator, &iterate(heap, input));
  if (arguments.positional.empty()) {
    const BoundArguments bound(arguments, "map", {"attribute", "default"}, 1);
    const Value path = bound.get(0);
    const Value otherwise = bound.get(1);
    return make_generator(heap, [&heap, source, path, otherwise](Value& value) {
      if (!source.as<IteratorObject>().next(value)) return false;
      value = get_path(heap, value, path, otherwise);
      return true;
    });
  }
  const std::string name = to_text(heap, arguments.positional.front());
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return make_generator(heap, [&heap, source, name, rest](Value& value) {
    if (!source.as<IteratorObject>().next(value)) return false;
    value = apply_filter(heap, name, value, rest);
    return true;
  });
}

template <bool wanted, bool by_attribute>
Value select(Heap& heap, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return make_generator(heap, [](Value&) { return false; });
  const Value source = Value::of(Type::kIterator, &iterate(heap, input));
  Arguments rest = arguments;
  const auto take = [&rest]() {
    const Value taken = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return taken;
  };
  if (by_attribute && rest.positional.empty()) throw Failure{"an attribute's name is missing"};
  const Value path = by_attribute ? take() : Value::none();
  const bool tests = !rest.positional.empty();
  const std::string name = tests ? to_text(heap, take()) : "";
  return make_generator(heap, [&heap, source, path, tests, name, rest](Value& value) {
    while (source.as<IteratorObject>().next(value)) {
      heap.step();
      const Value subject = by_attribute ? get_path(heap, value, path) : value;
      if ((tests ? apply_test(heap, name, subject, rest) : truth(subject)) == wanted) return true;
    }
    return false;
  });
}

Value items(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "items", {});
  if (input.is_undefined()) return Value::of(Type::kIterator, &iterate(heap, input));
  if (!input.is_dict()) throw Failure{fmt::format("items needs a mapping, not {}", type_name(input))};
  return Value::of(Type::kIterator, &iterate(heap, heap.view(ViewObject::Kind::kItems, input.as_dict())));
}

/// Sorts by keys made once for each item, keeping the order of equal ones also when reversed.
std::vector<Value> sort_by(Heap& heap, const std::vector<Value>& values, const std::vector<Value>& keys,
                           bool backwards) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return backwards ? less(heap, keys[b], keys[a]) : less(heap, keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  for (const std::size_t index : order) sorted.push_back(values[index]);
  return sorted;
}

Value dictsort(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_dict()) throw Failure{fmt::format("dictsort needs a mapping, not {}", type_name(input))};
  const std::string by = bound.has(1) ? to_text(heap, bound.get(1)) : "key";
  if (by != "key" && by != "value") throw Failure{"dictsort sorts by 'key' or 'value'"};
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as_dict().entries) {
    pairs.push_back(heap.tuple({key, value}));
    keys.push_back(folded(heap, by == "key" ? key : value, bound.flag(0)));
  }
  return heap.list(sort_by(heap, pairs, keys, bound.flag(2)));
}

Value sort(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> values = collect(heap, input);
  std::vector<Value> paths = {bound.get(2)};
  if (paths[0].is_string()) {
    Arguments comma;
    comma.positional.push_back(heap.string(","));
    paths = call_string_method(heap, paths[0], "split", comma).items();
  }
  std::vector<Value> keys;
  for (const Value& value : values) {
    std::vector<Value> key;
    for (const Value& path : paths) key.push_back(folded(heap, get_path(heap, value, path), bound.flag(1)));
    keys.push_back(heap.list(std::move(key)));
  }
  return heap.list(sort_by(heap, values, keys, bound.flag(0)));
}

Value unique(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "unique", {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(0);
  const Value path = bound.get(1);
  const Value source = Value::of(Type::kIterator, &iterate(heap, input));
  auto& seen = heap.make<DictObject>();
  return make_generator(heap, [&heap, &seen, source, path, case_sensitive](Value& value) {
    while (source.as<IteratorObject>().next(value)) {
      const Value key = folded(heap, get_path(heap, value, path), case_sensitive);
      require_hashable(key);
      heap.step(seen.steps_to_find(key));
      if (seen.find(key) != nullptr) continue;
      seen.set(key, Value::none());
      return true;
    }
    return false;
  });
}

template <bool largest>
Value extreme(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const auto key_of = [&](const Value& value) {
    return folded(heap, get_path(heap, value, bound.get(1)), bound.flag(0));
  };
  Value best;
  Value best_key;
  IteratorObject& iterator = iterate(heap, input);
  for (Value item; iterator.next(item);) {
    const Value key = key_of(item);
    if (!best.is_missing() && !(largest ? less(heap, best_key, key) : less(heap, key, best_key))) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? heap.undefined("there is no smallest or largest item, the sequence is empty") : best;
}

Value sum(Heap& heap, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(arguments, "sum", {"attribute", "start"});
  Value total = bound.has(1) ? bound.get(1) : Value::integer(0);
  if (total.is_string()) throw Failure{"sum cannot add texts: use join"};
  IteratorObject& iterator = iterate(heap, input);
  for (Value item; iterator.next(item);)
    total = binary(heap, BinaryOp::kAdd, total, get_path(heap, item, bound.get(0)));
  return total;
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"join", join},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"items", items},
    {"dictsort", dictsort},
    {"sort", sort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [name](const Entry& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

}  // namespace rondo::data::jinja
