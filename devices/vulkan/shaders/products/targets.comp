// The tokens that have a target, in order: how many, then which. One workgroup; each invocation takes a run of tokens.
//
// slots: targets, list [1 + T]. sizes: tokens, rows of the vocabulary.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
shared uint counts[kThreads];

void main() {
  const uint i = invocation();
  const uint each = (push.sizes[0] + kThreads - 1) / kThreads;
  const uint begin = min(i * each, push.sizes[0]);
  const uint end = min(begin + each, push.sizes[0]);
  Ints targets = Ints(address(0));
  Ints list = Ints(address(1));
  uint count = 0;
  for (uint token = begin; token < end; ++token) {
    const int target = targets.v[token];
    if (target >= int(push.sizes[1])) complain(2, token, target);
    if (target >= 0 && target < int(push.sizes[1])) ++count;
  }
  counts[i] = count;
  barrier();
  uint place = 0;
  for (uint other = 0; other < i; ++other) place += counts[other];
  if (i == kThreads - 1) list.v[0] = int(place + count);
  for (uint token = begin; token < end; ++token) {
    const int target = targets.v[token];
    if (target >= 0 && target < int(push.sizes[1])) {
      list.v[1 + place] = int(token);
      ++place;
    }
  }
}
