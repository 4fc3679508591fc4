// Rows of a lookup table's gradient to its sum, a workgroup a row of a list of as many as there may be.
//
// slots: ids [T + 1], rows, table. sizes: rows of the list, width, height of the table, padding row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

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
  Floats table = Floats(address(2) + uint64_t(uint(row)) * uint64_t(width * 4));
  Floats rows = Floats(address(1) + uint64_t(place) * uint64_t(width * 4));
  for (uint c = invocation(); c < width; c += 64) table.v[c] += rows.v[c];
}
