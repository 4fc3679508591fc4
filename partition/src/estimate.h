// How long a step takes, visit by visit instead of event by event: good enough to rank plans by, some hundred times
// quicker than the simulation that decides.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Share of a visit's first microbatch that is computed before its weights have all come.
inline constexpr double kOverlap = 0.25;

/// Visits are placed one after another in dealing order. Within a visit microbatches are taken to come and go at an
/// even pace. A lower bound of what simulate() says leaves out what an estimate must guess: how copies get in each
/// other's way.
class StepEstimate {
 public:
  enum class What : std::uint8_t { kEstimate, kLowerBound };
  struct DeviceState {
    double free = 0;
    double before = 0;  // end of the visit before the last
    double up_free = 0;
    double down_free = 0;
    double up_load = 0;  // seconds that the link is in use, whatever waits for what
    double down_load = 0;
    bool visited = false;
  };
  /// Seconds of a visit, whenever it is.
  struct VisitTerms {
    double count = 0;                        // microbatches
    double in = 0;                           // of one of them
    double out = 0;                          // likewise
    double seconds = 0;                      // likewise
    double pace = 0;                         // likewise, when they come one after another
    std::array<double, 2> weights = {0, 0};  // of its weights: when it is the device's first visit, and later
    double updated = 0;                      // when these are published
    bool has_gradients = false;
    double home = 0;    // of all gradients of the visit
    double behind = 0;  // what of them can only begin when all is computed: the lowest layer's
    double norm = 0;    // of these gradients
  };
  StepEstimate(const ModelShape& model, const Workload& work, const MachineShape& machine, What what);

  void begin();
  /// REQUIRES: the slots before it in its round are placed.
  void place(const Slot& slot, std::uint32_t microbatches);
  /// Takes the last placed visit back.
  void take_back();
  std::size_t placed() const { return placed_.size(); }
  /// Seconds of a step of what is placed. They never fall while more is placed.
  double seconds() const { return done_; }
  /// When a device has computed all its placed visits; each takes it at least its seconds for every microbatch.
  double free_at(DeviceIndex device) const { return devices_[device].free; }
  /// When the next slot has the first and the last microbatch of the last placed one. REQUIRES: placed() > 0.
  double first_out() const { return placed_.back().out_first; }
  double last_out() const { return placed_.back().out_last; }
  const DeviceState& state_of(DeviceIndex device) const { return devices_[device]; }
  VisitTerms terms_of(const Slot& slot, std::uint32_t microbatches) const;
  /// Seconds that one microbatch takes at least from the slot before it in its round to the next one.
  double through_seconds(const Slot& slot) const { return in_seconds(slot) + slot.seconds + out_seconds(slot); }
  /// Of these, what its inputs take.
  double in_seconds(const Slot& slot) const {
    const int boundaries = (slot.first_layer > 0 ? 1 : 0) + (slot.phase == SlotPhase::kBackward ? 1 : 0);
    return links_[slot.device].in[static_cast<std::size_t>(boundaries)];
  }
  /// Whether visits take as long on both as far as links go; times of the layers are asked elsewhere.
  bool same_links(DeviceIndex one, DeviceIndex other) const {
    return links_[one] == links_[other] && on_host_[one] == on_host_[other] &&
           fetches_weights_[one] == fetches_weights_[other];
  }

  double seconds_of(const std::vector<Slot>& slots, const std::vector<Round>& rounds);
  /// The same where they are below `most`, else anything that is not.
  double seconds_below(const std::vector<Slot>& slots, const std::vector<Round>& rounds, double most);
  /// Where steps overlap: a device goes through its slots in one order, so that the next step begins on it when this
  /// one ends on it. Of the device, or its link, on which that takes longest.
  double period_of(const std::vector<Slot>& slots, const std::vector<Round>& rounds);

 private:
  struct Link {
    double up = 0;  // seconds a byte
    double down = 0;
    double latency = 0;
    std::array<double, 3> in = {0, 0, 0};  // seconds of a microbatch's inputs with so many boundaries
    double out = 0;                        // and of its output

    bool operator==(const Link&) const = default;
  };
  struct Placed {
    DeviceIndex device = 0;
    double out_first = 0;
    double out_last = 0;
    DeviceState state_before;
    double done_before = 0;
  };
  const Placed* producer_of_activation(const Slot& slot) const;
  static double copy(double bytes, double seconds_a_byte, double latency) {
    return seconds_a_byte > 0 && bytes > 0 ? bytes * seconds_a_byte + latency : 0;
  }
  double out_seconds(const Slot& slot) const {
    const bool sends =
        slot.phase == SlotPhase::kForward || (slot.first_layer > 1 && has_backward_[slot.first_layer - 1]);
    return sends ? links_[slot.device].out : 0;
  }

  const bool bound_;
  std::uint32_t group_ = 1;
  double boundary_ = 0;  // bytes
  double batch_ = 0;
  double norm_per_byte_ = 0;  // seconds
  std::vector<Link> links_;
  std::vector<double> weights_;          // [i]: bytes of layers below i
  std::vector<double> trained_weights_;  // likewise: of trained weights
  std::vector<double> gradients_;        // likewise
  std::vector<double> updated_;          // by layer: when its weights are published
  double all_updated_ = 0;
  std::vector<bool> on_host_;  // by device
  std::vector<bool> fetches_weights_;
  std::vector<bool> has_backward_;
  const std::size_t cuts_;             // of a round
  std::vector<std::uint32_t> covers_;  // by round and cut: index of the forward visit that gives it out
  std::vector<DeviceState> devices_;
  std::vector<Placed> placed_;
  double done_ = 0;
};

}  // namespace rondo::partition
