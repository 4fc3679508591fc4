// Matrix products in tiles: out [M, N] = alpha A B (+ bias) (+ addend), or out += alpha A B chunk by chunk of K.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl; the others: matmul_tiles.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.glsl"
#include "matmul_tiles.glsl"

layout(local_size_x = 64) in;

void main() {
  const uint x = invocation() % 8;
  const uint y = invocation() / 8;
  const uint first_n = workgroup().x * kTileColumns;
  const uint first_m = workgroup().y * kTileRows;
  uint rows;
  uint depth;
  find_extents(rows, depth);
  if (first_m >= rows || depth == 0) return;
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  [[unroll]] for (uint i = 0; i < kRowsEach * kColumnsEach; ++i) sums[i] = 0.0;
  for (uint begin = 0; begin < depth; begin += push.sizes[6]) {
    multiply_chunk(a, b, first_m, first_n, y, x, rows, begin, depth);
    store_sums(find_results(), first_m, first_n, y, x, rows);
  }
}
