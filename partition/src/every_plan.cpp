// Every plan of one round, depth first, cut off where what is placed already takes as long as the best plan's step.
#include <algorithm>
#include <cmath>

#include "search.h"

namespace rondo::partition {
namespace {

class Enumerator {
 public:
  Enumerator(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<DeviceIndex>& alike_as,
             std::uint32_t microbatches, StepEstimate& bound,
             const std::function<double(const std::vector<Slot>&)>& take, double best)
      : times_(times),
        order_(order),
        alike_as_(alike_as),
        microbatches_(microbatches),
        bound_(bound),
        take_(take),
        best_(best) {}

  void run() {
    bound_.begin();
    forward(0);
  }

 private:
  void forward(LayerIndex first) {
    const LayerIndex last = times_.layers() - 1;
    if (first != 1) place(SlotPhase::kFused, first, last);
    for (LayerIndex end = first == 0 ? 1 : first; end < last; ++end) place(SlotPhase::kForward, first, end);
  }
  void backward(LayerIndex end) {
    if (end <= times_.lowest_backward()) {
      best_ = std::min(best_, take_(slots_));
      return;
    }
    for (LayerIndex first = times_.lowest_backward(); first < end; ++first) {
      place(SlotPhase::kBackward, first, end - 1);
    }
  }
  void place(SlotPhase phase, LayerIndex first, LayerIndex last) {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const DeviceIndex device = order_[i];
      // Among like devices those come first that have work already: another order is the same plan.
      const bool unlike = alike_as_[i] == device;
      if (!unlike && !has_work(alike_as_[i])) continue;
      if (!times_.fits_memory(device, phase, first, last)) continue;
      slots_.push_back({phase, first, last, device, 0, times_.seconds(device, phase, first, last)});
      bound_.place(slots_.back(), microbatches_);
      if (bound_.seconds() < best_) {
        if (phase == SlotPhase::kForward) {
          forward(last + 1);
        } else {
          backward(first);
        }
      }
      bound_.take_back();
      slots_.pop_back();
    }
  }
  bool has_work(DeviceIndex device) const {
    for (const Slot& slot : slots_) {
      if (slot.device == device) return true;
    }
    return false;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const std::vector<DeviceIndex>& alike_as_;
  const std::uint32_t microbatches_;
  StepEstimate& bound_;
  const std::function<double(const std::vector<Slot>&)>& take_;
  double best_;
  std::vector<Slot> slots_;
};

}  // namespace

double number_of_plans(const TimeTable& times, std::size_t devices) {
  const auto count = static_cast<double>(devices);
  // n layers in slots, each on any device: d (d + 1)^(n - 1).
  const auto ways = [&](double layers) { return layers <= 0 ? 1.0 : count * std::pow(count + 1, layers - 1); };
  double plans = 0;
  for (LayerIndex fused = 0; fused < times.layers(); ++fused) {
    if (fused == 1) continue;
    const double below = fused == 0 ? 0 : fused - 1;
    const double back = fused > times.lowest_backward() ? fused - times.lowest_backward() : 0;
    plans += ways(below) * count * ways(back);
  }
  return plans;
}

void every_plan(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<DeviceIndex>& alike_as,
                std::uint32_t microbatches, StepEstimate& lower_bound,
                const std::function<double(const std::vector<Slot>&)>& take, double best) {
  Enumerator(times, order, alike_as, microbatches, lower_bound, take, best).run();
}

}  // namespace rondo::partition
