// Products of numbers of eight bits: E4M3 and E5M2 of the "OCP 8-bit Floating Point Specification" (4 bits of exponent
// and 3 of fraction, largest 448; 5 and 2, largest 57344).
//
// Both operands are taken by rows along the extent that is summed over, each of whose numbers are divided by one power
// of two and rounded to nearest, ties to even. Sums are fp32, and the powers come back on the sums, which is exact.
#pragma once

#include <algorithm>
#include <cmath>

namespace rondo::devices {

/// The largest magnitude of a row of codes lies in [2^top, 2^(top + 1)), which leaves room for rounding.
inline constexpr int kE4m3Top = 7;
inline constexpr int kE5m2Top = 14;

/// What a row is divided by whose largest magnitude this is. 1 where all are zero or one is not finite.
inline float fp8_scale(float largest, int top) {
  constexpr int kLeast = -126;  // the power has to be a normal number
  if (!(largest > 0.0F) || !std::isfinite(largest)) return 1.0F;
  return std::ldexp(1.0F, std::max(std::ilogb(largest) - top, kLeast));
}

/// The nearest number of `fraction` bits of fraction, from 2^least_exponent on fewer.
inline float fp8_rounded(float x, int fraction, int least_exponent) {
  if (x == 0.0F) return x;
  const float unit = std::ldexp(1.0F, std::max(std::ilogb(x), least_exponent) - fraction);
  return std::nearbyint(x / unit) * unit;
}

/// The nearest number of E4M3; NaN where there is none, above 464.
inline float e4m3_rounded(float x) {
  constexpr float kMost = 464.0F;
  return std::abs(x) <= kMost ? fp8_rounded(x, 3, -6) : std::nanf("");
}

/// The nearest number of E5M2; NaN from 61440 on, where infinity would be as near.
inline float e5m2_rounded(float x) {
  constexpr float kTooMuch = 61440.0F;
  return std::abs(x) < kTooMuch ? fp8_rounded(x, 2, -14) : std::nanf("");
}

}  // namespace rondo::devices
