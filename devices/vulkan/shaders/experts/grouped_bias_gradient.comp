// Adds to the gradient of each expert's bias the sums of its rows: those of a chunk together, then the chunks in rising
// order. A workgroup an expert and kAcross steps of columns, at each of which kDown invocations share out the rows.
//
// slots: dy, offsets [experts + 1], gradient fp32 [experts, width]. sizes: width, rows of a chunk.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x_id = 4) in;  // kAcross kDown
layout(constant_id = 2) const uint kAcross = 16;
layout(constant_id = 3) const uint kDown = 16;

shared vec4 parts[kDown * kAcross];

void main() {
  const uint width = push.sizes[0];
  const uint expert = workgroup().y;
  Ints offsets = Ints(address(1));
  const uint begin = uint(offsets.v[expert]);
  const uint end = uint(offsets.v[expert + 1]);
  if (begin >= end) return;
  const uint down = invocation() / kAcross;
  const uint across = invocation() % kAcross;
  const uint column = (workgroup().x * kAcross + across) * kStep;
  const bool inside = column < width;
  const uint64_t dy = address(0);
  const uint64_t gradient = address(2);
  const bool adds = inside && down == 0;
  vec4 total = vec4(0.0);
  if (adds) total = load_step(gradient, kFloat32, expert * width + column);
  for (uint first = begin; first < end; first += push.sizes[1]) {
    const uint last = inside ? min(first + push.sizes[1], end) : first;
    vec4 sum = vec4(0.0);
    for (uint row = first + down; row < last; row += kDown) sum += load_step(dy, row * width + column);
    if (kDown == 1) {
      total += sum;
      continue;
    }
    parts[invocation()] = sum;
    barrier();
    if (adds) {
      vec4 chunk = vec4(0.0);
      [[unroll]] for (uint i = 0; i < kDown; ++i) chunk += parts[i * kAcross + across];
      total += chunk;
    }
    barrier();
  }
  if (adds) store_step(gradient, kFloat32, expert * width + column, total);
}
