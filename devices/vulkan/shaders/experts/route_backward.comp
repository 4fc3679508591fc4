// route_slopes.glsl where each invocation goes along all choices of its token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
#include "route_slopes.glsl"

float find_mean(uint first_choice) {
  float mean = 0.0;
  for (uint j = 0; j < push.sizes[2]; ++j) {
    mean += Floats(address(1)).v[first_choice + j] * Floats(address(3)).v[first_choice + j];
  }
  return mean;
}

void take_slopes(uint token, uint first_choice, float shared_part, inout float gradient[kEach]) {
  for (uint place = first_choice; place < first_choice + push.sizes[2]; ++place) {
    const float slope = slope_of(token, place, shared_part);
    const int chosen = Ints(address(2)).v[place];
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if (int(expert_here(i)) == chosen) gradient[i] = slope;
    }
  }
}
