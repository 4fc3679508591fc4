// matmul.comp's products of operands of 16 bits by the card's matrix units: a workgroup of kPartsM x kPartsN subgroups
// computes as many parts of kTilesM x kTilesN tiles of kM x kN, whose operands come through shared memory, kDepth of K
// at a time. Sums are fp32, in rising order of K between pieces of kK; within a piece in the card's own order.
//
// Compiled as SPV_NV_cooperative_matrix, which cooperative_code.cpp turns into what the card has: the operands' type
// too, so that this kernel moves words of 16 bits and does not compute with them.
//
// Operands are read eight elements at a time where fours lie together, the next turn's while this one's are multiplied,
// for the reasons in matmul.comp.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl. With kScaled, see scaled.glsl, slots 6 and 7: what
// largest.comp found, of A and B; sizes 9 and 10: how many numbers these are, 11 and 12: which is the first. With
// kGrouped, products of experts as in matmul_grouped.comp: grouped.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "common.glsl"
#include "matmul.glsl"
#include "scaled.glsl"

layout(local_size_x_id = 18) in;
layout(constant_id = 11) const uint kM = 16;
layout(constant_id = 12) const uint kN = 16;
layout(constant_id = 13) const uint kK = 16;
layout(constant_id = 14) const uint kTilesM = 2;
layout(constant_id = 15) const uint kTilesN = 2;
layout(constant_id = 16) const uint kReadsA = 0;  // eights of an invocation; 0: element by element
layout(constant_id = 17) const uint kReadsB = 0;
layout(constant_id = 19) const uint kStepOut = 1;  // elements of the result that are written at once: 1 or 4
layout(constant_id = 20) const uint kPartsM = 2;
layout(constant_id = 21) const uint kPartsN = 2;
layout(constant_id = 22) const bool kScaled = false;
layout(constant_id = 23) const uint kGrouped = 0;
#include "grouped.glsl"

const uint kDepth = 32;
const uint kPairs = kDepth / 2;
const uint kEights = kDepth / 8;
const uint kStride = kEights + 1;  // of a row in shared memory, in pieces of 16 bytes: rows differ in their banks
const uint kRows = kPartsM * kTilesM * kM;
const uint kColumns = kPartsN * kTilesN * kN;
const uint kSums = kTilesM * kTilesN;  // of a subgroup
#define Sums fcoopmatNV<32, gl_ScopeSubgroup, kM, kN>
const uint kRowsOut = kPartsM * kM;  // that are written at a time: of every part one row of tiles
// In pieces of 16 bytes, which matrices begin with: A as [m][k], B as [n][k], and in their place results by rows.
const uint kTileB = kRows * kStride;
const uint kOperands = kTileB + kColumns * kStride;
const uint kOut = kRowsOut * kColumns / 4;
shared uvec4 tiles[kOperands > kOut ? kOperands : kOut];
// How many eights an invocation holds while it multiplies; of more the card would run out of registers.
const uint kMostAhead = 2;
const bool kAheadA = kReadsA <= kMostAhead;
const bool kAheadB = kReadsB <= kMostAhead;
uvec4 next_a[kMostAhead];  // as they lie in memory
uvec4 more_a[kMostAhead];  // the second four of fp32
uvec4 next_b[kMostAhead];
// In bytes behind the beginning of a turn's tile.
uint place_a[kMostAhead];
uint place_b[kMostAhead];
uint more_of_b[kMostAhead];  // the second four of a list's

// Powers of two that operands are multiplied by, as exponents and as numbers. B needs none where it is fp16.
const bool kScaledB = kScaled && kTypeB == kBfloat16;
ivec2 exponents = ivec2(0);
float scale_a = 1.0;
float scale_b = 1.0;

/// In the place of tiles, of which there are none yet. `tensor`: which of those of B.
void find_scales(uint tensor) {
  const uint first_b = push.sizes[12] + tensor * kLargestGroups;
  const uint own_a = own_largest(address(6) + 4 * push.sizes[11], push.sizes[9]);
  const uint own_b = kScaledB ? own_largest(address(7) + 4 * first_b, push.sizes[10]) : 0;
  if (invocation() == 0) tiles[0] = uvec4(0);
  barrier();
  atomicMax(tiles[0].x, own_a);
  atomicMax(tiles[0].y, own_b);
  barrier();
  exponents = ivec2(exponent_for(tiles[0].x), kScaledB ? exponent_for(tiles[0].y) : 0);
  scale_a = power_of_two(exponents.x);
  scale_b = power_of_two(exponents.y);
  barrier();
}
/// Of sums of products of both operands.
vec4 unscaled(vec4 sums) { return kScaled ? times_power(sums, -exponents.x - exponents.y) : sums; }

