// Descriptions of linear attention by the gated delta rule and by a state space.
#pragma once

#include "op_case.h"

namespace rondo::devices::testing {

OpCase convolution(DType storage, Scale scale);
OpCase convolution_of_many_tokens(DType storage, Scale scale);
OpCase convolution_from_state(DType storage, Scale scale);
OpCase convolution_from_nothing(DType storage, Scale scale);
OpCase convolution_of_one_token(DType storage, Scale scale);
OpCase plain_convolution(DType storage, Scale scale);  // without SiLU
OpCase plain_convolution_from_state(DType storage, Scale scale);
OpCase biased_convolution(DType storage, Scale scale);
OpCase biased_convolution_from_state(DType storage, Scale scale);
OpCase delta_rule(DType storage, Scale scale);
OpCase delta_rule_of_many_tokens(DType storage, Scale scale);
OpCase delta_rule_from_state(DType storage, Scale scale);
OpCase delta_rule_from_nothing(DType storage, Scale scale);
OpCase delta_rule_of_one_token(DType storage, Scale scale);
OpCase delta_rule_of_first_token(DType storage, Scale scale);
OpCase state_space(DType storage, Scale scale);
OpCase state_space_of_many_tokens(DType storage, Scale scale);
OpCase state_space_of_limited_steps(DType storage, Scale scale);
OpCase state_space_from_state(DType storage, Scale scale);
OpCase state_space_from_nothing(DType storage, Scale scale);
OpCase state_space_of_single_tokens(DType storage, Scale scale);
OpCase state_space_of_one_token(DType storage, Scale scale);
OpCase head_scale(DType storage, Scale scale);
OpCase channel_scale(DType storage, Scale scale);
OpCase gated_by_groups(DType storage, Scale scale);

}  // namespace rondo::devices::testing
