// Tells an emulated card which piece of work fails, and holds the queues that hang.
#pragma once

#include <array>
#include <cstdint>

#include "rondo/base/mutex.h"
#include "rondo/devices/host_queue.h"
#include "rondo/devices/profile.h"

namespace rondo::devices::emulated {

/// Thread-safe.
class FailureSwitch {
 public:
  explicit FailureSwitch(FailurePlan plan);
  /// Counts a piece of work of a queue that could begin at `ready`; how it fails, once in the card's life.
  FailurePlan::Kind next(QueueRole role, Moment ready);
  /// Blocks until release(): a hung card answers no more.
  void hang();
  /// The device ends: what hangs returns, and later hangs do not hold.
  void release();

 private:
  const FailurePlan plan_;
  Mutex mutex_;
  CondVar released_changed_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool fired_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  Moment first_ ABSL_GUARDED_BY(mutex_){};  // of the card's first work
  std::array<std::uint64_t, 3> counts_ ABSL_GUARDED_BY(mutex_) = {0, 0, 0};
};

}  // namespace rondo::devices::emulated
