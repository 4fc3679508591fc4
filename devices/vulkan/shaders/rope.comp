// Rotary embedding: halves of a head turned by position * frequency. An invocation a token and pair, for all heads.
//
// slots: x, positions, bounds, y, frequencies [rows, half]. Row 0 of the frequencies counts up to `dynamic_from` tokens
// of a sequence, row i for dynamic_from + i. sizes: tokens, heads, half, dynamic_from (0: not dynamic).
// factors: amplitude, direction.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;

void main() {
  const uint half_of = push.sizes[2];
  const uint place = group_place() * 64 + gl_LocalInvocationID.x;
  const uint token = place / half_of;
  const uint pair = place % half_of;
  if (token >= push.sizes[0]) return;
  uint row = 0;
  if (push.sizes[3] > 0) {
    Ints bounds = Ints(address(2));
    if (int(token) < real_tokens(bounds)) {
      const int sequence = sequence_of(bounds, int(token));
      const uint tokens = uint(bounds.v[2 + sequence] - bounds.v[1 + sequence]);
      if (tokens > push.sizes[3]) row = tokens - push.sizes[3];
    }
  }
  precise const float angle = float(Ints(address(1)).v[token]) * Floats(address(4)).v[row * half_of + pair];
  float sine;
  float cosine;
  exact_turn(angle, sine, cosine);
  cosine *= push.factors[0];
  sine *= push.factors[0] * push.factors[1];
  const uint64_t x = address(0);
  const uint64_t y = address(3);
  for (uint head = 0; head < push.sizes[1]; ++head) {
    const uint i = (token * push.sizes[1] + head) * 2 * half_of + pair;
    const float a = load(x, kType, i);
    const float b = load(x, kType, i + half_of);
    store(y, kType, i, a * cosine - b * sine);
    store(y, kType, i + half_of, b * cosine + a * sine);
  }
}
