#include "search.h"

#include <algorithm>
#include <cmath>

namespace rondo::partition {
namespace {

/// Deals the slots of one round after another, by load.
class Dealer {
 public:
  Dealer(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit, double most)
      : times_(times), order_(order), limit_(limit * kSlack), most_(most * kSlack) {
    load_.assign(*std::ranges::max_element(order) + 1, 0.0);
  }

  bool deal(LayerIndex fused_first, std::uint32_t round, std::uint32_t microbatches) {
    round_ = round;
    microbatches_ = microbatches;
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
    slots_.push_back({phase, first, last, device, round_, seconds});
    return load_[device] <= most_;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const double limit_;
  const double most_;
  std::uint32_t round_ = 0;
  std::uint32_t microbatches_ = 0;
  std::vector<double> load_;
  std::vector<Slot> slots_;
};

/// Hill climbing over the slots of a step.
class Improver {
 public:
  Improver(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
           StepEstimate& estimate, std::size_t trials, std::vector<Slot>& slots)
      : times_(times),
        order_(order),
        rounds_(rounds),
        estimate_(estimate),
        trials_(trials),
        slots_(slots),
        left_(*std::ranges::max_element(order) + 1) {}

  double run() {
    best_ = estimate_.seconds_of(slots_, rounds_);
    bool better = true;
    while (better && trials_ > 0) {
      better = false;
      estimate_.begin();
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        // No change of this turn touches what lies before it: that stays placed.
        while (estimate_.placed() < i) place(slots_[estimate_.placed()]);
        better = move_cut(i, true) || better;
        better = move_cut(i, false) || better;
        better = change_device(i) || better;
        better = swap_devices(i) || better;
        better = merge(i) || better;
        better = split(i) || better;
      }
    }
    return best_;
  }

 private:
  double work_of(const Slot& slot) const { return slot.seconds * rounds_[slot.round].microbatches; }
  void place(const Slot& slot) { estimate_.place(slot, rounds_[slot.round].microbatches); }

  /// Takes the change over if it is possible and better. REQUIRES: it begins behind what is placed.
  bool attempt(const std::vector<Slot>& changed) {
    if (trials_ == 0) return false;
    --trials_;
    const std::size_t same = estimate_.placed();
    const double limit = best_ * (1 - 1e-9);
    const bool better = place_within(changed, limit);
    if (better) {
      best_ = estimate_.seconds();
      slots_ = changed;
    }
    while (estimate_.placed() > same) estimate_.take_back();
    return better;
  }

  /// Places the rest of `changed` for as long as the step may still take less than `limit`; false when it does not.
  bool place_within(const std::vector<Slot>& changed, double limit) {
    left_.assign(left_.size(), 0.0);
    for (std::size_t i = estimate_.placed(); i < changed.size(); ++i) left_[changed[i].device] += work_of(changed[i]);
    const auto too_long = [&](DeviceIndex device) {
      return estimate_.free_at(device) + left_[device] > limit * kSlack;
    };
    if (std::ranges::any_of(order_, too_long)) return false;
    for (std::size_t i = estimate_.placed(); i < changed.size(); ++i) {
      const Slot& slot = changed[i];
      place(slot);
      left_[slot.device] -= work_of(slot);
      if (estimate_.seconds() >= limit || too_long(slot.device)) return false;
    }
    return true;
  }
  bool refresh(Slot& slot) const {
    if (slot.first_layer > slot.last_layer || (slot.phase == SlotPhase::kForward && slot.last_layer == 0)) return false;
    slot.seconds = times_.seconds(slot.device, slot.phase, slot.first_layer, slot.last_layer);
    return times_.fits_memory(slot.device, slot.phase, slot.first_layer, slot.last_layer);
  }
  bool same_kind(std::size_t i, std::size_t j) const {
    return j < slots_.size() && slots_[i].round == slots_[j].round && slots_[i].phase == slots_[j].phase;
  }

