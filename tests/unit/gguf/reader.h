// Reads a GGUF file back, by the grammar alone: nothing of the writer is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rondo::gguf {

struct ReadTensor {
  std::vector<std::uint64_t> sizes;  // innermost first, as they stand
  std::uint32_t type = 0;
  std::string data;
};

struct ReadFile {
  bool whole = false;  // magic, version, and all data within the file
  std::map<std::string, nlohmann::json> keys;
  std::map<std::string, ReadTensor> tensors;
};

ReadFile read_gguf(const std::filesystem::path& path);

/// The numbers of an f32 tensor.
std::vector<float> floats_of(const ReadTensor& tensor);

}  // namespace rondo::gguf
