// Adds to the gradient of each expert's number the products of its tokens' shares and what their gradients are. A
// workgroup an expert.
//
// slots: dy fp32 [tokens, choices], experts, shares likewise, gradient fp32 [experts]. sizes: numbers of dy.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
#include "reduce.glsl"

void main() {
  const int expert = int(group_place());
  Floats dy = Floats(address(0));
  Ints experts = Ints(address(1));
  Floats shares = Floats(address(2));
  float part = 0.0;
  for (uint i = invocation(); i < push.sizes[0]; i += kThreads) {
    if (experts.v[i] == expert) part += dy.v[i] * shares.v[i];
  }
  const float sum = sum_over_group(part);
  if (invocation() == 0) Floats(address(3)).v[expert] += sum;
}
