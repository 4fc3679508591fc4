// Ops that may run beside each other, and those that may not.
#include "lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace rondo::devices::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Bytes kSize = 16;
Touch reads(DevicePointer at) { return {at * kSize, kSize, false}; }
Touch writes(DevicePointer at) { return {at * kSize, kSize, true}; }

std::vector<std::size_t> lanes_of(const std::vector<LaneTurn>& turns) {
  std::vector<std::size_t> lanes;
  for (const LaneTurn& turn : turns) lanes.push_back(turn.lane);
  return lanes;
}

/// By piece and piece: whether lanes and waits put the second behind the first.
std::vector<std::vector<bool>> order_of(const std::vector<LaneTurn>& turns) {
  std::vector<std::vector<bool>> behind(turns.size(), std::vector<bool>(turns.size()));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    std::vector<std::size_t> direct = turns[i].after;
    for (std::size_t j = i; j-- > 0;) {
      if (turns[j].lane != turns[i].lane) continue;
      direct.push_back(j);
      break;
    }
    for (const std::size_t before : direct) {
      behind[i][before] = true;
      for (std::size_t j = 0; j < before; ++j) {
        if (behind[before][j]) behind[i][j] = true;
      }
    }
  }
  return behind;
}

TEST(CudaLanes, OfAChain_AreOneWithoutWaits) {
  const std::vector<Piece> pieces = {
      {{writes(0)}, 1}, {{reads(0), writes(1)}, 1}, {{reads(1), writes(2)}, 1}, {{reads(2), writes(0)}, 1}};
  for (const LaneTurn& turn : deal_to_lanes(pieces, 3)) {
    EXPECT_EQ(turn.lane, 0U);
    EXPECT_THAT(turn.after, IsEmpty());
    EXPECT_FALSE(turn.awaited);
  }
}

/// A layer's gradients: those of the weights need nothing but what those of the inputs go on from.
TEST(CudaLanes, OfWhatNeedsNothingOfEachOther_AreOthers) {
  const std::vector<Piece> pieces = {{{writes(0)}, 1},             // dy
                                     {{reads(0), writes(1)}, 4},   // its input's gradient
                                     {{reads(0), writes(10)}, 4},  // its weight's
                                     {{reads(1), writes(2)}, 1},   // what comes next
                                     {{reads(2), writes(11)}, 4}};
  const std::vector<LaneTurn> turns = deal_to_lanes(pieces, 2);
  EXPECT_THAT(lanes_of(turns), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(turns[2].after, ElementsAre(0));
  EXPECT_TRUE(turns[0].awaited);
  EXPECT_THAT(turns[3].after, IsEmpty());
}

TEST(CudaLanes, OfOne_KeepTheOrder) {
  const std::vector<Piece> pieces = {{{writes(0)}, 1}, {{writes(1)}, 1}, {{writes(2)}, 1}};
  EXPECT_THAT(lanes_of(deal_to_lanes(pieces, 1)), ElementsAre(0, 0, 0));
  EXPECT_THAT(lanes_of(deal_to_lanes(pieces, 3)), ElementsAre(0, 1, 2));
}

TEST(CudaLanes, WaitForWhatIsOverwritten) {
  const std::vector<Piece> pieces = {
      {{writes(0)}, 1}, {{reads(0), writes(1)}, 9}, {{reads(0), writes(2)}, 1}, {{reads(2), writes(0)}, 1}};
  const std::vector<LaneTurn> turns = deal_to_lanes(pieces, 2);
  ASSERT_NE(turns[1].lane, turns[2].lane);
  EXPECT_TRUE(order_of(turns)[3][1]) << "the long one still reads it";
}

TEST(CudaLanes, SeeThatMemoryOverlapsInPart) {
  const std::vector<Piece> pieces = {{{{100, 50, true}}, 5}, {{{149, 1, false}}, 1}, {{{150, 10, true}}, 1}};
  const std::vector<LaneTurn> turns = deal_to_lanes(pieces, 3);
  EXPECT_TRUE(order_of(turns)[1][0]);
  EXPECT_FALSE(order_of(turns)[2][0]);
}

/// Any pieces: what meets is in order, waits name earlier pieces of other lanes, and none follows from the others.
TEST(CudaLanes, OfRandomPieces_KeepWhatMeetsInOrder) {
  std::mt19937 random(5);
  const auto below = [&](unsigned n) { return random() % n; };
  for (int round = 0; round < 300; ++round) {
    const std::size_t lanes = 1 + below(kMostLanes);
    std::vector<Piece> pieces(1 + below(40));
    for (Piece& piece : pieces) {
      piece.weight = static_cast<double>(1 + below(9));
      for (unsigned i = 0; i <= below(4); ++i) piece.touches.push_back({below(400), below(30), below(3) == 0});
    }
    const std::vector<LaneTurn> turns = deal_to_lanes(pieces, lanes);
    const auto behind = order_of(turns);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_LT(turns[i].lane, lanes);
      for (std::size_t j = 0; j < i; ++j) {
        bool meet = false;
        for (const Touch& a : pieces[i].touches) {
          for (const Touch& b : pieces[j].touches) {
            for (DevicePointer at = a.begin; at < a.begin + a.size; ++at) {
              meet = meet || ((a.writes || b.writes) && at >= b.begin && at < b.begin + b.size);
            }
          }
        }
        ASSERT_TRUE(!meet || behind[i][j]) << "piece " << i << " of round " << round << " meets " << j;
      }
      for (const std::size_t before : turns[i].after) {
        EXPECT_LT(before, i);
        EXPECT_NE(turns[before].lane, turns[i].lane);
        EXPECT_TRUE(turns[before].awaited);
        std::vector<LaneTurn> fewer = turns;
        std::erase(fewer[i].after, before);
        EXPECT_FALSE(order_of(fewer)[i][before]) << "a wait too many in round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace rondo::devices::cuda
