// Dealing by the moment at which each lane would be free; see lanes.h.
#include "lanes.h"

#include <algorithm>
#include <array>

namespace rondo::devices::cuda {
namespace {

/// How many pieces of each lane, counted from the program's begin in pieces of all, a piece or lane is behind.
using Seen = std::array<std::size_t, kMostLanes>;

class Dealer {
 public:
  Dealer(std::span<const Piece> pieces, std::size_t lanes)
      : pieces_(pieces), lanes_(lanes), turns_(pieces.size()), seen_(pieces.size()), end_(pieces.size()) {}

  std::vector<LaneTurn> run() {
    for (std::size_t i = 0; i < pieces_.size(); ++i) deal(i);
    return std::move(turns_);
  }

 private:
  void deal(std::size_t piece) {
    before_.clear();
    double ready = 0;
    std::size_t last = 0;  // the lane of the one that ends last
    for (std::size_t i = piece; i-- > 0;) {
      if (!meet(pieces_[i].touches, pieces_[piece].touches)) continue;
      before_.push_back(i);
      if (end_[i] > ready) last = turns_[i].lane;
      ready = std::max(ready, end_[i]);
    }
    // Where it makes no difference the lane of what it waits for is taken: the stream's own order costs nothing.
    std::size_t lane = last;
    for (std::size_t other = 0; other < lanes_; ++other) {
      if (std::max(free_[other], ready) < std::max(free_[lane], ready)) lane = other;
    }
    LaneTurn& turn = turns_[piece];
    turn.lane = lane;
    end_[piece] = free_[lane] = std::max(free_[lane], ready) + pieces_[piece].weight;
    wait(turn, lane_seen_[lane]);
    lane_seen_[lane][lane] = piece + 1;
    seen_[piece] = lane_seen_[lane];
  }

  /// Latest first: what one is behind need not be waited for again.
  void wait(LaneTurn& turn, Seen& seen) {
    for (const std::size_t before : before_) {
      const std::size_t lane = turns_[before].lane;
      if (before < seen[lane]) continue;
      turn.after.push_back(before);
      turns_[before].awaited = true;
      for (std::size_t i = 0; i < lanes_; ++i) seen[i] = std::max(seen[i], seen_[before][i]);
    }
  }

  const std::span<const Piece> pieces_;
  const std::size_t lanes_;
  std::vector<LaneTurn> turns_;
  std::vector<Seen> seen_;   // by piece, itself included
  std::vector<double> end_;  // by piece
  std::array<Seen, kMostLanes> lane_seen_{};
  std::array<double, kMostLanes> free_{};
  std::vector<std::size_t> before_;
};

}  // namespace

std::vector<LaneTurn> deal_to_lanes(std::span<const Piece> pieces, std::size_t lanes) {
  return Dealer(pieces, std::clamp<std::size_t>(lanes, 1, kMostLanes)).run();
}

}  // namespace rondo::devices::cuda
