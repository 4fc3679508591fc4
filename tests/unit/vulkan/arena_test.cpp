// Pieces of a card's memory: where they begin, and that what is given back can be taken again.
#include "arena.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace rondo::devices::vulkan {
namespace {

constexpr Bytes kGrain = Pieces::kGrain;

TEST(PiecesOfMemory, Taken_DoNotOverlapAndBeginWithGrains) {
  Pieces pieces(4 * kGrain);
  EXPECT_EQ(pieces.take(1), 0U);
  EXPECT_EQ(pieces.take(kGrain + 1), kGrain);
  EXPECT_EQ(pieces.take(kGrain), 3 * kGrain);
  EXPECT_EQ(pieces.take(1), std::nullopt);
}

TEST(PiecesOfMemory, GivenBackInAnyOrder_AreOneGapAgain) {
  for (const auto& order : {std::array{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    Pieces pieces(3 * kGrain);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(pieces.take(kGrain).has_value());
    for (const int place : order) pieces.give_back(static_cast<Bytes>(place) * kGrain, kGrain);
    EXPECT_EQ(pieces.take(3 * kGrain), 0U);
  }
}

TEST(PiecesOfMemory, GapBetweenOthers_IsTakenWhereItFits) {
  Pieces pieces(4 * kGrain);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pieces.take(kGrain).has_value());
  pieces.give_back(kGrain, kGrain);
  EXPECT_EQ(pieces.take(2 * kGrain), std::nullopt);
  EXPECT_EQ(pieces.take(kGrain), kGrain);
}

}  // namespace
}  // namespace rondo::devices::vulkan
