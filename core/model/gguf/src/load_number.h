// Numbers out of bytes at any address, little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rondo::gguf {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are read without swapping");

template <typename Number>
Number load_number(const std::byte* data) {
  Number number;
  std::memcpy(&number, data, sizeof number);
  return number;
}

/// fp16, exactly.
inline float load_half(const std::byte* data) {
  const auto half = load_number<std::uint16_t>(data);
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace rondo::gguf
