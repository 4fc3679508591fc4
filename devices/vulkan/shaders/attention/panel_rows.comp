// Copies rows of channels into the panel as they are, a texel four channels, the last filled up with zeros; of a cache
// those that its tokens see.
//
// slots: rows [rows, kWidth] (of a cache [rows, heads, kWidth]), panel; of a cache bounds, positions. sizes: texels,
// place in the panel; of a cache its rows, invocations, window.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;
layout(constant_id = 2) const bool kCached = false;

const uint kFours = (kWidth + 3) / 4;

void copy_texel(uint texel) {
  const uint64_t rows = address(0);
  const uint channel = texel % kFours * 4;
  const uint first = texel / kFours * kWidth + channel;
  vec4 value = vec4(0.0);
  if (kWidth % 4 == 0) {
    value = load_four(rows, kType, first);
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      if (channel + i < kWidth) value[i] = load(rows, kType, first + i);
    }
  }
  store_texel(address(1), push.sizes[1] + texel, value);
}

void main() {
  const uint texel = group_place() * 64 + invocation();
  if (!kCached) {
    if (texel < push.sizes[0]) copy_texel(texel);
    return;
  }
  const int real = real_tokens(Ints(address(2)));
  if (real == 0) return;
  Ints positions = Ints(address(3));
  const int rows = int(push.sizes[2]);
  const int window = int(push.sizes[4]);
  const uint texels = push.sizes[0] / push.sizes[2];  // of a row
  const int first = window == 0 ? 0 : max(0, positions.v[0] - window + 1);
  const int end = clamp(positions.v[real - 1] + 1, 0, rows);
  for (uint i = uint(first) * texels + texel; i < uint(end) * texels; i += push.sizes[3]) copy_texel(i);
}
