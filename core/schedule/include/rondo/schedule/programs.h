// The programs of a run, before there is one.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "rondo/devices/device.h"
#include "rondo/model/architecture.h"

namespace rondo::schedule {

/// Compiles on the device what a run with microbatches of `tokens` may have it do, and lets go of it. What the device
/// keeps for such programs is there, and counted, before a plan is made. Errors: those of Device::compile.
absl::Status try_programs(devices::Device& device, const model::Architecture& model, std::uint32_t tokens,
                          std::uint32_t sequence_length);

/// The same of one layer alone: what slots that only go forward run of it, or what those run that go back through it.
absl::Status try_layer(devices::Device& device, const model::Architecture& model, model::LayerIndex layer,
                       bool goes_back, std::uint32_t tokens, std::uint32_t sequence_length);

}  // namespace rondo::schedule
