// What the short convolution and its gradient share. An invocation goes through a block of tokens of one channel, with
// the last kMost numbers of it at hand: a narrower convolution has zeros for the weights it does not have.
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kSilu = 1;
layout(constant_id = 2) const bool kBias = false;  // of the convolution alone

const uint kMost = 8;  // kMostConvolution

void read_weights(uint64_t w, uint channel, uint width, out float weights[kMost]) {
  [[unroll]] for (uint i = 0; i < kMost; ++i) {
    weights[i] = i + width < kMost ? 0.0 : load(w, kType, channel * width + i + width - kMost);
  }
}

/// Lets one more number in behind the others.
void pass(inout float values[kMost], float next) {
  [[unroll]] for (uint i = 0; i + 1 < kMost; ++i) values[i] = values[i + 1];
  values[kMost - 1] = next;
}

/// What stands before the SiLU.
float convolved(float weights[kMost], float values[kMost]) {
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < kMost; ++i) sum += weights[i] * values[i];
  return sum;
}

/// What becomes of that, and its slope.
vec2 activate(float sum) {
  if (kSilu == 0) return vec2(sum, 1.0);
  const vec2 sigmoid = logistic(sum);
  return vec2(sum * sigmoid.x, sigmoid.x * (1.0 + sum * sigmoid.y));
}

/// The first token of the sequence that holds `token`, and the first one behind it.
ivec2 ends_of_sequence(Ints bounds, int token) {
  const int sequence = sequence_of(bounds, token);
  return ivec2(bounds.v[1 + sequence], bounds.v[2 + sequence]);
}
