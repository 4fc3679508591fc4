// For the sparse gradient of a table: which tokens are the first with their id, and which token has the id next.
//
// slots: ids, bounds, next [T] (-1: none), ids of first tokens [T] (others: kNone). sizes: tokens. An
// invocation a token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;

const int kNone = 0x7FFFFFFF;

void main() {
  const int token = int(group_place() * 64 + invocation());
  if (token >= int(push.sizes[0])) return;
  Ints ids = Ints(address(0));
  const int end = real_tokens(Ints(address(1)));
  const int id = ids.v[token];
  int next = -1;
  int first_id = kNone;
  if (token < end && id >= 0) {
    int before = token - 1;
    while (before >= 0 && ids.v[max(before, 0)] != id) --before;
    if (before < 0) first_id = id;
    int after = token + 1;
    while (after < end && ids.v[min(after, end - 1)] != id) ++after;
    if (after < end) next = after;
  }
  Ints(address(2)).v[token] = next;
  Ints(address(3)).v[token] = first_id;
}
