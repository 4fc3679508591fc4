// Sums of squares of blocks of kUpdateBlock elements as fp64 numbers, with the bits of rondo/devices/update.h, on cards
// that have no fp64: in whole numbers. Eight invocations a block, each a partial sum.
//
// slots: x, sums. sizes: blocks.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "float_parts.glsl"

const uint kThreads = 64;
const uint kPartialSums = 8;
const uint kBlock = 16384;  // kUpdateBlock
layout(local_size_x = kThreads) in;

/// What is not negative: mantissa 2^exponent, the mantissa from 2^52 to 2^53, or 0. `beyond`: 1 infinity, 2 no number.
struct Sum {
  uint64_t mantissa;
  int exponent;
  uint beyond;
};
shared uint64_t mantissas[kThreads];
shared int exponents[kThreads];
shared uint beyonds[kThreads];

Sum sum_of(Sum a, Sum b) {
  const uint beyond = a.beyond | b.beyond;
  if (a.mantissa == 0ul) return Sum(b.mantissa, b.exponent, beyond);
  if (b.mantissa == 0ul) return Sum(a.mantissa, a.exponent, beyond);
  const int exponent = max(a.exponent, b.exponent);
  const uint64_t sum =
      shifted(a.mantissa << 10, uint(exponent - a.exponent)) + shifted(b.mantissa << 10, uint(exponent - b.exponent));
  const uint places = (sum >> 63) != 0ul ? 11 : 10;
  const uint64_t mantissa = rounded_shift(sum, places);
  const bool carried = (mantissa >> 53) != 0ul;
  return Sum(carried ? mantissa >> 1 : mantissa, exponent + int(places) - 10 + (carried ? 1 : 0), beyond);
}

/// Exact.
Sum square_of(uint bits) {
  if (!is_finite(bits)) return Sum(0ul, 0, magnitude_of(bits) > kInfinity ? 2 : 1);
  const Parts x = parts_of(bits);
  if (x.mantissa == 0) return Sum(0ul, 0, 0);
  const uint64_t square = uint64_t(x.mantissa) * uint64_t(x.mantissa);
  const uint places = (square >> 47) != 0ul ? 5 : 6;
  return Sum(square << places, 2 * x.exponent - int(places), 0);
}

uint64_t double_bits(Sum sum) {
  if (sum.beyond != 0) return sum.beyond == 1 ? 0x7FF0000000000000ul : 0x7FF8000000000000ul;
  if (sum.mantissa == 0ul) return 0ul;
  return (uint64_t(uint(sum.exponent + 1075)) << 52) | (sum.mantissa & 0xFFFFFFFFFFFFFul);
}

Sum shared_sum(uint i) { return Sum(mantissas[i], exponents[i], beyonds[i]); }

void main() {
  const uint own = invocation();
  const uint block = group_place() * (kThreads / kPartialSums) + own / kPartialSums;
  Sum sum = Sum(0ul, 0, 0);
  if (block < push.sizes[0]) {
    Uints x = Uints(address(0) + uint64_t(block) * uint64_t(kBlock * 4));
    for (uint i = own % kPartialSums; i < kBlock; i += kPartialSums) sum = sum_of(sum, square_of(x.v[i]));
  }
  mantissas[own] = sum.mantissa;
  exponents[own] = sum.exponent;
  beyonds[own] = sum.beyond;
  barrier();
  if (own % kPartialSums != 0 || block >= push.sizes[0]) return;
  const Sum even =
      sum_of(sum_of(shared_sum(own), shared_sum(own + 4)), sum_of(shared_sum(own + 1), shared_sum(own + 5)));
  const Sum odd =
      sum_of(sum_of(shared_sum(own + 2), shared_sum(own + 6)), sum_of(shared_sum(own + 3), shared_sum(own + 7)));
  Words(address(1)).v[block] = double_bits(sum_of(even, odd));
}
