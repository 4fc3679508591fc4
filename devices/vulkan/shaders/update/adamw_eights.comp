// adamw.glsl for processors that pose as cards, of moments as numbers: eight invocations and kGroups groups, 32
// elements at a time, so that factors and addresses are read once for all of them. What fails of a group is a bit each
// of a word of the list with its place, along which this kernel goes with kWhole.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "adamw.glsl"

const uint kThreads = 8;
const uint kTurns = 8;   // of a group
const uint kGroups = 8;  // divides kGroupsOfBlock
layout(local_size_x = kThreads) in;

struct Tensors {
  uint64_t gradient, master, m, v, published;
};

/// In which of the turns of `turns`, a bit each, something failed.
uint update(Tensors at, Factors f, uint key, uint group, uint turns) {
  uint left = 0;
  for (uint turn = 0; turn < kTurns; ++turn) {
    if ((turns >> turn & 1u) == 0) continue;
    const uint i = (group * kTurns + turn) * kThreads + gl_SubgroupInvocationID;  // in fours
    const uvec4 gradients = four_of(at.gradient, i);
    Four x = Four(four_of(at.master, i), four_of(at.m, i), four_of(at.v, i));
    if (kWhole != 0) {
      update_exactly(f, gradients, x);
    } else {
      uint fails = update_quickly(f, gradients, x) ? 0 : 1;
      [[unroll]] for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
        fails |= subgroupShuffle(fails, gl_SubgroupInvocationID ^ half_of);
      }
      left |= fails << turn;
      if (fails != 0) continue;
    }
    keep_four(at.master, i, x.masters);
    keep_four(at.m, i, x.m);
    keep_four(at.v, i, x.v);
    if (kPublished == kFloat32) continue;
    const uint first = 4 * (i % (kGroupsOfBlock * kTurns * kThreads));
    Pairs(at.published).v[i] = published_of(x.masters, key, first);
  }
  return left;
}

void main() {
  Tensors at = Tensors(address(0), address(4), address(5), address(6), 0ul);
  if (kPublished != kFloat32) at.published = address(7);
  Uints list = Uints(address(kList));
  const uint all = (1u << kTurns) - 1;
  const uint begin = kWhole != 0 ? group_place() : push.sizes[0] + group_place() * kGroups;
  const uint end = kWhole != 0 ? list.v[0] : min(begin + kGroups, push.sizes[1]);
  const uint step = kWhole != 0 ? grid_width() : 1;
  for (uint place = begin; place < end; place += step) {
    const uint listed = kWhole != 0 ? list.v[1 + place] : (place << kTurns) | all;
    const uint group = listed >> kTurns;
    const uvec2 owner = Pairs(address(3)).v[group / kGroupsOfBlock];
    const Factors f = factors_of(owner.x);
    const uint key = kPublished != kFloat32 ? rounding_key_of(owner) : 0;
    uint left = 0;
    if (kWhole != 0 || are_moderate(f)) {
      left = update(at, f, key, group, listed & all);
    } else {
      left = all;
    }
    if (left != 0 && gl_SubgroupInvocationID == 0) list.v[1 + atomicAdd(list.v[0], 1)] = (group << kTurns) | left;
  }
}
