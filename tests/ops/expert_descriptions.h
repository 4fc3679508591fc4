// Descriptions of a mixture of experts.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

OpCase route_plain(DType storage, Scale scale);
OpCase route_normalised(DType storage, Scale scale);
OpCase route_of_equal_logits(DType storage, Scale scale);
OpCase experts_whole(DType storage, Scale scale);
OpCase experts_of_few_rows(DType storage, Scale scale);
OpCase experts_of_many_rows(DType storage, Scale scale);

}  // namespace rondo::devices::testing
