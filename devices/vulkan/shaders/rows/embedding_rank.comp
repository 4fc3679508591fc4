// For the sparse gradient of a table: the row of each first token, the number of smaller ids; and the list of ids.
//
// slots: ids of first tokens [T] (others: kNone), rank [T] (-1: not first), row ids [T + 1]. sizes: tokens. An
// invocation a token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

const int kNone = 0x7FFFFFFF;

void main() {
  const uint token = group_place() * 64 + invocation();
  if (token >= push.sizes[0]) return;
  Ints first_ids = Ints(address(0));
  Ints row_ids = Ints(address(2));
  const int id = first_ids.v[token];
  if (token != 0 && id == kNone) {
    Ints(address(1)).v[token] = -1;
    return;
  }
  int rank = 0;
  int all = 0;
  for (uint i = 0; i < push.sizes[0]; ++i) {
    const int other = first_ids.v[i];
    if (other != kNone) ++all;
    if (other < id) ++rank;
  }
  if (token == 0) row_ids.v[0] = all;
  if (id != kNone) row_ids.v[1 + rank] = id;
  Ints(address(1)).v[token] = id != kNone ? rank : -1;
}
