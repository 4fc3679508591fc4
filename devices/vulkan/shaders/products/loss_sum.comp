// The sum of the losses as an fp64 number, on cards that have no fp64: two floats hold it, the second what the first
// cannot, and its bits are put together at the end. One workgroup; each invocation sums a run, the first adds the runs.
//
// slots: losses, list (see targets.comp), loss fp64 [1]. sizes: none.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
shared vec2 sums[kThreads];

/// Knuth's: exact but for the last bits of the low part.
vec2 add_two(vec2 a, float b) {
  precise float s = a.x + b;
  precise float v = s - a.x;
  precise float error = (a.x - (s - v)) + (b - v);
  precise float low = a.y + error;
  precise float high = s + low;
  precise float rest = low - (high - s);
  return vec2(high, rest);
}

/// An fp32 number's fp64 bits; zeros and subnormals give zero.
uint64_t double_bits(float x) {
  const uint bits = floatBitsToUint(x);
  const uint64_t sign = uint64_t(bits >> 31) << 63;
  const uint exponent = (bits >> 23) & 255u;
  if (exponent == 0) return sign;
  const uint64_t wide = exponent == 255u ? 2047ul : uint64_t(exponent + 896u);
  return sign | (wide << 52) | (uint64_t(bits & 0x7FFFFFu) << 29);
}

/// high + low, |low| at most half a unit of high.
uint64_t double_sum(vec2 sum) {
  const uint64_t high = double_bits(sum.x);
  const uint exponent = uint(high >> 52) & 2047u;
  if (exponent == 0u || exponent == 2047u || sum.y == 0.0) return high;
  // In units of high's 53rd bit.
  const uint64_t low = double_bits(abs(sum.y));
  if (low == 0ul) return high;
  const uint distance = exponent - (uint(low >> 52) & 2047u);
  const uint64_t units = distance > 52u ? 0ul : ((low & 0xFFFFFFFFFFFFFul) | 0x10000000000000ul) >> distance;
  const bool same_sign = (sum.x < 0.0) == (sum.y < 0.0);
  // Sign and magnitude: adding to the bits adds to the magnitude, across a power of two as well.
  if (same_sign) return high + units;
  const bool at_power = (high & 0xFFFFFFFFFFFFFul) == 0ul;
  return at_power ? high - 2ul * units : high - units;
}

void main() {
  const uint i = invocation();
  const uint count = uint(Ints(address(1)).v[0]);
  const uint each = (count + kThreads - 1) / kThreads;
  Floats losses = Floats(address(0));
  vec2 sum = vec2(0.0);
  for (uint at = i * each; at < min((i + 1) * each, count); ++at) sum = add_two(sum, losses.v[at]);
  sums[i] = sum;
  barrier();
  if (i != 0) return;
  for (uint other = 1; other < kThreads; ++other) {
    sum = add_two(sum, sums[other].x);
    sum = add_two(sum, sums[other].y);
  }
  Words(address(2)).v[0] = double_sum(sum);
}
