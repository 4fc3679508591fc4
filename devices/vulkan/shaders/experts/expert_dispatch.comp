// Copies tokens to where experts have them.
//
// slots: x, rows, y. sizes: elements of y, width, choices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once

void main() {
  const uint64_t x = address(0);
  const uint64_t rows = address(1);
  const uint64_t y = address(2);
  const uint width = push.sizes[1];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint choice = i / width;
    const uint column = i % width;
    store_step(y, uint(Ints(rows).v[choice]) * width + column, load_step(x, choice / push.sizes[2] * width + column));
  }
}
