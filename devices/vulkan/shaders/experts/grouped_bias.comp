// Adds to each row the bias of the expert whose it is; rows behind the last expert's, of padding, become zeros. A
// workgroup a row.
//
// slots: x, offsets [experts + 1], bias [experts, width], y. sizes: width, rows, experts.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "search.glsl"
#include "spread.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;

void main() {
  const uint row = group_place();
  if (row >= push.sizes[1]) return;
  const uint width = push.sizes[0];
  const uint64_t x = address(0);
  const uint64_t bias = address(2);
  const uint64_t y = address(3);
  Ints offsets = Ints(address(1));
  const int experts = int(push.sizes[2]);
  const bool padding = int(row) >= offsets.v[experts];
  const uint of_expert = uint(last_at_most(offsets, 0, experts, int(row))) * width;
  for (uint c = invocation() * kStep; c < width; c += kThreads * kStep) {
    const uint i = row * width + c;
    vec4 sum = vec4(0.0);
    if (!padding) sum = load_step(x, i) + load_step(bias, of_expert + c);
    store_step(y, i, sum);
  }
}
