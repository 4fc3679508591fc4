// What keeps a step from being shorter, and what a user could change.
#pragma once

#include "event_simulator.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Fills in `plan.predicted.limited_by` and `advice`. REQUIRES: the rest of `plan.predicted` is filled in.
void explain_limits(const LayerSeconds& seconds, const ModelShape& model, const Workload& work,
                    const MachineShape& machine, Plan& plan);

}  // namespace rondo::partition
