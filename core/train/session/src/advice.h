// What a plan says about keys of the configuration that other values would serve better.
#pragma once

#include "absl/status/status.h"
#include "rondo/train/session.h"

namespace rondo::train {

/// Whether a run's state can lie on the pool's only device, whatever the room there. Errors: InvalidArgument, why not.
absl::Status check_holds_state(const Machine& machine, const partition::Workload& work);

/// Of a training run that has its plan.
void advise(const Config& config, const model::Architecture& model, const Machine& machine, PlannedRun& run);

}  // namespace rondo::train
