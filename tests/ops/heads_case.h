// Attention, forward and backward, of heads in sizes that devices have kernels of their own for.
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

/// Heads of 64 and 128 channels.
const std::vector<HeadsCase>& heads_cases();

/// The tensors of attention and its gradient.
struct AttentionTensors {
  TensorId q = 0, k = 0, v = 0, o = 0, d_o = 0, dq = 0, dk = 0, dv = 0;
};
/// Both ops, of as many tokens as the case has.
AttentionTensors add_attention(CaseBuilder& b, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                               const AttentionAttributes& attributes);

/// `sharpness`: scores times this, for weights of which few count.
OpCase case_of(const HeadsCase& heads_case, DType storage, float sharpness = 1);

}  // namespace rondo::devices::testing
