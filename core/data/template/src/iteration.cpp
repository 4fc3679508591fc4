// Iterators over each kind of value.
#include "iteration.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

struct GeneratorObject final : IteratorObject {
  explicit GeneratorObject(std::function<bool(Value&)> next_in) : next_value(std::move(next_in)) {}
  bool next(Value& value) override {
    if (finished) return false;
    finished = !next_value(value);
    return !finished;
  }
  std::function<bool(Value&)> next_value;
  bool finished = false;
};

IteratorObject& generator(Heap& heap, std::function<bool(Value&)> next) {
  return heap.make<GeneratorObject>(std::move(next));
}

Value dict_part(Heap& heap, const std::pair<Value, Value>& entry, ViewObject::Kind kind) {
  switch (kind) {
    case ViewObject::Kind::kKeys:
      return entry.first;
    case ViewObject::Kind::kValues:
      return entry.second;
    case ViewObject::Kind::kItems:
      return heap.tuple({entry.first, entry.second});
  }
  return Value::none();
}

IteratorObject& walk_dict(Heap& heap, const DictObject& dict, ViewObject::Kind kind, bool backwards) {
  return generator(heap, [&heap, &dict, kind, backwards, i = std::size_t{0}](Value& value) mutable {
    if (i >= dict.entries.size()) return false;
    value = dict_part(heap, dict.entries[backwards ? dict.entries.size() - 1 - i : i], kind);
    ++i;
    return true;
  });
}

IteratorObject& walk_text(Heap& heap, const StringObject& text) {
  return generator(heap, [&heap, &text, position = std::size_t{0}](Value& value) mutable {
    if (position >= text.text.size()) return false;
    const std::size_t start = position;
    next_code_point(text.text, position);
    value = heap.string(text.text.substr(start, position - start));
    return true;
  });
}

IteratorObject& walk_range(Heap& heap, const RangeObject& range, bool backwards) {
  return generator(heap, [&range, backwards, i = std::int64_t{0}](Value& value) mutable {
    if (i >= range.length) return false;
    value = Value::integer(range.start + (backwards ? range.length - 1 - i : i) * range.step);
    ++i;
    return true;
  });
}

IteratorObject& walk_items(Heap& heap, const std::vector<Value>& items, bool backwards) {
  return generator(heap, [&items, backwards, i = std::size_t{0}](Value& value) mutable {
    if (i >= items.size()) return false;
    value = items[backwards ? items.size() - 1 - i : i];
    ++i;
    return true;
  });
}

}  // namespace

Value make_generator(Heap& heap, std::function<bool(Value&)> next) {
  return Value::of(Type::kIterator, &generator(heap, std::move(next)));
}

bool can_iterate(const Value& value) { return value.is(Type::kIterator) || value.is(Type::kLoop) || has_length(value); }

IteratorObject& iterate(Heap& heap, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return generator(heap, [](Value&) { return false; });
    case Type::kString:
      return walk_text(heap, value.as_string());
    case Type::kList:
    case Type::kTuple:
      return walk_items(heap, value.items(), false);
    case Type::kDict:
      return walk_dict(heap, value.as_dict(), ViewObject::Kind::kKeys, false);
    case Type::kView:
      return walk_dict(heap, value.as<ViewObject>().dict, value.as<ViewObject>().kind, false);
    case Type::kRange:
      return walk_range(heap, value.as<RangeObject>(), false);
    case Type::kIterator:
      return value.as<IteratorObject>();
    default:
      throw Failure{fmt::format("{} cannot be iterated over", type_name(value))};
  }
}

std::vector<Value> collect(Heap& heap, const Value& value) {
  if (value.is_sequence()) {
    heap.charge(value.items().size() * sizeof(Value));
    return value.items();
  }
  std::vector<Value> items;
  IteratorObject& iterator = iterate(heap, value);
  for (Value item; iterator.next(item);) {
    heap.step();
    items.push_back(item);
  }
  return items;
}

std::optional<Value> reversed(Heap& heap, const Value& value) {
  const auto wrap = [](IteratorObject& iterator) { return Value::of(Type::kIterator, &iterator); };
  switch (value.type()) {
    case Type::kUndefined:
      return wrap(iterate(heap, value));
    case Type::kString: {
      std::vector<Value> characters = collect(heap, value);
      std::reverse(characters.begin(), characters.end());
      return wrap(iterate(heap, heap.list(std::move(characters))));
    }
    case Type::kList:
    case Type::kTuple:
      return wrap(walk_items(heap, value.items(), true));
    case Type::kDict:
      return wrap(walk_dict(heap, value.as_dict(), ViewObject::Kind::kKeys, true));
    case Type::kView:
      return wrap(walk_dict(heap, value.as<ViewObject>().dict, value.as<ViewObject>().kind, true));
    case Type::kRange:
      return wrap(walk_range(heap, value.as<RangeObject>(), true));
    default:
      return std::nullopt;
  }
}

LoopObject::LoopObject(Heap& heap_in, const Value& iterable) : heap(heap_in), iterator_(&iterate(heap_in, iterable)) {
  if (has_length(iterable)) length_ = length_of(iterable);
}

bool LoopObject::step(Value& item) {
  if (!rest_taken_) return iterator_->next(item);
  if (rest_position_ >= rest_.size()) return false;
  item = rest_[rest_position_++];
  return true;
}

bool LoopObject::peek() {
  if (!after_.is_missing()) return true;
  Value item;
  if (!step(item)) return false;
  after_ = item;
  return true;
}

bool LoopObject::advance(Value& item) {
  if (!after_.is_missing()) {
    item = after_;
    after_ = Value();
  } else if (!step(item)) {
    return false;
  }
  ++index0;
  before_ = current_;
  current_ = item;
  return true;
}

std::size_t LoopObject::length() {
  if (!length_) {
    Value item;
    while (step(item)) {
      heap.step();
      rest_.push_back(item);
    }
    rest_taken_ = true;
    length_ = rest_.size() + static_cast<std::size_t>(index0 + 1) + (after_.is_missing() ? 0 : 1);
  }
  return *length_;
}

bool LoopObject::last() { return !peek(); }

Value LoopObject::previous_item() {
  return index0 == 0 || before_.is_missing() ? heap.undefined("there is no previous item") : before_;
}

Value LoopObject::next_item() { return peek() ? after_ : heap.undefined("there is no next item"); }

}  // namespace rondo::data::jinja
