// Which experts a token goes to: those of its largest logits, or scores with a bias, and their shares. An expert's rank
// is the number of those that come before it, so that there is one for each rank whatever the logits are. The includer
// finds the ranks. Rows of padding; all others are route_rows.comp's.
//
// slots: logits, bounds, shares, experts, rows, bias. sizes: tokens, experts, choices. factors: of shares, what
// is added to the sum of those that are chosen.
#include "route.glsl"
#include "sequences.glsl"

/// The ranks of an invocation's own experts by their keys, as far as they are below the number of choices; keys of
/// groups that are not chosen become 0 before.
void find_ranks(uint keys[kEach], out uint ranks[kEach]);

/// Whole numbers in the order of the floats; both zeros are one.
uint key_of(float x) {
  const uint bits = floatBitsToUint(x);
  if (bits << 1 == 0) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float float_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key); }

/// Scores of its own experts but for a divisor, which it returns.
float find_scores(const float logits[kEach], out float scores[kEach]) {
  float largest = uintBitsToFloat(0xFF800000u);
  [[unroll]] for (uint i = 0; i < kEach; ++i) largest = max(largest, logits[i]);
  if (!kSigmoid) largest = maximum_over_group(largest);
  float part = 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    scores[i] = kSigmoid ? logistic(logits[i]).x : exact_exp(logits[i] - largest);
    if (expert_here(i) < push.sizes[1]) part += scores[i];
  }
  return kSigmoid ? 1.0 : sum_over_group(part);
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
  const uint64_t logits = address(0);
  float own[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {  // past the last the last once more
    own[i] = load(logits, kType, token * experts + min(expert_here(i), experts - 1));
  }
  float scores[kEach];
  const float whole = find_scores(own, scores);
  const float inverse_of_all = kSigmoid ? 1.0 : exact_reciprocal(whole);
  uint keys[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint expert = min(expert_here(i), experts - 1);
    precise float compared = own[i];
    if (kHasBias || kGroups > 1) compared = scores[i] * inverse_of_all;
    if (kHasBias) compared += Floats(address(5)).v[expert];
    keys[i] = key_of(compared);
  }
  uint ranks[kEach];
  find_ranks(keys, ranks);
  float inverse = inverse_of_all;
  if (kNormalised) {
    float part = 0.0;
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if (expert_here(i) < experts && ranks[i] < push.sizes[2]) part += scores[i];
    }
    inverse = exact_reciprocal(sum_over_group(part) + push.factors[1] * whole);
  }
  if (!there) return;
  const uint first_choice = token * push.sizes[2];
  if (int(token) >= real_tokens(Ints(address(1)))) {
    write_padding(first_choice);
    return;
  }
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) >= experts || ranks[i] >= push.sizes[2]) continue;
    Floats(address(2)).v[first_choice + ranks[i]] = push.factors[0] * (scores[i] * inverse);
    Ints(address(3)).v[first_choice + ranks[i]] = int(expert_here(i));
  }
}
