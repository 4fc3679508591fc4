// See runs.h. Where steps overlap, a device that has its slots one behind the other is never kept waiting by another
// one's between them.
#include "runs.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rondo::partition {
namespace {

constexpr std::size_t kMostTurns = 8;

class RunDealer {
 public:
  RunDealer(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit)
      : times_(times), order_(order), limit_(limit * kSlack), last_(times.layers() - 1) {}

  std::optional<std::vector<Slot>> deal() {
    LayerIndex first = 0;
    while (!fuse(first)) {
      if (!forward(first) && !next_device()) return std::nullopt;
    }
    for (LayerIndex end = slots_.back().first_layer; end > times_.lowest_backward();) {
      if (!backward(end) && !next_device()) return std::nullopt;
    }
    return std::move(slots_);
  }

 private:
  DeviceIndex device() const { return order_[turn_]; }
  bool next_device() {
    used_ = 0;
    return ++turn_ < order_.size();
  }
  /// Seconds of a slot that the device at hand holds and has time for.
  std::optional<double> room_for(SlotPhase phase, LayerIndex first, LayerIndex last, double before) const {
    const double seconds = times_.seconds(device(), phase, first, last);
    if (used_ + before + seconds > limit_ || !times_.fits_memory(device(), phase, first, last)) return std::nullopt;
    return seconds;
  }
  void add(SlotPhase phase, LayerIndex first, LayerIndex last, double seconds) {
    slots_.push_back({phase, first, last, device(), 0, seconds});
    used_ += seconds;
  }

  /// All that is left of the way up, and as much of it fused as there is time for. A forward slot of the lookup table
  /// alone would be a visit without FLOPs.
  bool fuse(LayerIndex first) {
    for (LayerIndex begin = first; begin <= last_; ++begin) {
      if (begin == 1 && first == 0) continue;
      std::optional<double> before = 0.0;
      if (begin > first) before = room_for(SlotPhase::kForward, first, begin - 1, 0);
      if (!before) return false;
      const auto fused = room_for(SlotPhase::kFused, begin, last_, *before);
      if (!fused) continue;
      if (begin > first) add(SlotPhase::kForward, first, begin - 1, *before);
      add(SlotPhase::kFused, begin, last_, *fused);
      return true;
    }
    return false;
  }
  /// Moves `first` behind the slot. False when the device has room for none.
  bool forward(LayerIndex& first) {
    LayerIndex end = first == 0 ? 1 : first;  // of the shortest slot, inclusive
    if (end >= last_ || !room_for(SlotPhase::kForward, first, end, 0)) return false;
    while (end + 1 < last_ && room_for(SlotPhase::kForward, first, end + 1, 0)) ++end;
    add(SlotPhase::kForward, first, end, *room_for(SlotPhase::kForward, first, end, 0));
    first = end + 1;
    return true;
  }
  bool backward(LayerIndex& end) {
    LayerIndex first = end - 1;
    if (!room_for(SlotPhase::kBackward, first, end - 1, 0)) return false;
    while (first > times_.lowest_backward() && room_for(SlotPhase::kBackward, first - 1, end - 1, 0)) --first;
    add(SlotPhase::kBackward, first, end - 1, *room_for(SlotPhase::kBackward, first, end - 1, 0));
    end = first;
    return true;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const double limit_;
  const LayerIndex last_;
  std::size_t turn_ = 0;  // in order_
  double used_ = 0;       // seconds of the device at hand
  std::vector<Slot> slots_;
};

}  // namespace

std::vector<std::vector<Slot>> deal_in_runs(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                            double limit) {
  std::vector<std::vector<Slot>> rounds;
  std::vector<DeviceIndex> turned = order;
  for (std::size_t turn = 0; turn < std::min(order.size(), kMostTurns); ++turn) {
    if (turn > 0) std::rotate(turned.begin(), turned.begin() + 1, turned.end());
    // Begun at another device of the same kind, with the same kinds behind it, it would be the same.
    const auto same = [&](DeviceIndex one, DeviceIndex other) { return times.same_times(one, other); };
    if (turn > 0 && std::ranges::equal(turned, order, same)) break;
    if (auto slots = RunDealer(times, turned, limit).deal()) rounds.push_back(*std::move(slots));
  }
  return rounds;
}

}  // namespace rondo::partition
