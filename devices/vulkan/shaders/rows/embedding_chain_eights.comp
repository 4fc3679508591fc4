// embedding_chain.comp with eight tokens side by side, whose ids are handed round: for processors that pose as cards,
// where a read costs as much as what is done here with eight ids.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "sequences.glsl"

const uint kThreads = 8;
layout(local_size_x = kThreads) in;

const int kNone = 0x7FFFFFFF;

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const int token = int(group_place() * kThreads + lane);
  Ints ids = Ints(address(0));
  const int end = real_tokens(Ints(address(1)));
  // Padding has no id that another token has.
  const int id = token < end ? ids.v[token] : -1;
  int next = kNone;
  bool first = id >= 0;
  for (int begin = 0; begin < end; begin += int(kThreads)) {
    const int here = begin + int(lane);
    const int other = here < end ? ids.v[min(here, end - 1)] : -1;
    [[unroll]] for (uint i = 0; i < kThreads; ++i) {
      const int at = begin + int(lane ^ i);
      const bool same = subgroupShuffle(other, lane ^ i) == id;
      next = same && at > token ? min(next, at) : next;
      first = first && !(same && at < token);
    }
  }
  if (token >= int(push.sizes[0])) return;
  Ints(address(2)).v[token] = id < 0 || next == kNone ? -1 : next;
  Ints(address(3)).v[token] = first ? id : kNone;
}
