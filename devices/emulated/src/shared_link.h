// One direction of a link that several transfers share at the same time, each getting its fair part.
#pragma once

#include <array>
#include <cstddef>

#include "rondo/base/mutex.h"
#include "rondo/devices/host_queue.h"

namespace rondo::devices::emulated {

/// Sleeps until `moment` without spinning, woken within microseconds of it.
void sleep_to(Moment moment);

/// Thread-safe. What happens is computed event by event in ideal time, so that late wake-ups of the threads do not slow
/// the link down.
class SharedLink {
 public:
  /// A card with a link of this speed is attached: the whole is as fast as the fastest of them.
  void attach(double bytes_per_second);
  /// Blocks until `bytes` are through, beginning at `ready` (or when the link was last heard of, if that is later) and
  /// never faster than `own_rate`. Returns the ideal moment of the end.
  Moment transfer(double bytes, double own_rate, Moment ready);

 private:
  static constexpr std::size_t kMost = 128;  // transfers at a time; more begin when one has ended
  struct Transfer {
    bool active = false;
    bool done = false;
    double remaining = 0;  // bytes
    double own_rate = 0;
    double rate = 0;
    Moment end;
  };
  using Transfers = std::array<Transfer, kMost>;

  static void share_out(Transfers& transfers, double bandwidth);
  /// Lets time pass from `from` to `to`.
  static void advance(Transfers& transfers, double bandwidth, Moment from, Moment to);
  Transfer* enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Moment predicted_end(const Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void advance_to(Moment moment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar left_;
  double bandwidth_ ABSL_GUARDED_BY(mutex_) = 0;
  Moment now_ ABSL_GUARDED_BY(mutex_){};
  Transfers transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rondo::devices::emulated
