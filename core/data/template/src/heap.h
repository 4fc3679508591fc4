// Where a rendering's objects live, and what counts its work against the template's limits.
//
// Every object made is freed with the Heap, all at once. Making text or a list costs steps in proportion to its size,
// so the step limit bounds memory too. One Heap serves one rendering (or one parse) on one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rondo/data/chat_template.h"
#include "value.h"

namespace rondo::data::jinja {

class Heap {
 public:
  explicit Heap(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.steps) {}

  /// Throws Failure when the steps are used up.
  void step(std::uint64_t count = 1);
  /// Accounts for an object of this size. Throws Failure when one object, or all together, grow past the limits.
  void charge(std::size_t bytes);

  template <typename T, typename... Args>
  T& make(Args&&... args) {
    charge(sizeof(T));
    auto owner = std::make_unique<T>(std::forward<Args>(args)...);
    T& object = *owner;
    objects_.push_back(std::move(owner));
    return object;
  }

  Value string(std::string text, bool markup = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value undefined(std::string message);
  Value method(const Value& self, std::string_view name);
  Value view(ViewObject::Kind kind, const DictObject& dict);

  const TemplateLimits& limits() const { return limits_; }

  /// One level of recursion while it lives: evaluation, comparison, writing of nested values.
  class Level {
   public:
    explicit Level(Heap& heap);
    ~Level() { --heap_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Heap& heap_;
  };

 private:
  TemplateLimits limits_;
  std::uint64_t steps_left_;
  std::uint32_t levels_ = 0;
  std::deque<std::unique_ptr<Object>> objects_;
};

/// Reads the arguments of a built-in function by position or by name.
class BoundArguments {
 public:
  /// Throws Failure when there are too many, an unknown name, one given twice, or fewer than `required`.
  BoundArguments(const Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> names,
                 std::size_t required = 0);
  bool has(std::size_t index) const { return !values_[index].is_missing(); }
  Value get(std::size_t index, Value otherwise = Value::none()) const {
    return has(index) ? values_[index] : otherwise;
  }
  bool flag(std::size_t index) const;
  /// Throws Failure unless the argument is absent or an integer.
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;

 private:
  std::string_view function_;
  std::vector<Value> values_;
};

}  // namespace rondo::data::jinja
