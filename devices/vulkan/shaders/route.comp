// Which experts a token goes to: those of its largest logits, and their shares. An expert's rank is the number of those
// that come before it, so that there is one for each rank whatever the logits are. Rows of padding; all others are
// route_rows.comp's.
//
// slots: logits, bounds, shares, experts, rows. sizes: tokens, experts, choices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "route.glsl"
#include "sequences.glsl"

shared uint keys[kMostExperts];  // of the tokens of the workgroup one behind another, or of one token

/// Whole numbers in the order of the floats; both zeros are one.
uint key_of(float x) {
  const uint bits = floatBitsToUint(x);
  if (bits << 1 == 0) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float float_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key); }

/// Its own experts' ranks, and the token's largest key.
void find_ranks(uint first, out uint ranks[kEach], out uint largest) {
  uint own[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    ranks[i] = 0;
    own[i] = keys[min(first + expert_here(i), kMostExperts - 1)];
  }
  largest = 0;
  for (uint other = 0; other < push.sizes[1]; ++other) {
    const uint key = keys[first + other];
    largest = max(largest, key);
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint expert = expert_here(i);
      if (key > own[i] || (key == own[i] && other < expert)) ++ranks[i];
    }
  }
}

/// `first_choice`: of the token.
void write_padding(uint first_choice) {
  for (uint j = invocation() % kLanes; j < push.sizes[2]; j += kLanes) {
    Floats(address(2)).v[first_choice + j] = 0.0;
    Ints(address(3)).v[first_choice + j] = 0;
    Ints(address(4)).v[first_choice + j] = int(first_choice + j);
  }
}

void main() {
  const uint token = min(token_here(), push.sizes[0] - 1);
  const bool there = token_here() < push.sizes[0];
  const uint experts = push.sizes[1];
  const uint first = invocation() / kLanes * kLanes;
  const uint64_t logits = address(0);
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint expert = expert_here(i);
    if (expert < experts)
      keys[first + expert] = key_of(load(logits, kType, token * experts + min(expert, experts - 1)));
  }
  barrier();
  uint ranks[kEach];
  uint largest;
  find_ranks(first, ranks, largest);
  float terms[kEach];
  float part = 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint expert = expert_here(i);
    terms[i] = exact_exp(float_of(keys[min(first + expert, kMostExperts - 1)]) - float_of(largest));
    if (expert < experts && (!kNormalised || ranks[i] < push.sizes[2])) part += terms[i];
  }
  const float inverse = exact_reciprocal(sum_over_group(part));
  if (!there) return;
  const uint first_choice = token * push.sizes[2];
  if (int(token) >= real_tokens(Ints(address(1)))) {
    write_padding(first_choice);
    return;
  }
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) >= experts || ranks[i] >= push.sizes[2]) continue;
    const float share = kSigmoid ? logistic(float_of(keys[first + expert_here(i)])).x : terms[i] * inverse;
    Floats(address(2)).v[first_choice + ranks[i]] = share;
    Ints(address(3)).v[first_choice + ranks[i]] = int(expert_here(i));
  }
}
