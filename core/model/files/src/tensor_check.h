// Comparison of the tensors in files with those expected.
#pragma once

#include <functional>

#include "rondo/model/parameters.h"

namespace rondo::model {

/// Errors: InvalidArgument, as check_model_tensors. `tolerated` names need not be there but may.
absl::Status check_tensors(const std::vector<ParameterSpec>& expected, const TensorFiles& files,
                           const std::function<bool(const std::string&)>& tolerated);

}  // namespace rondo::model
