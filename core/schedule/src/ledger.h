// What of a step is done for good, kept outside the workers, so that others can go on where a lost device stopped.
//
// By slot: which microbatches are retired (outputs published, loss and rows taken), which reduction groups' gradients
// are home, whether the visit has ended. By contribution (a layer's use of a parameter): how many groups have been
// added, so that a contribution waits here for its turn (a wait that ends when its worker is stopped) and none is added
// twice. Thread-safe. Lock order: its mutex is taken last and alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "rondo/base/mutex.h"
#include "rondo/partition/plan.h"

namespace rondo::schedule {

class Ledger {
 public:
  /// `group`: microbatches of a reduction group; `contributions`: uses of parameters by the
  /// model's layers. `plan` outlives the ledger.
  Ledger(const partition::Plan& plan, std::uint32_t group, std::size_t contributions);

  /// A job of so many microbatches, of which nothing is done. `with_gradients`: by slot.
  void begin(std::uint32_t microbatches, const std::vector<bool>& with_gradients);

  bool retired(std::uint32_t slot, std::uint32_t microbatch) const;
  void set_retired(std::uint32_t slot, std::uint32_t microbatch);
  bool home(std::uint32_t slot, std::uint32_t group) const;
  /// Of all slots that share the group. Those of weight gradients have nothing else to give and are retired with it.
  void set_home(std::uint32_t slot, std::uint32_t group);
  /// Slots whose gradients are sums over the same reduction group, itself among them.
  const std::vector<std::uint32_t>& sharing(std::uint32_t slot) const { return sharing_[sharers_[slot]]; }
  /// Retired, and the gradients of its group home: it will not be run again.
  bool done(std::uint32_t slot, std::uint32_t microbatch) const;
  /// True once: when all of the slot's microbatches are retired and all its gradients home.
  bool end_visit(std::uint32_t slot);
  bool ended(std::uint32_t slot) const;

  /// Whether a group's sum of a contribution (a microbatch's rows) has been added.
  bool added(std::uint32_t contribution, std::uint32_t group) const;
  bool rows_added(std::uint32_t microbatch) const;
  /// Waits until all groups (microbatches) before have been added; false when `stopped` was set first.
  bool wait_for_turn(std::uint32_t contribution, std::uint32_t group, const std::atomic<bool>& stopped);
  bool wait_for_rows_turn(std::uint32_t microbatch, const std::atomic<bool>& stopped);
  void set_added(std::uint32_t contribution);
  void set_rows_added();
  /// A worker's `stopped` was set: let its waits see it.
  void wake();

 private:
  struct Visit {
    std::uint32_t first_microbatch = 0;
    std::uint32_t microbatches = 0;
    std::uint32_t first_group = 0;
    std::vector<bool> retired;  // by microbatch of the round
    std::vector<bool> home;     // by group of the round; empty: computes no gradients
    bool ended = false;
  };

  const partition::Plan& plan_;
  const std::uint32_t group_;
  const std::vector<std::uint32_t> sharers_;         // by slot: the last of those that share its group
  std::vector<std::vector<std::uint32_t>> sharing_;  // by that one
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Visit> visits_ ABSL_GUARDED_BY(mutex_);                // by slot
  std::vector<std::uint32_t> groups_added_ ABSL_GUARDED_BY(mutex_);  // by contribution
  std::uint32_t rows_added_ ABSL_GUARDED_BY(mutex_) = 0;             // of the lookup table
};

/// Microbatches of a round in a job of `microbatches`, which may be fewer than the plan's.
partition::Round round_within(const partition::Round& round, std::uint32_t microbatches);

}  // namespace rondo::schedule