  /// The cut between slot i and the next: a layer from the one to the other.
  bool move_cut(std::size_t i, bool down) {
    if (i + 1 >= slots_.size() || slots_[i].round != slots_[i + 1].round) return false;
    copy_ = slots_;
    Slot& one = copy_[i];
    Slot& other = copy_[i + 1];
    if (one.phase == SlotPhase::kForward && other.phase == SlotPhase::kForward) {
      one.last_layer += down ? static_cast<LayerIndex>(-1) : 1;
      other.first_layer = one.last_layer + 1;
    } else if (one.phase == SlotPhase::kForward && other.phase == SlotPhase::kFused) {
      if (i + 2 >= copy_.size() || copy_[i + 2].round != one.round || other.first_layer <= times_.lowest_backward()) {
        return false;
      }
      if (one.first_layer == one.last_layer && down) return false;
      other.first_layer += down ? static_cast<LayerIndex>(-1) : 1;
      one.last_layer = copy_[i + 2].last_layer = other.first_layer - 1;
      if (!refresh(copy_[i + 2])) return false;
    } else if (one.phase == SlotPhase::kBackward) {
      one.first_layer += down ? static_cast<LayerIndex>(-1) : 1;
      other.last_layer = one.first_layer - 1;
    } else {
      return false;
    }
    return refresh(one) && refresh(other) && attempt(copy_);
  }
  bool change_device(std::size_t i) {
    bool better = false;
    for (const DeviceIndex device : order_) {
      if (device == slots_[i].device) continue;
      copy_ = slots_;
      copy_[i].device = device;
      better = (refresh(copy_[i]) && attempt(copy_)) || better;
    }
    return better;
  }
  bool swap_devices(std::size_t i) {
    bool better = false;
    for (std::size_t j = i + 1; j < slots_.size() && j <= i + order_.size(); ++j) {
      if (slots_[i].device == slots_[j].device) continue;
      copy_ = slots_;
      std::swap(copy_[i].device, copy_[j].device);
      better = (refresh(copy_[i]) && refresh(copy_[j]) && attempt(copy_)) || better;
    }
    return better;
  }
  bool merge(std::size_t i) {
    if (!same_kind(i, i + 1)) return false;
    copy_ = slots_;
    Slot& slot = copy_[i];
    slot.first_layer = std::min(slot.first_layer, copy_[i + 1].first_layer);
    slot.last_layer = std::max(slot.last_layer, copy_[i + 1].last_layer);
    copy_.erase(copy_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return refresh(copy_[i]) && attempt(copy_);
  }
  bool split(std::size_t i) {
    const Slot slot = slots_[i];
    if (slot.phase == SlotPhase::kFused || slot.first_layer == slot.last_layer) return false;
    for (const DeviceIndex device : order_) {
      copy_ = slots_;
      Slot second = slot;
      second.device = device;
      const LayerIndex middle = (slot.first_layer + slot.last_layer) / 2;
      if (slot.phase == SlotPhase::kForward) {
        copy_[i].last_layer = middle;
        second.first_layer = middle + 1;
      } else {
        copy_[i].first_layer = middle + 1;
        second.last_layer = middle;
      }
      copy_.insert(copy_.begin() + static_cast<std::ptrdiff_t>(i) + 1, second);
      if (refresh(copy_[i]) && refresh(copy_[i + 1]) && attempt(copy_)) return true;
    }
    return false;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const std::vector<Round>& rounds_;
  StepEstimate& estimate_;
  std::size_t trials_;
  std::vector<Slot>& slots_;
  std::vector<Slot> copy_;
  std::vector<double> left_;  // by device: seconds of what is not placed yet
  double best_ = 0;
};

}  // namespace

std::optional<std::vector<Slot>> deal_by_load(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                              const std::vector<Round>& rounds, double limit, LayerIndex fused_first,
                                              double most) {
  Dealer dealer(times, order, limit, most);
  for (std::uint32_t round = 0; round < rounds.size(); ++round) {
    if (!dealer.deal(fused_first, round, rounds[round].microbatches)) return std::nullopt;
  }
  return dealer.take();
}

std::vector<LayerIndex> fused_beginnings(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit) {
  std::vector<LayerIndex> found;
  const LayerIndex last = times.layers() - 1;
  for (const DeviceIndex device : order) {
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

double improve(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
               StepEstimate& estimate, std::size_t trials, std::vector<Slot>& slots) {
  return Improver(times, order, rounds, estimate, trials, slots).run();
}

}  // namespace rondo::partition
