// Adds to each row the bias of the expert whose it is; rows behind the last expert's, of padding, become zeros. An
// invocation kEach steps of a row.
//
// slots: x, offsets [experts + 1], bias [experts, width], y. sizes: width, elements, experts.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "search.glsl"
#include "spread.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
layout(constant_id = 2) const uint kEach = 1;  // divides the steps of a row

void main() {
  const uint first = (group_place() * kThreads + invocation()) * kEach * kStep;
  if (first >= push.sizes[1]) return;
  const uint width = push.sizes[0];
  const uint row = first / width;
  const uint64_t x = address(0);
  const uint64_t bias = address(2);
  const uint64_t y = address(3);
  Ints offsets = Ints(address(1));
  const int experts = int(push.sizes[2]);
  const bool padding = int(row) >= offsets.v[experts];
  const uint of_expert = uint(last_at_most(offsets, 0, experts, int(row))) * width + first - row * width;
  for (uint i = 0; i < kEach * kStep; i += kStep) {
    const vec4 sum = load_step(x, first + i) + load_step(bias, of_expert + i);
    store_step(y, first + i, padding ? vec4(0.0) : sum);
  }
}
