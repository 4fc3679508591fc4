// matmul.comp's products for processors that pose as cards, from operands that panel.comp has laid out. A subgroup of
// eight computes 32 rows of 64 columns by itself, an invocation eight columns: rows of A are fetched an invocation a
// row and handed round, so that a texel of either operand serves very many multiplications. A larger tile's loop no
// longer fits the processor's cache of instructions, and takes half as long again.
//
// Slots, factors and constants are those of matmul.comp, and so are the sums: rising order of K, one chunk a dispatch.
// sizes: M, N, first row, first column, place of A in the panel, stride of out, fours of K, first of the list, most of
// the list, place of B, 0.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 2) const uint kTypeOut = 0;
layout(constant_id = 3) const uint kTypeBias = 0;
layout(constant_id = 4) const uint kTypeAddend = 0;
layout(constant_id = 7) const bool kBias = false;
layout(constant_id = 8) const bool kAddend = false;
layout(constant_id = 9) const bool kAccumulate = false;
layout(constant_id = 10) const uint kListed = 0;
layout(constant_id = 11) const uint kFours = 2;  // fours of columns of an invocation
layout(constant_id = 12) const uint kStep = 1;   // 2: rows of the result have an even number of elements
layout(set = 0, binding = 0) uniform samplerBuffer panel;

const uint kRows = 32;
const uint kRowsAtOnce = 4;
const uint kColumnsAtOnce = 2;
const uint kColumns = kFours * 4;
const uint kRowsStored = 8;

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint fours = push.sizes[6];
  float sums[kRows * kColumns];
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) sums[i] = 0.0;
  uint at_a = push.sizes[4] + gl_WorkGroupID.x * fours * kRows + lane;
  uint at_b = push.sizes[9] + gl_WorkGroupID.y * fours * kColumns * 8 + lane;
  for (uint four = 0; four < fours; ++four) {
    vec4 b[4 * kFours];
    vec4 a[kRows / 8];
    [[unroll]] for (uint i = 0; i < 4 * kFours; ++i) b[i] = texelFetch(panel, int(at_b + 8 * i));
    [[unroll]] for (uint i = 0; i < kRows / 8; ++i) a[i] = texelFetch(panel, int(at_a + 8 * i));
    // In an order in which few registers hold what is needed next.
    [[unroll]] for (uint rows = 0; rows < kRows / kRowsAtOnce; ++rows) {
      [[unroll]] for (uint columns = 0; columns < kColumns / kColumnsAtOnce; ++columns) {
        [[unroll]] for (uint k = 0; k < 4; ++k) {
          [[unroll]] for (uint i = 0; i < kRowsAtOnce; ++i) {
            const uint row = rows * kRowsAtOnce + i;
            const float factor = subgroupShuffle(a[row / 8][k], row % 8);
            [[unroll]] for (uint j = 0; j < kColumnsAtOnce; ++j) {
              const uint column = columns * kColumnsAtOnce + j;
              sums[row * kColumns + column] += factor * b[k * kFours + column / 4][column % 4];
            }
          }
        }
      }
    }
    at_a += kRows;
    at_b += kColumns * 8;
  }

  uint end = push.sizes[0];
  if (kListed == 1 || kListed == 2) {
    const uint all = uint(Ints(address(5)).v[0]);
    end = all > push.sizes[7] ? min(all - push.sizes[7], push.sizes[8]) : 0;
  }
  const uint64_t to = address(2);
  const uint64_t bias = kBias ? address(3) : 0ul;
  const uint64_t addend = kAddend ? address(4) : 0ul;
  const uint width = push.sizes[1];
  const uint stride = push.sizes[5];
  const float alpha = push.factors[0];
  const uint first_row = push.sizes[2] + gl_WorkGroupID.x * kRows;
  // A number of each line of the result is read first: reads wait for memory together, writes one after the other.
  // `touched` is 0, which no compiler knows.
  uint touched = 0;
  if (!kAccumulate && kListed != 2) {
    [[unroll]] for (uint i = 0; i < kRows * kFours / 4; ++i) {
      const uint line = i * 8 + lane;
      const uint m = min(first_row + line / (2 * kFours), push.sizes[0] - 1);
      const uint n = min(push.sizes[3] + gl_WorkGroupID.y * kColumns * 8 + line % (2 * kFours) * 16, width - 1);
      touched |= kTypeOut == kFloat32 ? Uints(to).v[m * stride + n] : Uints(to).v[(m * stride + n) / 2];
    }
    touched &= push.sizes[10];
  }
  // A loop for the sake of little code; the rows left move up, since arrays are registers.
  [[dont_unroll]] for (uint first = 0; first < kRows; first += kRowsStored) {
    [[unroll]] for (uint i = 0; i < kRowsStored; ++i) {
      const uint m = first_row + first + i;
      const uint row = m < end ? (kListed == 2 ? listed(m) : m) : 0;
      [[unroll]] for (uint j = 0; j < kColumns; j += kStep) {
        const uint n = push.sizes[3] + (gl_WorkGroupID.y * kFours + j / 4) * 32 + lane * 4 + j % 4;
        if (m < end && n < width) {
          const uint at = row * stride + n + touched;
          vec2 values = alpha * vec2(sums[i * kColumns + j], sums[i * kColumns + j + kStep - 1]);
          if (kBias) values += load_some(bias, kTypeBias, kStep, n);
          if (kAddend) values += load_some(addend, kTypeAddend, kStep, at);
          if (kAccumulate) values += load_some(to, kTypeOut, kStep, at);
          store_some(to, kTypeOut, kStep, at, values);
        }
      }
    }
    [[unroll]] for (uint i = 0; i < (kRows - kRowsStored) * kColumns; ++i) sums[i] = sums[i + kRowsStored * kColumns];
  }
}
