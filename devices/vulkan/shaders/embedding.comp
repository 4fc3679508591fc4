// Rows of a table by id, times a factor; a padding token gives zeros.
//
// slots: ids, table, x. sizes: elements, width, rows of the table. factors: that one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kTableType = 0;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once
layout(constant_id = 3) const uint kStep = 1;  // elements of a step; 2: the width is even

void main() {
  const uint64_t ids = address(0);
  const uint64_t table = address(1);
  const uint64_t x = address(2);
  const uint width = push.sizes[1];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint token = i / width;
    const int id = Ints(ids).v[token];
    const bool known = id < int(push.sizes[2]);
    if (!known && i % width == 0) complain(1, token, id);
    vec2 values = vec2(0.0);
    if (id >= 0 && known) values = push.factors[0] * load_some(table, kTableType, kStep, uint(id) * width + i % width);
    store_some(x, kType, kStep, i, values);
  }
}
