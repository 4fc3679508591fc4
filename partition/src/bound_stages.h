// Slots of the published schedules, whose stages stay on their devices.
#pragma once

#include <optional>
#include <vector>

#include "packing.h"
#include "rondo/partition/schedules.h"

namespace rondo::partition {

/// Even, contiguous stages of a model, each on one device.
class BoundStages {
 public:
  /// `devices`: by stage. Nothing when the layers are too few.
  static std::optional<BoundStages> make(const ModelShape& model, const TimeTable& times,
                                         const std::vector<DeviceIndex>& devices);

  /// Of one microbatch, by stage.
  std::vector<StageSeconds> seconds() const;
  /// Round by round all forwards, the last of which is fused, then all backwards.
  std::vector<Slot> breadth_first(std::size_t rounds) const;
  /// A visit of one round for every piece of the schedule, in the order in which they would begin. Its microbatches are
  /// the plan's rounds. The deepest stage goes forward and back in one. Where a backward comes in halves, the weights'
  /// are done before the next reduction group of the stage begins, and with the other half where there is nothing to
  /// defer. REQUIRES: validate(schedule), no visits in it, rounds that hold whole reduction groups or a part of one.
  std::vector<Slot> following(const PipelineSchedule& schedule, const std::vector<Round>& rounds,
                              const Workload& work) const;

 private:
  struct Stage {
    std::optional<Slot> forward;   // or fused
    std::optional<Slot> backward;  // none of the deepest, nor where nothing has a gradient
    std::optional<Slot> weights;   // what may be deferred of the backward or fused one, if anything

    bool fuses() const { return forward->phase == SlotPhase::kFused; }
    const std::optional<Slot>& back() const { return fuses() ? forward : backward; }
  };
  std::vector<Stage> stages_;
};

}  // namespace rondo::partition
