// Object making and accounting, and the parts of values that need more than a line.
#include "heap.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 256;
constexpr std::uint32_t kLevelsPerDepth = 8;  // a macro call nests several evaluations

}  // namespace

StringObject::StringObject(std::string text_in, bool markup_in)
    : text(std::move(text_in)), length(code_point_count(text)), markup(markup_in) {}

const Value* DictObject::find(std::string_view key) const {
  const auto found = strings_.find(key);
  return found == strings_.end() ? nullptr : &entries[found->second].second;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  for (const auto& [have, value] : entries) {
    if (!have.is_string() && same_key(have, key)) return &value;
  }
  return nullptr;
}

void DictObject::set(const Value& key, const Value& value) {
  if (key.is_string()) {
    const auto [place, fresh] = strings_.emplace(key.text(), entries.size());
    if (!fresh) {
      entries[place->second].second = value;
      return;
    }
  } else {
    for (auto& [have, old] : entries) {
      if (have.is_string() || !same_key(have, key)) continue;
      old = value;
      return;
    }
  }
  entries.emplace_back(key, value);
}

void Heap::step(std::uint64_t count) {
  if (count > steps_left_) {
    throw Failure{fmt::format("the template takes more than {} steps, which is its limit", limits_.steps)};
  }
  steps_left_ -= count;
}

void Heap::charge(std::size_t bytes) {
  if (bytes > limits_.output_bytes) {
    throw Failure{
        fmt::format("the template makes {} bytes at once, more than its limit of {}", bytes, limits_.output_bytes)};
  }
  step(1 + bytes / kBytesPerStep);
}

Value Heap::string(std::string text, bool markup) {
  charge(text.size());
  return Value::of(Type::kString, &make<StringObject>(std::move(text), markup));
}

Value Heap::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return Value::of(Type::kList, &make<SequenceObject>(std::move(items)));
}

Value Heap::tuple(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return Value::of(Type::kTuple, &make<SequenceObject>(std::move(items)));
}

Value Heap::undefined(std::string message) {
  return Value::of(Type::kUndefined, &make<UndefinedObject>(std::move(message)));
}

Value Heap::method(const Value& self, std::string_view name) {
  auto& callable = make<CallableObject>();
  callable.kind = CallableObject::Kind::kMethod;
  callable.self = self;
  callable.name = name;
  return Value::of(Type::kCallable, &callable);
}

Value Heap::view(ViewObject::Kind kind, const DictObject& dict) {
  return Value::of(Type::kView, &make<ViewObject>(kind, dict));
}

Heap::Level::Level(Heap& heap) : heap_(heap) {
  if (heap.levels_ >= heap.limits_.depth * kLevelsPerDepth) {
    throw Failure{fmt::format("the template nests more deeply than its limit of {} allows", heap.limits_.depth)};
  }
  ++heap.levels_;
}

BoundArguments::BoundArguments(const Arguments& arguments, std::string_view function,
                               std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    throw Failure{
        fmt::format("{} takes at most {} arguments, {} given", function, names.size(), arguments.positional.size())};
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.keyword) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw Failure{fmt::format("{} has no argument named '{}'", function, name)};
    Value& slot = values_[static_cast<std::size_t>(found - names.begin())];
    if (!slot.is_missing()) throw Failure{fmt::format("{} got argument '{}' twice", function, name)};
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!has(i)) throw Failure{fmt::format("{} needs argument '{}'", function, *(names.begin() + i))};
  }
}

bool BoundArguments::flag(std::size_t index) const { return has(index) && truth(values_[index]); }

std::int64_t BoundArguments::integer(std::size_t index, std::int64_t otherwise) const {
  if (!has(index)) return otherwise;
  if (!values_[index].is_integral()) {
    throw Failure{fmt::format("{} needs an integer, not {}", function_, type_name(values_[index]))};
  }
  return values_[index].as_int();
}

}  // namespace rondo::data::jinja
