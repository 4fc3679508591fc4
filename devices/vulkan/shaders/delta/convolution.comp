// A convolution over the last tokens of a sequence, channel by channel, and SiLU if asked for. With a state, the rows
// of the tokens before the first: only the first block sees them, and leaves the last ones behind.
//
// slots: x [T, C], w [C, W], bounds, y, positions, state [W - 1, C], bias [C]. sizes: tokens, channels, width, tokens
// of a block, whether there is a state. Workgroups: 64 channels, blocks of tokens.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "convolution.glsl"

void main() {
  const uint channels = push.sizes[1];
  const uint width = push.sizes[2];
  const uint channel = workgroup().x * 64 + invocation();
  if (channel >= channels) return;
  const bool has_state = push.sizes[4] != 0;
  const uint64_t x = address(0);
  const uint64_t y = address(3);
  const uint64_t state = has_state ? address(5) : 0ul;
  Ints bounds = Ints(address(2));
  const int real = real_tokens(bounds);
  const int first = int(workgroup().y * push.sizes[3]);
  const int end = min(first + int(push.sizes[3]), int(push.sizes[0]));
  float weights[kMost];
  read_weights(address(1), channel, width, weights);
  const float bias = kBias ? load(address(6), kType, channel) : 0.0;
  float values[kMost];  // the last one's is the token's own
  [[unroll]] for (uint i = 0; i < kMost; ++i) values[i] = 0.0;
  ivec2 sequence = ivec2(0);
  if (first < real) {
    sequence = ends_of_sequence(bounds, first);
    const bool continued = has_state && first == 0 && Ints(address(4)).v[0] > 0;
    [[unroll]] for (uint i = 1; i < kMost; ++i) {
      const int token = first - int(kMost) + int(i);
      if (token >= sequence.x) {
        values[i] = load(x, kType, uint(token) * channels + channel);
      } else if (continued && i + width > kMost) {
        values[i] = load(state, kType, (i + width - 1 - kMost) * channels + channel);
      }
    }
  }
  const bool leaves = has_state && first == 0 && real > 0;
  float left[kMost];  // of the state's rows that stay, which the tokens push to its beginning
  [[unroll]] for (uint i = 0; i < kMost; ++i) left[i] = values[i];
  for (int token = first; token < end; ++token) {
    if (token >= real) {
      store(y, kType, uint(token) * channels + channel, 0.0);
      continue;
    }
    if (token == sequence.y) {
      sequence = ends_of_sequence(bounds, token);
      [[unroll]] for (uint i = 0; i < kMost; ++i) values[i] = 0.0;
    }
    pass(values, load(x, kType, uint(token) * channels + channel));
    store(y, kType, uint(token) * channels + channel, activate(convolved(weights, values) + bias).x);
  }
  if (!leaves) return;
  // Row i + 1 of the last kMost - 1 tokens, of which a state has width - 1.
  [[unroll]] for (uint i = 1; i < kMost; ++i) {
    const int token = real - int(kMost) + int(i);
    float value = token >= 0 ? load(x, kType, uint(max(token, 0)) * channels + channel) : 0.0;
    [[unroll]] for (uint j = 1; j < kMost; ++j) {
      if (token < 0 && int(j) == int(kMost) + token) value = left[j];
    }
    if (i + width > kMost) store(state, kType, (i + width - 1 - kMost) * channels + channel, value);
  }
}
