// With n = x r: dx = r (w dy - n mean(n w dy)) (+ addend); r is kept for the gradient of w. A workgroup a row.
//
// slots: x, w, dy, dx, addend, r [rows]. sizes: width, rows. factors: epsilon.
#include "common.glsl"

layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWeightType = 0;
layout(constant_id = 2) const bool kAddend = false;
layout(constant_id = 3) const bool kKeep = false;
#include "reduce.glsl"

void main() {
  const uint width = push.sizes[0];
  const uint row = group_place();
  if (row >= push.sizes[1]) return;
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t dy = address(2);
  float squares = 0.0;
  float products = 0.0;
  for (uint d = gl_LocalInvocationID.x; d < width; d += kThreads) {
    const float value = load(x, kType, row * width + d);
    squares += value * value;
    products += value * load(w, kWeightType, d) * load(dy, kType, row * width + d);
  }
  const float r = exact_inverse_root(sum_over_group(squares) / float(width) + push.factors[0]);
  const float mean = sum_over_group(products) * r / float(width);
  for (uint d = gl_LocalInvocationID.x; d < width; d += kThreads) {
    const uint i = row * width + d;
    float gradient = r * (load(w, kWeightType, d) * load(dy, kType, i) - load(x, kType, i) * r * mean);
    if (kAddend) gradient += load(address(4), kType, i);
    store(address(3), kType, i, gradient);
  }
  if (kKeep && gl_LocalInvocationID.x == 0) Floats(address(5)).v[row] = r;
}
