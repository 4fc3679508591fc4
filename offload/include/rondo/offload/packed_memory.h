// Host memory for many things at once. What is short lies one behind another with its neighbours, so that neighbours
// can travel as one transfer: a link takes longer to begin a transfer than to carry a few kilobytes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "rondo/devices/device.h"

namespace rondo::offload {

class PackedMemory {
 public:
  /// Where things begin in a shared buffer. A device's memory keeps weights and gradients at the same distances.
  static constexpr Bytes kAlignment = 256;
  /// Longer things have a buffer of their own, and no more than that travels together.
  static constexpr Bytes kLongest = 4_MiB;

  /// Asks for `size` bytes; things of one `group` are neighbours in the order in which they were asked for. Gives the
  /// thing's number, from 0 on.
  std::size_t add(std::uint32_t group, Bytes size);

  /// All that was asked for; `phantom`: without memory. Errors: those of allocate_host().
  absl::Status allocate(const char* purpose, bool phantom);

  /// REQUIRES: allocate() was called.
  devices::BufferView view(std::size_t thing) const;

 private:
  struct Thing {
    std::uint32_t group = 0;
    Bytes size = 0;
    std::size_t buffer = 0;
    Bytes offset = 0;
  };
  std::vector<Thing> things_;
  std::vector<devices::Buffer> buffers_;
};

/// Whether `next` lies where packed memory has what comes behind `view`.
bool follows(devices::BufferView view, devices::BufferView next);
/// Both and what lies between them. REQUIRES: follows(view, next).
devices::BufferView joined(devices::BufferView view, devices::BufferView next);

}  // namespace rondo::offload
