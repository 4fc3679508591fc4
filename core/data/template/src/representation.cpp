// Nested values count each level and each byte against the limits: a namespace may hold itself.
#include "representation.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "ast.h"
#include "iteration.h"
#include "operators.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

class Writer {
 public:
  explicit Writer(Heap& heap) : heap_(heap) {}
  void write(const Value& value);
  std::string take() { return std::move(text_); }

 private:
  void put(std::string_view text) {
    heap_.charge(text.size());
    text_ += text;
  }
  void write_items(const std::vector<Value>& items, std::string_view open, std::string_view close);
  void write_dict(const DictObject& dict);
  void write_view(const ViewObject& view);
  void write_object(const Value& value);

  Heap& heap_;
  std::string text_;
};

void Writer::write_items(const std::vector<Value>& items, std::string_view open, std::string_view close) {
  put(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) put(", ");
    write(items[i]);
  }
  put(close);
}

void Writer::write_dict(const DictObject& dict) {
  put("{");
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) put(", ");
    write(dict.entries[i].first);
    put(": ");
    write(dict.entries[i].second);
  }
  put("}");
}

void Writer::write_view(const ViewObject& view) {
  constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
  put(kNames[static_cast<std::size_t>(view.kind)]);
  ViewObject again(view.kind, view.dict);
  write_items(collect(heap_, Value::of(Type::kView, &again)), "[", "])");
}

void Writer::write_object(const Value& value) {
  switch (value.type()) {
    case Type::kRange: {
      const auto& range = value.as<RangeObject>();
      put(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                          : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
      return;
    }
    case Type::kNamespace:
      put("<Namespace ");
      write_dict(value.as<NamespaceObject>().attributes);
      put(">");
      return;
    case Type::kLoop:
      put(fmt::format("<LoopContext {}/{}>", value.as<LoopObject>().index0 + 1, value.as<LoopObject>().length()));
      return;
    case Type::kCallable: {
      const auto& callable = value.as<CallableObject>();
      const bool macro = callable.kind == CallableObject::Kind::kMacro;
      put(macro ? fmt::format("<Macro {}>",
                              callable.macro->text.empty() ? "anonymous" : represent_text(callable.macro->text))
                : fmt::format("<function {}>", callable.name));
      return;
    }
    default:
      put(fmt::format("<{} object>", type_name(value)));
  }
}

void Writer::write(const Value& value) {
  const Heap::Level level(heap_);
  switch (value.type()) {
    case Type::kMissing:
    case Type::kUndefined:
      return put("Undefined");
    case Type::kNone:
      return put("None");
    case Type::kBool:
      return put(value.as_bool() ? "True" : "False");
    case Type::kInt:
      return put(std::to_string(value.as_int()));
    case Type::kFloat:
      return put(float_text(value.as_real()));
    case Type::kString:
      if (value.as_string().markup) put("Markup(");
      put(represent_text(value.text()));
      if (value.as_string().markup) put(")");
      return;
    case Type::kList:
      return write_items(value.items(), "[", "]");
    case Type::kTuple:
      return write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    case Type::kDict:
      return write_dict(value.as_dict());
    case Type::kView:
      return write_view(value.as<ViewObject>());
    default:
      return write_object(value);
  }
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<std::size_t>(written.ptr - buffer));
  const std::size_t e = scientific.find('e');
  int exponent = 0;
  const char* const digits_end = scientific.data() + scientific.size();
  std::from_chars(scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1), digits_end, exponent);
  std::string_view mantissa = scientific.substr(0, e);
  const bool negative = mantissa.front() == '-';
  if (negative) mantissa.remove_prefix(1);
  std::string digits(mantissa.substr(0, 1));
  if (mantissa.size() > 2) digits += mantissa.substr(2);
  const auto count = static_cast<int>(digits.size());
  std::string result = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (count > 1) result += "." + digits.substr(1);
    return result + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return result + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  return result + digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<std::size_t>(exponent) + 1);
}

std::string represent_text(std::string_view text) {
  const bool double_quoted = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (is_printable(c)) {
      result += text.substr(start, position - start);
    } else {
      const auto code = static_cast<std::uint32_t>(c);
      result += code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
  }
  return result + quote;
}

std::string represent(Heap& heap, const Value& value) {
  Writer writer(heap);
  writer.write(value);
  return writer.take();
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined() || value.is_missing()) return {};
  return represent(heap, value);
}

Value soft_string(Heap& heap, const Value& value) {
  return value.is_string() ? value : heap.string(to_text(heap, value));
}

}  // namespace rondo::data::jinja
