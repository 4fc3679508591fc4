// Noise added to the tokens of sequences, the less the longer these are: x + scale * u, u uniform in [-1, 1) of the
// token's key and the channel, scale = amount / sqrt(tokens of the sequence * width). Padding gets none.
//
// slots: x [T, C], keys [T], the sequences' bounds, y. sizes: elements, C, site. factors: amount.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "random.glsl"
#include "sequences.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kEach = 1;  // steps of an invocation, all of one token
layout(constant_id = 2) const uint kStep = 1;  // elements of a step; 2: C is even

float scale_of(int token) {
  Ints bounds = Ints(address(2));
  if (token >= real_tokens(bounds)) return 0.0;
  const int sequence = sequence_of(bounds, token);
  const int length = bounds.v[2 + sequence] - bounds.v[1 + sequence];
  return push.factors[0] * inverse_root(uint64_t(length) * uint64_t(push.sizes[1]));
}

void main() {
  const uint place = group_place() * 256 + invocation();
  const uint width = push.sizes[1];
  const uint parts = width / (kEach * kStep);  // of a row, each an invocation's
  const uint token = place / parts;
  if (token * width >= push.sizes[0]) return;
  const uint first = (place - token * parts) * kStep;
  const float scale = scale_of(int(token));
  const uint64_t drawn = place_of(Words(address(1)).v[token], run_layer(), push.sizes[2]);
  const uint64_t x = address(0);
  const uint64_t y = address(3);
  for (uint e = 0; e < kEach; ++e) {
    const uint column = first + e * parts * kStep;
    vec2 noisy = load_some(x, kType, kStep, token * width + column);
    [[unroll]] for (uint i = 0; i < kStep; ++i) {
      precise float noise = scale * (float(drawn_at(drawn, column + i)) * 1.1920928955078125e-7 - 1.0);
      precise float sum = noisy[i] + noise;
      noisy[i] = sum;
    }
    store_some(y, kType, kStep, token * width + column, noisy);
  }
}
