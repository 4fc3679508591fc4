// Counter-based random numbers: what is drawn, and roots of whole numbers.
#include "rondo/devices/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rondo::devices {
namespace {

TEST(InverseRoot, OfAnyWholeNumber_IsRightTo24Bits) {
  EXPECT_EQ(inverse_root(1), 1.0F);
  EXPECT_EQ(inverse_root(4), 0.5F);
  EXPECT_EQ(inverse_root(1ULL << 52U), 0x1p-26F);
  for (std::uint64_t i = 1; i < 20'000; ++i) {
    const std::uint64_t n = i < 10'000 ? i : (mix64(i) >> (4U + i % 56U)) | 1U;
    const double exact = 1.0 / std::sqrt(static_cast<double>(n));
    ASSERT_NEAR(static_cast<double>(inverse_root(n)), exact, exact * 0x1p-23) << n;
  }
}

TEST(SignedUniform, Numbers_AreUniformAndFollowFromAllKeys) {
  constexpr int kDrawn = 100'000;
  double sum = 0;
  double squares = 0;
  double least = 1;
  double most = -1;
  for (int i = 0; i < kDrawn; ++i) {
    const double drawn =
        signed_uniform(7 + static_cast<std::uint64_t>(i) / 100, 0, 0, static_cast<std::uint64_t>(i) % 100);
    sum += drawn;
    squares += drawn * drawn;
    least = std::min(least, drawn);
    most = std::max(most, drawn);
  }
  // Deviations of the mean and of the mean square of so many numbers, and five of them.
  EXPECT_NEAR(sum / kDrawn, 0.0, 5 * std::sqrt(1.0 / 3 / kDrawn));
  EXPECT_NEAR(squares / kDrawn, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDrawn));
  EXPECT_GE(least, -1.0);
  EXPECT_LT(least, -0.999);
  EXPECT_LT(most, 1.0);
  EXPECT_GT(most, 0.999);
  const float drawn = signed_uniform(7, 1, 2, 3);
  EXPECT_NE(drawn, signed_uniform(8, 1, 2, 3));
  EXPECT_NE(drawn, signed_uniform(7, 2, 2, 3));
  EXPECT_NE(drawn, signed_uniform(7, 1, 3, 3));
  EXPECT_NE(drawn, signed_uniform(7, 1, 2, 4));
}

}  // namespace
}  // namespace rondo::devices
