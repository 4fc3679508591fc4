// The rows of an expert's tokens, in their order, behind those of the experts before it, and where these begin. A
// workgroup an expert; each invocation takes a run of the choices of all tokens.
//
// slots: bounds, experts, rows, offsets. sizes: experts, choices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
#include "prefix.glsl"

void main() {
  const int expert = int(group_place());
  const uint count = uint(real_tokens(Ints(address(0)))) * push.sizes[1];
  const uint each = (count + kThreads - 1) / kThreads;
  const uint begin = min(invocation() * each, count);
  const uint end = min(begin + each, count);
  Ints experts = Ints(address(1));
  Ints rows = Ints(address(2));
  Ints offsets = Ints(address(3));
  uint less = 0;
  uint own = 0;
  for (uint i = begin; i < end; ++i) {
    const int chosen = experts.v[min(i, count - 1)];
    less += chosen < expert ? 1 : 0;
    own += chosen == expert ? 1 : 0;
  }
  uint first;
  uint all;
  sum_before(less, first);
  uint row = first + sum_before(own, all);
  if (invocation() == 0) {
    offsets.v[expert] = int(first);
    if (expert + 1 == int(push.sizes[0])) offsets.v[expert + 1] = int(count);
  }
  for (uint i = begin; i < end; ++i) {
    if (experts.v[min(i, count - 1)] == expert) rows.v[i] = int(row++);
  }
}
