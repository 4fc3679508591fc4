// What a run holds of main memory whatever its plan: the plan leaves room for it.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "rondo/base/units.h"
#include "rondo/model/architecture.h"
#include "rondo/partition/shape.h"
#include "rondo/train/session.h"

namespace rondo::train {

/// Resident memory of the process now, less the program itself.
Bytes own_memory();

/// The same less what drivers took when the pool of `machine` was opened.
Bytes memory_beside_drivers(const Machine& machine);

/// What the host's account holds now that is no device's of `machine`, by purpose.
partition::MemoryTable host_account(const Machine& machine);

/// Compiles on a device what it is to do with microbatches of so many tokens, and lets go of it.
using TryPrograms = std::function<absl::Status(devices::Device& device, std::uint32_t tokens)>;

/// Enters into `machine` what is taken beside what the planner counts: `text_and_data`, the tokens of the steps
/// at hand, threads and caches, what drivers hold, and what computing with the processor takes in microbatches of
/// `lengths`. Nothing on pools that do no arithmetic. Before anything is measured on other devices, which leaves
/// drivers with more. `programs`: those of a plan's steps where there are none. Errors: a program that cannot be
/// compiled.
absl::Status count_host_taken(const Config& config, const model::Architecture& model, const Loader::Lengths& lengths,
                              Bytes text_and_data, Machine& machine, const TryPrograms& programs = {});

}  // namespace rondo::train
