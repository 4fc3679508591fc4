// do . o of every token and head: what the softmax takes off each gradient of a probability.
//
// slots: o, do, delta [T, H]. sizes: rows (T H), width of a head.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;

void main() {
  const uint row = group_place() * 64 + invocation();
  if (row >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint64_t o = address(0);
  const uint64_t d_o = address(1);
  float sum = 0.0;
  for (uint d = 0; d < width; ++d) {
    sum += load(o, kType, row * width + d) * load(d_o, kType, row * width + d);
  }
  Floats(address(2)).v[row] = sum;
}
