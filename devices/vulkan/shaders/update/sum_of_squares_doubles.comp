// Sums of squares of blocks of kUpdateBlock elements as fp64 numbers, with the bits of rondo/devices/update.h, on cards
// that have fp64 (others: sum_of_squares.comp). The square of an fp32 number is exact in fp64, so that it does
// not matter whether fma() is fused, and additions are rounded correctly (Vulkan 1.2, "Precision and Operation of
// SPIR-V Instructions").
//
// slots: x, sums. sizes: blocks.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 64;
const uint kPartialSums = 8;
const uint kBlock = 16384;  // kUpdateBlock
const uint kAhead = 16;     // elements of a partial sum that are read before they are added one after the other
layout(local_size_x = kThreads) in;

layout(buffer_reference, scalar) writeonly buffer Doubles { double v[]; };

shared double sums[kThreads];

void main() {
  const uint own = invocation();
  const uint block = group_place() * (kThreads / kPartialSums) + own / kPartialSums;
  double sum = 0.0;
  if (block < push.sizes[0]) {
    Floats x = Floats(address(0) + uint64_t(block) * uint64_t(kBlock * 4));
    for (uint first = own % kPartialSums; first < kBlock; first += kAhead * kPartialSums) {
      float read[kAhead];
      for (uint k = 0; k < kAhead; ++k) read[k] = x.v[first + k * kPartialSums];
      for (uint k = 0; k < kAhead; ++k) {
        precise double longer = fma(double(read[k]), double(read[k]), sum);
        sum = longer;
      }
    }
  }
  sums[own] = sum;
  barrier();
  if (own % kPartialSums != 0 || block >= push.sizes[0]) return;
  precise double even = (sums[own] + sums[own + 4]) + (sums[own + 1] + sums[own + 5]);
  precise double odd = (sums[own + 2] + sums[own + 6]) + (sums[own + 3] + sums[own + 7]);
  precise double all = even + odd;
  Doubles(address(1)).v[block] = all;
}
