// route_slopes.glsl with eight invocations for a token, each of which takes a choice of eight and hands it round: for
// processors that pose as cards.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

#define RONDO_ONE_SUBGROUP
const uint kThreads = 8;
#include "route_slopes.glsl"

float find_mean(uint first_choice) {
  float part = 0.0;
  for (uint j = invocation(); j < push.sizes[2]; j += kThreads) {
    part += Floats(address(1)).v[first_choice + j] * Floats(address(3)).v[first_choice + j];
  }
  return sum_over_group(part);
}

void take_slopes(uint token, uint first_choice, float shared_part, inout float gradient[kEach]) {
  for (uint j = 0; j < push.sizes[2]; j += kThreads) {
    const uint own = first_choice + min(j + invocation(), push.sizes[2] - 1);  // past the last the last once more
    const float slope = slope_of(token, own, shared_part);
    const int chosen = Ints(address(2)).v[own];
    [[unroll]] for (uint s = 0; s < kThreads; ++s) {
      const float other = subgroupShuffle(slope, s);
      const int expert = subgroupShuffle(chosen, s);
      [[unroll]] for (uint i = 0; i < kEach; ++i) { gradient[i] = int(expert_here(i)) == expert ? other : gradient[i]; }
    }
  }
}