/// Element i as it is multiplied. A may be fp32: then it is rounded to B's type, or to fp16.
uint word_in_a(uint64_t a, uint i) {
  if (kScaled) return narrowed_half(load(a, kTypeA, i) * scale_a);
  return kTypeA == kFloat32 ? narrowed(kTypeB, Floats(a).v[i]) : uint(Narrow(a).v[i]);
}
uint word_in_b(uint64_t b, uint i) {
  return kScaledB ? narrowed_half(load(b, kTypeB, i) * scale_b) : uint(Narrow(b).v[i]);
}

/// Where an invocation's i-th eight lies in its tile: .x along K, .y across. `along`: eight along K, the second four
/// behind the first; otherwise four across, and the same four one further along K.
uvec2 place_of(uint i, bool along, uint extent) {
  const uint n = i * gl_WorkGroupSize.x + invocation();
  const uint fours = extent / 4;
  return along ? uvec2(n % kEights * 8, n / kEights) : uvec2(n / fours * 2, n % fours * 4);
}

/// Where it is read.
uvec2 inside(uvec2 place, bool along, uint across) {
  return uvec2(inside(place.x, min(push.sizes[2], kDepth), along ? 8 : 2), inside(place.y, across, along ? 1 : 4));
}
/// Bytes from a tile's beginning to an invocation's i-th eight, of B `more` inner elements further on.
uint find_in_a(uint i, uint first_m, uint rows) {
  const uvec2 at = inside(place_of(i, !kTransposedA, kRows), !kTransposedA, rows - first_m);
  return behind_begin_of_a(first_m, at.y, at.x);
}
uint find_in_b(Turn turn, uint i, uint first_n, uint more) {
  const uvec2 at = inside(place_of(i, kTransposedB, kColumns), kTransposedB, push.sizes[1] - first_n);
  return behind_begin_of_b(turn, at.x + more, at.y);
}
void find_places_of_a(uint first_m, uint rows) {
  [[unroll]] for (uint i = 0; i < kReadsA && kAheadA; ++i) place_a[i] = find_in_a(i, first_m, rows);
}
void find_places_of_b(Turn turn, uint first_n) {
  [[unroll]] for (uint i = 0; i < kReadsB && kAheadB; ++i) {
    place_b[i] = find_in_b(turn, i, first_n, 0);
    if (kListed == 3) more_of_b[i] = find_in_b(turn, i, first_n, 1);
  }
}

void read_eight_of_a(Turn turn, uint to, uint place) {
  const uint64_t more = turn.a + (kTransposedA ? push.sizes[3] : 4) * size_of(kTypeA);
  if (kTypeA == kFloat32) {
    next_a[to] = four_at(turn.a + place, kTypeA);
    more_a[to] = four_at(more + place, kTypeA);
  } else if (kTransposedA) {
    next_a[to] = uvec4(four_at(turn.a + place, kTypeA).xy, four_at(more + place, kTypeA).xy);
  } else {
    next_a[to] = eight_at(turn.a + place);
  }
}
/// `place_of_more`: of a list.
void read_eight_of_b(Turn turn, uint to, uint place, uint place_of_more) {
  if (kTransposedB) {
    next_b[to] = eight_at(turn.b + place);
  } else {
    const uint64_t more =
        kListed == 3 ? turn.b + place_of_more : turn.b + push.sizes[4] * size_of(kTypeB) + uint64_t(place);
    next_b[to] = uvec4(four_at(turn.b + place, kTypeB).xy, four_at(more, kTypeB).xy);
  }
}

/// The next turn's eights. Nothing is asked before: who asks whether there is a turn has to move what was read to where
/// it would be without, and so to wait for it before this turn's products.
void read_ahead(Turn turn) {
  [[unroll]] for (uint i = 0; i < kReadsA && kAheadA; ++i) read_eight_of_a(turn, i, place_a[i]);
  [[unroll]] for (uint i = 0; i < kReadsB && kAheadB; ++i) read_eight_of_b(turn, i, place_b[i], more_of_b[i]);
}

