// Bytes of the container. One buffer of the largest tensor's size is all the memory that it takes.
#include "container.h"

#include <algorithm>
#include <bit>

#include "rondo/base/atomic_file.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kAlignment = 32;

template <typename Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out.append(text);
}

template <typename Number>
void put_array(std::string& out, ValueType type, const std::vector<Number>& values) {
  put(out, type);
  put<std::uint64_t>(out, values.size());
  for (const Number value : values) put(out, value);
}

std::size_t padding_after(std::size_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

std::string make_head(const Keys& keys, const std::vector<Tensor>& tensors) {
  std::string head = "GGUF";
  put(head, kVersion);
  put<std::uint64_t>(head, tensors.size());
  put(head, keys.count());
  head += keys.bytes();
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    put_text(head, tensor.name);
    put(head, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) put(head, *size);
    put(head, static_cast<std::uint32_t>(tensor.type));
    put(head, offset);
    offset += tensor.bytes() + padding_after(tensor.bytes());
  }
  head.append(padding_after(head.size()), '\0');
  return head;
}

}  // namespace

void Keys::begin(std::string_view name, ValueType type) {
  put_text(bytes_, name);
  put(bytes_, type);
  ++count_;
}

void Keys::add(std::string_view name, std::string_view text) {
  begin(name, ValueType::kString);
  put_text(bytes_, text);
}

void Keys::add(std::string_view name, std::uint32_t value) {
  begin(name, ValueType::kUint32);
  put(bytes_, value);
}

void Keys::add(std::string_view name, float value) {
  begin(name, ValueType::kFloat32);
  put(bytes_, value);
}

void Keys::add(std::string_view name, bool value) {
  begin(name, ValueType::kBool);
  bytes_ += value ? '\1' : '\0';
}

void Keys::add(std::string_view name, const std::vector<std::string>& texts) {
  begin(name, ValueType::kArray);
  put(bytes_, ValueType::kString);
  put<std::uint64_t>(bytes_, texts.size());
  for (const std::string& text : texts) put_text(bytes_, text);
}

void Keys::add(std::string_view name, const std::vector<std::int32_t>& values) {
  begin(name, ValueType::kArray);
  put_array(bytes_, ValueType::kInt32, values);
}

void Keys::add(std::string_view name, const std::vector<bool>& values) {
  begin(name, ValueType::kArray);
  put(bytes_, ValueType::kBool);
  put<std::uint64_t>(bytes_, values.size());
  for (const bool value : values) bytes_ += value ? '\1' : '\0';
}

void Keys::add(std::string_view name, const std::vector<float>& values) {
  begin(name, ValueType::kArray);
  put_array(bytes_, ValueType::kFloat32, values);
}

std::size_t Tensor::bytes() const {
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows * row_bytes(type, shape.back());
}

absl::Status write_container(const std::filesystem::path& file, const Keys& keys, const std::vector<Tensor>& tensors,
                             const std::function<absl::Status(std::size_t, std::span<std::byte>)>& fill) {
  remove_abandoned_files(file.has_parent_path() ? file.parent_path() : ".");
  RONDO_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::create(file));
  const std::string head = make_head(keys, tensors);
  RONDO_RETURN_IF_ERROR(out.write(std::as_bytes(std::span(head))));
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = tensors[i].bytes();
    buffer.assign(bytes + padding_after(bytes), std::byte{0});
    RONDO_RETURN_IF_ERROR(fill(i, std::span(buffer).first(bytes)));
    RONDO_RETURN_IF_ERROR(out.write(buffer));
  }
  return out.commit_new();
}

}  // namespace rondo::gguf
