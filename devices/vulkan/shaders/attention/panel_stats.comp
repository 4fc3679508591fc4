// What the gradient of attention has to know of every token and head, a texel each of the panel: the logarithm of the
// softmax's sum, do . o, and the first key that the token sees (a real one's; of padding nothing is used).
//
// slots: o, do, lse [T, H], bounds, panel. sizes: rows (T H), width of a head, heads, window, place in the panel.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kByFours = false;  // of a head's channels

void main() {
  const uint row = group_place() * 64 + invocation();
  if (row >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint64_t o = address(0);
  const uint64_t d_o = address(1);
  float sum = 0.0;
  if (kByFours) {
    for (uint d = 0; d < width; d += 4) {
      const vec4 a = load_four(o, kType, row * width + d);
      const vec4 b = load_four(d_o, kType, row * width + d);
      [[unroll]] for (uint j = 0; j < 4; ++j) sum += a[j] * b[j];
    }
  } else {
    for (uint d = 0; d < width; ++d) sum += load(o, kType, row * width + d) * load(d_o, kType, row * width + d);
  }
  const int token = int(row / push.sizes[2]);
  Ints bounds = Ints(address(3));
  const float seen_from = float(first_seen(bounds, token, int(push.sizes[3])));
  store_texel(address(4), push.sizes[4] + row, vec4(Floats(address(2)).v[row], sum, seen_from, 0.0));
}
