// y = x * scale (+ bias) (+ addend), a scale and a bias a column.
//
// slots: x, scale fp32 [columns], bias [columns], addend, y. sizes: elements, columns.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kBias = false;
layout(constant_id = 2) const bool kAddend = false;

void main() {
  const uint i = group_place() * 256 + gl_LocalInvocationID.x;
  if (i >= push.sizes[0]) return;
  const uint column = i % push.sizes[1];
  precise float y = load(address(0), kType, i) * Floats(address(1)).v[column];
  if (kBias) y = y + load(address(2), kType, column);
  if (kAddend) y = y + load(address(3), kType, i);
  store(address(4), kType, i, y);
}
