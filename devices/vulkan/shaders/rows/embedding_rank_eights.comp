// embedding_rank.comp with eight tokens side by side, whose ids are handed round.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

const uint kThreads = 8;
layout(local_size_x = kThreads) in;

const int kNone = 0x7FFFFFFF;

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint token = group_place() * kThreads + lane;
  const uint tokens = push.sizes[0];
  Ints first_ids = Ints(address(0));
  const int id = first_ids.v[min(token, tokens - 1)];
  int rank = 0;
  int all = 0;
  for (uint begin = 0; begin < tokens; begin += kThreads) {
    const uint here = begin + lane;
    const int other = here < tokens ? first_ids.v[min(here, tokens - 1)] : kNone;
    all += other != kNone ? 1 : 0;
    [[unroll]] for (uint i = 0; i < kThreads; ++i) rank += subgroupShuffle(other, lane ^ i) < id ? 1 : 0;
  }
  [[unroll]] for (uint i = kThreads / 2; i > 0; i /= 2) all += subgroupShuffle(all, lane ^ i);
  if (token >= tokens) return;
  Ints row_ids = Ints(address(2));
  if (token == 0) row_ids.v[0] = all;
  if (id != kNone) row_ids.v[1 + rank] = id;
  Ints(address(1)).v[token] = id != kNone ? rank : -1;
}
