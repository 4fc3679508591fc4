// Storage as the kernels read and write it: bf16 and fp16 on all bit patterns and at the borders of rounding.
#include "kernels/storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rondo::devices::cuda {
namespace {

double half_value(unsigned bits) {
  const unsigned exponent = bits >> 10U & 0x1FU;
  const double fraction = bits & 0x3FFU;
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25));
}

TEST(CudaStorage_Fp16, EveryFinitePattern_ReadsAsItsValueAndBack) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    if ((bits >> 10U & 0x1FU) == 0x1F) continue;
    const Fp16 stored{static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(static_cast<double>(load(&stored)), half_value(bits)) << bits;
    Fp16 again{};
    store(&again, load(&stored));
    ASSERT_EQ(again.bits, stored.bits);
  }
}

TEST(CudaStorage_Fp16, BetweenTwoValues_RoundsToTheNearerAndTiesToEven) {
  for (unsigned bits = 0; bits < 0x7BFF; ++bits) {
    const double low = half_value(bits);
    const double high = half_value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    Fp16 stored{};
    store(&stored, middle);
    ASSERT_EQ(stored.bits, (bits & 1U) == 0 ? bits : bits + 1) << bits;
    store(&stored, std::nextafter(middle, std::numeric_limits<float>::infinity()));
    ASSERT_EQ(stored.bits, bits + 1);
    store(&stored, -std::nextafter(middle, 0.0F));
    ASSERT_EQ(stored.bits, bits | 0x8000U);
  }
}

TEST(CudaStorage_Fp16, TooLargeAndNotANumber_StayWhatTheyAre) {
  Fp16 stored{};
  store(&stored, 65519.0F);
  EXPECT_EQ(stored.bits, 0x7BFF);
  store(&stored, 65520.0F);
  EXPECT_EQ(stored.bits, 0x7C00);
  store(&stored, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(stored.bits, 0xFC00);
  store(&stored, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(load(&stored)));
}

TEST(CudaStorage_Bf16, EveryPattern_ReadsBackAndRoundsToEven) {
  for (unsigned bits = 0; bits < 0x7F7F; ++bits) {
    const Bf16 stored{static_cast<std::uint16_t>(bits)};
    Bf16 again{};
    store(&again, load(&stored));
    ASSERT_EQ(again.bits, stored.bits);
    store(&again, float_of((bits << 16U) + 0x8000U));
    ASSERT_EQ(again.bits, (bits & 1U) == 0 ? bits : bits + 1) << bits;
  }
  Bf16 stored{};
  store(&stored, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(load(&stored)));
}

}  // namespace
}  // namespace rondo::devices::cuda
