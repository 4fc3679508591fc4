// The executor's course of events in simulated time: the same threads, buffers and orders (core/schedule), each a small
// state machine that goes on when what it waits for has come.
//
// The simulation begins at the commit point of a step before the first, in the steady state if that step has left time
// for all that can be brought ahead.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "fluid_links.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Forward seconds of every layer on every device, once for many simulations.
class LayerSeconds {
 public:
  LayerSeconds(const ModelShape& model, const Workload& work, const MachineShape& machine);
  double forward(DeviceIndex device, LayerIndex layer) const { return (*by_device_[device])[layer]; }

 private:
  std::vector<std::shared_ptr<const std::vector<double>>> by_device_;  // like devices share theirs
};

class EventSimulator {
 public:
  EventSimulator(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine,
                 const LayerSeconds& seconds, bool keep_spans);

  /// Until so many steps are committed; again, to go on to more.
  void run(std::uint32_t steps);
  /// Whether the last step has left time to bring all frozen weights of the next one's first visits.
  bool ahead_is_done() const;

  /// By step.
  struct StepTimes {
    double first_compute = kNever;
    double last_compute = 0;
    double committed = 0;
  };
  const std::vector<StepTimes>& steps() const { return steps_; }
  /// Seconds of compute that a step gives a device.
  double work_of(DeviceIndex device) const { return devices_[device].work; }
  bool used(DeviceIndex device) const { return !devices_[device].slots.empty(); }
  /// False: it waits for ever.
  bool finished() const { return steps_committed_ == wanted_steps_; }
  std::uint64_t events() const { return events_; }
  std::vector<Span> take_spans() { return std::move(spans_); }

 private:
  /// A slot as the machines need it.
  struct Visit {
    const Slot* slot = nullptr;
    std::int32_t activation_from = -1;  // slots whose output it reads
    std::int32_t gradient_from = -1;
    std::vector<std::uint32_t> freed_by;         // visits of an earlier round that hold the places of its output
    std::vector<std::uint32_t> freed_by_before;  // the same of the step before, where that is under way too
    double in_bytes = 0;                         // of a microbatch
    double out_bytes = 0;                        // what the next slot waits for
    double late_bytes = 0;                       // what is sent behind that
    double gradient_tail = 0;                    // bytes of a reduction group's that are not home when all is computed
    double norm_seconds = 0;                     // of that of the gradients that this visit completes
    double row_norm_seconds = 0;                 // of the lookup table's, which come by microbatch
    bool has_gradients = false;
    bool begins_groups = false;  // or goes on with what another slot has begun
    bool ends_groups = false;
    std::vector<double> weight_bytes;  // by layer
    std::vector<double> frozen_bytes;  // of these, what no update changes
    std::vector<double> offsets;       // seconds of the visit's first microbatch before it needs the layer
    std::uint32_t microbatches = 0;
    std::uint32_t first_microbatch = 0;
    std::uint64_t published = 0;  // microbatches, over all steps
    std::uint64_t retired = 0;    // visits, over all steps
  };
  struct Item {
    std::uint32_t visit = 0;  // of the device, counted over all steps
    std::uint32_t microbatch = 0;
  };
  /// A queue of fixed room without allocations.
  struct Ring {
    std::vector<Item> items = std::vector<Item>(4);
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    void push(Item item) { items[(first + count++) % items.size()] = item; }
    Item front() const { return items[first]; }
    void pop() {
      first = (first + 1) % static_cast<std::uint32_t>(items.size());
      --count;
    }
  };
  struct Device {
    std::vector<std::uint32_t> slots;
    double work = 0;
    // Feeding.
    Item next;
    bool bringing = false;
    bool group_taken = false;
    std::uint32_t groups_room = 0;  // sums of gradients that may be there at a time
    std::uint32_t groups = 0;       // that are
    std::uint64_t fed = 0;
    std::uint64_t retired = 0;
    // Weights.
    std::uint32_t prefetch_visit = 0;
    std::uint32_t prefetch_layer = 0;
    std::uint32_t layers_ahead = 0;  // of that visit, whose frozen weights have come before its step has begun
    bool prefetching = false;
    bool going_ahead = false;                      // what is on its way is of such a layer
    std::array<double, 2> weights_slack = {0, 0};  // latest (arrival - offset) of the visit's layers so far
    // Compute.
    Ring compute;
    bool computing = false;
    bool end_known = false;
    double began = 0;
    // Retiring and gradients.
    Ring retire;
    bool retiring = false;
    bool published = false;  // of the first in `retire` only what is late is missing
    Ring errands;
    bool sending = false;
    std::uint32_t visits_retired = 0;
  };
  enum class Kind : std::uint8_t { kCompute, kLink, kCommit };
  struct Event {
    double time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::kCompute;
    std::uint32_t index = 0;  // device, link or step
    std::uint32_t version = 0;
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  /// Who has the places of boundaries when.
  struct Turns {
    std::vector<std::vector<std::uint32_t>> by_round;  // slots
    std::vector<std::uint32_t> group_ends;
    std::uint32_t rounds_under_way = 1;  // whose boundaries have places of their own
  };
  void describe(const Plan& plan);
  double device_update_seconds(const Plan& plan) const;
  double gradient_tail(const Slot& slot, double forward) const;
  void connect(const Plan& plan, std::uint32_t index, const Turns& turns);

