// How long a device may go without finishing a piece of work before it counts as hung.
//
// The bound is ten times what the work takes, and never under ten seconds. What it takes is the longest that this
// device has needed for a microbatch so far, since predictions for described cards know nothing of the host that
// computes for them, nor of what else the machine has to do; until every slot has run once, the arithmetic of its
// largest layer at a rate that no machine falls below, and what its driver may need to prepare a program. Time counts
// by the watch's ticks, so that a process that was stopped and goes on does not find all its devices late; and hardly
// where threads of the process wait for a processor (ProcessorWaits): on a machine that others keep busy the
// processor's work, and a software driver's, may stand still for long. A sixteenth of it counts all the same, since who
// waits need not be whom the device waits for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace rondo::schedule {

/// Thread-safe: told by the retiring thread, asked by the watch.
class Patience {
 public:
  void set(double floor_seconds, double factor, double predicted_seconds, double first_seconds, std::uint64_t visits) {
    floor_ = floor_seconds;
    factor_ = factor;
    predicted_ = predicted_seconds;
    first_ = first_seconds;
    visits_ = visits;
  }
  /// A microbatch took so long.
  void tell(double seconds) {
    if (seconds > longest_.load(std::memory_order_relaxed)) longest_.store(seconds, std::memory_order_relaxed);
  }
  /// So many visits have ended.
  void tell_visits(std::uint64_t visits) { ended_.store(visits, std::memory_order_relaxed); }

  double seconds() const {
    const double known = factor_ * std::max(predicted_, longest_.load(std::memory_order_relaxed));
    const bool first = ended_.load(std::memory_order_relaxed) < visits_;
    return std::max({floor_, known, first ? first_ : 0.0});
  }

 private:
  double floor_ = 10;
  double factor_ = 10;
  double predicted_ = 0;
  double first_ = 0;
  std::uint64_t visits_ = 0;
  // Relaxed: single numbers, each by itself.
  std::atomic<double> longest_ = 0;
  std::atomic<std::uint64_t> ended_ = 0;
};

/// For how long a count of finished work has stood still while there was work.
class Stillness {
 public:
  /// Asked every `seconds`, of which `waited` passed without a processor: more than that when an earlier wait ended.
  double look(std::uint64_t count, bool under_way, double seconds, double waited = 0) {
    const bool still = under_way && count == count_;
    still_ = still ? still_ + seconds : 0;
    waited_ = still ? waited_ + waited : 0;
    count_ = count;
    return this->seconds();
  }
  double seconds() const { return std::max(still_ - waited_, still_ / 16); }

 private:
  std::uint64_t count_ = 0;
  double still_ = 0;
  double waited_ = 0;
};

}  // namespace rondo::schedule
