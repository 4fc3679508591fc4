// Matrix products in tiles: out [M, N] = alpha A B (+ bias) (+ addend), or out += alpha A B chunk by chunk of K.
//
// A workgroup of 8 x 8 invocations computes a tile of 8 kRowsEach x 8 kColumnsEach elements; its operands come through
// shared memory, kDepth of K at a time. Every element is one sum in rising order of K, whatever the tile's shape.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 11) const uint kRowsEach = 8;
layout(constant_id = 12) const uint kColumnsEach = 8;

const uint kDepth = 16;
const uint kMostEach = 8;
const uint kStride = 8 * kMostEach + 1;
shared float tile_a[kDepth * kStride];
shared float tile_b[kDepth * kStride];
float sums[kRowsEach * kColumnsEach];

void load_tiles(uint first_m, uint first_n, uint first_k, uint rows, uint end_k) {
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  const uint tile_rows = 8 * kRowsEach;
  const uint tile_columns = 8 * kColumnsEach;
  for (uint i = gl_LocalInvocationIndex; i < tile_rows * kDepth; i += 64) {
    const uint k = kTransposedA ? i / tile_rows : i % kDepth;
    const uint m = kTransposedA ? i % tile_rows : i / kDepth;
    float value = 0.0;
    if (first_m + m < rows && first_k + k < end_k) {
      value = load(a, kTypeA, place_in_a(first_m + m, first_k + k));
    }
    tile_a[k * kStride + m] = value;
  }
  for (uint i = gl_LocalInvocationIndex; i < tile_columns * kDepth; i += 64) {
    const uint k = kTransposedB ? i % kDepth : i / tile_columns;
    const uint n = kTransposedB ? i / kDepth : i % tile_columns;
    float value = 0.0;
    if (first_n + n < push.sizes[1] && first_k + k < end_k) {
      value = load(b, kTypeB, place_in_b(first_k + k, first_n + n));
    }
    tile_b[k * kStride + n] = value;
  }
}

void multiply_tiles(uint y, uint x) {
  for (uint k = 0; k < kDepth; ++k) {
    float a[kRowsEach];
    float b[kColumnsEach];
    [[unroll]] for (uint i = 0; i < kRowsEach; ++i) a[i] = tile_a[k * kStride + y + 8 * i];
    [[unroll]] for (uint j = 0; j < kColumnsEach; ++j) b[j] = tile_b[k * kStride + x + 8 * j];
    [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
      [[unroll]] for (uint j = 0; j < kColumnsEach; ++j) sums[i * kColumnsEach + j] += a[i] * b[j];
    }
  }
}

void store_sums(uint first_m, uint first_n, uint rows) {
  const Results results = find_results();
  [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
    [[unroll]] for (uint j = 0; j < kColumnsEach; ++j) {
      put(results, first_m + 8 * i, first_n + 8 * j, rows, sums[i * kColumnsEach + j]);
      sums[i * kColumnsEach + j] = 0.0;
    }
  }
}

void main() {
  const uint x = gl_LocalInvocationIndex % 8;
  const uint y = gl_LocalInvocationIndex / 8;
  const uint first_n = gl_WorkGroupID.x * 8 * kColumnsEach;
  const uint first_m = gl_WorkGroupID.y * 8 * kRowsEach;
  uint rows;
  uint depth;
  find_extents(rows, depth);
  if (first_m >= rows) return;
  [[unroll]] for (uint i = 0; i < kRowsEach * kColumnsEach; ++i) sums[i] = 0.0;
  for (uint chunk = 0; chunk < depth; chunk += push.sizes[6]) {
    const uint end_k = min(chunk + push.sizes[6], depth);
    for (uint k = chunk; k < end_k; k += kDepth) {
      load_tiles(first_m, first_n, k, rows, end_k);
      barrier();
      multiply_tiles(y, x);
      barrier();
    }
    store_sums(first_m + y, first_n + x, rows);
  }
}
