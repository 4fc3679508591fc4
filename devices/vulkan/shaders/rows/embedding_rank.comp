// For the sparse gradient of a table: the row of each first token, the number of smaller ids; and the list of ids.
//
// slots: ids, first [T], rank [T] (-1: not first), row ids [T + 1]. sizes: tokens. An invocation a token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

void main() {
  const uint token = group_place() * 64 + invocation();
  if (token >= push.sizes[0]) return;
  Ints ids = Ints(address(0));
  Ints first = Ints(address(1));
  Ints row_ids = Ints(address(3));
  const bool counts = first.v[token] != 0;
  if (token != 0 && !counts) {
    Ints(address(2)).v[token] = -1;
    return;
  }
  const int id = ids.v[token];
  int rank = 0;
  int all = 0;
  for (uint other = 0; other < push.sizes[0]; ++other) {
    if (first.v[other] == 0) continue;
    ++all;
    if (ids.v[other] < id) ++rank;
  }
  if (token == 0) row_ids.v[0] = all;
  if (counts) row_ids.v[1 + rank] = id;
  Ints(address(2)).v[token] = counts ? rank : -1;
}
