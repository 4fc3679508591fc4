// The GGUF container, version 3, written front to back.
//
//   file    = "GGUF" version:u32 tensors:u64 keys:u64 key* tensor* padding (data padding)*
//   key     = name:string type:u32 value
//   string  = bytes:u64 UTF-8
//   array   = type:u32 count:u64 value*
//   tensor  = name:string dimensions:u32 size:u64* type:u32 offset:u64    sizes innermost first
//
// Little-endian; offsets count from the first tensor's data; padding is to a multiple of 32 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "blocks.h"

namespace rondo::gguf {

/// Of a key's value (GGUF specification, gguf_metadata_value_type).
enum class ValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12
};

/// The keys of a file, in the order in which they were added.
class Keys {
 public:
  void add(std::string_view name, std::string_view text);
  void add(std::string_view name, const char* text) { add(name, std::string_view(text)); }
  void add(std::string_view name, std::uint32_t value);
  void add(std::string_view name, float value);
  void add(std::string_view name, bool value);
  void add(std::string_view name, const std::vector<std::string>& texts);
  void add(std::string_view name, const std::vector<std::int32_t>& values);
  void add(std::string_view name, const std::vector<bool>& values);
  void add(std::string_view name, const std::vector<float>& values);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view name, ValueType type);

  std::string bytes_;
  std::uint64_t count_ = 0;
};

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // row-major, outermost first, at least one
  TensorType type = TensorType::kF32;
  std::size_t bytes() const;
};

/// Writes the file aside and renames it when it is whole. `fill(index, out)` puts the bytes of tensors[index]. Errors:
/// Internal naming the path; InvalidArgument when a file stands there by then, which is left alone; those of `fill`.
absl::Status write_container(const std::filesystem::path& file, const Keys& keys, const std::vector<Tensor>& tensors,
                             const std::function<absl::Status(std::size_t, std::span<std::byte>)>& fill);

}  // namespace rondo::gguf
