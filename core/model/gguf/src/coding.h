// How numbers lie in a GGUF file: plain, or in blocks that share scales. Reading only; blocks.h writes.
//
// Every decoded number is the fp32 result of the operations in the order that the format's definition has, each rounded
// by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rondo::gguf {

struct Coding {
  std::uint32_t type = 0;  // the format's own number
  std::string_view name;
  std::uint32_t block_numbers = 1;
  std::uint32_t block_bytes = 0;
  /// Puts `count` whole blocks: count * block_numbers numbers.
  void (*decode)(const std::byte* blocks, std::size_t count, float* out) = nullptr;
};

/// Null when the type cannot be read.
const Coding* find_coding(std::uint32_t type);
/// For messages: "q4_k" or "type 23 (iq4_xs)".
std::string type_in_words(std::uint32_t type);
/// "f32, f16, ...", for messages.
std::string readable_types();

/// Puts out.size() numbers of a tensor from `first` on. `data` holds the tensor's blocks.
void decode_stretch(const Coding& coding, std::span<const std::byte> data, std::uint64_t first, std::span<float> out);

/// Blocks of mxfp4 as their codes, two neighbours in a byte, the first in its lower half, and their scales.
void split_mxfp4(std::span<const std::byte> blocks, std::span<std::byte> codes, std::span<std::byte> scales);

}  // namespace rondo::gguf
