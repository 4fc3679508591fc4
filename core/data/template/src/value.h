// The values that a template computes with: a small tagged word, and the objects that it may point to.
//
// Values are copied freely and own nothing. Objects belong to a Heap (heap.h) and live until it goes, so cyclic and
// deeply nested data need no reference counts and are freed without recursion. Strings, lists, tuples and dicts never
// change once a template can see them; namespaces, iterators, loops, cyclers and joiners do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rondo::data::jinja {

/// Thrown inside this room only: a template's or its input's fault. Line 0 means not known yet.
struct Failure {
  std::string message;
  std::uint32_t line = 0;
};

enum class Type : std::uint8_t {
  kMissing,    // a variable that nothing was stored into; never seen by an expression
  kUndefined,  // Jinja's Undefined
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // a generator: may be walked once
  kNamespace,
  kLoop,
  kCycler,
  kJoiner,
  kCallable,
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct StringObject;
struct SequenceObject;
struct DictObject;

class Value {
 public:
  Value() : type_(Type::kMissing), integer_(0) {}
  static Value none() { return Value(Type::kNone); }
  static Value boolean(bool value) {
    Value result(Type::kBool);
    result.integer_ = value ? 1 : 0;
    return result;
  }
  static Value integer(std::int64_t value) {
    Value result(Type::kInt);
    result.integer_ = value;
    return result;
  }
  static Value real(double value) {
    Value result(Type::kFloat);
    result.real_ = value;
    return result;
  }
  static Value of(Type type, Object* object) {
    Value result(type);
    result.object_ = object;
    return result;
  }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_missing() const { return is(Type::kMissing); }
  bool is_undefined() const { return is(Type::kUndefined); }
  bool is_none() const { return is(Type::kNone); }
  bool is_string() const { return is(Type::kString); }
  bool is_dict() const { return is(Type::kDict); }
  bool is_sequence() const { return is(Type::kList) || is(Type::kTuple); }
  /// A bool counts: it is an int in Python.
  bool is_integral() const { return is(Type::kInt) || is(Type::kBool); }
  bool is_number() const { return is_integral() || is(Type::kFloat); }

  bool as_bool() const { return integer_ != 0; }
  std::int64_t as_int() const { return integer_; }
  double as_real() const { return is(Type::kFloat) ? real_ : static_cast<double>(integer_); }
  Object* object() const { return object_; }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const StringObject& as_string() const;
  const std::string& text() const;
  const std::vector<Value>& items() const;  // of a list or a tuple
  const DictObject& as_dict() const;

 private:
  explicit Value(Type type) : type_(type), integer_(0) {}
  Type type_;
  union {
    std::int64_t integer_;
    double real_;
    Object* object_;
  };
};

/// UTF-8. A `markup` string is Python's Markup: what joins it is HTML-escaped.
struct StringObject final : Object {
  StringObject(std::string text_in, bool markup_in);
  bool ascii() const { return length == text.size(); }
  std::string text;
  std::size_t length;  // code points
  bool markup;
};

struct SequenceObject final : Object {
  explicit SequenceObject(std::vector<Value> items_in) : items(std::move(items_in)) {}
  std::vector<Value> items;
};

/// Keeps the order of insertion. Keys are hashable values; equal numbers are the same key.
struct DictObject final : Object {
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// The work of find() or set(): keys that are no text are looked for one by one.
  std::uint64_t steps_to_find(const Value& key) const { return key.is_string() ? 1 : 1 + entries.size() / 16; }
  /// Replaces the value of an equal key, which keeps its place.
  void set(const Value& key, const Value& value);
  std::vector<std::pair<Value, Value>> entries;

 private:
  std::unordered_map<std::string_view, std::size_t> strings_;  // views into the keys' own text
};

struct UndefinedObject final : Object {
  explicit UndefinedObject(std::string message_in) : message(std::move(message_in)) {}
  std::string message;  // of the error that using it raises
};

struct RangeObject final : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t length = 0;
};

struct ViewObject final : Object {
  enum class Kind : std::uint8_t { kKeys, kValues, kItems };
  ViewObject(Kind kind_in, const DictObject& dict_in) : kind(kind_in), dict(dict_in) {}
  Kind kind;
  const DictObject& dict;
};

/// Something that is walked once, value by value.
struct IteratorObject : Object {
  /// False at the end, and ever after.
  virtual bool next(Value& value) = 0;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(DictObject& attributes_in) : attributes(attributes_in) {}
  DictObject& attributes;
};

struct CyclerObject final : Object {
  explicit CyclerObject(std::vector<Value> items_in) : items(std::move(items_in)) {}
  std::vector<Value> items;
  std::size_t position = 0;
};

struct JoinerObject final : Object {
  explicit JoinerObject(Value separator_in) : separator(separator_in) {}
  Value separator;
  bool used = false;
};

struct Statement;
struct Environment;

/// A macro, the body of a call block, a global function, or a method bound to its object.
struct CallableObject final : Object {
  enum class Kind : std::uint8_t { kMacro, kGlobal, kMethod };
  Kind kind = Kind::kGlobal;
  std::string_view name;  // of a global or a method: a literal or text of the template
  Value self;             // of a method
  const Statement* macro = nullptr;
  Environment* closure = nullptr;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

inline const StringObject& Value::as_string() const { return as<StringObject>(); }
inline const std::string& Value::text() const { return as<StringObject>().text; }
inline const std::vector<Value>& Value::items() const { return as<SequenceObject>().items; }
inline const DictObject& Value::as_dict() const { return as<DictObject>(); }

}  // namespace rondo::data::jinja
