// Rows of a table by id; a padding token gives zeros. An invocation an element.
//
// slots: ids, table, x. sizes: elements, width, rows of the table.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kTableType = 0;
layout(constant_id = 1) const uint kType = 0;

void main() {
  const uint i = group_place() * 256 + gl_LocalInvocationID.x;
  if (i >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint token = i / width;
  const int id = Ints(address(0)).v[token];
  const bool known = id < int(push.sizes[2]);
  if (!known && i % width == 0) complain(1, token, id);
  const float value = id >= 0 && known ? load(address(1), kTableType, uint(id) * width + i % width) : 0.0;
  store(address(2), kType, i, value);
}
