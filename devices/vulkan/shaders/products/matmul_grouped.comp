// Products of experts in tiles: of each expert's rows of A by its B into its rows of out, of padding zeros; or out of
// each expert += A B of its part of K, chunk by chunk.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl; the constants up to 16: matmul_tiles.glsl; the slots
// behind those and how many experts there are: grouped.glsl. The slot of B, or of out, is one of those that are listed.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.glsl"
#include "matmul_tiles.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 17) const uint kGrouped = 1;
#include "grouped.glsl"

void main() {
  const uint x = invocation() % 8;
  const uint y = invocation() / 8;
  const uint first_n = workgroup().x * kTileColumns;
  const Part part = find_part(kGrouped, kTileRows);
  if (is_empty(part)) {
    if (kGrouped == kGroupsRows) store_zeros(part, first_n, kTileRows, kTileColumns);
    return;
  }
  const uint64_t a = address(0);
  const uint64_t b = kGrouped == kGroupsRows ? tensor_of(part.expert) : address(1);
  [[unroll]] for (uint i = 0; i < kRowsEach * kColumnsEach; ++i) sums[i] = 0.0;
  for (uint begin = part.begin; begin < part.depth; begin += push.sizes[6]) {
    multiply_chunk(a, b, part.first_m, first_n, y, x, part.rows, begin, part.depth);
    Results results = find_results();
    if (kGrouped == kGroupsDepth) results.to = tensor_of(part.expert);
    store_sums(results, part.first_m, first_n, y, x, part.rows);
  }
}
