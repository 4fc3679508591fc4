// Plans after something went wrong: over the devices that are left, and with every slot on another device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pace.h"
#include "rondo/base/units.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/executor.h"

namespace rondo::schedule {

/// The machine of `parts` with devices that take longer than their profiles say, by device.
partition::MachineShape at_pace(const ExecutorParts& parts, const std::vector<double>& factors);

/// The best plan over the devices of `machine` that are not `lost`, which keep their indices, with no more of main
/// memory than `host`. The same reduction groups, so that it gives the same bits. Errors: Unavailable when none is
/// left, ResourceExhausted when the plan does not fit them.
absl::StatusOr<partition::Plan> plan_over_rest(const ExecutorParts& parts, const partition::MachineShape& machine,
                                               const std::vector<bool>& lost, Bytes host);

/// What the run has announced of main memory.
Bytes promised_host(const ExecutorParts& parts);

/// The same after a loss: within what was announced, and only where nothing fits there beyond it. `note`: says how much
/// that is, else empty.
absl::StatusOr<partition::Plan> plan_after_loss(const ExecutorParts& parts, const partition::MachineShape& machine,
                                                const std::vector<bool>& lost, std::string& note);

/// `plan` as it comes out on `machine`: its slots' seconds and its prediction.
void predict_anew(const ExecutorParts& parts, const partition::MachineShape& machine, partition::Plan& plan);

/// `plan` with each slot on the next of the devices in use, or as it is where that does not fit or there is but one.
partition::Plan plan_elsewhere(const ExecutorParts& parts, const partition::Plan& plan);

/// What each device would compute in a step of these buckets by its profile alone, into `seconds`.
void seconds_by_profile(const partition::Workload& work, const partition::Plan& plan, const PaceWatch& pace,
                        std::span<const std::uint32_t> buckets, std::vector<double>& seconds);

/// "step 7: cuda:1 takes 1.40 times as long as its profile says;", of the devices whose pace has changed.
std::string describe_pace(std::uint64_t step, const PaceWatch& pace, const partition::MachineShape& machine);

/// Of a step that was skipped: what was not finite, and the scale of the next ones.
std::string describe_overflow(const absl::Status& finite, const Course& course);

}  // namespace rondo::schedule
