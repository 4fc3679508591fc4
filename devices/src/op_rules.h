// The rule of each op: how many tensors it names, of what shapes and dtypes.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "rondo/devices/op.h"

namespace rondo::devices {

/// Op `place` of `list` against OpKind's comment. REQUIRES: its tensors exist. Errors: Internal naming op and tensor.
absl::Status check_op(const OpList& list, std::size_t place);

}  // namespace rondo::devices
