// route_shares.glsl with ranks that each invocation counts by itself, among keys that all of a token have laid down.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
#include "route_shares.glsl"

const uint kMostExperts = 512;
shared uint all_keys[kMostExperts];  // of the tokens of the workgroup one behind another, or of one token

/// The two largest numbers of a group together.
float sum_of_two(uint first, uint size) {
  uint most = 0;
  uint second = 0;
  for (uint i = 0; i < size; ++i) {
    const uint key = all_keys[first + i];
    second = max(second, min(most, key));
    most = max(most, key);
  }
  return float_of(most) + float_of(second);
}

/// Gives those of groups that are not chosen the least key.
void mask_groups(uint first, inout uint keys[kEach]) {
  const uint size = push.sizes[1] / kGroups;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint group = min(expert_here(i) / size, kGroups - 1);
    const float own = sum_of_two(first + group * size, size);
    uint before = 0;
    for (uint other = 0; other < kGroups; ++other) {
      const float theirs = sum_of_two(first + other * size, size);
      if (theirs > own || (theirs == own && other < group)) ++before;
    }
    if (before >= kChosenGroups) keys[i] = 0;
  }
  barrier();
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) < push.sizes[1]) all_keys[first + expert_here(i)] = keys[i];
  }
  barrier();
}

void find_ranks(uint keys[kEach], out uint ranks[kEach]) {
  const uint first = invocation() / kLanes * kLanes;
  const uint experts = push.sizes[1];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) < experts) all_keys[first + expert_here(i)] = keys[i];
    ranks[i] = 0;
  }
  barrier();
  if (kGroups > 1) mask_groups(first, keys);
  for (uint other = 0; other < experts; ++other) {
    const uint key = all_keys[first + other];
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if (key > keys[i] || (key == keys[i] && other < expert_here(i))) ++ranks[i];
    }
  }
}
