// Numbers out of bytes at any address, little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rondo/base/float16.h"

namespace rondo::gguf {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are read without swapping");

template <typename Number>
Number load_number(const std::byte* data) {
  Number number;
  std::memcpy(&number, data, sizeof number);
  return number;
}

/// fp16, exactly.
inline float load_half(const std::byte* data) { return from_float16(load_number<std::uint16_t>(data)); }

}  // namespace rondo::gguf
