// Slots of the published schedules, whose stages stay on their devices.
#pragma once

#include <optional>
#include <vector>

#include "packing.h"
#include "rondo/partition/schedules.h"

namespace rondo::partition {

/// Even, contiguous stages of a model: stage s is on device s mod G of the G of `order`.
class BoundStages {
 public:
  /// Nothing when the layers are too few. `loops`: stages a device.
  static std::optional<BoundStages> make(const ModelShape& model, const TimeTable& times,
                                         const std::vector<DeviceIndex>& order, std::size_t loops);

  /// Round by round all forwards, the last of which is fused, then all backwards.
  std::vector<Slot> breadth_first(std::size_t rounds) const;
  /// A visit of one round for every piece of the schedule, in the order in which they would begin. Its microbatches are
  /// the plan's rounds. The deepest stage goes forward and back in one. REQUIRES: validate(schedule), pieces that are
  /// forwards and whole backwards, rounds that hold whole reduction groups or a part of one.
  std::vector<Slot> following(const PipelineSchedule& schedule, const std::vector<Round>& rounds,
                              const Workload& work) const;

 private:
  struct Stage {
    std::optional<Slot> forward;   // or fused
    std::optional<Slot> backward;  // none of the deepest, nor where nothing has a gradient
  };
  std::vector<Stage> stages_;
};

}  // namespace rondo::partition
