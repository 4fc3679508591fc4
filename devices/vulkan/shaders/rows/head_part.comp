// The gradient of one part of heads that were put together: its channels, or their sum over the heads that shared it.
//
// slots: dy [T, H, D], dx [T, Hx, Dx]. sizes: elements of dx, H / Hx, D, Dx, the first of its channels in D.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation, all of one head
layout(constant_id = 2) const uint kStep = 1;  // elements of a step; 2: D, Dx and the first channel are even
layout(constant_id = 3) const bool kShared = false;

void main() {
  const uint first = (group_place() * 256 + invocation()) * kEach * kStep;
  if (first >= push.sizes[0]) return;
  const uint row = first / push.sizes[3];
  const uint column = push.sizes[4] + first - row * push.sizes[3];
  const uint shared_by = push.sizes[1];
  const uint width = push.sizes[2];
  const uint from = row * shared_by * width + column;
  const uint64_t dy = address(0);
  const uint64_t dx = address(1);
  [[unroll]] for (uint e = 0; e < kEach; ++e) {
    const uint to = first + e * kStep;
    if (column + e * kStep >= width) {
      store_some(dx, kType, kStep, to, vec2(0.0));
    } else if (kShared) {
      precise vec2 sum = load_some(dy, kType, kStep, from + e * kStep);
      for (uint h = 1; h < shared_by; ++h) sum = sum + load_some(dy, kType, kStep, from + h * width + e * kStep);
      store_some(dx, kType, kStep, to, sum);
    } else {
      copy_some(dx, kType, kStep, to, dy, from + e * kStep);
    }
  }
}
