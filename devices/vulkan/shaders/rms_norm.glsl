// y = x / sqrt(mean(x^2) + epsilon) * w, a workgroup kRows rows, for which a weight is read once.
//
// slots: x, w, y. sizes: width, rows. factors: epsilon.
#include "common.glsl"

layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWeightType = 0;
layout(constant_id = 2) const uint kStep = 1;  // 2: the width is even
#include "reduce.glsl"

void main() {
  const uint width = push.sizes[0];
  const uint first = group_place() * kRows;
  if (first >= push.sizes[1]) return;
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t y = address(2);
  uint begins[kRows];  // past the last row it is done again
  float factors[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) begins[r] = min(first + r, push.sizes[1] - 1) * width;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    float sum = 0.0;
    for (uint d = gl_LocalInvocationID.x * kStep; d < width; d += kThreads * kStep) {
      const vec2 value = load_some(x, kType, kStep, begins[r] + d);
      sum += value.x * value.x + value.y * value.y;
    }
    factors[r] = exact_inverse_root(sum_over_group(sum) / float(width) + push.factors[0]);
  }
  for (uint d = gl_LocalInvocationID.x * kStep; d < width; d += kThreads * kStep) {
    const vec2 weight = load_some(w, kWeightType, kStep, d);
    vec2 values[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      values[r] = load_some(x, kType, kStep, begins[r] + d) * factors[r] * weight;
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r) store_some(y, kType, kStep, begins[r] + d, values[r]);
  }
}
