// route_shares.glsl with eight invocations for a token, which hold all of its keys and find one choice after the other:
// for processors that pose as cards.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

#define RONDO_ONE_SUBGROUP
const uint kThreads = 8;
#include "route_shares.glsl"

/// A place in the order in which keys fall and, of equal ones, numbers rise.
struct Place {
  uint key;
  int number;
};
const Place kBeforeAll = Place(0xFFFFFFFFu, -1);

/// The next of all invocations' keys. What is numbered past the experts has the key 0, and so comes last.
Place next_of(const uint keys[kEach], Place last) {
  Place next = Place(0, 0x7FFFFFFF);
  [[unroll]] for (uint back = 1; back <= kEach; ++back) {
    const uint i = kEach - back;
    const int number = int(expert_here(i));
    const bool behind = keys[i] < last.key || (keys[i] == last.key && number > last.number);
    if (behind && keys[i] >= next.key) next = Place(keys[i], number);
  }
  const uint key = maximum_over_group(next.key);
  return Place(key, minimum_over_group(next.key == key ? next.number : 0x7FFFFFFF));
}

/// Gives those of groups that are not chosen the least key: the sums of a group's two largest numbers are compared.
void mask_groups(inout uint keys[kEach]) {
  const uint size = push.sizes[1] / kGroups;
  uint sums[kEach];  // as keys: of the group that has an expert's number
  bool chosen[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    sums[i] = 0;
    chosen[i] = false;
  }
  for (uint group = 0; group < kGroups; ++group) {
    uint most = 0;
    uint second = 0;
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint key = expert_here(i) - group * size < size ? keys[i] : 0;
      second = max(second, min(most, key));
      most = max(most, key);
    }
    [[unroll]] for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
      const uint other = subgroupShuffle(most, gl_SubgroupInvocationID ^ half_of);
      second = max(max(second, subgroupShuffle(second, gl_SubgroupInvocationID ^ half_of)), min(most, other));
      most = max(most, other);
    }
    const uint sum = key_of(float_of(most) + float_of(second));
    [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = expert_here(i) == group ? sum : sums[i];
  }
  Place place = kBeforeAll;
  for (uint choice = 0; choice < kChosenGroups; ++choice) {
    place = next_of(sums, place);
    const uint begin = uint(place.number) * size;
    [[unroll]] for (uint i = 0; i < kEach; ++i) chosen[i] = chosen[i] || expert_here(i) - begin < size;
  }
  [[unroll]] for (uint i = 0; i < kEach; ++i) keys[i] = chosen[i] ? keys[i] : 0;
}

void find_ranks(uint keys[kEach], out uint ranks[kEach]) {
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    ranks[i] = push.sizes[2];
    if (expert_here(i) >= push.sizes[1]) keys[i] = 0;
  }
  if (kGroups > 1) mask_groups(keys);
  Place place = kBeforeAll;
  for (uint choice = 0; choice < push.sizes[2]; ++choice) {
    place = next_of(keys, place);
    [[unroll]] for (uint i = 0; i < kEach; ++i) { ranks[i] = int(expert_here(i)) == place.number ? choice : ranks[i]; }
  }
}
