#include "search.h"

#include <algorithm>
#include <cmath>

namespace rondo::partition {
namespace {

/// Deals the slots of one round after another, by load.
class Dealer {
 public:
  Dealer(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit, double most, double most_path)
      : times_(times), order_(order), limit_(limit * kSlack), most_(most * kSlack), most_path_(most_path * kSlack) {
    load_.assign(*std::ranges::max_element(order) + 1, 0.0);
  }

  bool deal(LayerIndex fused_first, std::uint32_t round, std::uint32_t microbatches) {
    round_ = round;
    microbatches_ = microbatches;
    path_ = 0;
    for (LayerIndex first = 0; first < fused_first;) {
      // The lookup table alone would be a visit without FLOPs.
      const LayerIndex least = first == 0 ? std::min<LayerIndex>(1, fused_first - 1) : first;
      const auto device = choose(SlotPhase::kForward, first, least);
      if (!device) return false;
      const LayerIndex last = least + most_of(fused_first - 1 - least, [&](LayerIndex more) {
                                return fits(*device, SlotPhase::kForward, first, least + more);
                              });
      if (!add(SlotPhase::kForward, first, last, *device)) return false;
      first = last + 1;
    }
    const LayerIndex last = times_.layers() - 1;
    const auto fused = choose(SlotPhase::kFused, fused_first, last);
    if (!fused || !add(SlotPhase::kFused, fused_first, last, *fused)) return false;
    for (LayerIndex end = fused_first; end > times_.lowest_backward();) {
      const auto device = choose(SlotPhase::kBackward, end - 1, end - 1);
      if (!device) return false;
      const LayerIndex first = end - 1 - most_of(end - 1 - times_.lowest_backward(), [&](LayerIndex more) {
                                 return fits(*device, SlotPhase::kBackward, end - 1 - more, end - 1);
                               });
      if (!add(SlotPhase::kBackward, first, end - 1, *device)) return false;
      end = first;
    }
    return true;
  }
  std::vector<Slot> take() { return std::move(slots_); }

 private:
  /// The largest number up to `limit` that `fits`, of those above it none does; 0 when none does.
  template <typename Fits>
  static LayerIndex most_of(LayerIndex limit, Fits number_fits) {
    LayerIndex most = 0;
    while (most < limit) {
      const LayerIndex middle = most + (limit - most + 1) / 2;
      if (number_fits(middle)) {
        most = middle;
      } else {
        limit = middle - 1;
      }
    }
    return most;
  }
  bool fits(DeviceIndex device, SlotPhase phase, LayerIndex first, LayerIndex last) const {
    return times_.seconds(device, phase, first, last) <= limit_ && times_.fits_memory(device, phase, first, last);
  }
  std::optional<DeviceIndex> choose(SlotPhase phase, LayerIndex first, LayerIndex last) const {
    std::optional<DeviceIndex> best;
    for (const DeviceIndex device : order_) {
      if ((!best || load_[device] < load_[*best]) && fits(device, phase, first, last)) best = device;
    }
    return best;
  }
  /// False when the device then has too much to do.
  bool add(SlotPhase phase, LayerIndex first, LayerIndex last, DeviceIndex device) {
    const double seconds = times_.seconds(device, phase, first, last);
    load_[device] += seconds * microbatches_;
    path_ += seconds;
    slots_.push_back({phase, first, last, device, round_, seconds});
    return load_[device] <= most_ && path_ <= most_path_;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const double limit_;
  const double most_;
  const double most_path_;
  std::uint32_t round_ = 0;
  std::uint32_t microbatches_ = 0;
  std::vector<double> load_;
  double path_ = 0;  // seconds of the round's slots, through which every microbatch passes one after another
  std::vector<Slot> slots_;
};

}  // namespace

std::optional<std::vector<Slot>> deal_by_load(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                              const std::vector<Round>& rounds, double limit, LayerIndex fused_first,
                                              double most, double most_path) {
  Dealer dealer(times, order, limit, most, most_path);
  for (std::uint32_t round = 0; round < rounds.size(); ++round) {
    if (!dealer.deal(fused_first, round, rounds[round].microbatches)) return std::nullopt;
  }
  return dealer.take();
}

std::vector<LayerIndex> fused_beginnings(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit) {
  std::vector<LayerIndex> found;
  const LayerIndex last = times.layers() - 1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const DeviceIndex device = order[i];
    if (i > 0 && times.same_times(order[i - 1], device)) continue;
    LayerIndex first = times.layers();
    while (first > 0 && times.seconds(device, SlotPhase::kFused, first - 1, last) <= limit * kSlack &&
           times.fits_memory(device, SlotPhase::kFused, first - 1, last)) {
      --first;
    }
    for (const LayerIndex begin : {first, first + 1}) {
      // A forward slot of the lookup table alone would be a visit without FLOPs.
      const LayerIndex usable = begin == 1 ? 0 : begin;
      const bool possible = usable == begin || first == 0;
      if (possible && usable <= last && std::ranges::count(found, usable) == 0) found.push_back(usable);
    }
  }
  return found;
}

}  // namespace rondo::partition
