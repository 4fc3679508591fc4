// NEFTune's noise, of several sequences and padding.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

OpCase noise_case(DType storage, Scale scale);

}  // namespace rondo::devices::testing
