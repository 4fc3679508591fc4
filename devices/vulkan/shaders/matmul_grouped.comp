// Products of experts: of each expert's rows of A by its B into its rows of out, of padding zeros; or out of each
// expert += A B of its part of K, chunk by chunk. Nobody knows how many rows an expert has before they are here: there
// are tiles enough for whatever that is, and those that are not needed leave.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl; the constants up to 16: matmul_tiles.glsl. The slot of
// B, or of out, is one of those that are listed.
// slots[6]: offsets [experts + 1]. slots[7]: where the experts' tensors stand in the run's table. sizes[9]: experts.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.glsl"
#include "matmul_tiles.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
layout(constant_id = 17) const bool kGroupsDepth = false;  // of K, or else of rows
#include "prefix.glsl"

shared uint found[3];

/// Where the rows of `expert` begin; those of padding are behind those of the last.
uint first_row_of(uint expert) {
  const int first = Ints(address(6)).v[min(expert, push.sizes[9])];
  return expert > push.sizes[9] ? push.sizes[0] : uint(first);
}
uint64_t tensor_of(uint expert) { return Words(push.table).v[Uints(address(7)).v[expert]]; }

/// A tile's expert, its first row and the end of that expert's rows. Past all tiles none begins before its end.
uvec3 find_tile(uint tile) {
  const uint groups = push.sizes[9] + 1;
  const uint each = (groups + kThreads - 1) / kThreads;
  const uint begin = min(invocation() * each, groups);
  const uint end = min(begin + each, groups);
  uint own = 0;
  for (uint e = begin; e < end; ++e) own += (first_row_of(e + 1) - first_row_of(e) + kTileRows - 1) / kTileRows;
  uint all;
  uint before = sum_before(own, all);
  if (tile >= all) return uvec3(0);
  for (uint e = begin; e < end; ++e) {
    const uint first = first_row_of(e);
    const uint last = first_row_of(e + 1);
    const uint tiles = (last - first + kTileRows - 1) / kTileRows;
    if (tile >= before && tile < before + tiles) {
      found[0] = e;
      found[1] = first + (tile - before) * kTileRows;
      found[2] = last;
    }
    before += tiles;
  }
  barrier();
  return uvec3(found[0], found[1], found[2]);
}

void store_zeros(uint first_m, uint first_n, uint rows) {
  const uint64_t to = address(2);
  for (uint i = invocation(); i < kTileRows * kTileColumns; i += kThreads) {
    const uint m = first_m + i / kTileColumns;
    const uint n = first_n + i % kTileColumns;
    if (m < rows && n < push.sizes[1]) store(to, kTypeOut, m * push.sizes[5] + n, 0.0);
  }
}

void main() {
  const uint x = invocation() % 8;
  const uint y = invocation() / 8;
  const uint first_n = workgroup().x * kTileColumns;
  uint expert = workgroup().z;
  uint first_m = workgroup().y * kTileRows;
  uint rows = push.sizes[0];
  uint begin = 0;
  uint depth = push.sizes[2];
  if (kGroupsDepth) {
    begin = uint(Ints(address(6)).v[expert]);
    depth = uint(Ints(address(6)).v[expert + 1]);
    if (begin >= depth) return;
  } else {
    const uvec3 tile = find_tile(workgroup().y);
    expert = tile.x;
    first_m = tile.y;
    rows = tile.z;
    if (first_m >= rows) return;
    if (expert == push.sizes[9] || depth == 0) {
      store_zeros(first_m, first_n, rows);
      return;
    }
  }
  const uint64_t a = address(0);
  const uint64_t b = kGroupsDepth ? address(1) : tensor_of(expert);
  [[unroll]] for (uint i = 0; i < kRowsEach * kColumnsEach; ++i) sums[i] = 0.0;
  for (; begin < depth; begin += push.sizes[6]) {
    multiply_chunk(a, b, first_m, first_n, y, x, rows, begin, depth);
    Results results = find_results();
    if (kGroupsDepth) results.to = tensor_of(expert);
    store_sums(results, first_m, first_n, y, x, rows);
  }
}
