// Rotary embedding: of a head's first channels two halves turned by position * frequency, the others as they are. An
// invocation a token and kStep pairs, or kStep of the other channels, for all heads.
//
// slots: x, positions, bounds, y, frequencies [rows, half]. Row 0 of the frequencies counts up to `dynamic_from` tokens
// of a sequence, row i for dynamic_from + i, the last for all that is longer. sizes: tokens, heads, half, dynamic_from
// (0: not dynamic), channels of a head, last row, position that the amplitude grows from (0: it does not), bits of its
// growth. factors: amplitude, direction.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kStep = 1;  // 2: half and channels are even numbers

void main() {
  const uint half_of = push.sizes[2];
  const uint width = push.sizes[4];
  const uint steps = (width - half_of) / kStep;  // of a token
  const uint place = group_place() * 64 + invocation();
  const uint token = place / steps;
  const uint pair = place % steps * kStep;
  if (token >= push.sizes[0]) return;
  const uint64_t x = address(0);
  const uint64_t y = address(3);
  const uint first = token * push.sizes[1] * width;
  if (pair >= half_of) {
    for (uint head = 0; head < push.sizes[1]; ++head) {
      const uint i = first + head * width + half_of + pair;
      store_some(y, kType, kStep, i, load_some(x, kType, kStep, i));
    }
    return;
  }
  uint row = 0;
  if (push.sizes[3] > 0) {
    Ints bounds = Ints(address(2));
    if (int(token) < real_tokens(bounds)) {
      const int sequence = sequence_of(bounds, int(token));
      const uint tokens = uint(bounds.v[2 + sequence] - bounds.v[1 + sequence]);
      if (tokens > push.sizes[3]) row = min(tokens - push.sizes[3], push.sizes[5]);
    }
  }
  const int at = Ints(address(1)).v[token];
  const float position = float(at);
  const uint64_t frequencies = address(4);
  vec2 sines;
  vec2 cosines;
  [[unroll]] for (uint e = 0; e < 2; ++e) {
    precise const float angle = position * load(frequencies, kFloat32, row * half_of + min(pair + e, half_of - 1));
    exact_turn(angle, sines[e], cosines[e]);
  }
  float amplitude = push.factors[0];
  if (push.sizes[6] > 0 && uint(at) >= push.sizes[6]) {
    amplitude *= 1.0 + uintBitsToFloat(push.sizes[7]) * log(1.0 + float(uint(at) / push.sizes[6]));
  }
  cosines *= amplitude;
  sines *= amplitude * push.factors[1];
  for (uint head = 0; head < push.sizes[1]; ++head) {
    const uint i = first + head * width + pair;
    const vec2 a = load_some(x, kType, kStep, i);
    const vec2 b = load_some(x, kType, kStep, i + half_of);
    store_some(y, kType, kStep, i, a * cosines - b * sines);
    store_some(y, kType, kStep, i + half_of, b * cosines + a * sines);
  }
}
