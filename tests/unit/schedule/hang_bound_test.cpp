// When a device counts as hung.
#include "hang_bound.h"

#include <gtest/gtest.h>

namespace rondo::schedule {
namespace {

constexpr double kFloor = 10;
constexpr double kFactor = 10;

TEST(Patience, ShortWork_HasTheFloor) {
  Patience patience;
  patience.set(kFloor, kFactor, 0.1, 0, 2);
  EXPECT_EQ(patience.seconds(), kFloor);
  patience.tell(0.9);
  EXPECT_EQ(patience.seconds(), kFloor);
}

TEST(Patience, LongWork_HasTheFactorOfTheLongestSoFar) {
  Patience patience;
  patience.set(kFloor, kFactor, 2, 0, 2);
  EXPECT_EQ(patience.seconds(), kFactor * 2);
  patience.tell(3);
  patience.tell(1);
  EXPECT_EQ(patience.seconds(), kFactor * 3);
}

TEST(Patience, FirstUse_CountsUntilEverySlotHasRun) {
  Patience patience;
  patience.set(kFloor, kFactor, 0.1, 60, 2);
  EXPECT_EQ(patience.seconds(), 60);
  patience.tell_visits(1);
  EXPECT_EQ(patience.seconds(), 60);
  patience.tell_visits(2);
  EXPECT_EQ(patience.seconds(), kFloor);
}

TEST(Stillness, Work_IsStillWhileNothingOfItEnds) {
  Stillness stillness;
  EXPECT_EQ(stillness.look(0, true, 0.5), 0.5);
  EXPECT_EQ(stillness.look(0, true, 0.5), 1.0);
  EXPECT_EQ(stillness.look(1, true, 0.5), 0.0);
  EXPECT_EQ(stillness.look(1, true, 0.5), 0.5);
}

/// On a machine that others keep busy: a wait is counted when it ends, and then all of it.
TEST(Stillness, WaitsForAProcessor_HardlyCount) {
  Stillness stillness;
  stillness.look(0, true, 0.5);
  EXPECT_EQ(stillness.look(0, true, 0.5), 1.0);
  EXPECT_EQ(stillness.look(0, true, 0.5, 0.75), 0.75);
  EXPECT_EQ(stillness.look(0, true, 0.5, 1.0), 0.25);
  EXPECT_EQ(stillness.look(0, true, 0.5, 0.75), 2.5 / 16);
  EXPECT_EQ(stillness.seconds(), 2.5 / 16);
  stillness.look(1, true, 0.5, 0.5);
  EXPECT_EQ(stillness.look(1, true, 0.5), 0.5);
}

TEST(Stillness, WithoutWork_NothingIsStill) {
  Stillness stillness;
  stillness.look(0, true, 0.5);
  EXPECT_EQ(stillness.look(0, false, 0.5), 0.0);
  EXPECT_EQ(stillness.look(0, true, 0.5), 0.5);
}

}  // namespace
}  // namespace rondo::schedule
