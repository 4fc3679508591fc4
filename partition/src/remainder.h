// How far a step's end is from any state of its estimate.
#pragma once

#include <array>
#include <vector>

#include "estimate.h"

namespace rondo::partition {

/// A StepEstimate is a longest path: its end is the latest of what is known so far, each plus the seconds that the
/// slots not yet placed put behind it. Those are summed up here once, from the last slot back, so that the step of a
/// plan that goes on as these slots do is known (but for rounding) as soon as its estimate has placed what is
/// different.
class Remainder {
 public:
  /// Of the slots from `begin` on, one after another within their rounds as the search deals them.
  void look_back(const StepEstimate& estimate, const std::vector<Slot>& slots, const std::vector<Round>& rounds,
                 std::size_t begin, std::size_t devices);

  /// The next slot of a device from slot `at` on; the number of slots when it has none. REQUIRES: at >= begin.
  std::size_t next_of(DeviceIndex device, std::size_t at) const {
    std::size_t next = first_of_[device];
    while (next < at) next = visits_[next].next;
    return next;
  }
  /// The next slot of a device is placed.
  void pass(DeviceIndex device) { first_of_[device] = visits_[first_of_[device]].next; }
  /// When the step ends at the earliest if a device is in `state` and slot `next` is its next one.
  double end_of_device(const StepEstimate::DeviceState& state, std::size_t next) const;
  /// Likewise if slot `at` is the next one and the one before it in its round gives out its first and last microbatch
  /// so; nothing follows from them when another round begins with it.
  double end_of_boundary(double first_out, double last_out, std::size_t at) const;
  /// Likewise by what comes of updates alone to slot `at` and those behind it.
  double end_of_updates(std::size_t at) const { return at < visits_.size() ? visits_[at].updates : 0; }

 private:
  /// Seconds from when something is so before a visit to the end of the step.
  struct Visit {
    std::size_t next = 0;  // of its device
    double free = 0;
    double uploads = 0;  // of the link's being free, and of the visit before the last one's end, without its weights
    std::array<double, 2> weights = {0, 0};
    double up_load = 0;  // likewise without its weights
    double down_free = 0;
    double down_load = 0;
    double first_in = 0;
    double last_in = 0;
    double updates = 0;  // the end of the step by updates, of this and all later slots
    bool begins_round = false;
  };
  std::vector<Visit> visits_;          // by slot
  std::vector<std::size_t> first_of_;  // by device
};

}  // namespace rondo::partition
