// The two 16-bit floating-point types against their definitions, every pattern of bits.
#include "rondo/base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace rondo {
namespace {

/// Sign, exponent and fraction as IEEE 754 reads them.
double by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  const int hidden = exponent == 0 ? 0 : 1 << fraction_bits;
  return sign * std::ldexp(hidden + fraction, std::max(exponent, 1) - bias - fraction_bits);
}

void expect_same(double found, double expected, int bits) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << bits;
    return;
  }
  EXPECT_EQ(found, expected) << bits;
  EXPECT_EQ(std::signbit(found), std::signbit(expected)) << bits;
}

TEST(Float16, EveryPattern_WidensExactly) {
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    expect_same(static_cast<double>(from_float16(bits)), by_definition(bits, 5, 10), i);
    expect_same(static_cast<double>(from_bfloat16(bits)), by_definition(bits, 8, 7), i);
  }
}

TEST(Float16, Bfloat16_ComesBackFromItsWidenedValue) {
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool is_nan = (i & 0x7fff) > 0x7f80;
    EXPECT_EQ(to_bfloat16(from_bfloat16(bits)), is_nan ? (i | 0x40) : i) << i;
  }
}

TEST(Float16, NumbersBetweenTwoBfloat16_RoundToTheNearerAndTiesToEven) {
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000U)), 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f807fffU)), 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f7fffffU)), 0x7f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f800001U)), 0x7fc0);
}

}  // namespace
}  // namespace rondo
