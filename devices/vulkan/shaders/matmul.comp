// Matrix products in tiles: out [M, N] = alpha A B (+ bias) (+ addend), or out += alpha A B chunk by chunk of K.
//
// A workgroup of 8 x 8 invocations computes a tile of 8 kRowsEach x 8 kColumnsEach elements; its operands come through
// shared memory, kDepth of K at a time. Every element is one sum in rising order of K, whatever the tile's shape.
//
// slots: A, B, out, bias, addend, rows (the list of kernel targets.comp).
// sizes: M, N, K, stride of A, stride of B, stride of out, chunk of K, first of the rows, most rows.
// factors: alpha.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kTypeA = 0;
layout(constant_id = 1) const uint kTypeB = 0;
layout(constant_id = 2) const uint kTypeOut = 0;
layout(constant_id = 3) const uint kTypeBias = 0;
layout(constant_id = 4) const uint kTypeAddend = 0;
layout(constant_id = 5) const bool kTransposedA = false;  // A(m, k) lies at k * stride + m
layout(constant_id = 6) const bool kTransposedB = false;  // B(k, n) lies at n * stride + k
layout(constant_id = 7) const bool kBias = false;
layout(constant_id = 8) const bool kAddend = false;
layout(constant_id = 9) const bool kAccumulate = false;
layout(constant_id = 10) const uint kListed = 0;  // which rows are those of the list: of A (1), of out (2), of B (3)
layout(constant_id = 11) const uint kRowsEach = 8;
layout(constant_id = 12) const uint kColumnsEach = 8;

const uint kDepth = 16;
const uint kMostEach = 8;
const uint kStride = 8 * kMostEach + 1;
shared float tile_a[kDepth * kStride];
shared float tile_b[kDepth * kStride];
float sums[kRowsEach * kColumnsEach];

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

void load_tiles(uint first_m, uint first_n, uint first_k, uint rows, uint end_k) {
  const uint tile_rows = 8 * kRowsEach;
  const uint tile_columns = 8 * kColumnsEach;
  for (uint i = gl_LocalInvocationIndex; i < tile_rows * kDepth; i += 64) {
    const uint k = kTransposedA ? i / tile_rows : i % kDepth;
    const uint m = kTransposedA ? i % tile_rows : i / kDepth;
    float value = 0.0;
    if (first_m + m < rows && first_k + k < end_k) {
      const uint row = kListed == 1 ? listed(first_m + m) : first_m + m;
      const uint at = kTransposedA ? (first_k + k) * push.sizes[3] + row : row * push.sizes[3] + first_k + k;
      value = load(address(0), kTypeA, at);
    }
    tile_a[k * kStride + m] = value;
  }
  for (uint i = gl_LocalInvocationIndex; i < tile_columns * kDepth; i += 64) {
    const uint k = kTransposedB ? i % kDepth : i / tile_columns;
    const uint n = kTransposedB ? i / kDepth : i % tile_columns;
    float value = 0.0;
    if (first_n + n < push.sizes[1] && first_k + k < end_k) {
      const uint row = kListed == 3 ? listed(first_k + k) : first_k + k;
      const uint at = kTransposedB ? (first_n + n) * push.sizes[4] + row : row * push.sizes[4] + first_n + n;
      value = load(address(1), kTypeB, at);
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
  const uint64_t to = address(2);
  [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
    [[unroll]] for (uint j = 0; j < kColumnsEach; ++j) {
      const uint m = first_m + 8 * i;
      const uint n = first_n + 8 * j;
      if (m < rows && n < push.sizes[1]) {
        const uint at = (kListed == 2 ? listed(m) : m) * push.sizes[5] + n;
        float value = push.factors[0] * sums[i * kColumnsEach + j];
        if (kBias) value += load(address(3), kTypeBias, n);
        if (kAddend) value += load(address(4), kTypeAddend, at);
        if (kAccumulate) value += load(to, kTypeOut, at);
        store(to, kTypeOut, at, value);
      }
      sums[i * kColumnsEach + j] = 0.0;
    }
  }
}

void main() {
  const uint x = gl_LocalInvocationIndex % 8;
  const uint y = gl_LocalInvocationIndex / 8;
  const uint first_n = gl_WorkGroupID.x * 8 * kColumnsEach;
  const uint first_m = gl_WorkGroupID.y * 8 * kRowsEach;
  uint rows = push.sizes[0];
  uint depth = push.sizes[2];
  if (kListed != 0) {
    const uint all = uint(Ints(address(5)).v[0]);
    const uint present = all > push.sizes[7] ? min(all - push.sizes[7], push.sizes[8]) : 0;
    if (kListed == 3) {
      depth = present;
    } else {
      rows = present;
    }
  }
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
