// When a device counts as slower than its profile, and when it does not.
#include "pace.h"

#include <gtest/gtest.h>

namespace rondo::schedule {
namespace {

/// Steps until the factors change, at most `most`; 0: never.
std::uint32_t steps_until_change(PaceWatch& watch, const std::vector<double>& measured,
                                 const std::vector<double>& by_profile, std::uint32_t most = 20) {
  for (std::uint32_t step = 1; step <= most; ++step) {
    if (watch.step(measured, by_profile)) return step;
  }
  return 0;
}

TEST(PaceWatch, DeviceTwiceAsSlow_IsFoundAfterThreeSteps) {
  PaceWatch watch(3);
  EXPECT_EQ(steps_until_change(watch, {1, 4, 1}, {1, 2, 1}), PaceWatch::kSteps);
  EXPECT_DOUBLE_EQ(watch.factors()[0], 1);
  EXPECT_DOUBLE_EQ(watch.factors()[1], 2);
  EXPECT_DOUBLE_EQ(watch.factors_before()[1], 1);
  EXPECT_EQ(steps_until_change(watch, {1, 4, 1}, {1, 2, 1}), 0U) << "it is known by now";
}

TEST(PaceWatch, DeviceThatRecovers_IsFoundToo) {
  PaceWatch watch(2);
  ASSERT_GT(steps_until_change(watch, {1, 3}, {1, 1}), 0U);
  EXPECT_EQ(steps_until_change(watch, {1, 1}, {1, 1}), PaceWatch::kSteps);
  EXPECT_DOUBLE_EQ(watch.factors()[1], 1);
}

TEST(PaceWatch, WhatIsShort_IsLeftAlone) {
  PaceWatch watch(2);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(watch.step({1, 2}, {1, 1}));
    EXPECT_FALSE(watch.step({1, 2}, {1, 1}));
    EXPECT_FALSE(watch.step({1, 1}, {1, 1}));
  }
}

TEST(PaceWatch, WhatIsSmall_IsLeftAlone) {
  PaceWatch watch(2);
  EXPECT_EQ(steps_until_change(watch, {1, 1.25}, {1, 1}), 0U);
}

TEST(PaceWatch, AllDevicesAlike_AreAsThePlanHasThem) {
  PaceWatch watch(2);
  EXPECT_EQ(steps_until_change(watch, {1.4, 2.8}, {1, 2}), 0U);
}

TEST(PaceWatch, PlanThatDoesNotDescribeThePool_SaysNothing) {
  PaceWatch watch(2);
  EXPECT_EQ(steps_until_change(watch, {50, 200}, {1, 1}), 0U);
}

TEST(PaceWatch, DevicesWithoutSlots_DoNotCount) {
  PaceWatch watch(3);
  EXPECT_EQ(steps_until_change(watch, {1, 0, 0}, {1, 0, 0}), 0U) << "alone";
  EXPECT_EQ(steps_until_change(watch, {1, 0, 2}, {1, 0, 1}), PaceWatch::kSteps);
  EXPECT_DOUBLE_EQ(watch.factors()[1], 1);
}

}  // namespace
}  // namespace rondo::schedule
