// Greedy packing of layers into stages under a time limit.
#pragma once

#include <optional>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Layer times on every device, summed up from layer 0 so that any range costs a subtraction.
class TimeTable {
 public:
  TimeTable(const ModelShape& model, const Workload& work, const MachineShape& machine, Keep keep);
  /// As slot_seconds().
  double seconds(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const;
  LayerIndex layers() const { return layers_; }
  /// Lowest layer that a backward slot may begin at: never one without FLOPs.
  LayerIndex lowest_backward() const { return lowest_backward_; }

 private:
  struct Sums {
    std::vector<double> forward;   // [i]: of layers below i
    std::vector<double> backward;  // with what is kept
    std::vector<double> whole;     // backward of one layer recomputed whole
    double table = 0;              // backward of the lookup table
  };
  LayerIndex layers_ = 0;
  LayerIndex lowest_backward_ = 0;
  std::vector<bool> has_backward_;
  std::vector<Sums> sums_;  // by device
};

/// Stages for the devices of `order`, dealt in rotation from its first: forward ones up to `fused_first`, the fused
/// one, backward ones. Each takes as many layers as its device does in `limit` seconds; a device that cannot do one
/// layer in that time is passed over. Nothing when `limit` is too small for some layer on every device. round is 0;
/// `seconds` are filled in.
std::optional<std::vector<Slot>> pack(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                      LayerIndex fused_first, double limit);

/// The stages that pack() makes for the best `fused_first` at `limit`: the fewest, then the shortest sum of times.
std::optional<std::vector<Slot>> pack_best(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit);

}  // namespace rondo::partition
