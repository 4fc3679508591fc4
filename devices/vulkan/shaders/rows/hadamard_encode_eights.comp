// hadamard_encode.comp for processors that pose as cards: an invocation has a block of its own, whose sums are the
// same.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 8) in;
#include "hadamard_blocks.glsl"
#include "hadamard_codes.glsl"

void main() {
  const uint block = group_place() * 8 + invocation();
  if (block >= push.sizes[0]) return;
  const uint64_t x = address(0);
  float sums[kBlock];
  [[unroll]] for (uint i = 0; i < kBlock; i += 4) {
    const vec4 four = load_four(x, kType, block * kBlock + i);
    [[unroll]] for (uint j = 0; j < 4; ++j) sums[i + j] = four[j];
  }
  [[unroll]] for (uint turn = 0; turn < 6; ++turn) {
    const uint stride = turn < 3 ? 8u << turn : 1u << (turn - 3);
    [[unroll]] for (uint i = 0; i < kBlock; ++i) {
      if ((i & stride) != 0) continue;
      const float sum = sums[i] + sums[i + stride];
      sums[i + stride] = sums[i] - sums[i + stride];
      sums[i] = sum;
    }
  }
  uint most = 0;
  [[unroll]] for (uint i = 0; i < kBlock; ++i) most = max(most, floatBitsToUint(sums[i]) & 0x7FFFFFFFu);
  [[unroll]] for (uint eight = 0; eight < kBlock / 8; ++eight) {
    float eight_sums[8];
    [[unroll]] for (uint i = 0; i < 8; ++i) eight_sums[i] = sums[eight * 8 + i];
    store_codes(block * 8 + eight, eight_sums, most);
  }
  store_scale(block, most);
}
