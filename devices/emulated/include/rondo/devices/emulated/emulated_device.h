// Cards that are described, not present: `emulated:` computes on the CPU and takes at least the card's time, `timed:`
// takes the time and computes nothing.
//
// Both keep an ideal clock per queue: work that was ready when the work before it ended begins at that very moment,
// however late the host's thread woke up. Work counts as done when its ideal time has come, and on emulated cards not
// before the CPU is through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::emulated {

/// Cards of one root complex share its bandwidth, each direction for itself: that of the fastest link among them.
class RootComplex;
std::shared_ptr<RootComplex> make_root_complex();

struct CardOptions {
  std::string name;                   // "emulated:rtx4090:0"
  DeviceProfile profile;              // fail_at as well
  Bytes memory_limit = 0;             // 0: the profile's memory_bytes
  bool single_queue = false;          // compute, up and down share one thread
  std::uint64_t seed = 0;             // of the jitter of timed cards
  std::shared_ptr<RootComplex> root;  // shared by the cards on it; null: alone
};

/// Memory apart from the host's: what programs are bound to must be allocated here. `threads` outlives the device.
/// Errors: InvalidArgument for a bad profile; what opening the CPU gives.
absl::StatusOr<std::unique_ptr<Device>> open_emulated(const CardOptions& options, ThreadPool& threads);

/// Memory is phantom (host() is null), pinned memory too; caps().does_arithmetic is false.
absl::StatusOr<std::unique_ptr<Device>> open_timed(const CardOptions& options);

}  // namespace rondo::devices::emulated