uvec2 narrowed_four(uvec4 raw) {
  return narrowed_raw(kScaled ? kFloat16 : kTypeB, uintBitsToFloat(raw) * (kScaled ? scale_a : 1.0));
}
/// The word of 16 bits of every row, from those at k and those at k + 1.
uvec4 turned(uvec4 eight) {
  return uvec4((eight.x & 0xFFFFu) | (eight.z << 16), (eight.x >> 16) | (eight.z & 0xFFFF0000u),
               (eight.y & 0xFFFFu) | (eight.w << 16), (eight.y >> 16) | (eight.w & 0xFFFF0000u));
}
/// What does not count is zero.
uvec4 counted(Turn turn, uvec4 eight, uint k, bool along) {
  return uvec4(counts(turn, k) ? eight.xy : uvec2(0), counts(turn, k + (along ? 4 : 1)) ? eight.zw : uvec2(0));
}

void write_eight_of_a(Turn turn, uint i, uint from) {
  const uvec2 place = place_of(i, !kTransposedA, kRows);
  if (place.x >= kDepth || place.y >= kRows) return;  // more invocations than eights
  uvec4 eight = next_a[from];
  if (kTypeA == kFloat32) {
    eight = uvec4(narrowed_four(eight), narrowed_four(more_a[from]));
  } else if (kScaled) {
    eight = scaled_eight(eight, scale_a);
  }
  if (!all_count(turn, kDepth)) eight = counted(turn, eight, place.x, !kTransposedA);
  if (kTransposedA) {
    const uvec4 words = turned(eight);
    [[unroll]] for (uint j = 0; j < 4; ++j) tiles[(place.y + j) * kStride + place.x / 8][place.x / 2 % 4] = words[j];
  } else {
    tiles[place.y * kStride + place.x / 8] = eight;
  }
}
void write_eight_of_b(Turn turn, uint i, uint from) {
  const uvec2 place = place_of(i, kTransposedB, kColumns);
  if (place.x >= kDepth || place.y >= kColumns) return;
  uvec4 eight = next_b[from];
  if (kScaledB) eight = scaled_eight(eight, scale_b);
  if (!all_count(turn, kDepth)) eight = counted(turn, eight, place.x, kTransposedB);
  if (kTransposedB) {
    tiles[kTileB + place.y * kStride + place.x / 8] = eight;
  } else {
    const uvec4 words = turned(eight);
    [[unroll]] for (uint j = 0; j < 4; ++j) tiles[kTileB + (place.y + j) * kStride + place.x / 8][place.x / 2 % 4] =
        words[j];
  }
}

void write_eights(Turn turn, uint first_m, uint first_n, uint rows) {
  [[unroll]] for (uint i = 0; i < kReadsA && kAheadA; ++i) write_eight_of_a(turn, i, i);
  [[unroll]] for (uint i = 0; i < kReadsB && kAheadB; ++i) write_eight_of_b(turn, i, i);
  [[dont_unroll]] for (uint i = 0; i < kReadsA && !kAheadA; i += kMostAhead) {
    [[unroll]] for (uint j = 0; j < kMostAhead; ++j) read_eight_of_a(turn, j, find_in_a(i + j, first_m, rows));
    [[unroll]] for (uint j = 0; j < kMostAhead; ++j) write_eight_of_a(turn, i + j, j);
  }
  [[dont_unroll]] for (uint i = 0; i < kReadsB && !kAheadB; i += kMostAhead) {
    [[unroll]] for (uint j = 0; j < kMostAhead; ++j) {
      read_eight_of_b(turn, j, find_in_b(turn, i + j, first_n, 0), find_in_b(turn, i + j, first_n, 1));
    }
    [[unroll]] for (uint j = 0; j < kMostAhead; ++j) write_eight_of_b(turn, i + j, j);
  }
}

/// Element by element, of operands that no fours make up. Neighbours read what lies together.
void load_elements(Turn turn, uint64_t a, uint64_t b, uint first_m, uint first_n, uint rows) {
  for (uint i = invocation(); kReadsA == 0 && i < kRows * kPairs; i += gl_WorkGroupSize.x) {
    const uint m = kTransposedA ? i % kRows : i / kPairs;
    const uint pair = kTransposedA ? i / kRows : i % kPairs;
    uint words[2] = uint[](0, 0);
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      if (first_m + m >= rows || !counts(turn, 2 * pair + j)) continue;
      words[j] = word_in_a(a, place_in_a(first_m + m, turn.first_k + 2 * pair + j));
    }
    tiles[m * kStride + pair / 4][pair % 4] = words[0] | (words[1] << 16);
  }
  for (uint i = invocation(); kReadsB == 0 && i < kColumns * kPairs; i += gl_WorkGroupSize.x) {
    const uint n = kTransposedB ? i / kPairs : i % kColumns;
    const uint pair = kTransposedB ? i % kPairs : i / kColumns;
    uint words[2] = uint[](0, 0);
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      if (first_n + n >= push.sizes[1] || !counts(turn, 2 * pair + j)) continue;
      words[j] = word_in_b(b, place_in_b(turn.first_k + 2 * pair + j, first_n + n));
    }
    tiles[kTileB + n * kStride + pair / 4][pair % 4] = words[0] | (words[1] << 16);
  }
}

