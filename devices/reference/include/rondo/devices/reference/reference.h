// What every op computes, in plain loops: the specification of op.h as code, slow and easy to read.
//
// Arithmetic is in double, results are rounded once to their storage: a fast kernel may differ from it by the rounding
// of its own fp32 arithmetic, no more.
#pragma once

#include "absl/status/status.h"
#include "rondo/devices/device.h"
#include "rondo/devices/op.h"

namespace rondo::devices {

/// Runs the list's ops in order on memory that the host can address. Scratch tensors lie in bindings.scratch as
/// plan_arena(list) says. Besides the dtypes that devices take, activations, weights and gradients may be fp64, for
/// finite differences; the list is therefore not validated here.
/// Errors: Internal for memory that is missing or a dtype that an op cannot hold.
absl::Status run_reference(const OpList& list, const Bindings& bindings);

}  // namespace rondo::devices
