// matmul.comp's products for processors that pose as cards, where memory is read a lane at a time, shared memory too,
// and lanes are cheap to broadcast. A subgroup of eight computes 16 x 32 elements by itself, without shared memory.
//
// Slots, sizes, factors and constants are those of matmul.comp, and so are the sums: rising order of K, the same bits.
// The inner extent and, where the rows of B go along N, N are multiples of four; with A transposed M is even.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
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

const uint kRows = 16;
const uint kColumns = 32;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats4 { vec4 v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats2 { vec2 v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words2 { uvec2 v; };

/// Four elements from `i` on, which is a multiple of four.
vec4 load_four(uint64_t tensor, uint dtype, uint i) {
  if (dtype == kFloat32) return Floats4(tensor + uint64_t(i) * 4ul).v;
  const uvec2 words = Words2(tensor + uint64_t(i) * 2ul).v;
  return vec4(uintBitsToFloat(words.x << 16), uintBitsToFloat(words.x & 0xFFFF0000u), uintBitsToFloat(words.y << 16),
              uintBitsToFloat(words.y & 0xFFFF0000u));
}
/// Two elements from `i` on, which is even.
vec2 load_two(uint64_t tensor, uint dtype, uint i) {
  if (dtype == kFloat32) return Floats2(tensor + uint64_t(i) * 4ul).v;
  const uint word = Uints(tensor + uint64_t(i) * 2ul).v[0];
  return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xFFFF0000u));
}

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

// By row: four columns each. With B transposed a lane's columns are lane + 0, 8, 16, 24, else 4 lane + 0, 1, 2, 3.
vec4 sums[kRows];

void multiply_row(uint i, float a, vec4 b) { sums[i] += a * b; }

/// Adds the products of the inner elements k ... end: A's rows begin at `rows_at` (A not transposed).
void add_products(uint rows_at[2], uint first_m, uint last_m, uint first_n, uint begin, uint end) {
  const uint lane = gl_LocalInvocationIndex;
  const uint64_t from_a = address(0);
  const uint64_t from_b = address(1);
  const uint columns = push.sizes[1];
  for (uint k = begin; k < end; k += 4) {
    vec4 b[4];  // by inner element
    if (kTransposedB) {
      mat4 rows;
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const uint n = min(first_n + lane + 8 * j, columns - 1);
        rows[j] = load_four(from_b, kTypeB, n * push.sizes[4] + k);
      }
      const mat4 turned = transpose(rows);
      [[unroll]] for (uint j = 0; j < 4; ++j) b[j] = turned[j];
    } else {
      const uint n = min(first_n + 4 * lane, columns - 4);
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        // Past the end (only a list's rows need not come in fours) A is zero; what is read must be a number.
        const uint inner = min(k + j, end - 1);
        b[j] = load_four(from_b, kTypeB, (kListed == 3 ? listed(inner) : inner) * push.sizes[4] + n);
      }
    }
    if (kTransposedA) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const uint m = min(first_m + 2 * lane, last_m - 1);
        vec2 a = vec2(0.0);
        if (k + j < end) a = load_two(from_a, kTypeA, (k + j) * push.sizes[3] + m);
#define RONDO_ROWS(l)                                         \
  multiply_row(2 * l, subgroupBroadcast(a.x, l), b[j]);       \
  multiply_row(2 * l + 1, subgroupBroadcast(a.y, l), b[j]);
        RONDO_ROWS(0) RONDO_ROWS(1) RONDO_ROWS(2) RONDO_ROWS(3)
        RONDO_ROWS(4) RONDO_ROWS(5) RONDO_ROWS(6) RONDO_ROWS(7)
      }
    } else {
      // A lane reads four inner elements of two rows.
      const vec4 even = load_four(from_a, kTypeA, rows_at[0] + k);
      const vec4 odd = load_four(from_a, kTypeA, rows_at[1] + k);
#define RONDO_ROW(l)                                                   \
  {                                                                    \
    const vec4 a = subgroupBroadcast(even, l);                         \
    const vec4 c = subgroupBroadcast(odd, l);                          \
    [[unroll]] for (uint j = 0; j < 4; ++j) {                          \
      multiply_row(l, a[j], b[j]);                                     \
      multiply_row(8 + l, c[j], b[j]);                                 \
    }                                                                  \
  }
      RONDO_ROW(0) RONDO_ROW(1) RONDO_ROW(2) RONDO_ROW(3)
      RONDO_ROW(4) RONDO_ROW(5) RONDO_ROW(6) RONDO_ROW(7)
    }
  }
}

void store_sums(uint first_m, uint first_n, uint rows) {
  const uint64_t to = address(2);
  const uint columns = push.sizes[1];
  [[unroll]] for (uint i = 0; i < kRows; ++i) {
    const uint m = first_m + i;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint n = first_n + (kTransposedB ? gl_LocalInvocationIndex + 8 * j : 4 * gl_LocalInvocationIndex + j);
      if (m < rows && n < columns) {
        const uint at = (kListed == 2 ? listed(m) : m) * push.sizes[5] + n;
        float value = push.factors[0] * sums[i][j];
        if (kBias) value += load(address(3), kTypeBias, n);
        if (kAddend) value += load(address(4), kTypeAddend, at);
        if (kAccumulate) value += load(to, kTypeOut, at);
        store(to, kTypeOut, at, value);
      }
    }
    sums[i] = vec4(0.0);
  }
}

void main() {
  const uint first_m = gl_WorkGroupID.y * kRows;
  const uint first_n = gl_WorkGroupID.x * kColumns;
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
  uint rows_at[2];
  [[unroll]] for (uint half_of = 0; half_of < 2; ++half_of) {
    const uint m = min(first_m + 8 * half_of + gl_LocalInvocationIndex, rows - 1);
    rows_at[half_of] = (kListed == 1 ? listed(m) : m) * push.sizes[3];
  }
  [[unroll]] for (uint i = 0; i < kRows; ++i) sums[i] = vec4(0.0);
  for (uint chunk = 0; chunk < depth; chunk += push.sizes[6]) {
    add_products(rows_at, first_m, rows - 1, first_n, chunk, min(chunk + push.sizes[6], depth));
    store_sums(first_m, first_n, rows);
  }
}
