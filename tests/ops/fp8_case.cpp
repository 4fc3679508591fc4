// See fp8_case.h.
#include "fp8_case.h"

#include <algorithm>
#include <cmath>

namespace rondo::devices::testing {

const std::vector<Fp8Case>& fp8_cases() {
  static const std::vector<Fp8Case> cases = {
      {"Odd", 7, 37, 61, false, false}, {"Whole", 16, 96, 160, false, false},  {"Bias", 5, 40, 24, true, false},
      {"All", 33, 70, 130, true, true}, {"Chunks", 3, 1100, 40, false, false}, {"Tiles", 9, 272, 200, false, false}};
  return cases;
}

OpCase case_of(const Fp8Case& c, DType storage, Fp8Format format) {
  CaseBuilder b(storage, c.tokens);
  const TensorId x = b.input("x", {c.tokens, c.inputs});
  const TensorId w = b.weight("w", {c.outputs, c.inputs});
  const TensorId dy = b.input("dy", {c.tokens, c.outputs});
  std::vector<TensorId> reads = {x, w};
  std::vector<TensorId> backward_reads = {dy, w};
  if (c.bias) reads.push_back(b.weight("bias", {c.outputs}));
  if (c.addend) {
    reads.push_back(b.input("residual", {c.tokens, c.outputs}));
    backward_reads.push_back(b.input("dz", {c.tokens, c.inputs}));
  }
  b.op(OpKind::kMatMul, reads, {b.output("y", {c.tokens, c.outputs})},
       MatMulAttributes{0.5F, c.bias, c.addend, format});
  b.op(OpKind::kMatMulInputGradient, backward_reads, {b.output("dx", {c.tokens, c.inputs})},
       MatMulAttributes{2.0F, false, c.addend, format});
  b.result().reduction = std::max({c.inputs, c.outputs});
  return b.result();
}

void make_unlike(const OpCase& op_case, CaseMemory& memory) {
  const auto scale = [&](TensorId id, std::int64_t i, int power) {
    memory.set(id, i, std::ldexp(memory.get(id, i), power));
  };
  const TensorId x = op_case.list.ops[0].reads[0];
  const TensorId w = op_case.list.ops[0].reads[1];
  const std::int64_t inputs = kUnlike.inputs;
  for (std::int64_t i = 0; i < kUnlike.tokens * inputs; ++i) scale(x, i, static_cast<int>(3 * (i / inputs)));
  for (std::int64_t i = 0; i < inputs; ++i) {
    scale(w, (kUnlike.outputs - 1) * inputs + i, 12 + static_cast<int>(i % 5));  // the last row of the last chunk
    memory.set(x, 2 * inputs + i, 0.0);
  }
}

}  // namespace rondo::devices::testing
