// How a worker's threads wait: until what they wait for is there, or the worker is stopped. Nothing waits against a
// deadline of its own; who finds a hung device is the watch (Worker::look_for_hang).
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "worker.h"

namespace rondo::schedule {

inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

inline absl::Status stopped_error() { return absl::CancelledError("the run was stopped"); }

template <typename Condition>
bool Worker::wait_for(Waiter waiter, Condition condition) {
  while (!stopping_ && !condition()) changed(waiter).wait(mutex_);
  return !stopping_;
}

template <typename Wait>
absl::Status Worker::in_slices(Wait wait) const {
  const std::chrono::duration<double> slice(std::min(0.5, parts_.recovery.hang_seconds / 20));
  for (;;) {
    const absl::Status status =
        wait(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(slice));
    if (status.code() != absl::StatusCode::kDeadlineExceeded) return status;
    if (stopped_.load(std::memory_order_acquire)) return stopped_error();
  }
}

}  // namespace rondo::schedule
