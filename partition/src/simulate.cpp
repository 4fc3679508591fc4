// Predictions from simulated steps.
#include "simulate.h"

#include <algorithm>

#include "event_simulator.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

Simulation simulate_with(const LayerSeconds& seconds, const Plan& plan, const ModelShape& model, const Workload& work,
                         const MachineShape& machine, std::uint32_t steps, bool keep_spans) {
  EventSimulator simulator(plan, model, work, machine, seconds, keep_spans);
  simulator.run(steps);
  // What one step leaves undone the next one begins with.
  if (steps == 1 && !keep_spans && simulator.finished() && !simulator.ahead_is_done()) simulator.run(2);
  Simulation result;
  result.events = simulator.events();
  Prediction& prediction = result.prediction;
  const auto& times = simulator.steps();
  const std::size_t last = times.size() - 1;
  if (!simulator.finished()) {  // validate() refuses such a plan
    prediction.step_seconds = kNever;
    result.busy.assign(machine.devices.size(), 0);
    return result;
  }
  if (work.staleness == 0 || last == 0) {
    // Each step begins at the commit point of the one before.
    const double begin = last > 0 ? times[last - 1].committed : 0;
    prediction.step_seconds = times[last].committed - begin;
    prediction.commit_seconds = std::max(0.0, times[last].first_compute - begin) +
                                std::max(0.0, times[last].committed - times[last].last_compute);
  } else {
    const std::size_t first = last / 2;
    prediction.step_seconds = (times[last].committed - times[first].committed) / static_cast<double>(last - first);
    // So few steps may still draw together: none is shorter for long than what its busiest device works.
    for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
      prediction.step_seconds = std::max(prediction.step_seconds, simulator.work_of(i));
    }
  }
  // The disk's requests are asynchronous and known beforehand: they cost time when a step has too little for them.
  if (plan.boundary_buffers > 0 && machine.host.disk_bandwidth > 0) {
    prediction.step_seconds =
        std::max(prediction.step_seconds, static_cast<double>(plan.disk_traffic.total()) / machine.host.disk_bandwidth);
  }
  if (prediction.step_seconds > 0) {
    prediction.tokens_per_second = work.mean_tokens * work.microbatches / prediction.step_seconds;
  }
  double speeds = 0;
  double working = 0;
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const double busy = prediction.step_seconds > 0 ? simulator.work_of(i) / prediction.step_seconds : 0;
    result.busy.push_back(busy);
    if (!simulator.used(i)) continue;
    const double speed = machine.devices[i].profile.speed(work.dtype);
    speeds += speed;
    working += speed * busy;
  }
  prediction.bubble = speeds > 0 ? 1.0 - working / speeds : 0;
  result.compute = simulator.take_spans();
  return result;
}

void predict(const LayerSeconds& seconds, const ModelShape& model, const Workload& work, const MachineShape& machine,
             Plan& plan) {
  plan.disk_traffic = disk_traffic(plan, model, work);
  const Simulation simulation = simulate_with(seconds, plan, model, work, machine, steady_steps(work), false);
  plan.predicted = simulation.prediction;
  for (DeviceIndex i = 0; i < plan.devices.size(); ++i) plan.devices[i].busy = simulation.busy[i];
}

Simulation simulate(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine,
                    std::uint32_t steps) {
  return simulate_with(LayerSeconds(model, work, machine), plan, model, work, machine, std::max(steps, 1U), true);
}

Prediction predict_short_steps(const Plan& plan, const ModelShape& model, const Workload& work,
                               const MachineShape& machine, std::uint32_t microbatches) {
  if (microbatches == 0 || microbatches >= work.microbatches) return plan.predicted;
  Workload fewer = work;
  fewer.microbatches = microbatches;
  Plan rest = plan;
  std::erase_if(rest.rounds, [&](const Round& round) { return round.first_microbatch >= microbatches; });
  Round& last = rest.rounds.back();
  last.microbatches = std::min(last.microbatches, microbatches - last.first_microbatch);
  std::erase_if(rest.slots, [&](const Slot& slot) { return slot.round >= rest.rounds.size(); });
  const auto cut_off = [&](const Slot& slot) { return slot.group_goes_on && slot.round + 1 == rest.rounds.size(); };
  if (std::ranges::any_of(rest.slots, cut_off)) return plan.predicted;
  const LayerSeconds seconds(model, fewer, machine);
  predict(seconds, model, fewer, machine, rest);
  const Prediction& seen = rest.predicted;
  Prediction prediction = plan.predicted;
  prediction.step_seconds = seen.step_seconds;
  prediction.tokens_per_second = seen.tokens_per_second;
  prediction.bubble = seen.bubble;
  prediction.commit_seconds = seen.commit_seconds;
  prediction.least_step_seconds = std::min(prediction.least_step_seconds, seen.step_seconds);
  return prediction;
}

}  // namespace rondo::partition
