#include "packing.h"

#include <algorithm>

#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

constexpr double kSlack = 1.0 + 1e-9;  // sums of the same times in another order

/// Deals stages to devices in turn.
class Dealer {
 public:
  Dealer(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit)
      : times_(times), order_(order), limit_(limit * kSlack) {}

  /// Extends a stage from `begin` while `fits(device, end)`; false when no device can take one layer.
  template <typename Fits>
  std::optional<DeviceIndex> deal(Fits fits) {
    for (std::size_t tried = 0; tried < order_.size(); ++tried) {
      const DeviceIndex device = order_[cursor_++ % order_.size()];
      if (fits(device)) return device;
    }
    return std::nullopt;
  }

  bool forward(LayerIndex end) {
    for (LayerIndex first = 0; first < end;) {
      const auto device = deal([&](DeviceIndex d) { return fits(d, SlotPhase::kForward, first, first); });
      if (!device) return false;
      LayerIndex last = first;
      while (last + 1 < end && fits(*device, SlotPhase::kForward, first, last + 1)) ++last;
      add(SlotPhase::kForward, first, last, *device);
      first = last + 1;
    }
    return true;
  }

  bool fused(LayerIndex first) {
    const LayerIndex last = times_.layers() - 1;
    const auto device = deal([&](DeviceIndex d) { return fits(d, SlotPhase::kFused, first, last); });
    if (device) add(SlotPhase::kFused, first, last, *device);
    return device.has_value();
  }

  bool backward(LayerIndex end) {
    while (end > times_.lowest_backward()) {
      LayerIndex first = end - 1;
      const auto device = deal([&](DeviceIndex d) { return fits(d, SlotPhase::kBackward, first, end - 1); });
      if (!device) return false;
      while (first > times_.lowest_backward() && fits(*device, SlotPhase::kBackward, first - 1, end - 1)) --first;
      add(SlotPhase::kBackward, first, end - 1, *device);
      end = first;
    }
    return true;
  }

  std::vector<Slot> take() { return std::move(slots_); }

 private:
  bool fits(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
    return times_.seconds(device, phase, first, last) <= limit_;
  }
  void add(SlotPhase phase, LayerIndex first, LayerIndex last, DeviceIndex device) {
    slots_.push_back({phase, first, last, device, 0, times_.seconds(device, phase, first, last)});
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const double limit_;
  std::size_t cursor_ = 0;
  std::vector<Slot> slots_;
};

double work_of(const std::vector<Slot>& slots) {
  double sum = 0;
  for (const Slot& slot : slots) sum += slot.seconds;
  return sum;
}

}  // namespace

TimeTable::TimeTable(const ModelShape& model, const Workload& work, const MachineShape& machine, Keep keep)
    : layers_(static_cast<LayerIndex>(model.layers.size())) {
  for (const LayerShape& layer : model.layers) has_backward_.push_back(layer.has_backward);
  lowest_backward_ = 0;
  while (lowest_backward_ < layers_ && !has_backward_[lowest_backward_]) ++lowest_backward_;
  lowest_backward_ = std::max<LayerIndex>(lowest_backward_, 1);
  const double share = work.microbatch_tokens > 0 && work.mean_tokens > 0
                           ? work.mean_tokens / static_cast<double>(work.microbatch_tokens)
                           : 1.0;
  for (const DeviceShape& device : machine.devices) {
    Sums& sums = sums_.emplace_back();
    sums.forward = {0};
    sums.backward = {0};
    for (LayerIndex i = 0; i < layers_; ++i) {
      const LayerShape& layer = model.layers[i];
      const bool head = i + 1 == layers_;
      const auto seconds = [&](const PhaseCost& cost) { return cost.seconds(device.profile, work.dtype) * share; };
      const Keep kept = head ? Keep::kNothing : keep;
      const double backward = layer.has_backward ? seconds(layer.backward[static_cast<std::size_t>(kept)]) : 0;
      sums.forward.push_back(sums.forward.back() + seconds(layer.forward));
      sums.backward.push_back(sums.backward.back() + backward);
      sums.whole.push_back(layer.has_backward ? seconds(layer.backward[0]) : seconds(layer.forward));
    }
    sums.table = has_backward_[0] ? sums.whole[0] : 0;
  }
}

double TimeTable::seconds(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
  const Sums& sums = sums_[device];
  if (phase == SlotPhase::kForward) return sums.forward[last + 1] - sums.forward[first];
  // The last layer of a fused slot is the head, of a backward slot one that is recomputed whole: one program either
  // way.
  return sums.forward[last] - sums.forward[first] + sums.backward[last] - sums.backward[first] + sums.whole[last] +
         (first == 1 ? sums.table : 0);
}

std::optional<std::vector<Slot>> pack(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                      LayerIndex fused_first, double limit) {
  Dealer dealer(times, order, limit);
  if (!dealer.forward(fused_first) || !dealer.fused(fused_first) || !dealer.backward(fused_first)) return std::nullopt;
  return dealer.take();
}

std::optional<std::vector<Slot>> pack_best(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                           double limit) {
  std::optional<std::vector<Slot>> best;
  for (LayerIndex first = 0; first < times.layers(); ++first) {
    // A forward slot of the lookup table alone would be a visit without FLOPs.
    if (first == 1) continue;
    auto slots = pack(times, order, first, limit);
    if (!slots) continue;
    if (!best || slots->size() < best->size() || (slots->size() == best->size() && work_of(*slots) < work_of(*best))) {
      best = std::move(slots);
    }
  }
  return best;
}

}  // namespace rondo::partition