  void push(double time, Kind kind, std::uint32_t index, std::uint32_t version = 0);
  void on_link(LinkIndex link);
  void on_compute_end(DeviceIndex index);
  void on_commit(std::uint32_t step);

  void feed(DeviceIndex index);
  bool may_feed(const Device& device, const Visit& visit, std::uint32_t step) const;
  void on_inputs(DeviceIndex index);
  void prefetch(DeviceIndex index);
  void bring_weights(DeviceIndex index, double bytes);
  void on_weights(DeviceIndex index);
  void compute(DeviceIndex index);
  void retire(DeviceIndex index);
  void on_retired(DeviceIndex index);
  void send_gradients(DeviceIndex index);
  void on_gradients(DeviceIndex index);
  void update();
  /// The host takes the norm of gradients that are complete, one after the other.
  void take_norm(double seconds) { norms_taken_ = std::max(norms_taken_, now_) + seconds; }
  void after_piece(std::uint32_t step);
  void push_links();

  std::uint32_t slot_of(const Device& device, std::uint32_t visit) const {
    return device.slots[visit % device.slots.size()];
  }
  std::uint32_t step_of(const Device& device, std::uint32_t visit) const {
    return visit / static_cast<std::uint32_t>(device.slots.size());
  }
  void wake_feeders();

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  const LayerSeconds& seconds_;
  const std::uint32_t staleness_;
  const bool keep_spans_;
  FluidLinks links_;
  std::vector<Visit> visits_;  // by slot
  std::vector<Device> devices_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<std::uint32_t> link_versions_;
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  double now_ = 0;
  std::uint32_t wanted_steps_ = 0;
  std::uint32_t steps_begun_ = 0;
  std::uint32_t steps_committed_ = 0;
  std::vector<std::uint64_t> pieces_left_;  // of a step: microbatches to retire and gradients to bring home
  std::uint64_t pieces_ = 0;
  std::vector<StepTimes> steps_;
  // Optimizer: updates of step u are applied layer by layer; update 0 is that of the step before the first.
  std::uint32_t updates_allowed_ = 1;
  LayerIndex first_layer_on_disk_ = kNoLayer;
  std::uint32_t update_ = 0;
  LayerIndex update_layer_ = 0;
  LayerIndex last_trained_ = 0;  // in model order
  bool updating_ = false;
  std::vector<std::uint32_t> versions_;  // by layer: updates applied
  double norms_taken_ = 0;               // when those of the gradients at home are
  double norms_left_ = 0;                // seconds of those that are taken only when all gradients are at home
  std::vector<Span> spans_;
};

}  // namespace rondo::partition
