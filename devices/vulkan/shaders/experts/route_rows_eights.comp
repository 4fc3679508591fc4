// As route_rows.comp, for processors that pose as cards: a workgroup of eight invocations takes eight kGroupsOfEight
// experts, an invocation one of each eight, and hands the choices of all tokens round, eight at once.
//
// slots: bounds, experts, rows, offsets. sizes: experts, choices.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "sequences.glsl"

const uint kThreads = 8;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kGroupsOfEight = 1;

uint count;

/// The experts of eight choices from `at` on; of those behind the last one past all that there are.
uint choices_at(uint at) {
  const uint place = at + invocation();
  const uint expert = uint(Ints(address(1)).v[min(place, count - 1)]);
  return place < count ? expert : 0xFFFFFFFFu;
}

void main() {
  const uint experts = push.sizes[0];
  count = uint(real_tokens(Ints(address(0)))) * push.sizes[1];
  const uint base = group_place() * kThreads * kGroupsOfEight;
  uint rows[kGroupsOfEight];  // the next one of each own expert: at first that of its first token
  [[unroll]] for (uint g = 0; g < kGroupsOfEight; ++g) rows[g] = 0;
  for (uint at = 0; at < count; at += kThreads) {
    const uint chosen = choices_at(at);
    [[unroll]] for (uint s = 0; s < kThreads; ++s) {
      const uint other = subgroupShuffle(chosen, s);
      [[unroll]] for (uint g = 0; g < kGroupsOfEight; ++g) {
        rows[g] += other < base + g * kThreads + invocation() ? 1 : 0;
      }
    }
  }
  Ints offsets = Ints(address(3));
  [[unroll]] for (uint g = 0; g < kGroupsOfEight; ++g) {
    const uint expert = base + g * kThreads + invocation();
    if (expert < experts) offsets.v[expert] = int(rows[g]);
    if (expert + 1 == experts) offsets.v[experts] = int(count);
  }
  for (uint at = 0; at < count; at += kThreads) {
    const uint chosen = choices_at(at);
    uint row = 0;
    [[unroll]] for (uint g = 0; g < kGroupsOfEight; ++g) {  // before these eight
      const uint next = subgroupShuffle(rows[g], chosen % kThreads);
      row = (chosen - base) / kThreads == g ? next : row;
    }
    [[unroll]] for (uint s = 0; s < kThreads; ++s) {
      const uint other = subgroupShuffle(chosen, s);
      row += other == chosen && s < invocation() ? 1 : 0;
      [[unroll]] for (uint g = 0; g < kGroupsOfEight; ++g) {
        rows[g] += other == base + g * kThreads + invocation() ? 1 : 0;
      }
    }
    if (chosen - base < kThreads * kGroupsOfEight) Ints(address(2)).v[at + invocation()] = int(row);
  }
}
