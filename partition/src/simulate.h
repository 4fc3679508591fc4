// simulate() for those who simulate many plans of one model on one machine.
#pragma once

#include "event_simulator.h"

namespace rondo::partition {

Simulation simulate_with(const LayerSeconds& seconds, const Plan& plan, const ModelShape& model, const Workload& work,
                         const MachineShape& machine, std::uint32_t steps, bool keep_spans);
/// Steps to simulate until the steady state is seen.
inline std::uint32_t steady_steps(const Workload& work) { return work.staleness == 0 ? 1 : 6; }
/// Puts into a plan whose memory is known what it moves over the disk, its prediction and how busy devices are.
void predict(const LayerSeconds& seconds, const ModelShape& model, const Workload& work, const MachineShape& machine,
             Plan& plan);

}  // namespace rondo::partition
