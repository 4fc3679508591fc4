// Attention, forward and backward, of heads in sizes that devices have kernels of their own for, and heads put together
// from parts.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "op_case.h"

namespace rondo::devices::testing {

struct HeadsCase {
  const char* name;
  std::uint32_t tokens;                 // the last are padding where sequences leave some over
  std::vector<std::int32_t> sequences;  // their lengths
  std::int64_t heads, kv_heads, head_dim;
  std::uint32_t window;  // 0: none
  float cap = 0;         // likewise
};
void PrintTo(const HeadsCase& heads_case, std::ostream* stream);

/// Heads of 64 channels and more, whole eights.
const std::vector<HeadsCase>& heads_cases();

/// The tensors of attention and its gradient.
struct AttentionTensors {
  TensorId q = 0, k = 0, v = 0, o = 0, d_o = 0, dq = 0, dk = 0, dv = 0;
};
/// Both ops, of as many tokens as the case has.
AttentionTensors add_attention(CaseBuilder& b, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                               const AttentionAttributes& attributes);

/// Heads of two parts, of which the first is the same for all; likewise in widths that are multiples of eight; of one
/// part that is narrower or wider; of two parts of which the second has too little room.
OpCase heads_of_two_parts(DType storage, Scale scale);
OpCase heads_of_eights(DType storage, Scale scale);
OpCase heads_filled_up(DType storage, Scale scale);
OpCase heads_cut(DType storage, Scale scale);
OpCase heads_of_parts_cut(DType storage, Scale scale);
/// Rows of heads and what comes behind them: a row, or nothing.
OpCase rows_of_two_parts(DType storage, Scale scale);
OpCase rows_filled_up(DType storage, Scale scale);

/// `sharpness`: scores times this, for weights of which few count.
OpCase case_of(const HeadsCase& heads_case, DType storage, float sharpness = 1);

}  // namespace rondo::devices::testing
