// Products of numbers of eight bits: E4M3 of the "OCP 8-bit Floating Point Specification" (4 bits of exponent, 3 of
// fraction, largest 448, no infinities).
//
// Both operands are taken by rows along the extent that is summed over, each of whose numbers are divided by one power
// of two and rounded to nearest, ties to even. Sums are fp32, and the powers come back on the sums, which is exact.
#pragma once

#include <algorithm>
#include <cmath>

namespace rondo::devices {

/// What a row is divided by whose largest magnitude this is: it then lies in [128, 256). 1 where all are zero or one is
/// not finite.
inline float fp8_scale(float largest) {
  constexpr int kTop = 7;
  constexpr int kLeast = -126;  // the power has to be a normal number
  if (!(largest > 0.0F) || !std::isfinite(largest)) return 1.0F;
  return std::ldexp(1.0F, std::max(std::ilogb(largest) - kTop, kLeast));
}

/// The nearest number of E4M3; NaN where there is none, above 464.
inline float e4m3_rounded(float x) {
  constexpr int kLeastExponent = -6;
  constexpr float kMost = 464.0F;
  if (!(std::abs(x) <= kMost)) return std::nanf("");
  if (x == 0.0F) return x;
  const float unit = std::ldexp(1.0F, std::max(std::ilogb(x), kLeastExponent) - 3);
  return std::nearbyint(x / unit) * unit;
}

}  // namespace rondo::devices
