// Rows of a table by id, times a factor; a padding token gives zeros.
//
// slots: ids, table, x. sizes: elements, width, rows of the table. factors: that one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kTableType = 0;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, all of one row
layout(constant_id = 3) const uint kStep = 1;  // elements of a step; 2: the width is even

void main() {
  const uint first = (group_place() * 256 + invocation()) * kEach * kStep;
  if (first >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint token = first / width;
  const uint column = first - token * width;
  const int id = Ints(address(0)).v[token];
  const bool known = id < int(push.sizes[2]);
  if (!known && column == 0) complain(1, token, id);
  const bool there = id >= 0 && known;
  const uint row = there ? uint(id) * width + column : column;
  const uint64_t table = address(1);
  const uint64_t x = address(2);
  [[unroll]] for (uint e = 0; e < kEach; ++e) {
    const vec2 values = load_some(table, kTableType, kStep, row + e * kStep);
    store_some(x, kType, kStep, first + e * kStep, there ? push.factors[0] * values : vec2(0.0));
  }
}
