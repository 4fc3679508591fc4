// Sums of what experts made of a token, each times its share, in rising order of choices.
//
// slots: x, rows, shares, addend, y. sizes: elements of y, width, choices. factors: alpha.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once
layout(constant_id = 3) const bool kShares = false;
layout(constant_id = 4) const bool kAddend = false;

void main() {
  const uint64_t x = address(0);
  const uint64_t rows = address(1);
  const uint64_t shares = address(2);
  const uint64_t addend = address(3);
  const uint64_t y = address(4);
  const uint width = push.sizes[1];
  const uint choices = push.sizes[2];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint first_choice = i / width * choices;
    vec4 sum = vec4(0.0);
    for (uint choice = first_choice; choice < first_choice + choices; ++choice) {
      const vec4 term = load_step(x, uint(Ints(rows).v[choice]) * width + i % width);
      sum += kShares ? Floats(shares).v[choice] * term : term;
    }
    sum *= push.factors[0];
    if (kAddend) sum += load_step(addend, i);
    store_step(y, i, sum);
  }
}
