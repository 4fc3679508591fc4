// The gradient of a token's logits from those of its shares.
//
// slots: logits, shares, experts, dshares, dlogits. sizes: tokens, experts, choices. factors: of shares.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "route.glsl"

/// Softmax of all logits at its own experts.
void find_softmax(uint first, out float terms[kEach]) {
  const uint64_t logits = address(0);
  const uint experts = push.sizes[1];
  float largest = uintBitsToFloat(0xFF800000u);
  [[unroll]] for (uint i = 0; i < kEach; ++i) {  // past the last the last once more
    terms[i] = load(logits, kType, first + min(expert_here(i), experts - 1));
    largest = max(largest, terms[i]);
  }
  largest = maximum_over_group(largest);
  float part = 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    terms[i] = exact_exp(terms[i] - largest);
    if (expert_here(i) < experts) part += terms[i];
  }
  const float inverse = exact_reciprocal(sum_over_group(part));
  [[unroll]] for (uint i = 0; i < kEach; ++i) terms[i] *= inverse;
}

void main() {
  const uint token = min(token_here(), push.sizes[0] - 1);
  const uint experts = push.sizes[1];
  const uint first_choice = token * push.sizes[2];
  Floats shares = Floats(address(1));
  Ints chosen = Ints(address(2));
  Floats dshares = Floats(address(3));
  float mean = 0.0;
  for (uint j = 0; j < push.sizes[2]; ++j) mean += shares.v[first_choice + j] * dshares.v[first_choice + j];
  float gradient[kEach];
  const bool alone = kNormalised || kSigmoid;  // only what was chosen has a gradient
  if (!alone) find_softmax(token * experts, gradient);
  [[unroll]] for (uint i = 0; i < kEach; ++i) gradient[i] = alone ? 0.0 : -gradient[i] * mean;
  // Of chosen ones from what is known of their shares: closer than from the softmax made anew.
  const float shared_part = kNormalised || !kSigmoid ? mean / push.factors[0] : 0.0;
  for (uint j = 0; j < push.sizes[2]; ++j) {
    const uint place = first_choice + j;
    float slope = shares.v[place] * (dshares.v[place] - shared_part);
    if (kSigmoid) slope *= logistic(load(address(0), kType, token * experts + uint(chosen.v[place]))).y;
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if (int(expert_here(i)) == chosen.v[place]) gradient[i] = slope;
    }
  }
  if (token_here() >= push.sizes[0]) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) < experts) store(address(4), kType, token * experts + expert_here(i), gradient[i]);
  }
}
