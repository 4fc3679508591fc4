// The plan that a checkpoint holds, so that a run over devices of several numerics classes goes on as it began: who
// computes what decides there how it is rounded. Over one class every plan gives the same bits, and none is held.
//
//   plan = {"devices": ["cpu:0", "vulkan:0"], "schedule": "roundpipe", "recompute": "selective",
//           "rounds": [4, 4], "slots": [slot, ...]}
//   slot = "<phase> <first layer> <last layer> <device> <round>[ deferring]"
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "rondo/partition/repeat.h"
#include "rondo/train/config.h"
#include "rondo/train/session.h"

namespace rondo::train {

/// Devices of the pool round in different ways.
bool has_several_classes(const Machine& machine);

/// REQUIRES: `plan` is one over the machine's pool.
nlohmann::ordered_json store_plan(const partition::Plan& plan, const Machine& machine);

/// What repeat_plan() takes. Errors: FailedPrecondition that says why the run needs another plan: its pool, schedule or
/// recompute is another, or `stored` is none.
absl::StatusOr<partition::Plan> read_plan(const nlohmann::ordered_json& stored, const Config& config,
                                          const Machine& machine);

}  // namespace rondo::train
