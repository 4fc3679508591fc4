// What hadamard_encode.comp and hadamard_expand.comp share: the Walsh-Hadamard transform of blocks of 64, see
// rondo/devices/encoding.h. Eight invocations a block, with eight numbers each: those 8 apart, or eight in a row.
//
// RONDO_NUMBER: float or int, before this is included.
#include "common.glsl"

layout(local_size_x = 256) in;
#include "hadamard_blocks.glsl"

const uint kEach = 8, kBlocksOfGroup = 32;

shared RONDO_NUMBER exchanged[kBlocksOfGroup * kBlock];

/// Adds and subtracts the pairs 1, 2 and 4 places apart.
void add_pairs(inout RONDO_NUMBER x[kEach]) {
  [[unroll]] for (uint stride = 1; stride < kEach; stride *= 2) {
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if ((i & stride) != 0) continue;
      const RONDO_NUMBER sum = x[i] + x[i + stride];
      x[i + stride] = x[i] - x[i + stride];
      x[i] = sum;
    }
  }
}

uint block_of_group() { return invocation() / kEach; }
uint eighth() { return invocation() % kEach; }
uint place() { return group_place() * kBlocksOfGroup + block_of_group(); }

/// From numbers that lie 8 apart, the first at `eighth`, to eight in a row, or back.
void exchange(inout RONDO_NUMBER x[kEach], bool to_rows) {
  const uint first = block_of_group() * kBlock;
  const uint apart = first + eighth();
  const uint in_row = first + eighth() * kEach;
  [[unroll]] for (uint i = 0; i < kEach; ++i) exchanged[to_rows ? apart + i * kEach : in_row + i] = x[i];
  barrier();
  [[unroll]] for (uint i = 0; i < kEach; ++i) x[i] = exchanged[to_rows ? in_row + i : apart + i * kEach];
}
