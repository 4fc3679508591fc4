// fp16 and bf16 as their 16 bits, and MXFP4's codes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace rondo {

/// Exactly; a NaN keeps its bits.
constexpr float from_float16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

/// To nearest, ties to even, also below 2^-14; from 65520 on infinity; a NaN stays one.
constexpr std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | (magnitude >> 13U & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // 65520, halfway between the largest fp16 and the next power of two
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 leaves units of 2^-24 in the low bits, rounded
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  } else {
    half = (magnitude + 0xfffU + (magnitude >> 13U & 1U) - 0x38000000U) >> 13U;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// Exactly; a NaN keeps its bits.
constexpr float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// To nearest, ties to even; a NaN stays one.
constexpr std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN into infinity: it is cut and made quiet instead.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

/// MXFP4: a code of four bits, E2M1 (sign, two bits of exponent, one of mantissa), times 2^(scale - 127), the scale
/// E8M0. Past fp32 it is infinity. Source: Open Compute Project, Microscaling Formats 1.0, section 5; as readers have
/// it, no scale is NaN. Twice the numbers of the codes, so that half their scale is what they are multiplied by.
inline constexpr std::array<float, 16> kMxfp4Doubled = {0.0F,  1.0F,  2.0F,  3.0F,  4.0F,  6.0F,  8.0F,  12.0F,
                                                        -0.0F, -1.0F, -2.0F, -3.0F, -4.0F, -6.0F, -8.0F, -12.0F};
constexpr float mxfp4_scale(std::uint32_t scale) {
  return std::bit_cast<float>(scale < 2 ? 0x00200000U << scale : (scale - 1) << 23U);
}
constexpr float from_mxfp4(std::uint32_t code, std::uint32_t scale) { return kMxfp4Doubled[code] * mxfp4_scale(scale); }

}  // namespace rondo
