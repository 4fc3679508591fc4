// Shares of tokens in their experts, or gradients of what this gives, times a number of the expert.
//
// slots: x fp32 [tokens, choices], experts likewise, scale fp32 [experts], y. sizes: numbers of x.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;

void main() {
  const uint i = group_place() * 256 + invocation();
  if (i >= push.sizes[0]) return;
  Floats(address(3)).v[i] = Floats(address(0)).v[i] * Floats(address(2)).v[Ints(address(1)).v[i]];
}
