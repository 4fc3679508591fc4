// The last real token's row.
//
// slots: x, bounds, y. sizes: width.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;

void main() {
  const uint c = group_place() * 256 + invocation();
  const uint width = push.sizes[0];
  if (c >= width) return;
  const int last = real_tokens(Ints(address(1))) - 1;
  store(address(2), kType, c, last < 0 ? 0.0 : load(address(0), kType, uint(last) * width + c));
}
