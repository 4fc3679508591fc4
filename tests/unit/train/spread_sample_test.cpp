// A bounded sample says what all of the numbers would have.
#include "rondo/train/spread_sample.h"

#include <gtest/gtest.h>

namespace rondo::train {
namespace {

TEST(SpreadSample, Few_AreAllKept) {
  SpreadSample sample;
  for (int i = 0; i < 9; ++i) sample.add(i);
  EXPECT_EQ(sample.kept().size(), 9U);
  EXPECT_EQ(sample.median(), 4);
}

/// Half a million durations of a long run are megabytes that no plan counts.
TEST(SpreadSample, Many_AreThinnedOutEvenly) {
  SpreadSample sample;
  constexpr std::size_t kCount = 500'000;
  for (std::size_t i = 0; i < kCount; ++i) sample.add(static_cast<double>(i));
  EXPECT_EQ(sample.seen(), kCount);
  EXPECT_LE(sample.kept().size(), SpreadSample::kMost);
  EXPECT_GE(sample.kept().size(), SpreadSample::kMost / 2 - 1);
  EXPECT_LE(sample.kept().capacity(), SpreadSample::kMost);
  const double step = sample.kept()[1] - sample.kept()[0];
  for (std::size_t i = 0; i < sample.kept().size(); ++i) {
    ASSERT_EQ(sample.kept()[i], step * static_cast<double>(i));
  }
  EXPECT_NEAR(sample.median(), 250'000, 2 * step);
}

}  // namespace
}  // namespace rondo::train
