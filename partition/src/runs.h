// Slots dealt so that each device has its own one behind the other.
#pragma once

#include <vector>

#include "packing.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Slots of one round: the first device takes as many layers as it does in `limit` seconds a microbatch, forward and on
/// into the fused slot and back, the next one goes on from there, each once. A slot holds what the device's memory
/// does, so that a device may have several. One such round for each way to begin in the middle of `order`, eight at
/// most, without those whose last device cannot end it.
std::vector<std::vector<Slot>> deal_in_runs(const TimeTable& times, const std::vector<DeviceIndex>& order,
                                            double limit);

}  // namespace rondo::partition
