// The gradient of a convolution and its SiLU: dx, and of each block of tokens its part of dw. What tokens behind a
// block add to its dx is computed here once more.
//
// slots: x [T, C], w [C, W], bounds, dy, dx, sums [blocks, C, W]. sizes: tokens, channels, width, tokens of a block,
// whether dw is asked for. Workgroups: 64 channels, blocks of tokens.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "convolution.glsl"

void main() {
  const uint channels = push.sizes[1];
  const uint width = push.sizes[2];
  const uint channel = workgroup().x * 64 + invocation();
  if (channel >= channels) return;
  const uint64_t x = address(0);
  const uint64_t dy = address(3);
  const uint64_t dx = address(4);
  Ints bounds = Ints(address(2));
  const int real = real_tokens(bounds);
  const int first = int(workgroup().y * push.sizes[3]);
  const int end = min(first + int(push.sizes[3]), int(push.sizes[0]));
  float weights[kMost];
  read_weights(address(1), channel, width, weights);
  float values[kMost];  // the last one's is the token's own, of the others too
  float slopes[kMost];  // what dx has come to
  float sums[kMost];
  [[unroll]] for (uint i = 0; i < kMost; ++i) {
    values[i] = 0.0;
    slopes[i] = 0.0;
    sums[i] = 0.0;
  }
  ivec2 sequence = ivec2(0);
  if (first < real) {
    sequence = ends_of_sequence(bounds, first);
    [[unroll]] for (uint i = 1; i < kMost; ++i) {
      const int token = first - int(kMost) + int(i);
      if (token >= sequence.x) values[i] = load(x, kType, uint(token) * channels + channel);
    }
  }
  for (int token = first; token < end + int(kMost) - 1; ++token) {
    pass(slopes, 0.0);
    if (token < real) {
      if (token == sequence.y) {
        sequence = ends_of_sequence(bounds, token);
        [[unroll]] for (uint i = 0; i < kMost; ++i) values[i] = 0.0;
      }
      const uint at = uint(token) * channels + channel;
      pass(values, load(x, kType, at));
      const float slope = load(dy, kType, at) * activate(convolved(weights, values)).y;
      [[unroll]] for (uint i = 0; i < kMost; ++i) {
        if (token + int(i) + 1 - int(kMost) >= sequence.x) slopes[i] += slope * weights[i];
        if (token < end) sums[i] += slope * values[i];
      }
    }
    const int done = token + 1 - int(kMost);
    if (done >= first) store(dx, kType, uint(done) * channels + channel, slopes[0]);
  }
  if (push.sizes[4] == 0) return;
  Floats parts = Floats(address(5));
  [[unroll]] for (uint i = 0; i < kMost; ++i) {
    if (i + width >= kMost) parts.v[(workgroup().y * channels + channel) * width + i + width - kMost] = sums[i];
  }
}
