// The gradients of what an expert made of a token and of its share. A workgroup a choice of a token.
//
// slots: dy, x, rows, shares, dx, dshares. sizes: width, choices, those of all tokens. factors: alpha.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
#include "reduce.glsl"

void main() {
  const uint64_t dy = address(0);
  const uint64_t x = address(1);
  const uint64_t dx = address(4);
  const uint width = push.sizes[0];
  const uint choice = group_place();
  if (choice >= push.sizes[2]) return;
  const uint token = choice / push.sizes[1] * width;
  const uint row = uint(Ints(address(2)).v[choice]) * width;
  const float share = Floats(address(3)).v[choice];
  float sum = 0.0;
  for (uint c = invocation() * kStep; c < width; c += kThreads * kStep) {
    const vec4 along = push.factors[0] * load_step(dy, token + c);
    const vec4 terms = along * load_step(x, row + c);
    sum += kStep == 4 ? (terms.x + terms.y) + (terms.z + terms.w) : terms.x;
    store_step(dx, row + c, along * share);
  }
  sum = sum_over_group(sum);
  if (invocation() == 0) Floats(address(5)).v[choice] = sum;
}
