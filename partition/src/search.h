// Candidates for a plan: slots dealt greedily under a time limit, then improved slot by slot; for small models every
// plan that there is.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "estimate.h"
#include "packing.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Slots of all rounds. Each takes as many layers as its device does in `limit` seconds and holds in its memory, and
/// goes to the device with the least work so far that can do one layer so. The fused slot begins at `fused_first`.
/// Nothing when some layer is too much for every device, or a device comes to have `most` seconds of work, or a
/// microbatch `most_path`.
std::optional<std::vector<Slot>> deal_by_load(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                              const std::vector<Round>& rounds, double limit, LayerIndex fused_first,
                                              double most, double most_path);

/// The lowest layers that a fused slot of `limit` seconds can begin at on one of the devices, and their neighbours.
std::vector<LayerIndex> fused_beginnings(const TimeTable& times, const std::vector<DeviceIndex>& order, double limit);

/// Moves cuts, changes, swaps, merges and splits slots as long as the estimate improves, at most `trials` of them.
/// Slots stay within a device's memory one by one (`times`); together they may not fit any more. Returns the estimate.
double improve(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<Round>& rounds,
               StepEstimate& estimate, std::size_t trials, std::vector<Slot>& slots);

/// How many plans of one round there are, at most.
double number_of_plans(const TimeTable& times, std::size_t devices);

/// Calls `take` with every plan of one round whose lower bound lies under the best step so far, which `take` returns.
/// `alike_as[i]`: the device before order[i] that is like it, or order[i] itself.
void every_plan(const TimeTable& times, const std::vector<DeviceIndex>& order, const std::vector<DeviceIndex>& alike_as,
                std::uint32_t microbatches, StepEstimate& lower_bound,
                const std::function<double(const std::vector<Slot>&)>& take, double best);

}  // namespace rondo::partition
