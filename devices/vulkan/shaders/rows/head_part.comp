// The gradient of one part of heads that were put together: its channels, or their sum over the heads that shared it.
//
// slots: dy [T, H, D], dx [T, Hx, Dx]. sizes: elements of dx, H / Hx, D, Dx, the first of its channels in D.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once
layout(constant_id = 2) const uint kStep = 1;  // elements of a step; 2: D, Dx and the first channel are even

void main() {
  const uint64_t dy = address(0);
  const uint64_t dx = address(1);
  const uint shared_by = push.sizes[1];
  const uint width = push.sizes[2];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint column = push.sizes[4] + i % push.sizes[3];
    const uint row = i / push.sizes[3] * shared_by;
    precise vec2 sum = vec2(0.0);
    if (column < width) {
      sum = load_some(dy, kType, kStep, row * width + column);
      for (uint h = 1; h < shared_by; ++h) sum = sum + load_some(dy, kType, kStep, (row + h) * width + column);
    }
    store_some(dx, kType, kStep, i, sum);
  }
}
