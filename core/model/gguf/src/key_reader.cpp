#include "key_reader.h"

#include <cmath>
#include <cstdlib>

#include "load_number.h"
#include "rondo/base/status.h"
#include "rondo/base/utf8.h"

namespace rondo::gguf {
namespace {

bool is_integer(ValueType type) {
  return type != ValueType::kFloat32 && type != ValueType::kFloat64 && type != ValueType::kBool &&
         type != ValueType::kString && type != ValueType::kArray;
}

/// The value as a signed number; what does not fit in 63 bits is far beyond every limit.
std::int64_t integer_at(ValueType type, const std::byte* data) {
  switch (type) {
    case ValueType::kUint8:
      return load_number<std::uint8_t>(data);
    case ValueType::kInt8:
      return load_number<std::int8_t>(data);
    case ValueType::kUint16:
      return load_number<std::uint16_t>(data);
    case ValueType::kInt16:
      return load_number<std::int16_t>(data);
    case ValueType::kUint32:
      return load_number<std::uint32_t>(data);
    case ValueType::kInt32:
      return load_number<std::int32_t>(data);
    default:
      return load_number<std::int64_t>(data);
  }
}

}  // namespace

void KeyReader::refuse(std::string_view key, std::string_view what) {
  if (status_.ok()) status_ = invalid_input("{}: {}: {}", file_.origin(), key, what);
}

const Value* KeyReader::find(const std::string& key, bool is_array, std::string_view wanted, bool (*suits)(ValueType)) {
  const auto found = file_.keys.find(key);
  if (found == file_.keys.end()) return nullptr;
  const Value& value = found->second;
  if (value.is_array == is_array && suits(value.type)) return &value;
  refuse(key, fmt::format("expected {}, found {}", wanted,
                          value.is_array ? fmt::format("an array of {}", value.count) : "another type"));
  return nullptr;
}

std::uint32_t KeyReader::integer(const std::string& key, std::uint32_t low, std::uint32_t high,
                                 std::optional<std::uint32_t> fallback) {
  const Value* value = find(key, false, "an integer", is_integer);
  if (value == nullptr) {
    if (!fallback && !has(key)) refuse(key, "is missing; expected an integer");
    return fallback.value_or(low);
  }
  const std::int64_t number = integer_at(value->type, value->bytes.data());
  if (number < low || number > high) {
    refuse(key, fmt::format("expected {} to {}, found {}", low, high, number));
    return low;
  }
  return static_cast<std::uint32_t>(number);
}

bool KeyReader::is_list(std::string_view key) const {
  const auto found = file_.keys.find(key);
  return found != file_.keys.end() && found->second.is_array;
}

double KeyReader::number(const std::string& key, double low, double high, std::optional<double> fallback) {
  const Value* value = find(key, false, "a floating-point number",
                            [](ValueType type) { return type == ValueType::kFloat32 || type == ValueType::kFloat64; });
  if (value == nullptr) {
    if (!fallback && !has(key)) refuse(key, "is missing; expected a number");
    return fallback.value_or(low);
  }
  double number = 0;
  if (value->type == ValueType::kFloat32) {
    number = std::strtod(fmt::format("{}", load_number<float>(value->bytes.data())).c_str(), nullptr);
  } else {
    number = load_number<double>(value->bytes.data());
  }
  // Written so that a NaN fails too.
  if (!(number >= low && number <= high)) {
    refuse(key, fmt::format("expected {:g} to {:g}, found {:g}", low, high, number));
    return low;
  }
  return number;
}

std::string KeyReader::text(const std::string& key, const std::optional<std::string>& fallback) {
  const Value* value = find(key, false, "a text", [](ValueType type) { return type == ValueType::kString; });
  if (value == nullptr) {
    if (!fallback && !has(key)) refuse(key, "is missing; expected a text");
    return fallback.value_or("");
  }
  if (!is_utf8(value->texts[0])) {
    refuse(key, "expected UTF-8");
    return {};
  }
  return std::string(value->texts[0]);
}

bool KeyReader::flag(const std::string& key, bool fallback) {
  const Value* value = find(key, false, "true or false", [](ValueType type) { return type == ValueType::kBool; });
  return value == nullptr ? fallback : load_number<std::uint8_t>(value->bytes.data()) != 0;
}

std::vector<std::string_view> KeyReader::texts(const std::string& key) {
  const Value* value = find(key, true, "an array of texts", [](ValueType type) { return type == ValueType::kString; });
  if (value == nullptr) return {};
  for (std::size_t i = 0; i < value->texts.size(); ++i) {
    if (is_utf8(value->texts[i])) continue;
    refuse(key, fmt::format("element {} is no UTF-8", i));
    return {};
  }
  return value->texts;
}

std::vector<float> KeyReader::floats(const std::string& key) {
  const Value* value = find(key, true, "an array of 32-bit floating-point numbers",
                            [](ValueType type) { return type == ValueType::kFloat32; });
  std::vector<float> out(value == nullptr ? 0 : value->count);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = load_number<float>(value->bytes.data() + i * sizeof(float));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(out[i])) continue;
    refuse(key, fmt::format("element {} is not finite", i));
    return {};
  }
  return out;
}

std::vector<std::int32_t> KeyReader::integers(const std::string& key) {
  const auto suits = [](ValueType type) { return type == ValueType::kInt32 || type == ValueType::kUint32; };
  const Value* value = find(key, true, "an array of 32-bit integers", suits);
  std::vector<std::int32_t> out(value == nullptr ? 0 : value->count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load_number<std::int32_t>(value->bytes.data() + i * sizeof(std::int32_t));
  }
  return out;
}

std::vector<bool> KeyReader::flags(const std::string& key) {
  const Value* value =
      find(key, true, "an array of true and false", [](ValueType type) { return type == ValueType::kBool; });
  std::vector<bool> out(value == nullptr ? 0 : value->count);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = load_number<std::uint8_t>(value->bytes.data() + i) != 0;
  return out;
}

}  // namespace rondo::gguf
