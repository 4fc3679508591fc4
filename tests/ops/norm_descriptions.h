// Descriptions of norms: of a row's root mean square, and of its deviation from the mean.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

OpCase norm_plain(DType storage, Scale scale);
OpCase norm_whole(DType storage, Scale scale);
OpCase norm_with_offset(DType storage, Scale scale);
OpCase norm_of_heads(DType storage, Scale scale);
OpCase norm_without_weight(DType storage, Scale scale);
OpCase layer_norm(DType storage, Scale scale);
OpCase layer_norm_without_bias(DType storage, Scale scale);
OpCase layer_norm_without_weight(DType storage, Scale scale);
OpCase layer_norm_of_a_row(DType storage, Scale scale);
OpCase layer_norm_of_chunks(DType storage, Scale scale);
OpCase layer_norm_plain(DType storage, Scale scale);

}  // namespace rondo::devices::testing
