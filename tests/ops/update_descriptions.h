// Descriptions of an optimizer's ops.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

/// Norm and AdamW.
OpCase update_case(DType storage, Scale scale);
/// AdamW with moments in codes.
OpCase coded_update_case(DType storage, Scale scale);
OpCase add_rows_case(DType storage, Scale scale);

}  // namespace rondo::devices::testing
