// Numbers to codes of kHadamard8 or kHadamard4, see rondo/devices/encoding.h, hadamard.glsl and hadamard_codes.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#define RONDO_NUMBER float
#include "hadamard.glsl"
#include "hadamard_codes.glsl"

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

  store_codes(place() * kEach + eighth(), c, most);
  if (eighth() == 0) store_scale(place(), most);
}
