// Hill climbing over the slots of a step.
//
// Nearly all changes are worse, and most can be told so before anything is placed: by what a device then has to do, and
// by what the last microbatch has still to pass through. Which changes are taken over, and in which order they are
// tried, does not depend on these bounds; they only spare the placing.
#include <algorithm>
#include <array>
#include <span>

#include "search.h"

namespace rondo::partition {
namespace {

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
        work_(*std::ranges::max_element(order) + 1),
        visits_(work_.size()) {}

  double run() {
    best_ = estimate_.seconds_of(slots_, rounds_);
    bool better = true;
    while (better && trials_ > 0) {
      better = false;
      estimate_.begin();
      look_ahead();
      for (std::size_t i = 0; i < slots_.size() && trials_ > 0; ++i) {
        // No change of this turn touches what lies before it: that stays placed.
        while (estimate_.placed() < i) {
          const Slot& slot = slots_[estimate_.placed()];
          place(slot);
          work_[slot.device] -= work_of(slot);
        }
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
  /// Slots at rising places, the first of them the first that is not placed, and what comes instead of them: as many
  /// slots at the same places, or one more or less of slots that follow one another.
  struct Change {
    std::span<const std::size_t> places;
    std::span<const Slot> by;
  };

  double work_of(const Slot& slot) const { return slot.seconds * rounds_[slot.round].microbatches; }
  void place(const Slot& slot) { estimate_.place(slot, rounds_[slot.round].microbatches); }

  /// What `slots_` leave to do, from the first slot that is not placed on.
  void look_ahead() {
    std::ranges::fill(work_, 0.0);
    std::ranges::fill(visits_, 0U);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (i >= estimate_.placed()) work_[slots_[i].device] += work_of(slots_[i]);
      ++visits_[slots_[i].device];
    }
    path_.assign(slots_.size() + 1, 0.0);
    for (std::size_t i = slots_.size(); i-- > 0;) {
      const bool ends_round = i + 1 == slots_.size() || slots_[i + 1].round != slots_[i].round;
      path_[i] = estimate_.through_seconds(slots_[i]) + (ends_round ? 0 : path_[i + 1]);
    }
  }
  /// Seconds that the last microbatch of slot i's round needs behind it.
  double path_behind(std::size_t i) const {
    return i + 1 < slots_.size() && slots_[i + 1].round == slots_[i].round ? path_[i + 1] : 0;
  }

  /// Takes the change over if it is better.
  bool attempt(const Change& change) {
    if (trials_ == 0) return false;
    --trials_;
    const std::size_t same = estimate_.placed();
    const double limit = best_ * (1 - 1e-9);
    const double path = path_with(change);
    if (is_hopeless(change, path, limit * kSlack)) return false;
    build(change);
    const bool better = place_within(change, path, limit);
    if (better) {
      best_ = estimate_.seconds();
      slots_ = changed_;
    }
    while (estimate_.placed() > same) estimate_.take_back();
    if (better) look_ahead();
    return better;
  }

  /// What the last microbatch passes through from the change's first slot to the end of its round.
  double path_with(const Change& change) const {
    const std::uint32_t round = change.by[0].round;
    double path = path_[change.places[0]];
    for (const std::size_t at : change.places) {
      if (slots_[at].round == round) path -= estimate_.through_seconds(slots_[at]);
    }
    for (const Slot& slot : change.by) {
      if (slot.round == round) path += estimate_.through_seconds(slot);
    }
    return path;
  }

  /// Whether the step takes longer than `limit` by what is known without placing anything.
  bool is_hopeless(const Change& change, double path, double limit) const {
    const std::size_t at = change.places[0];
    const Slot& first = change.by[0];
    const bool follows = at > 0 && slots_[at - 1].round == first.round;
    if (follows && estimate_.last_out() + path > limit) return true;
    const double others = rounds_[first.round].microbatches - 1;
    const double in = estimate_.in_seconds(first);
    if (estimate_.free_at(first.device) + others * first.seconds + path - in > limit) return true;
    return std::ranges::any_of(change.by, [&](const Slot& slot) {
      double work = work_[slot.device];
      for (const std::size_t place : change.places) {
        if (slots_[place].device == slot.device) work -= work_of(slots_[place]);
      }
      for (const Slot& other : change.by) {
        if (other.device == slot.device) work += work_of(other);
      }
      return estimate_.free_at(slot.device) + work > limit;
    });
  }

  void build(const Change& change) {
    changed_ = slots_;
    const std::size_t same = std::min(change.places.size(), change.by.size());
    for (std::size_t n = 0; n < same; ++n) changed_[change.places[n]] = change.by[n];
    const auto behind = changed_.begin() + static_cast<std::ptrdiff_t>(change.places[same - 1]) + 1;
    if (change.by.size() > same) changed_.insert(behind, change.by[same]);
    if (change.places.size() > same) changed_.erase(behind);
  }

  /// Places the rest of `changed_` for as long as the step may still take less than `limit`; false when it does not.
  bool place_within(const Change& change, double path, double limit) {
    left_ = work_;
    for (const std::size_t at : change.places) left_[slots_[at].device] -= work_of(slots_[at]);
    for (const Slot& slot : change.by) left_[slot.device] += work_of(slot);
    // From here on `changed_` is as before.
    const std::size_t as_before = change.places.back() + 1 + change.by.size() - change.places.size();
    const std::uint32_t round = change.by[0].round;
    for (std::size_t i = estimate_.placed(); i < changed_.size(); ++i) {
      const Slot& slot = changed_[i];
      place(slot);
      left_[slot.device] -= work_of(slot);
      if (estimate_.seconds() >= limit) return false;
      if (estimate_.free_at(slot.device) + left_[slot.device] > limit * kSlack) return false;
      if (i >= as_before) {
        path = path_behind(i + slots_.size() - changed_.size());
      } else if (slot.round == round) {
        path -= estimate_.through_seconds(slot);
      } else {
        continue;
      }
      if (estimate_.last_out() + path > limit * kSlack) return false;
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
  /// Whether a slot on `device` would take as long as on one that was tried in vain: both have none so far.
  bool was_tried(const std::vector<DeviceIndex>& tried, DeviceIndex device) const {
    return visits_[device] == 0 && std::ranges::any_of(tried, [&](DeviceIndex other) {
             return times_.same_times(other, device) && estimate_.same_links(other, device);
           });
  }

  /// The cut between slot i and the next: a layer from the one to the other.
  bool move_cut(std::size_t i, bool down) {
    if (i + 1 >= slots_.size() || slots_[i].round != slots_[i + 1].round) return false;
    const std::array<std::size_t, 3> places = {i, i + 1, i + 2};
    std::array<Slot, 3> by = {slots_[i], slots_[i + 1]};
    std::size_t count = 2;
    Slot& one = by[0];
    Slot& other = by[1];
    if (one.phase == SlotPhase::kForward && other.phase == SlotPhase::kForward) {
      one.last_layer += down ? static_cast<LayerIndex>(-1) : 1;
      other.first_layer = one.last_layer + 1;
    } else if (one.phase == SlotPhase::kForward && other.phase == SlotPhase::kFused) {
      if (i + 2 >= slots_.size() || slots_[i + 2].round != one.round || other.first_layer <= times_.lowest_backward()) {
        return false;
      }
      if (one.first_layer == one.last_layer && down) return false;
      count = 3;
      Slot& back = by[2] = slots_[i + 2];
      other.first_layer += down ? static_cast<LayerIndex>(-1) : 1;
      one.last_layer = back.last_layer = other.first_layer - 1;
      if (!refresh(back)) return false;
    } else if (one.phase == SlotPhase::kBackward) {
      one.first_layer += down ? static_cast<LayerIndex>(-1) : 1;
      other.last_layer = one.first_layer - 1;
    } else {
      return false;
    }
    return refresh(one) && refresh(other) && attempt({{places.data(), count}, {by.data(), count}});
  }
  bool change_device(std::size_t i) {
    bool better = false;
    tried_.clear();
    for (const DeviceIndex device : order_) {
      if (device == slots_[i].device) continue;
      Slot slot = slots_[i];
      slot.device = device;
      if (!refresh(slot)) continue;
      if (was_tried(tried_, device)) {
        trials_ -= std::min<std::size_t>(trials_, 1);
        continue;
      }
      if (attempt({{&i, 1}, {&slot, 1}})) {
        better = true;
        tried_.clear();
      } else if (visits_[device] == 0) {
        tried_.push_back(device);
      }
    }
    return better;
  }
  bool swap_devices(std::size_t i) {
    bool better = false;
    for (std::size_t j = i + 1; j < slots_.size() && j <= i + order_.size(); ++j) {
      if (slots_[i].device == slots_[j].device) continue;
      const std::array<std::size_t, 2> places = {i, j};
      std::array<Slot, 2> by = {slots_[i], slots_[j]};
      std::swap(by[0].device, by[1].device);
      better = (refresh(by[0]) && refresh(by[1]) && attempt({places, by})) || better;
    }
    return better;
  }
  bool merge(std::size_t i) {
    if (!same_kind(i, i + 1)) return false;
    const std::array<std::size_t, 2> places = {i, i + 1};
    Slot slot = slots_[i];
    slot.first_layer = std::min(slot.first_layer, slots_[i + 1].first_layer);
    slot.last_layer = std::max(slot.last_layer, slots_[i + 1].last_layer);
    return refresh(slot) && attempt({places, {&slot, 1}});
  }
  bool split(std::size_t i) {
    const Slot& slot = slots_[i];
    if (slot.phase == SlotPhase::kFused || slot.first_layer == slot.last_layer) return false;
    tried_.clear();
    for (const DeviceIndex device : order_) {
      std::array<Slot, 2> by = {slot, slot};
      by[1].device = device;
      const LayerIndex middle = (slot.first_layer + slot.last_layer) / 2;
      if (slot.phase == SlotPhase::kForward) {
        by[0].last_layer = middle;
        by[1].first_layer = middle + 1;
      } else {
        by[0].first_layer = middle + 1;
        by[1].last_layer = middle;
      }
      if (!refresh(by[0]) || !refresh(by[1])) continue;
      if (was_tried(tried_, device)) {
        trials_ -= std::min<std::size_t>(trials_, 1);
        continue;
      }
      if (attempt({{&i, 1}, by})) return true;
      if (visits_[device] == 0) tried_.push_back(device);
    }
    return false;
  }

  const TimeTable& times_;
  const std::vector<DeviceIndex>& order_;
  const std::vector<Round>& rounds_;
  StepEstimate& estimate_;
  std::size_t trials_;
  std::vector<Slot>& slots_;
  std::vector<Slot> changed_;
  std::vector<double> work_;           // by device: seconds of the slots that are not placed
  std::vector<std::uint32_t> visits_;  // by device: its slots
  std::vector<double>
      path_;  // by slot: what a microbatch passes through from it on to the end of its round, in seconds
  std::vector<double> left_;        // as work_, of changed_
  std::vector<DeviceIndex> tried_;  // without slots, in vain for the slot at hand
  double best_ = 0;
};

}  // namespace

double improve(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
               StepEstimate& estimate, std::size_t trials, std::vector<Slot>& slots) {
  return Improver(times, order, rounds, estimate, trials, slots).run();
}

}  // namespace rondo::partition
