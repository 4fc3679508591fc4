// DoRA: scale[i] = m[i] / norm and inverse[i] = 1 / norm, norm the length of row i of w + alpha b a; a workgroup a row.
//
// slots: w, a, b, m fp32, scale, inverse. sizes: width, rows, rank. factors: alpha.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
const uint kAtOnce = 4;  // steps for which an element of b is read once
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kStep = 1;  // elements of a step; 2: the width is even
#include "reduce.glsl"

void main() {
  const uint width = push.sizes[0];
  const uint row = group_place();
  if (row >= push.sizes[1]) return;
  const uint rank = push.sizes[2];
  const uint64_t w = address(0);
  const uint64_t a = address(1);
  const uint64_t b = address(2);
  vec2 sums = vec2(0.0);
  for (uint first = invocation() * kStep; first < width; first += kAtOnce * kThreads * kStep) {
    vec2 low[kAtOnce];
    [[unroll]] for (uint j = 0; j < kAtOnce; ++j) low[j] = vec2(0.0);
    for (uint r = 0; r < rank; ++r) {
      const float factor = load(b, kType, row * rank + r);
      [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
        const uint d = first + j * kThreads * kStep;
        if (d < width) low[j] += factor * load_some(a, kType, kStep, r * width + d);
      }
    }
    [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
      const uint d = first + j * kThreads * kStep;
      if (d >= width) continue;
      const vec2 value = load_some(w, kType, kStep, row * width + d) + push.factors[0] * low[j];
      sums += value * value;
    }
  }
  const float squares = sum_over_group(sums.x + sums.y);
  if (invocation() != 0) return;
  const float inverse = squares == 0.0 ? 0.0 : exact_inverse_root(squares);
  Floats(address(4)).v[row] = Floats(address(3)).v[row] * inverse;
  Floats(address(5)).v[row] = inverse;
}
