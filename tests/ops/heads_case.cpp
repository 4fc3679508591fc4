// Behind heads_case.h.
#include "heads_case.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "case_sizes.h"

namespace rondo::devices::testing {

void PrintTo(const HeadsCase& heads_case, std::ostream* stream) { *stream << heads_case.name; }

const std::vector<HeadsCase>& heads_cases() {
  static const auto* const all = new std::vector<HeadsCase>{
      {"Head64", 160, {70, 1, 80}, 3, 1, 64, 0},
      {"Head64_Window", 160, {150}, 2, 2, 64, 21},
      {"Head64_Short", 16, {5, 3}, 2, 1, 64, 0},
      {"Head128", 144, {17, 100, 20}, 4, 2, 128, 0},
      {"Head128_Window", 208, {200}, 2, 1, 128, 70},
      {"Head64_Long", 192, {2, 190}, 2, 1, 64, 0},
      {"Head128_LongWindow", 192, {192}, 1, 1, 128, 150},
      {"Head64_Group", 320, {300}, 6, 1, 64, 0},
      {"Head128_Group", 448, {30, 410}, 6, 2, 128, 0},
      {"Head64_Cap", 160, {70, 1, 80}, 3, 1, 64, 0, 1.3F},
      {"Head128_CapWindow", 208, {200}, 4, 2, 128, 70, 1.3F},
      {"Head64_CapLong", 192, {2, 190}, 2, 1, 64, 0, 1.3F},
      {"Head72_Window", 160, {150}, 2, 2, 72, 21},
      {"Head96", 160, {70, 1, 80}, 3, 1, 96, 0},
      {"Head120_Group", 144, {17, 100, 20}, 6, 2, 120, 0},
      {"Head192_Window", 112, {100}, 2, 1, 192, 40},
      {"Head256", 96, {70, 20}, 2, 1, 256, 0},
      {"Head256_CapGroup", 176, {140, 33}, 4, 1, 256, 0, 1.3F},
      {"Head264", 48, {9, 39}, 1, 1, 264, 0},
      {"Head512", 80, {17, 58}, 2, 1, 512, 0},
      {"Head512_CapWindow", 96, {96}, 2, 2, 512, 50, 1.3F},
  };
  return *all;
}

AttentionTensors add_attention(CaseBuilder& b, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                               const AttentionAttributes& attributes) {
  const std::int64_t tokens = b.result().list.tokens;
  const Shape of_q = {tokens, heads, head_dim};
  const Shape of_k = {tokens, kv_heads, head_dim};
  AttentionTensors t;
  t.q = b.input("q", of_q), t.k = b.input("k", of_k), t.v = b.input("v", of_k);
  t.o = b.saved("o", of_q);
  const TensorId lse = b.saved_wide("lse", {tokens, heads});
  t.d_o = b.input("do", of_q);
  t.dq = b.output("dq", of_q), t.dk = b.output("dk", of_k), t.dv = b.output("dv", of_k);
  b.op(OpKind::kAttention, {t.q, t.k, t.v, b.bounds()}, {t.o, lse}, attributes);
  b.op(OpKind::kAttentionBackward, {t.q, t.k, t.v, t.o, lse, t.d_o, b.bounds()}, {t.dq, t.dk, t.dv}, attributes);
  return t;
}

OpCase case_of(const HeadsCase& heads_case, DType storage, float sharpness) {
  const HeadsCase& c = heads_case;
  CaseBuilder b(storage, c.tokens);
  b.sequences(c.sequences);
  const double scale = sharpness / std::sqrt(static_cast<double>(c.head_dim));
  add_attention(b, c.heads, c.kv_heads, c.head_dim, {static_cast<float>(scale), c.window, c.cap});
  b.result().reduction = std::max<std::int64_t>(c.tokens, c.head_dim);
  return b.result();
}

namespace {

/// The second part may be nothing.
OpCase joined(DType storage, const Sizes& s, const Shape& of_a, const Shape& of_b, const Shape& whole) {
  CaseBuilder b(storage, s.tokens);
  const bool two = of_b.back() > 0;
  const TensorId first = b.input("a", of_a), y = b.output("y", whole);
  const TensorId dy = b.input("dy", whole), d_first = b.output("da", of_a);
  std::vector<TensorId> reads = {first};
  std::vector<TensorId> writes = {d_first};
  b.result().gradients = {{first, d_first}};
  if (two) {
    reads.push_back(b.input("b", of_b));
    writes.push_back(b.output("db", of_b));
    b.result().gradients.emplace_back(reads.back(), writes.back());
  }
  b.op(OpKind::kJoinHeads, reads, {y});
  b.op(OpKind::kJoinHeadsBackward, {dy}, writes);
  b.result().projections = {{y, dy}};
  b.result().reduction = s.heads;
  return b.result();
}

/// Heads [width] of two parts, of which the first is the same for all: `b` 0 for the first alone, of each head.
OpCase joined_heads(DType storage, Scale scale, std::int64_t a, std::int64_t b_width, std::int64_t width) {
  const Sizes s = sizes_of(scale);
  const bool two = b_width > 0;
  return joined(storage, s, {s.tokens, two ? 1 : s.heads, a}, {s.tokens, s.heads, b_width}, {s.tokens, s.heads, width});
}

/// Rows [width] of heads and a row.
OpCase joined_rows(DType storage, Scale scale, std::int64_t head, std::int64_t row, std::int64_t width) {
  const Sizes s = sizes_of(scale);
  return joined(storage, s, {s.tokens, s.heads, head}, {s.tokens, row}, {s.tokens, width});
}

}  // namespace

OpCase heads_of_two_parts(DType storage, Scale scale) {
  return scale == Scale::kOdd ? joined_heads(storage, scale, 5, 9, 14) : joined_heads(storage, scale, 64, 128, 192);
}
OpCase heads_of_eights(DType storage, Scale scale) {
  return scale == Scale::kOdd ? joined_heads(storage, scale, 8, 16, 32) : joined_heads(storage, scale, 64, 192, 256);
}
OpCase heads_filled_up(DType storage, Scale scale) {
  return scale == Scale::kOdd ? joined_heads(storage, scale, 6, 0, 10) : joined_heads(storage, scale, 128, 0, 192);
}
OpCase heads_cut(DType storage, Scale scale) {
  return scale == Scale::kOdd ? joined_heads(storage, scale, 10, 0, 7) : joined_heads(storage, scale, 192, 0, 128);
}
OpCase rows_of_two_parts(DType storage, Scale scale) {
  const std::int64_t heads = sizes_of(scale).heads;
  return scale == Scale::kOdd ? joined_rows(storage, scale, 5, 9, 5 * heads + 9)
                              : joined_rows(storage, scale, 64, 128, 64 * heads + 128);
}
OpCase rows_filled_up(DType storage, Scale scale) {
  const std::int64_t heads = sizes_of(scale).heads;
  return scale == Scale::kOdd ? joined_rows(storage, scale, 8, 0, 8 * heads + 24)
                              : joined_rows(storage, scale, 64, 0, 64 * heads + 128);
}
OpCase heads_of_parts_cut(DType storage, Scale scale) {
  return scale == Scale::kOdd ? joined_heads(storage, scale, 4, 8, 6) : joined_heads(storage, scale, 64, 128, 128);
}

}  // namespace rondo::devices::testing
