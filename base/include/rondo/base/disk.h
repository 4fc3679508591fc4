// What lies on a disk in whole blocks, and the buffers that go with it: for the planner and the tiers alike.
#pragma once

#include "rondo/base/units.h"

namespace rondo {

/// Offsets, sizes and addresses of direct input and output are multiples of this, in bytes.
inline constexpr Bytes kDiskBlock = 4096;

constexpr Bytes whole_disk_blocks(Bytes bytes) { return round_up(bytes, kDiskBlock); }

/// Memory for `buffers` buffers of whole blocks that hold `bytes` each, with room to begin at a block's boundary.
constexpr Bytes disk_buffers_bytes(std::uint64_t buffers, Bytes bytes) {
  return buffers * whole_disk_blocks(bytes) + kDiskBlock;
}

}  // namespace rondo
