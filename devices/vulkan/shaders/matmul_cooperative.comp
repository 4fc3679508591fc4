// matmul.comp's products of operands of 16 bits by the card's matrix units: a workgroup of four subgroups computes 2 x
// 2 parts of kTilesM x kTilesN tiles of kM x kN, whose operands come through shared memory, kDepth of K at a time. Sums
// are fp32, in rising order of K between pieces of kK; within a piece in the card's own order.
//
// Compiled as SPV_NV_cooperative_matrix, which cooperative_code.cpp turns into what the card has: the operands' type
// too, so that this kernel moves words of 16 bits and does not compute with them.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "common.glsl"
#include "matmul.glsl"

layout(local_size_x_id = 18) in;  // four subgroups
layout(constant_id = 11) const uint kM = 16;
layout(constant_id = 12) const uint kN = 16;
layout(constant_id = 13) const uint kK = 16;
layout(constant_id = 14) const uint kTilesM = 2;
layout(constant_id = 15) const uint kTilesN = 2;
layout(constant_id = 16) const bool kPairsA = false;  // two inner elements lie in one word of 32 bits
layout(constant_id = 17) const bool kPairsB = false;

const uint kDepth = 32;
const uint kPairs = kDepth / 2;
const uint kStride = kPairs / 4 + 1;  // of a row in shared memory, in pieces of 16 bytes: rows differ in their banks
const uint kRows = 2 * kTilesM * kM;
const uint kColumns = 2 * kTilesN * kN;
// In pieces of 16 bytes, which matrices begin with.
shared uvec4 tile_a[kRows * kStride];     // [m][k]
shared uvec4 tile_b[kColumns * kStride];  // [n][k]
shared float by_row[kRows * kColumns];

uint word_at(uint64_t tensor, uint i) { return uint(Narrow(tensor).v[i]); }
/// Of A, which may be fp32: then it is rounded to B's type.
uint word_in_a(uint64_t a, uint i) { return kTypeA == kFloat32 ? narrowed(kTypeB, Floats(a).v[i]) : word_at(a, i); }

void load_tiles(uint first_m, uint first_n, uint first_k, uint rows, uint end_k) {
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  // Neighbours read what lies together.
  for (uint i = gl_LocalInvocationIndex; i < kRows * kPairs; i += gl_WorkGroupSize.x) {
    const uint m = kTransposedA ? i % kRows : i / kPairs;
    const uint pair = kTransposedA ? i / kRows : i % kPairs;
    const uint k = first_k + 2 * pair;
    uint word = 0;
    if (first_m + m < rows && k < end_k) {
      const uint at = place_in_a(first_m + m, k);
      if (kPairsA) {
        word = Uints(a).v[at / 2];
      } else {
        word = word_in_a(a, at);
        if (k + 1 < end_k) word |= word_in_a(a, place_in_a(first_m + m, k + 1)) << 16;
      }
    }
    tile_a[m * kStride + pair / 4][pair % 4] = word;
  }
  for (uint i = gl_LocalInvocationIndex; i < kColumns * kPairs; i += gl_WorkGroupSize.x) {
    const uint n = kTransposedB ? i / kPairs : i % kColumns;
    const uint pair = kTransposedB ? i % kPairs : i / kColumns;
    const uint k = first_k + 2 * pair;
    uint word = 0;
    if (first_n + n < push.sizes[1] && k < end_k) {
      const uint at = place_in_b(k, first_n + n);
      if (kPairsB) {
        word = Uints(b).v[at / 2];
      } else {
        word = word_at(b, at);
        if (k + 1 < end_k) word |= word_at(b, place_in_b(k + 1, first_n + n)) << 16;
      }
    }
    tile_b[n * kStride + pair / 4][pair % 4] = word;
  }
}

void main() {
  const uint first_n = gl_WorkGroupID.x * kColumns;
  const uint first_m = gl_WorkGroupID.y * kRows;
  const uint part_m = gl_SubgroupID / 2 * kTilesM * kM;
  const uint part_n = gl_SubgroupID % 2 * kTilesN * kN;
  uint rows;
  uint depth;
  find_extents(rows, depth);
  if (first_m >= rows) return;
  const Results results = find_results();
  fcoopmatNV<32, gl_ScopeSubgroup, kM, kN> sums[kTilesM * kTilesN];
  for (uint chunk = 0; chunk < depth; chunk += push.sizes[6]) {
    const uint end_k = min(chunk + push.sizes[6], depth);
    [[unroll]] for (uint i = 0; i < kTilesM * kTilesN; ++i) sums[i] = fcoopmatNV<32, gl_ScopeSubgroup, kM, kN>(0.0);
    for (uint first_k = chunk; first_k < end_k; first_k += kDepth) {
      load_tiles(first_m, first_n, first_k, rows, end_k);
      barrier();
      [[unroll]] for (uint k = 0; k < kDepth; k += kK) {
        fcoopmatNV<16, gl_ScopeSubgroup, kM, kK> a[kTilesM];
        [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
          coopMatLoadNV(a[i], tile_a, (part_m + i * kM) * kStride + k / 8, kStride, false);
        }
        [[unroll]] for (uint j = 0; j < kTilesN; ++j) {
          fcoopmatNV<16, gl_ScopeSubgroup, kK, kN> b;
          coopMatLoadNV(b, tile_b, (part_n + j * kN) * kStride + k / 8, kStride, true);
          [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
            sums[i * kTilesN + j] = coopMatMulAddNV(a[i], b, sums[i * kTilesN + j]);
          }
        }
      }
      barrier();
    }
    [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
      [[unroll]] for (uint j = 0; j < kTilesN; ++j) {
        coopMatStoreNV(sums[i * kTilesN + j], by_row, (part_m + i * kM) * kColumns + part_n + j * kN, kColumns, false);
      }
    }
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < kRows * kColumns; i += gl_WorkGroupSize.x) {
      put(results, first_m + i / kColumns, first_n + i % kColumns, rows, by_row[i]);
    }
    barrier();
  }
}
