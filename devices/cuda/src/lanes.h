// Which ops of a program may be under way at the same time.
//
// A program's ops are an order in which they may be executed, not one in which they must: what is not bound by its
// memory to what came before may run beside it. Products of a small model leave a part of a card idle, each kernel's
// last blocks do, and so does the time between two kernels. Ops are dealt to lanes, each a stream; in a lane they keep
// their order, and one lane waits for another where one of its ops reads or overwrites what that one is at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rondo/devices/touch.h"

namespace rondo::devices::cuda {

/// Most streams that a run is spread over.
inline constexpr std::size_t kMostLanes = 4;

/// An op as far as its order goes; memory by its address on the card.
struct Piece {
  std::vector<Touch> touches;
  double weight = 0;  // how long it takes, in any unit
};

/// What is done about a piece: `after` those pieces, all of other lanes, it comes next in its lane.
struct LaneTurn {
  std::size_t lane = 0;
  std::vector<std::size_t> after;
  bool awaited = false;  // some other piece comes after it
};

/// Deals the pieces to at most `lanes` lanes (1 to kMostLanes): each in its turn to the lane where it can begin first.
/// Whatever order the lanes are in among each other, every piece that touches what an earlier one writes, or writes
/// what an earlier one touches, comes behind it. Waits that follow from others are left out.
std::vector<LaneTurn> deal_to_lanes(std::span<const Piece> pieces, std::size_t lanes);

}  // namespace rondo::devices::cuda
