// Storage as the kernels read and write it: bf16 and fp16 on all bit patterns and at the borders of rounding.
#include "kernels/storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "kernels/fp8.h"
#include "rondo/devices/fp8.h"

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

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// The same number, or both NaN.
bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <typename Code>
float stored_as(float x) {
  Code stored{};
  store(&stored, x);
  return load(&stored);
}

/// Of a format of eight bits: how many of its patterns are what.
struct Patterns {
  std::size_t numbers = 0;  // unlike ones
  int infinite = 0;
  int nan = 0;
  float largest = 0;
  float least = 0;  // above 0
};

template <typename Code>
Patterns check_patterns(float (*rounded)(float)) {
  Patterns found;
  std::set<float> values;
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const Code stored{static_cast<std::uint8_t>(bits)};
    const float x = load(&stored);
    found.infinite += std::isinf(x) ? 1 : 0;
    found.nan += std::isnan(x) ? 1 : 0;
    if (!std::isfinite(x)) continue;
    Code again{};
    store(&again, x);
    EXPECT_EQ(again.bits, stored.bits) << bits;
    EXPECT_EQ(rounded(x), x);
    values.insert(x);
  }
  found.numbers = values.size();
  found.largest = *values.rbegin();
  found.least = *values.upper_bound(0.0F);
  return found;
}

template <typename Code>
void check_numbers(float (*rounded)(float), float most) {
  for (std::uint32_t bits = 0; float_of(bits) < most; bits += 9973) {
    for (const float x : {float_of(bits), -float_of(bits)}) {
      ASSERT_TRUE(same(stored_as<Code>(x), rounded(x))) << x;
    }
  }
}

template <typename Code>
void expect_becomes(float (*rounded)(float), float x, float expected) {
  EXPECT_TRUE(same(stored_as<Code>(x), expected)) << x;
  EXPECT_TRUE(same(rounded(x), expected)) << x;
}

TEST(CudaStorage_E4m3, EveryFinitePattern_ReadsBackAndIsWhatTheReferenceRoundsTo) {
  const Patterns found = check_patterns<E4m3>(e4m3_rounded);
  EXPECT_EQ(found.numbers, 253U);  // two of 256 are NaN, two are zero
  EXPECT_EQ(found.infinite, 0);
  EXPECT_EQ(found.nan, 2);
  EXPECT_EQ(found.largest, 448.0F);
  EXPECT_EQ(found.least, 0x1.0p-9F);
}
TEST(CudaStorage_E5m2, EveryFinitePattern_ReadsBackAndIsWhatTheReferenceRoundsTo) {
  const Patterns found = check_patterns<E5m2>(e5m2_rounded);
  EXPECT_EQ(found.numbers, 247U);
  EXPECT_EQ(found.infinite, 2);
  EXPECT_EQ(found.nan, 6);
  EXPECT_EQ(found.largest, 57344.0F);
  EXPECT_EQ(found.least, 0x1.0p-16F);
}

TEST(CudaStorage_E4m3, AnyNumber_BecomesWhatTheReferenceRoundsTo) {
  check_numbers<E4m3>(e4m3_rounded, 480.0F);
  // Ties, and where numbers end.
  for (const auto& [x, expected] :
       {std::pair(17.0F, 16.0F), std::pair(19.0F, 20.0F), std::pair(0x1.8p-9F, 0x1.0p-8F), std::pair(0x1.0p-10F, 0.0F),
        std::pair(464.0F, 448.0F), std::pair(464.1F, kNaN), std::pair(kInfinity, kNaN), std::pair(kNaN, kNaN)}) {
    expect_becomes<E4m3>(e4m3_rounded, x, expected);
  }
}
TEST(CudaStorage_E5m2, AnyNumber_BecomesWhatTheReferenceRoundsTo) {
  check_numbers<E5m2>(e5m2_rounded, 70000.0F);
  for (const auto& [x, expected] :
       {std::pair(9.0F, 8.0F), std::pair(11.0F, 12.0F), std::pair(0x1.8p-16F, 0x1.0p-15F), std::pair(0x1.0p-17F, 0.0F),
        std::pair(61439.0F, 57344.0F), std::pair(61440.0F, kNaN), std::pair(kInfinity, kNaN), std::pair(kNaN, kNaN)}) {
    expect_becomes<E5m2>(e5m2_rounded, x, expected);
  }
}

TEST(CudaFp8, PowersOfTwo_AreTheReferences) {
  for (const int top : {kE4m3Top, kE5m2Top}) {
    for (std::uint32_t bits = 0; bits <= 0x7F800000U; bits += 65537) {
      ASSERT_EQ(fp8_power(float_of(bits), top), fp8_scale(float_of(bits), top)) << bits;
    }
  }
  EXPECT_EQ(fp8_scale(1.0F, kE4m3Top), 0x1.0p-7F);
  EXPECT_EQ(fp8_scale(1.0F, kE5m2Top), 0x1.0p-14F);
  EXPECT_EQ(fp8_scale(std::numeric_limits<float>::max(), kE4m3Top), 0x1.0p120F);
  EXPECT_EQ(fp8_scale(std::numeric_limits<float>::denorm_min(), kE4m3Top), 0x1.0p-126F);
  EXPECT_EQ(fp8_scale(0.0F, kE4m3Top), 1.0F);
  EXPECT_EQ(fp8_scale(kInfinity, kE4m3Top), 1.0F);
}

}  // namespace
}  // namespace rondo::devices::cuda
