// The size in which copies over a link are cut: what the transfer engine issues and what predictions count with.
#pragma once

#include <algorithm>

#include "rondo/base/units.h"

namespace rondo::devices {

/// Bytes of a chunk for a link of `bytes_per_second`: about 0.4 ms of it, within [256 KiB, 16 MiB], whole pages. Two of
/// them, as many as are under way at a time, take under a millisecond.
constexpr Bytes chunk_for(double bytes_per_second) {
  const double wanted = std::clamp(bytes_per_second * 0.4e-3, 0x1p18, 0x1p24);
  return static_cast<Bytes>(wanted) / 4_KiB * 4_KiB;
}

/// Bytes of staging memory for a chunk, where no transfer has more than `longest`.
constexpr Bytes staging_piece(Bytes chunk, Bytes longest) {
  return longest >= chunk ? chunk : std::min(chunk, round_up(std::max(longest, Bytes{1}), 4_KiB));
}

}  // namespace rondo::devices
