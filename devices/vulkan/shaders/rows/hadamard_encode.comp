// Numbers to codes of kHadamard8 or kHadamard4, see rondo/devices/encoding.h and hadamard.glsl.
//
// slots: x, encoded. sizes: blocks; where the scales begin, in words. factors: the largest code; a block's scale, as a
// share of its largest sum.
#version 460
#extension GL_GOOGLE_include_directive : require
#define RONDO_NUMBER float
#include "hadamard.glsl"

const uint kInfinity = 0x7F800000u;

shared uint magnitudes[256];  // bits of numbers without a sign, which are in the numbers' order

void main() {
  const bool exists = place() < push.sizes[0];
  float c[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    c[i] = exists ? load(address(0), kType, place() * kBlock + eighth() + i * kEach) : 0.0;
  }
  add_pairs(c);
  exchange(c, true);
  add_pairs(c);

  uint most = 0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) most = max(most, floatBitsToUint(c[i]) & 0x7FFFFFFFu);
  magnitudes[invocation()] = most;
  barrier();
  if (!exists) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) { most = max(most, magnitudes[block_of_group() * kEach + i]); }

  const float m = uintBitsToFloat(most);
  const bool is_zero = most >= kInfinity || m < power_of_two(-100);
  const float inverse = is_zero ? 0.0 : push.factors[0] / m;
  int codes[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) codes[i] = is_zero ? 0 : int(roundEven(c[i] * inverse));
  if (kEncoding == kHadamard8) {
    uvec2 pair = uvec2(0);
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      pair[i / 4] = bitfieldInsert(pair[i / 4], uint(codes[i]), int(i % 4) * 8, 8);
    }
    Pairs(address(1)).v[place() * kEach + eighth()] = pair;
  } else {
    uint word = 0;  // the first of a byte is in its upper half
    [[unroll]] for (uint i = 0; i < kEach; ++i) { word = bitfieldInsert(word, uint(codes[i]), int(i ^ 1u) * 4, 4); }
    Uints(address(1)).v[place() * kEach + eighth()] = word;
  }
  if (eighth() != 0) return;
  Floats scales = Floats(address(1));
  scales.v[push.sizes[1] + place()] = most >= kInfinity ? uintBitsToFloat(0x7FC00000u)
                                      : is_zero         ? 0.0
                                                        : m * push.factors[1];
}
