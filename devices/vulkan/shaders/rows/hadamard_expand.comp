// Codes of kHadamard8 or kHadamard4 to numbers, see rondo/devices/encoding.h and hadamard.glsl.
//
// slots: encoded, y. sizes: blocks; where the scales begin, in words.
#version 460
#extension GL_GOOGLE_include_directive : require
#define RONDO_NUMBER int
#include "hadamard.glsl"

void main() {
  const bool exists = place() < push.sizes[0];
  int codes[kEach];
  if (!exists) {
    [[unroll]] for (uint i = 0; i < kEach; ++i) codes[i] = 0;
  } else if (kEncoding == kHadamard8) {
    const uvec2 pair = Pairs(address(0)).v[place() * kEach + eighth()];
    [[unroll]] for (uint i = 0; i < kEach; ++i) codes[i] = bitfieldExtract(int(pair[i / 4]), int(i % 4) * 8, 8);
  } else {
    const uint word = Uints(address(0)).v[place() * kEach + eighth()];
    [[unroll]] for (uint i = 0; i < kEach; ++i) codes[i] = bitfieldExtract(int(word), int(i ^ 1u) * 4, 4);
  }
  add_pairs(codes);
  exchange(codes, false);
  add_pairs(codes);
  if (!exists) return;
  const float scale = Floats(address(0)).v[push.sizes[1] + place()];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    store(address(1), kType, place() * kBlock + eighth() + i * kEach, float(codes[i]) * scale);
  }
}
