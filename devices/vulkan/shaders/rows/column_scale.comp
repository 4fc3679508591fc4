// y = x * scale (+ bias) (+ addend), a bias and a scale a column, or one scale for several columns beside one another.
//
// slots: x, scale fp32 [columns / those of a scale], bias [columns], addend, y. sizes: elements, columns, those of a
// scale where it has several.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kBias = false;
layout(constant_id = 2) const bool kAddend = false;
layout(constant_id = 3) const uint kEach = 1;         // steps of an invocation, for which tensors are looked up once
layout(constant_id = 4) const uint kStep = 1;         // elements of a step; 2: the number of columns is even
layout(constant_id = 5) const bool kSeveral = false;  // columns of a scale, an even number where kStep is 2

void main() {
  const uint64_t x = address(0);
  const uint64_t scale = address(1);
  const uint64_t bias = kBias ? address(2) : 0ul;
  const uint64_t addend = kAddend ? address(3) : 0ul;
  const uint64_t to = address(4);
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint column = i % push.sizes[1];
    const vec2 factor =
        kSeveral ? vec2(load(scale, kFloat32, column / push.sizes[2])) : load_some(scale, kFloat32, kStep, column);
    precise vec2 y = load_some(x, kType, kStep, i) * factor;
    if (kBias) y = y + load_some(bias, kType, kStep, column);
    if (kAddend) y = y + load_some(addend, kType, kStep, i);
    store_some(to, kType, kStep, i, y);
  }
}
