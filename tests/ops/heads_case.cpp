// Behind heads_case.h.
#include "heads_case.h"

#include <algorithm>
#include <cmath>
#include <ostream>

namespace rondo::devices::testing {

void PrintTo(const HeadsCase& heads_case, std::ostream* stream) { *stream << heads_case.name; }

const std::vector<HeadsCase>& heads_cases() {
  static const auto* const all = new std::vector<HeadsCase>{
      {"Head64", 160, {70, 1, 80}, 3, 1, 64, 0},          {"Head64_Window", 160, {150}, 2, 2, 64, 21},
      {"Head64_Short", 16, {5, 3}, 2, 1, 64, 0},          {"Head128", 144, {17, 100, 20}, 4, 2, 128, 0},
      {"Head128_Window", 208, {200}, 2, 1, 128, 70},      {"Head64_Long", 192, {2, 190}, 2, 1, 64, 0},
      {"Head128_LongWindow", 192, {192}, 1, 1, 128, 150}, {"Head64_Group", 320, {300}, 6, 1, 64, 0},
      {"Head128_Group", 448, {30, 410}, 6, 2, 128, 0},
  };
  return *all;
}

OpCase case_of(const HeadsCase& heads_case, DType storage, float sharpness) {
  const HeadsCase& c = heads_case;
  CaseBuilder b(storage, c.tokens);
  b.sequences(c.sequences);
  const Shape heads = {c.tokens, c.heads, c.head_dim};
  const Shape kv_heads = {c.tokens, c.kv_heads, c.head_dim};
  const TensorId q = b.input("q", heads), k = b.input("k", kv_heads), v = b.input("v", kv_heads);
  const TensorId o = b.saved("o", heads), lse = b.saved_wide("lse", {c.tokens, c.heads});
  const TensorId d_o = b.input("do", heads);
  const TensorId dq = b.output("dq", heads), dk = b.output("dk", kv_heads), dv = b.output("dv", kv_heads);
  const double scale = sharpness / std::sqrt(static_cast<double>(c.head_dim));
  const AttentionAttributes attributes{static_cast<float>(scale), c.window};
  b.op(OpKind::kAttention, {q, k, v, b.bounds()}, {o, lse}, attributes);
  b.op(OpKind::kAttentionBackward, {q, k, v, o, lse, d_o, b.bounds()}, {dq, dk, dv}, attributes);
  b.result().reduction = std::max<std::int64_t>(c.tokens, c.head_dim);
  return b.result();
}

}  // namespace rondo::devices::testing
