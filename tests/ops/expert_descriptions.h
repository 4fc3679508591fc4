// Descriptions of a mixture of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "op_case.h"

namespace rondo::devices::testing {

/// Where the tokens go.
struct Routed {
  TensorId logits, shares, experts, rows, offsets;
};

/// By random logits of this spread; 0: to the first experts. `b` has its sequences.
Routed add_route(CaseBuilder& b, std::int64_t experts, std::int64_t choices, const RouteAttributes& attributes,
                 double spread = 1.0);

/// Products of experts who have so many rows each, with some of padding behind the last, from `in` columns to `out`,
/// and their gradients, with addends.
struct GroupedCase {
  std::vector<std::int32_t> rows;
  std::int32_t padding = 0;
  std::int64_t in = 0, out = 0;
  float alpha = 1.0F;
  bool stacked = false;  // the experts' matrices are one tensor
};
OpCase grouped_case(DType storage, const GroupedCase& grouped);

OpCase route_plain(DType storage, Scale scale);
OpCase route_normalised(DType storage, Scale scale);
OpCase route_by_sigmoid(DType storage, Scale scale);
OpCase route_to_one(DType storage, Scale scale);
/// Chosen by scores with a bias.
OpCase route_by_bias(DType storage, Scale scale);
OpCase route_by_bias_of_sigmoids(DType storage, Scale scale);
/// Among the experts of some groups, with shares that do not sum to 1 and with such that do.
OpCase route_in_groups(DType storage, Scale scale);
OpCase route_in_groups_of_sigmoids(DType storage, Scale scale);
OpCase route_among_most(DType storage, Scale scale);
OpCase route_of_equal_logits(DType storage, Scale scale);
/// Shares times numbers of experts.
OpCase share_scale(DType storage, Scale scale);
OpCase experts_whole(DType storage, Scale scale);
OpCase experts_of_few_rows(DType storage, Scale scale);
OpCase experts_of_many_rows(DType storage, Scale scale);
/// Products by factors of low rank beside those of whole matrices.
OpCase adapted_experts(DType storage, Scale scale);
OpCase stacked_experts(DType storage, Scale scale);
OpCase most_stacked_experts(DType storage, Scale scale);
OpCase expert_biases(DType storage, Scale scale);
OpCase expert_biases_of_many_rows(DType storage, Scale scale);

}  // namespace rondo::devices::testing
