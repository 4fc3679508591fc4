// matmul.comp's products for processors that pose as cards: there memory is read a lane at a time, shared memory too,
// so that what counts is how much is computed for each read. An invocation computes 8 x 8 elements by itself and reads
// four at a time; eight of them, two by four, make a tile of 16 x 32.
//
// Slots, sizes, factors and constants are those of matmul.comp, and so are the sums: rising order of K.
// Whatever runs along memory (of A: M when transposed, else K; of B: K when transposed, else N) is a multiple of four.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 0) const uint kTypeA = 0;
layout(constant_id = 1) const uint kTypeB = 0;
layout(constant_id = 2) const uint kTypeOut = 0;
layout(constant_id = 3) const uint kTypeBias = 0;
layout(constant_id = 4) const uint kTypeAddend = 0;
layout(constant_id = 5) const bool kTransposedA = false;
layout(constant_id = 6) const bool kTransposedB = false;
layout(constant_id = 7) const bool kBias = false;
layout(constant_id = 8) const bool kAddend = false;
layout(constant_id = 9) const bool kAccumulate = false;
layout(constant_id = 10) const uint kListed = 0;

const uint kEach = 8;  // rows and columns of an invocation

vec4 sums[2 * kEach];  // by row, then half of the columns

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

/// Adds the products of four inner elements: a by row, then inner element; b by inner element, then half.
void multiply(vec4 a[kEach], vec4 b[2 * 4]) {
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      sums[2 * i] += a[i][k] * b[2 * k];
      sums[2 * i + 1] += a[i][k] * b[2 * k + 1];
    }
  }
}

/// Rows m ... m + 7 of A at k ... k + 3, zero past `end`. `rows`: how many A has.
void load_a(out vec4 a[kEach], uint m, uint rows, uint k, uint end) {
  if (kTransposedA) {
    mat4 low;
    mat4 high;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      // Past the end, which is that of a list or of the tokens, there is nothing to add.
      const float present = k + j < end ? 1.0 : 0.0;
      const uint at = min(k + j, end - 1) * push.sizes[3];
      low[j] = present * load_four(address(0), kTypeA, at + min(m, rows - 4));
      high[j] = present * load_four(address(0), kTypeA, at + min(m + 4, rows - 4));
    }
    low = transpose(low);
    high = transpose(high);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      a[i] = low[i];
      a[4 + i] = high[i];
    }
  } else {
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint row = min(m + i, rows - 1);
      a[i] = load_four(address(0), kTypeA, (kListed == 1 ? listed(row) : row) * push.sizes[3] + k);
    }
  }
}

void load_b(out vec4 b[2 * 4], uint n, uint k, uint end) {
  const uint columns = push.sizes[1];
  if (kTransposedB) {
    [[unroll]] for (uint half_of = 0; half_of < 2; ++half_of) {
      mat4 part;
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const uint column = min(n + 4 * half_of + j, columns - 1);
        part[j] = load_four(address(1), kTypeB, column * push.sizes[4] + k);
      }
      part = transpose(part);
      [[unroll]] for (uint j = 0; j < 4; ++j) b[2 * j + half_of] = part[j];
    }
  } else {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint inner = min(k + j, end - 1);
      const uint at = (kListed == 3 ? listed(inner) : inner) * push.sizes[4];
      b[2 * j] = load_four(address(1), kTypeB, at + min(n, columns - 4));
      b[2 * j + 1] = load_four(address(1), kTypeB, at + min(n + 4, columns - 4));
    }
  }
}

void store_sums(uint first_m, uint first_n, uint rows) {
  const uint64_t to = address(2);
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint m = first_m + i;
    [[unroll]] for (uint j = 0; j < kEach; ++j) {
      const uint n = first_n + j;
      if (m < rows && n < push.sizes[1]) {
        const uint at = (kListed == 2 ? listed(m) : m) * push.sizes[5] + n;
        float value = push.factors[0] * sums[2 * i + j / 4][j % 4];
        if (kBias) value += load(address(3), kTypeBias, n);
        if (kAddend) value += load(address(4), kTypeAddend, at);
        if (kAccumulate) value += load(to, kTypeOut, at);
        store(to, kTypeOut, at, value);
      }
    }
    sums[2 * i] = vec4(0.0);
    sums[2 * i + 1] = vec4(0.0);
  }
}

void main() {
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
  const uint m = (gl_WorkGroupID.y * 2 + gl_LocalInvocationIndex / 4) * kEach;
  const uint n = (gl_WorkGroupID.x * 4 + gl_LocalInvocationIndex % 4) * kEach;
  if (gl_WorkGroupID.y * 2 * kEach >= rows) return;
  [[unroll]] for (uint i = 0; i < 2 * kEach; ++i) sums[i] = vec4(0.0);
  for (uint chunk = 0; chunk < depth; chunk += push.sizes[6]) {
    const uint end = min(chunk + push.sizes[6], depth);
    for (uint k = chunk; k < end; k += 4) {
      vec4 a[kEach];
      vec4 b[2 * 4];
      load_a(a, m, rows, k, end);
      load_b(b, n, k, end);
      multiply(a, b);
    }
    store_sums(m, n, rows);
  }
}