/// Where the subgroup's part lies in the tile.
uint part_m() { return subgroup() / kPartsN * kTilesM * kM; }
uint part_n() { return subgroup() % kPartsN * kTilesN * kN; }

void multiply_tiles(inout Sums sums[kSums]) {
  [[unroll]] for (uint k = 0; k < kDepth; k += kK) {
    fcoopmatNV<16, gl_ScopeSubgroup, kM, kK> left[kTilesM];
    [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
      coopMatLoadNV(left[i], tiles, (part_m() + i * kM) * kStride + k / 8, kStride, false);
    }
    [[unroll]] for (uint j = 0; j < kTilesN; ++j) {
      fcoopmatNV<16, gl_ScopeSubgroup, kK, kN> right;
      coopMatLoadNV(right, tiles, kTileB + (part_n() + j * kN) * kStride + k / 8, kStride, true);
      [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
        sums[i * kTilesN + j] = coopMatMulAddNV(left[i], right, sums[i * kTilesN + j]);
      }
    }
  }
}

/// In the operands' place, which nobody reads any more.
void store_sums(Sums sums[kSums], Part part, uint first_n) {
  Results results = find_results();
  if (kGrouped == kGroupsDepth) results.to = tensor_of(part.expert);
  [[unroll]] for (uint i = 0; i < kTilesM; ++i) {
    [[unroll]] for (uint j = 0; j < kTilesN; ++j) {
      coopMatStoreNV(sums[i * kTilesN + j], tiles, (subgroup() / kPartsN * kM * kColumns + part_n() + j * kN) / 4,
                     kColumns / 4, false);
    }
    barrier();
    for (uint at = invocation() * kStepOut; at < kRowsOut * kColumns; at += gl_WorkGroupSize.x * kStepOut) {
      const uint row = at / kColumns;
      const uint m = part.first_m + (row / kM * kTilesM + i) * kM + row % kM;
      const uint n = first_n + at % kColumns;
      if (kStepOut == 4) {
        put_four(results, m, n, part.rows, unscaled(uintBitsToFloat(tiles[at / 4])));
      } else {
        put(results, m, n, part.rows, unscaled(vec4(uintBitsToFloat(tiles[at / 4][at % 4]))).x);
      }
    }
    barrier();
  }
}

/// Of a product that is no experts'.
Part find_single_part() {
  uint rows;
  uint depth;
  find_extents(rows, depth);
  return Part(0, workgroup().y * kRows, rows, 0, depth);
}

void main() {
  const uint first_n = workgroup().x * kColumns;
  const Part part = kGrouped == 0 ? find_single_part() : find_part(kGrouped, kRows);
  if (is_empty(part)) {
    if (kGrouped == kGroupsRows) store_zeros(part, first_n, kRows, kColumns);
    return;
  }
  const uint64_t a = address(0);
  const uint64_t b = kGrouped == kGroupsRows ? tensor_of(part.expert) : address(1);
  if (kScaled) find_scales(kGrouped == kGroupsRows ? part.expert : 0);
  for (uint begin = part.begin; begin < part.depth;
       begin += push.sizes[6]) {  // chunks of K, whole turns but for the last
    const uint last_k = begin + (min(part.depth - begin, push.sizes[6]) - 1) / kDepth * kDepth;
    Sums sums[kSums];
    [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = Sums(0.0);
    const Turn first = turn_at(a, b, part.first_m, first_n, begin, part.depth, kDepth);
    find_places_of_a(part.first_m, part.rows);
    find_places_of_b(first, first_n);
    read_ahead(first);
    for (uint k = begin; k <= last_k; k += kDepth) {
      const Turn turn = turn_at(a, b, part.first_m, first_n, k, part.depth, kDepth);
      write_eights(turn, part.first_m, first_n, part.rows);
      load_elements(turn, a, b, part.first_m, first_n, part.rows);
      barrier();
      const Turn next = turn_at(a, b, part.first_m, first_n, min(k + kDepth, last_k), part.depth, kDepth);
      if (kListed == 3) find_places_of_b(next, first_n);
      read_ahead(next);
      multiply_tiles(sums);
      barrier();
    }
    store_sums(sums, part, first_n);
  }
}
