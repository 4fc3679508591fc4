// Written as Python's json module writes it.
#include "json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "operators.h"
#include "representation.h"
#include "rondo/base/utf8.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

Value json_string(Heap& heap, const std::string& text) {
  if (!is_utf8(text)) throw Failure{"a text in the conversation is not UTF-8"};
  return heap.string(text);
}

void append_utf16_escape(std::string& text, char32_t c) {
  const auto code = static_cast<std::uint32_t>(c);
  if (code < 0x10000) {
    text += fmt::format("\\u{:04x}", code);
  } else {
    text += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10U), 0xDC00 + ((code - 0x10000) & 0x3FFU));
  }
}

std::string quoted(std::string_view text, bool ensure_ascii) {
  constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  std::string result = "\"";
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    const std::size_t special = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
    if (special != std::string_view::npos) {
      result += '\\';
      result += kLetters[special];
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F + 1)) {
      append_utf16_escape(result, c);
    } else {
      result += text.substr(start, position - start);
    }
  }
  return result + '"';
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}
  void write(const Value& value);
  std::string take() { return std::move(text_); }

 private:
  void put(std::string_view text) {
    heap_.charge(text.size());
    text_ += text;
  }
  void line() {
    if (!style_.multiline) return;
    put("\n");
    for (std::size_t i = 0; i < depth_; ++i) put(style_.indent);
  }
  std::string key(const Value& value) const;
  void write_array(const std::vector<Value>& items);
  void write_object(const DictObject& dict);

  Heap& heap_;
  const JsonStyle& style_;
  std::string text_;
  std::size_t depth_ = 0;
};

std::string JsonWriter::key(const Value& value) const {
  switch (value.type()) {
    case Type::kString:
      return value.text();
    case Type::kNone:
      return "null";
    case Type::kBool:
      return value.as_bool() ? "true" : "false";
    case Type::kInt:
      return std::to_string(value.as_int());
    case Type::kFloat:
      return number_text(value.as_real());
    default:
      throw Failure{fmt::format("{} cannot be a key in JSON", type_name(value))};
  }
}

void JsonWriter::write_array(const std::vector<Value>& items) {
  if (items.empty()) return put("[]");
  put("[");
  ++depth_;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) put(style_.item_separator);
    line();
    write(items[i]);
  }
  --depth_;
  line();
  put("]");
}

void JsonWriter::write_object(const DictObject& dict) {
  if (dict.entries.empty()) return put("{}");
  auto entries = dict.entries;
  if (style_.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(),
                     [this](const auto& a, const auto& b) { return less(heap_, a.first, b.first); });
  }
  put("{");
  ++depth_;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) put(style_.item_separator);
    line();
    put(quoted(key(entries[i].first), style_.ensure_ascii));
    put(style_.key_separator);
    write(entries[i].second);
  }
  --depth_;
  line();
  put("}");
}

void JsonWriter::write(const Value& value) {
  const Heap::Level level(heap_);
  switch (value.type()) {
    case Type::kNone:
      return put("null");
    case Type::kBool:
      return put(value.as_bool() ? "true" : "false");
    case Type::kInt:
      return put(std::to_string(value.as_int()));
    case Type::kFloat:
      return put(number_text(value.as_real()));
    case Type::kString:
      return put(quoted(value.text(), style_.ensure_ascii));
    case Type::kList:
    case Type::kTuple:
      return write_array(value.items());
    case Type::kDict:
      return write_object(value.as_dict());
    default:
      throw Failure{fmt::format("{} cannot be written as JSON", type_name(value))};
  }
}

}  // namespace

Value from_json(Heap& heap, const nlohmann::ordered_json& json) {
  const Heap::Level level(heap);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > INT64_MAX) throw Failure{fmt::format("the number {} does not fit in 64 bits with a sign", number)};
      return Value::integer(static_cast<std::int64_t>(number));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value::real(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return json_string(heap, json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(heap, item));
      return heap.list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      auto& dict = heap.make<DictObject>();
      for (const auto& [name, item] : json.items()) dict.set(json_string(heap, name), from_json(heap, item));
      return Value::of(Type::kDict, &dict);
    }
    default:
      return Value::none();
  }
}

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value);
  return writer.take();
}

}  // namespace rondo::data::jinja
