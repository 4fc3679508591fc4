// DoRA: scale[i] = m[i] / norm and inverse[i] = 1 / norm, norm the length of row i of w + alpha b a; a workgroup a row.
//
// slots: w, a, b, m fp32, scale, inverse. sizes: width, rows, rank. factors: alpha.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;
#include "reduce.glsl"

void main() {
  const uint width = push.sizes[0];
  const uint row = group_place();
  if (row >= push.sizes[1]) return;
  const uint rank = push.sizes[2];
  const uint64_t w = address(0);
  const uint64_t a = address(1);
  const uint64_t b = address(2);
  float sum = 0.0;
  for (uint d = gl_LocalInvocationID.x; d < width; d += kThreads) {
    float low = 0.0;
    for (uint r = 0; r < rank; ++r) low += load(b, kType, row * rank + r) * load(a, kType, r * width + d);
    const float value = load(w, kType, row * width + d) + push.factors[0] * low;
    sum += value * value;
  }
  const float squares = sum_over_group(sum);
  if (gl_LocalInvocationID.x != 0) return;
  const float inverse = squares == 0.0 ? 0.0 : exact_inverse_root(squares);
  Floats(address(4)).v[row] = Floats(address(3)).v[row] * inverse;
  Floats(address(5)).v[row] = inverse;
}
