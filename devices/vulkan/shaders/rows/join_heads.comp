// Heads put together from one or two parts, each of every head or one for all; zeros behind these.
//
// slots: a [T, Ha, Da], b [T, Hb, Db], y [T, H, D]. sizes: elements of y, H, D, Ha, Da, Hb, Db (0: there is no b).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once
layout(constant_id = 2) const uint kStep = 1;  // elements of a step; 2: D, Da and Db are even

void main() {
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  const uint64_t y = address(2);
  const uint heads = push.sizes[1];
  const uint width = push.sizes[2];
  const uint width_of_a = push.sizes[4];
  const uint width_of_b = push.sizes[6];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint row = i / width;  // of a token and head
    const uint column = i % width;
    vec2 some = vec2(0.0);
    if (column < width_of_a) {
      some = load_some(a, kType, kStep, (push.sizes[3] == 1 ? row / heads : row) * width_of_a + column);
    } else if (column - width_of_a < width_of_b) {
      some = load_some(b, kType, kStep, (push.sizes[5] == 1 ? row / heads : row) * width_of_b + column - width_of_a);
    }
    store_some(y, kType, kStep, i, some);
  }
}
