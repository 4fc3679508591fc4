// matmul.comp's products for processors that pose as cards, from operands that panel.comp has laid out. A subgroup of
// eight computes 16 rows of 32 columns by itself, an invocation four columns: rows of A are fetched an invocation a row
// and handed round, so that a texel of either operand serves very many multiplications.
//
// Slots, factors and constants are those of matmul.comp, and so are the sums: rising order of K, one chunk a dispatch.
// sizes: M, N, first row, first column, place of A in the panel, stride of out, fours of K, first of the list, most of
// the list, place of B.
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
layout(set = 0, binding = 0) uniform samplerBuffer panel;

const uint kRows = 16;
const uint kRowsAtOnce = 4;
const uint kColumnsAtOnce = 2;

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint fours = push.sizes[6];
  float sums[kRows * 4];
  [[unroll]] for (uint i = 0; i < kRows * 4; ++i) sums[i] = 0.0;
  uint at_a = push.sizes[4] + gl_WorkGroupID.x * fours * 16 + lane;
  uint at_b = push.sizes[9] + gl_WorkGroupID.y * fours * 32 + lane;
  for (uint four = 0; four < fours; ++four) {
    vec4 b[4];
    vec4 a[2];
    [[unroll]] for (uint k = 0; k < 4; ++k) b[k] = texelFetch(panel, int(at_b + 8 * k));
    [[unroll]] for (uint half_of = 0; half_of < 2; ++half_of) a[half_of] = texelFetch(panel, int(at_a + 8 * half_of));
    // In an order in which few registers hold what is needed next.
    [[unroll]] for (uint rows = 0; rows < kRows / kRowsAtOnce; ++rows) {
      [[unroll]] for (uint columns = 0; columns < 4 / kColumnsAtOnce; ++columns) {
        [[unroll]] for (uint k = 0; k < 4; ++k) {
          [[unroll]] for (uint i = 0; i < kRowsAtOnce; ++i) {
            const uint row = rows * kRowsAtOnce + i;
            const float factor = subgroupShuffle(a[row / 8][k], row % 8);
            [[unroll]] for (uint j = 0; j < kColumnsAtOnce; ++j) {
              const uint column = columns * kColumnsAtOnce + j;
              sums[row * 4 + column] += factor * b[k][column];
            }
          }
        }
      }
    }
    at_a += 16;
    at_b += 32;
  }

  uint end = push.sizes[0];
  if (kListed == 1 || kListed == 2) {
    const uint all = uint(Ints(address(5)).v[0]);
    end = all > push.sizes[7] ? min(all - push.sizes[7], push.sizes[8]) : 0;
  }
  const uint64_t to = address(2);
  const uint64_t bias = kBias ? address(3) : 0ul;
  const uint64_t addend = kAddend ? address(4) : 0ul;
  const uint n = push.sizes[3] + gl_WorkGroupID.y * 32 + lane * 4;
  [[unroll]] for (uint i = 0; i < kRows; ++i) {
    const uint m = push.sizes[2] + gl_WorkGroupID.x * kRows + i;
    const uint row = m < end ? (kListed == 2 ? listed(m) : m) : 0;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (m < end && n + j < push.sizes[1]) {
        const uint at = row * push.sizes[5] + n + j;
        float value = push.factors[0] * sums[i * 4 + j];
        if (kBias) value += load(bias, kTypeBias, n + j);
        if (kAddend) value += load(addend, kTypeAddend, at);
        if (kAccumulate) value += load(to, kTypeOut, at);
        store(to, kTypeOut, at, value);
      }
    }
  }
}
