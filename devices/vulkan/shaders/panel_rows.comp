// Copies rows of channels into the panel as they are, a texel four channels, the last filled up with zeros.
//
// slots: rows [rows, kWidth], panel. sizes: texels, place in the panel.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;

const uint kFours = (kWidth + 3) / 4;

void main() {
  const uint texel = group_place() * 64 + invocation();
  if (texel >= push.sizes[0]) return;
  const uint64_t rows = address(0);
  const uint channel = texel % kFours * 4;
  vec4 value = vec4(0.0);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (channel + i < kWidth) value[i] = load(rows, kType, texel / kFours * kWidth + channel + i);
  }
  store_texel(address(1), push.sizes[1] + texel, value);
}
