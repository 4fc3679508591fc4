// The rows of the sparse gradient: a factor times the sum of dy over the tokens with an id, in token order. An
// invocation a token and kEach kStep columns, which works where the token is the first with its id: nobody goes along
// the tokens of a frequent id twice.
//
// slots: rank [T], next [T], dy, rows. sizes: tokens, width. factors: that one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation; divides those of the width
layout(constant_id = 2) const uint kStep = 1;  // columns of a step; 2: the width is even

void main() {
  const uint width = push.sizes[1];
  const uint columns = kEach * kStep;
  const uint first = (group_place() * 64 + invocation()) * columns;
  const uint token = first / width;
  const uint c = first - token * width;
  if (token >= push.sizes[0]) return;
  const int rank = Ints(address(0)).v[token];
  if (rank < 0) return;
  Ints next = Ints(address(1));
  const uint64_t dy = address(2);
  vec2 sums[kEach];
  [[unroll]] for (uint e = 0; e < kEach; ++e) sums[e] = vec2(0.0);
  int at = int(token);
  while (at >= 0) {
    // Never before the first element: drivers may read for invocations that have left the loop.
    const uint here = uint(max(at, 0));
    [[unroll]] for (uint e = 0; e < kEach; ++e) sums[e] += load_some(dy, kType, kStep, here * width + c + e * kStep);
    at = next.v[here];
  }
  const uint64_t rows = address(3);
  [[unroll]] for (uint e = 0; e < kEach; ++e) {
    store_some(rows, kFloat32, kStep, uint(rank) * width + c + e * kStep, push.factors[0] * sums[e]);
  }
}
