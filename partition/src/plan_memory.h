// What a plan takes of every memory, and whether that is there.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Refers to what it is made of.
class PlanMemory {
 public:
  PlanMemory(const ModelShape& model, const Workload& work, const MachineShape& machine)
      : model_(model), work_(work), machine_(machine) {}

  /// What does not suffice for a plan.
  struct Lack {
    absl::Status why;     // ResourceExhausted naming it; ok: nothing
    double overfull = 1;  // what is needed of the device that lacks most, as a multiple of what may be used there
  };
  /// From slots, rounds and keep of the plan: bytes of devices, host and disk, and what lies on disk. A plan that a
  /// device has no room for then has no `devices`.
  Lack fill(Plan& plan) const;
  /// What memory is left holds weights that then need not come again. REQUIRES: fill().
  void keep_resident(Plan& plan) const;
  /// That a step's traffic takes the disk at least.
  double disk_seconds(const Plan& plan) const;
  /// Where the host has no room for what every plan keeps there: how much that is, what takes most of it, and whether a
  /// disk would help. Ok where it has.
  absl::Status refuse_host() const;
  /// Where not even one layer at a time fits: which, and where it comes nearest. Ok where each of them does.
  absl::Status refuse_largest_layer(Keep keep) const;

 private:
  std::string what_the_disk_lacks(const Plan& plan) const;

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
};

}  // namespace rondo::partition
