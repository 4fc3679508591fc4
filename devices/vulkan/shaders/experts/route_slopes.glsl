// The gradient of a token's logits from those of its shares. The includer hands the choices' slopes round.
//
// slots: logits, shares, experts, dshares, dlogits. sizes: tokens, experts, choices. factors: of shares.
#include "route.glsl"

/// The sum of the choices' shares times their gradients.
float find_mean(uint first_choice);
/// Writes the slopes of those of its own experts that were chosen. Of chosen ones from what is known of their shares:
/// closer than from the softmax made anew.
void take_slopes(uint token, uint first_choice, float shared_part, inout float gradient[kEach]);

/// Of one choice. `place`: in the lists of choices.
float slope_of(uint token, uint place, float shared_part) {
  const float slope = Floats(address(1)).v[place] * (Floats(address(3)).v[place] - shared_part);
  if (!kSigmoid) return slope;
  const uint expert = uint(Ints(address(2)).v[place]);
  return slope * logistic(load(address(0), kType, token * push.sizes[1] + expert)).y;
}

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
  const float mean = find_mean(first_choice);
  float gradient[kEach];
  const bool alone = kNormalised || kSigmoid;  // only what was chosen has a gradient
  if (!alone) find_softmax(token * experts, gradient);
  [[unroll]] for (uint i = 0; i < kEach; ++i) gradient[i] = alone ? 0.0 : -gradient[i] * mean;
  take_slopes(token, first_choice, kNormalised || !kSigmoid ? mean / push.factors[0] : 0.0, gradient);
  if (token_here() >= push.sizes[0]) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    if (expert_here(i) < experts) store(address(4), kType, token * experts + expert_here(i), gradient[i]);
  }
}
