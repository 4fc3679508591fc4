// Greedy packing of layers into stages under a time limit.
#pragma once

#include <optional>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// A limit in seconds times this holds for sums of the same times in another order.
inline constexpr double kSlack = 1.0 + 1e-9;

/// Devices that any plan treats alike: equal speeds, links and budgets. On which root complexes they are is not asked:
/// a plan that leaves some of them out may leave out those that share with nobody.
bool alike(const DeviceShape& a, const DeviceShape& b);

/// Of a device's budget that one slot may take; 0: all of it, but only a slot that cannot be smaller.
struct MemoryShares {
  double forward = 1;
  double backward = 1;  // fused as well
};

/// Layer times on every device, summed up from layer 0 so that any range costs a subtraction, and which ranges fit into
/// a device's memory as its only slot.
class TimeTable {
 public:
  /// `shares`: of a device\'s budget that one slot may take.
  TimeTable(const ModelShape& model, const Workload& work, const MachineShape& machine, Keep keep, MemoryShares shares);
  /// As slot_seconds().
  double seconds(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const;
  /// What no plan of one microbatch over these devices can beat, however its layers are shared out, as long as no visit
  /// takes longer than `visit_seconds`.
  double least_seconds(const std::vector<DeviceIndex>& devices, double visit_seconds) const;
  bool fits_memory(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const;
  /// Of the visits of one of the devices that its memory forbids the shortest.
  double least_forbidden_seconds(const std::vector<DeviceIndex>& devices) const;
  LayerIndex layers() const { return layers_; }
  /// Devices on which every visit takes the same and fits alike.
  bool same_times(DeviceIndex one, DeviceIndex other) const { return like_[one] == like_[other]; }
  /// Lowest layer that a backward slot may begin at: never one without FLOPs.
  LayerIndex lowest_backward() const { return lowest_backward_; }

 private:
  struct Sums {
    std::vector<double> forward;   // [i]: of layers below i
    std::vector<double> backward;  // with what is kept
    std::vector<double> inside;    // [i]: of layers below i, forwards in a visit that goes back
    std::vector<double> fused;     // [i]: of layers below i, `backward` in a fused visit
    std::vector<double> whole;     // backward of one layer recomputed whole
    std::vector<double> weights;   // [i]: of layers below i, of `backward` what may be computed later
    double table = 0;              // backward of the lookup table
  };
  struct Reach {
    std::vector<LayerIndex> forward_end;     // [first]: exclusive; first itself when nothing fits
    std::vector<LayerIndex> backward_begin;  // [last]: inclusive; last + 1 when nothing fits
    LayerIndex fused_begin = 0;              // inclusive; the number of layers when nothing fits
  };
  Sums sum_up(const ModelShape& model, const Workload& work, const DeviceShape& device, Keep keep) const;
  Reach reach(const ModelShape& model, const Workload& work, const DeviceShape& device, Keep keep,
              MemoryShares shares) const;
  LayerIndex layers_ = 0;
  LayerIndex first_head_ = 0;
  LayerIndex lowest_backward_ = 0;
  std::vector<bool> has_backward_;
  std::vector<std::size_t> like_;  // by device: the first that is alike
  std::vector<Sums> sums_;         // by device
  std::vector<Reach> reach_;       // by device
};

// In the header since a search asks millions of times.

inline bool TimeTable::fits_memory(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
  const Reach& reach = reach_[device];
  if (phase == SlotPhase::kForward) return last < reach.forward_end[first];
  return first >= (phase == SlotPhase::kBackward ? reach.backward_begin[last] : reach.fused_begin);
}

inline double TimeTable::seconds(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
  const Sums& sums = sums_[device];
  if (phase == SlotPhase::kForward) return sums.forward[last + 1] - sums.forward[first];
  if (phase == SlotPhase::kWeightGradient) return sums.weights[last + 1] - sums.weights[first];
  // The last layer of a fused slot is the head, of a backward slot one that is recomputed whole: one program either
  // way.
  const std::vector<double>& gradients = phase == SlotPhase::kFused ? sums.fused : sums.backward;
  return sums.inside[last] - sums.inside[first] + gradients[last] - gradients[first] + sums.whole[last] +
         (first == 1 ? sums.table : 0);
}

/// Stages for the devices of `order`, dealt in rotation from its first: forward ones up to the fused one, that,
/// backward ones. Each takes as many layers as its device does in `limit` seconds and holds in its memory; a device
/// that cannot do one layer so is passed over. The fused stage begins where the stages are the fewest, then where the
/// sum of their times is the least. Nothing when `limit` is too small for some layer on every device. round is 0;
/// `seconds` are filled in.
std::optional<std::vector<Slot>> pack_best(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit);

}  // namespace rondo::partition
