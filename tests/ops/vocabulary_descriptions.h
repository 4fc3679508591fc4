// Descriptions of the cross-entropy over a vocabulary.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

OpCase entropy_whole(DType storage, Scale scale);
OpCase entropy_frozen_head(DType storage, Scale scale);
OpCase entropy_loss(DType storage, Scale scale);
OpCase entropy_chunks(DType storage, Scale scale);
OpCase entropy_scaled(DType storage, Scale scale);
OpCase entropy_cap(DType storage, Scale scale);
OpCase vocabulary_whole(DType storage, Scale scale);
OpCase vocabulary_frozen(DType storage, Scale scale);
OpCase vocabulary_chunks(DType storage, Scale scale);
OpCase vocabulary_scaled(DType storage, Scale scale);
OpCase vocabulary_cap(DType storage, Scale scale);
OpCase vocabulary_each(DType storage, Scale scale);
OpCase vocabulary_at_once(DType storage, Scale scale);

}  // namespace rondo::devices::testing
