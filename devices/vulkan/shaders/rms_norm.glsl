// y = x / sqrt(mean(x^2) + epsilon) * w, a workgroup a row.
//
// slots: x, w, y. sizes: width, rows. factors: epsilon.
#include "common.glsl"

layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWeightType = 0;
#include "reduce.glsl"

void main() {
  const uint width = push.sizes[0];
  const uint row = group_place();
  if (row >= push.sizes[1]) return;
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t y = address(2);
  float sum = 0.0;
  for (uint d = gl_LocalInvocationID.x; d < width; d += kThreads) {
    const float value = load(x, kType, row * width + d);
    sum += value * value;
  }
  const float r = exact_inverse_root(sum_over_group(sum) / float(width) + push.factors[0]);
  for (uint d = gl_LocalInvocationID.x; d < width; d += kThreads) {
    store(y, kType, row * width + d, load(x, kType, row * width + d) * r * load(w, kWeightType, d));
  }
}
