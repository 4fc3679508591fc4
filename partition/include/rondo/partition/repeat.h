// A plan that was made before, over the same pool, made whole again: on devices that round in different ways a run
// repeats only when each slot is where it was.
#pragma once

#include "absl/status/statusor.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// `dealt`: schedule, keep, reduction group, rounds and slots, all but their seconds; the rest is decided and predicted
/// anew. Errors: InvalidArgument when it is no plan for this model and workload; ResourceExhausted naming what no
/// longer suffices.
absl::StatusOr<Plan> repeat_plan(const Plan& dealt, const ModelShape& model, const Workload& work,
                                 const MachineShape& machine);

}  // namespace rondo::partition
