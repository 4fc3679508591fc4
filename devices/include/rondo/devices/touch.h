// What ops do to memory, for backends that have several under way at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "rondo/base/units.h"
#include "rondo/devices/op.h"

namespace rondo::devices {

/// Memory that an op reads or writes: where it begins in an address space of the backend's, and how large it is.
struct Touch {
  std::uint64_t begin = 0;
  Bytes size = 0;
  bool writes = false;
};

/// Whether one writes what the other touches, so that they have to stay in order.
inline bool meet(std::span<const Touch> some, std::span<const Touch> others) {
  const auto overlap = [](const Touch& a, const Touch& b) {
    return (a.writes || b.writes) && a.begin < b.begin + b.size && b.begin < a.begin + a.size;
  };
  return std::ranges::any_of(
      some, [&](const Touch& a) { return std::ranges::any_of(others, [&](const Touch& b) { return overlap(a, b); }); });
}

/// Calls `tell(id, writes)` for each tensor that the op names. What counts as read and is state is written, too:
/// caches, masters, moments.
template <typename Tell>
void for_touched(const OpList& list, const Op& op, Tell tell) {
  for (const TensorId id : op.reads) tell(id, list.tensors[id].role == TensorRole::kState);
  for (const TensorId id : op.writes) tell(id, true);
}

}  // namespace rondo::devices
