// See repeat.h. Who computes what is taken as it is; memory, what stays on devices, what lies on disk and times follow
// from the machine as it is now.
#include "rondo/partition/repeat.h"

#include <algorithm>

#include "explain.h"
#include "plan_memory.h"
#include "rondo/base/status.h"
#include "simulate.h"

namespace rondo::partition {
namespace {

/// Whether it is a plan at all, on devices that never lack memory.
absl::Status check_dealing(const Plan& dealt, const ModelShape& model, const Workload& work, MachineShape machine) {
  constexpr Bytes kPlenty = ~Bytes{0} / 4;
  machine.host_budget_bytes = kPlenty;
  for (DeviceShape& device : machine.devices) {
    device.budget_bytes = kPlenty;
    device.most_block_bytes = kPlenty;
  }
  return validate(dealt, model, work, machine);
}

}  // namespace

absl::StatusOr<Plan> repeat_plan(const Plan& dealt, const ModelShape& model, const Workload& work,
                                 const MachineShape& machine) {
  Plan plan;
  plan.schedule = dealt.schedule;
  plan.keep = dealt.keep;
  plan.reduction_group = dealt.reduction_group;
  plan.rounds = dealt.rounds;
  plan.slots = dealt.slots;
  RONDO_RETURN_IF_ERROR(check_dealing(plan, model, work, machine));
  for (Slot& slot : plan.slots) slot.seconds = slot_seconds(model, work, machine.devices[slot.device], slot, plan.keep);
  const PlanMemory memory(model, work, machine);
  RONDO_RETURN_IF_ERROR(memory.fill(plan).why);
  memory.keep_resident(plan);
  const LayerSeconds seconds(model, work, machine);
  predict(seconds, model, work, machine, plan);
  plan.predicted.least_step_seconds = plan.predicted.step_seconds;
  for (DeviceIndex i = 0; i < plan.devices.size(); ++i) {
    const bool used = std::ranges::any_of(plan.slots, [i](const Slot& slot) { return slot.device == i; });
    if (!used) plan.devices[i].unused_because = "the plan that is repeated has no slot on it";
  }
  explain_limits(seconds, model, work, machine, plan);
  RONDO_RETURN_IF_ERROR(validate(plan, model, work, machine));
  return plan;
}

}  // namespace rondo::partition
