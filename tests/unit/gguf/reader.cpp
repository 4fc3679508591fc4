// A cursor over the file's bytes.
#include "reader.h"

#include <cstring>

#include "rondo/base/file.h"

namespace rondo::gguf {
namespace {

using Json = nlohmann::json;

struct Cursor {
  const std::string& bytes;
  std::size_t at = 0;

  template <typename Number>
  Number number() {
    Number value{};
    if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }

  std::string text() {
    const auto size = number<std::uint64_t>();
    const std::string value = at + size <= bytes.size() ? bytes.substr(at, size) : std::string();
    at += size;
    return value;
  }

  Json value(std::uint32_t type) {
    if (type == 4) return number<std::uint32_t>();
    if (type == 5) return number<std::int32_t>();
    if (type == 6) return number<float>();
    if (type == 7) return number<std::uint8_t>() != 0;
    if (type == 8) return text();
    if (type != 9) return {};
    const auto element = number<std::uint32_t>();
    const auto count = number<std::uint64_t>();
    Json list = Json::array();
    for (std::uint64_t i = 0; i < count && at < bytes.size(); ++i) list.push_back(value(element));
    return list;
  }
};

std::size_t bytes_of(const ReadTensor& tensor) {
  std::size_t elements = 1;
  for (const std::uint64_t size : tensor.sizes) elements *= size;
  if (tensor.type == 0) return elements * 4;
  return tensor.type == 8 ? elements / 32 * 34 : elements * 2;
}

}  // namespace

ReadFile read_gguf(const std::filesystem::path& path) {
  ReadFile file;
  const std::string bytes = read_file(path).value_or("");
  Cursor cursor{bytes};
  file.whole = bytes.starts_with("GGUF");
  cursor.at = 4;
  file.whole = file.whole && cursor.number<std::uint32_t>() == 3;
  const auto tensors = cursor.number<std::uint64_t>();
  const auto keys = cursor.number<std::uint64_t>();
  for (std::uint64_t i = 0; i < keys && cursor.at < bytes.size(); ++i) {
    const std::string name = cursor.text();
    const auto type = cursor.number<std::uint32_t>();
    file.keys[name] = cursor.value(type);
  }
  std::map<std::string, std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensors && cursor.at < bytes.size(); ++i) {
    const std::string name = cursor.text();
    ReadTensor& tensor = file.tensors[name];
    tensor.sizes.resize(cursor.number<std::uint32_t>());
    for (std::uint64_t& size : tensor.sizes) size = cursor.number<std::uint64_t>();
    tensor.type = cursor.number<std::uint32_t>();
    offsets[name] = cursor.number<std::uint64_t>();
  }
  const std::size_t begin = (cursor.at + 31) / 32 * 32;
  for (auto& [name, tensor] : file.tensors) {
    const std::size_t from = begin + offsets[name];
    file.whole = file.whole && offsets[name] % 32 == 0 && from + bytes_of(tensor) <= bytes.size();
    if (file.whole) tensor.data = bytes.substr(from, bytes_of(tensor));
  }
  return file;
}

std::vector<float> floats_of(const ReadTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace rondo::gguf
