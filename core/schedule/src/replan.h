// Plans after something went wrong: over the devices that are left, and with every slot on another device.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/executor.h"

namespace rondo::schedule {

/// The machine of `parts` with devices that take longer than their profiles say, by device.
partition::MachineShape at_pace(const ExecutorParts& parts, const std::vector<double>& factors);

/// The best plan over the devices of `machine` that are not `lost`, which keep their indices. The same reduction
/// groups, so that it gives the same bits. Errors: Unavailable when none is left, ResourceExhausted when the plan does
/// not fit them.
absl::StatusOr<partition::Plan> plan_over_rest(const ExecutorParts& parts, const partition::MachineShape& machine,
                                               const std::vector<bool>& lost);

/// `plan` as it comes out on `machine`: its slots' seconds and its prediction.
void predict_anew(const ExecutorParts& parts, const partition::MachineShape& machine, partition::Plan& plan);

/// `plan` with each slot on the next of the devices in use, or as it is where that does not fit or there is but one.
partition::Plan plan_elsewhere(const ExecutorParts& parts, const partition::Plan& plan);

}  // namespace rondo::schedule
