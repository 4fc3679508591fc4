// Heads put together from one or two parts, each of every head or one for all; zeros behind these.
//
// slots: a [T, Ha, Da], b [T, Hb, Db], y [T, H, D]. sizes: elements of y, H, D, Ha, Da, Hb, Db (0: there is no b).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation, all of one head
layout(constant_id = 2) const uint kStep = 1;  // elements of a step; 2: D, Da and Db are even

void main() {
  const uint first = (group_place() * 256 + invocation()) * kEach * kStep;
  if (first >= push.sizes[0]) return;
  const uint row = first / push.sizes[2];  // of a token and head
  const uint column = first - row * push.sizes[2];
  const uint token = row / push.sizes[1];
  const uint width_of_a = push.sizes[4];
  const uint width_of_both = width_of_a + push.sizes[6];
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  const uint64_t y = address(2);
  const uint of_a = (push.sizes[3] == 1 ? token : row) * width_of_a;
  const uint of_b = (push.sizes[5] == 1 ? token : row) * push.sizes[6] - width_of_a;
  [[unroll]] for (uint e = 0; e < kEach; ++e) {
    const uint at = column + e * kStep;
    const bool in_a = at < width_of_a;
    if (at < width_of_both) {
      copy_some(y, kType, kStep, first + e * kStep, in_a ? a : b, (in_a ? of_a : of_b) + at);
    } else {
      store_some(y, kType, kStep, first + e * kStep, vec2(0.0));
    }
  }
}
