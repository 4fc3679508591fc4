// A GGUF file as it lies on disk: its keys and tensors, checked against its size. Files come from anywhere: every
// count, length and offset is doubted. The grammar stands in container.h; versions 2 and 3 are alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coding.h"
#include "container.h"
#include "rondo/base/file.h"

namespace rondo::gguf {

/// A value, or an array of `count` values of one type. Views into the file.
struct Value {
  ValueType type = ValueType::kUint8;  // of the elements; an array of arrays has kArray and no contents
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;     // of numbers and truth values
  std::vector<std::string_view> texts;  // of strings
};

struct StoredTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // row-major, outermost first
  const Coding* coding = nullptr;
  std::span<const std::byte> data;
};

struct StoredFile {
  MappedFile file;
  std::map<std::string, Value, std::less<>> keys;
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::span<const std::byte> head;  // what lies before the tensors' data
  std::string origin() const { return file.path().string(); }
};

/// Errors: InvalidArgument naming the file and the key or tensor at fault.
absl::StatusOr<StoredFile> open_stored_file(const std::filesystem::path& path);

/// A name out of a file as messages show it: quoted, escaped, cut.
std::string name_in_quotes(std::string_view name);

}  // namespace rondo::gguf
