// Hill climbing over the slots of a step.
//
// Nearly all changes are worse, and most can be told so before anything is placed: by what a device then has to do, and
// by what the last microbatch has still to pass through. Which changes are taken over, and in which order they are
// tried, does not depend on these bounds; they only spare the placing.
#include <algorithm>
#include <array>
#include <span>

#include "remainder.h"
#include "search.h"

namespace rondo::partition {
namespace {

/// What is longer than a limit by this factor is so with another order of the sums too.
constexpr double kSure = 1 + 1e-11;

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
        visits_(*std::ranges::max_element(order) + 1) {}

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
          remainder_.pass(slot.device);
        }
        find_critical();
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

  void place(const Slot& slot) { estimate_.place(slot, rounds_[slot.round].microbatches); }

  /// What `slots_` leave to do, from the first slot that is not placed on.
  void look_ahead() {
    std::ranges::fill(visits_, 0U);
    for (const Slot& slot : slots_) ++visits_[slot.device];
    const std::size_t begin = estimate_.placed();
    remainder_.look_back(estimate_, slots_, rounds_, begin, visits_.size());
    path_.resize(slots_.size() + 1);
    for (std::size_t i = slots_.size(); i-- > begin;) {
      const bool ends_round = i + 1 == slots_.size() || slots_[i + 1].round != slots_[i].round;
      path_[i] = estimate_.through_seconds(slots_[i]) + (ends_round ? 0 : path_[i + 1]);
    }
  }
  /// Devices by which alone the step takes as long as it does, whatever is changed on others at this place.
  void find_critical() {
    critical_.clear();
    for (const DeviceIndex device : order_) {
      const double end =
          remainder_.end_of_device(estimate_.state_of(device), remainder_.next_of(device, estimate_.placed()));
      if (end > limit() * kSure) critical_.push_back(device);
    }
  }
  /// What a better step does not reach.
  double limit() const { return best_ * (1 - 1e-9); }

  /// Takes the change over if it is better.
  bool attempt(const Change& change) {
    if (trials_ == 0) return false;
    --trials_;
    const std::size_t same = estimate_.placed();
    const double path = path_with(change);
    if (is_hopeless(change, path)) return false;
    const bool better = is_better(change, path);
    if (better) {
      best_ = estimate_.seconds();
      std::swap(slots_, changed_);
    }
    while (estimate_.placed() > same) estimate_.take_back();
    if (better) {
      look_ahead();
      find_critical();
    }
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

  /// Whether the step is not better by what is known without placing anything.
  bool is_hopeless(const Change& change, double path) const {
    const auto touches = [&](DeviceIndex device) {
      const auto is_on = [device](const Slot& slot) { return slot.device == device; };
      const auto begin = slots_.begin() + static_cast<std::ptrdiff_t>(change.places.front());
      const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(change.places.back()) + 1;
      return std::any_of(begin, end, is_on) || std::ranges::any_of(change.by, is_on);
    };
    if (!std::ranges::all_of(critical_, touches)) return true;
    const std::size_t at = change.places.front();
    const Slot& first = change.by.front();
    const bool follows = at > 0 && slots_[at - 1].round == first.round;
    if (follows && estimate_.last_out() + path > limit() * kSure) return true;
    // The visit takes its device that long, and its last microbatch then goes on.
    const double others = rounds_[first.round].microbatches - 1;
    return estimate_.free_at(first.device) + others * first.seconds + path - estimate_.in_seconds(first) >
           limit() * kSure;
  }

  /// Places all of the changed slots, for as long as the step may still be better; false when it is not.
  bool is_better(const Change& change, double path) {
    const double limit = this->limit();
    const std::size_t first = change.places.front();
    const std::size_t behind = change.places.back() + 1;  // in slots_: from here on all is as before
    const std::size_t end = behind + change.by.size() - change.places.size();
    const bool inserts = change.by.size() != change.places.size();
    std::size_t taken = 0;
    for (std::size_t i = first; i < end; ++i) {
      const bool changed = inserts || i == change.places[taken];
      const Slot& slot = changed ? change.by[taken] : slots_[i];
      if (changed) ++taken;
      place(slot);
      if (estimate_.seconds() >= limit) return false;
      if (slot.round != change.by[0].round) continue;
      path -= estimate_.through_seconds(slot);
      if (estimate_.last_out() + path > limit * kSure) return false;
    }
    const auto too_late = [&](const Slot& slot) {
      const std::size_t next = remainder_.next_of(slot.device, behind);
      return remainder_.end_of_device(estimate_.state_of(slot.device), next) > limit * kSure;
    };
    if (remainder_.end_of_boundary(estimate_.first_out(), estimate_.last_out(), behind) > limit * kSure ||
        remainder_.end_of_updates(behind) > limit * kSure || std::ranges::any_of(change.by, too_late) ||
        std::any_of(slots_.begin() + static_cast<std::ptrdiff_t>(first),
                    slots_.begin() + static_cast<std::ptrdiff_t>(behind), too_late)) {
      return false;
    }
    build(change);
    for (std::size_t i = end; i < changed_.size(); ++i) {
      place(changed_[i]);
      if (estimate_.seconds() >= limit) return false;
    }
    return true;
  }
  void build(const Change& change) {
    changed_ = slots_;
    const std::size_t same = std::min(change.places.size(), change.by.size());
    for (std::size_t n = 0; n < same; ++n) changed_[change.places[n]] = change.by[n];
    const auto behind = changed_.begin() + static_cast<std::ptrdiff_t>(change.places[same - 1]) + 1;
    if (change.by.size() > same) changed_.insert(behind, change.by[same]);
    if (change.places.size() > same) changed_.erase(behind);
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
  std::vector<std::uint32_t> visits_;  // by device: its slots
  Remainder remainder_;                // of slots_
  std::vector<double>
      path_;  // by slot: what a microbatch passes through from it on to the end of its round, in seconds
  std::vector<DeviceIndex> critical_;
  std::vector<DeviceIndex> tried_;  // without slots, in vain for the slot at hand
  double best_ = 0;
};

}  // namespace

double improve(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
               StepEstimate& estimate, std::size_t trials, std::vector<Slot>& slots) {
  return Improver(times, order, rounds, estimate, trials, slots).run();
}

}  // namespace rondo::partition
