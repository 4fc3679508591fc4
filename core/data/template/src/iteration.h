// Walking values, and the loop variable that a `for` block sees.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// iter(value). Throws Failure for what cannot be walked. An iterator is handed back itself.
IteratorObject& iterate(Heap& heap, const Value& value);
bool can_iterate(const Value& value);
/// list(value) without making a list.
std::vector<Value> collect(Heap& heap, const Value& value);
/// reversed(value): nothing for what has no end to start from (a generator).
std::optional<Value> reversed(Heap& heap, const Value& value);

/// A generator: `next` is called for each value, when it is wanted.
Value make_generator(Heap& heap, std::function<bool(Value&)> next);

/// Jinja's LoopContext: looks one item ahead only when asked.
struct LoopObject final : Object {
  LoopObject(Heap& heap_in, const Value& iterable);
  bool advance(Value& item);
  std::size_t length();
  bool last();
  Value previous_item();
  Value next_item();

  Heap& heap;
  std::int64_t index0 = -1;
  std::vector<Value> changed_value;  // of loop.changed(); empty: not called yet
  bool changed_called = false;

 private:
  bool peek();
  IteratorObject* iterator_;
  std::optional<std::size_t> length_;
  Value after_;
  Value current_;
  Value before_;
  std::vector<Value> rest_;  // what length() had to walk
  std::size_t rest_position_ = 0;
  bool rest_taken_ = false;
  bool step(Value& item);
};

}  // namespace rondo::data::jinja
