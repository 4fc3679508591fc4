// From an OpList to the steps of a card: which kernels, over which grids, with which workspace. Pure: no card is asked.
#pragma once

#include "products.h"
#include "rondo/devices/op.h"
#include "steps.h"

namespace rondo::devices::cuda {

/// `engine`: null for products by our own kernel alone. REQUIRES: validate(list).
/// Errors: Unimplemented naming the op, the tensor and what there is.
absl::StatusOr<Steps> lower(const OpList& list, ProductEngine* engine);

}  // namespace rondo::devices::cuda
