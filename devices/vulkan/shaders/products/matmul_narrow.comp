// Products with sixteen columns or fewer (adapters of low rank) for processors that pose as cards, from fp32 tensors
// where they lie: A's rows are read once, sixteen inner elements of two rows a fetch, and handed round; an invocation
// keeps two columns of 32 rows. Nothing is laid out: it would take longer than the product. A B that is not transposed
// has 16 columns.
//
// Slots, factors and the constants 2 to 10: matmul.glsl. Sums are those of matmul.comp.
// sizes: M, N, fours of K, stride of A in texels, stride of B in texels, stride of out, 0, first of the list, most of
// the list.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "matmul.glsl"

layout(local_size_x = 8) in;
layout(set = 0, binding = 1) uniform samplerBuffer memory;

const uint kRows = 32;
const uint kDepth = 16;  // of a step

uint texel_of(uint64_t address) { return uint((address - push.fetched) >> 4); }

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint first_row = group_place() * kRows;
  uint rows;
  uint fours;
  find_extents(rows, fours);
  if (first_row >= rows) fours = 0;
  // Variables for the compiler, see matmul_panels.comp.
  uint from[8];
  [[unroll]] for (uint i = 0; i < 8; ++i) from[i] = i + push.sizes[6];
  const uint step_a = push.sizes[3];
  const uint step_b = push.sizes[4];
  uint at_a = texel_of(address(0)) + (first_row + lane / 4) * step_a + lane % 4;
  uint at_b = texel_of(address(1)) + (kTransposedB ? lane * step_b : lane);
  // Whose columns: one of each eight, or every fourth.
  const uint column = kTransposedB ? lane : lane % 4 * 4 + lane / 4;
  const uint apart = kTransposedB ? 8 : 2;
  float sums[kRows * 2];
  [[unroll]] for (uint i = 0; i < kRows * 2; ++i) sums[i] = 0.0;
  for (uint four = 0; four < fours; four += 4) {
    float b[kDepth * 2];
    vec4 a[kRows / 2];
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      if (kTransposedB) {  // four inner elements of eight columns
        const vec4 texel = texelFetch(memory, int(at_b + i % 2 * 8 * step_b + i / 2));
        [[unroll]] for (uint k = 0; k < 4; ++k) b[(i / 2 * 4 + k) * 2 + i % 2] = four + i / 2 < fours ? texel[k] : 0.0;
      } else {  // two inner elements of sixteen columns
        const vec4 texel = texelFetch(memory, int(at_b + i * 8));
        const bool first = lane < 4;
        [[unroll]] for (uint j = 0; j < 2; ++j) {
          const float low = subgroupShuffle(texel[2 * j + 1], lane & 3);
          const float high = subgroupShuffle(texel[2 * j], lane | 4);
          const bool within = four + i / 2 < fours;
          b[2 * i * 2 + j] = within ? (first ? texel[2 * j] : low) : 0.0;
          b[(2 * i + 1) * 2 + j] = within ? (first ? high : texel[2 * j + 1]) : 0.0;
        }
      }
    }
    [[unroll]] for (uint i = 0; i < kRows / 2; ++i) {
      const vec4 texel = texelFetch(memory, int(at_a + 2 * i * step_a));
      a[i] = four + lane % 4 < fours ? texel : vec4(0.0);  // past the end there may be anything
    }
    [[unroll]] for (uint row = 0; row < kRows; ++row) {
      [[unroll]] for (uint k = 0; k < kDepth; ++k) {
        const float factor = subgroupShuffle(a[row / 2][k % 4], from[row % 2 * 4 + k / 4]);
        sums[row * 2] += factor * b[k * 2];
        sums[row * 2 + 1] += factor * b[k * 2 + 1];
      }
    }
    at_a += 4;
    at_b += kTransposedB ? 4 : 4 * kDepth;
  }
  const Results results = find_results();
  [[unroll]] for (uint i = 0; i < kRows; ++i) {
    [[unroll]] for (uint j = 0; j < 2; ++j) put(results, first_row + i, column + j * apart, rows, sums[i * 2 + j]);
  }
}
