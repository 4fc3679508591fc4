// Rows of a lookup table's gradient to its sum, a workgroup a row of a list of as many as there may be.
//
// slots: ids [T + 1], rows, table. sizes: rows of the list, width, height of the table, padding row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kStep = 1;  // elements of a step; 2: the width is even

void main() {
  const uint place = group_place();
  Ints ids = Ints(address(0));
  if (place >= min(uint(ids.v[0]), push.sizes[0])) return;
  const int row = ids.v[1 + place];
  if (row == int(push.sizes[3])) return;
  if (row < 0 || uint(row) >= push.sizes[2]) {
    if (invocation() == 0) complain(1, place, row);
    return;
  }
  const uint width = push.sizes[1];
  const uint64_t table = address(2) + uint64_t(uint(row)) * uint64_t(width * 4);
  const uint64_t rows = address(1) + uint64_t(place) * uint64_t(width * 4);
  for (uint c = invocation() * kStep; c < width; c += 64 * kStep) {
    const vec2 sum = load_some(table, kFloat32, kStep, c) + load_some(rows, kFloat32, kStep, c);
    store_some(table, kFloat32, kStep, c, sum);
  }
}
