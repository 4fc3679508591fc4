// simulate() for those who simulate many plans of one model on one machine.
#pragma once

#include "event_simulator.h"

namespace rondo::partition {

Simulation simulate_with(const LayerSeconds& seconds, const Plan& plan, const ModelShape& model, const Workload& work,
                         const MachineShape& machine, std::uint32_t steps, std::uint32_t staleness, bool keep_spans);

}  // namespace rondo::partition
