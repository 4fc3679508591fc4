// What the attention kernels for a card's matrix units share. A workgroup of 2 x kParts subgroups owns kRows rows of
// one head, queries or keys; the rows that they meet pass by, kPassing at a time. Scores, [own row][passing row], are
// made by 2 x kParts parts, of passing rows or, where long heads leave room for few, of matrices of all kinds of
// scores. They go through shared memory, where invocations turn them into weights: which invocation holds which element
// of a matrix is the card's secret. Weights, of 16 bits again, times passing rows go to sums in fp32, of which a
// subgroup holds kTiles x kWide tiles: half of the rows, one of kParts parts of the channels.
//
// Compiled as SPV_NV_cooperative_matrix and translated, as matmul_cooperative.comp is, so that matrices are only
// loaded, multiplied and stored here and words of 16 bits only moved. With kScaled operands are made fp16, see
// scaled.glsl: what largest.comp found of the first TENSORS of q, k, v and do is in slot SCALES, sizes[4] numbers of
// each.
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "common.glsl"
#include "scaled.glsl"
#include "sequences.glsl"

layout(local_size_x_id = 8) in;  // 2 kParts subgroups
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;    // of a head, eights
layout(constant_id = 2) const uint kPassing = 32;  // a multiple of kK, and of kSlice or less, then of kN
layout(constant_id = 3) const uint kM = 16;
layout(constant_id = 4) const uint kN = 16;
layout(constant_id = 5) const uint kK = 16;
layout(constant_id = 6) const uint kParts = 2;
layout(constant_id = 7) const uint kTiles = 1;  // of own rows, of a subgroup
layout(constant_id = 9) const bool kReadsAhead = true;
layout(constant_id = 10) const bool kScaled = false;
layout(constant_id = 11) const bool kCapped = false;
#include "attention_scores.glsl"
const uint kUnitType = kScaled ? kFloat16 : kType;  // of what is multiplied

const uint kRows = 2 * kTiles * kM;
const uint kSlice = kParts * kN;  // one tile of each part: rows that pass, or channels
const uint kUnit = kSlice > kK ? kSlice : kK;
const uint kChannels = (kWidth + kUnit - 1) / kUnit * kUnit;  // those past kWidth are zero
const uint kWide = kChannels / kSlice;
const bool kFewPass = kPassing < kSlice;
const uint kAcross = kFewPass ? 1 : kPassing / kSlice;
const uint kSums = kTiles * kWide;
// Rows in shared memory, in pieces of 16 bytes, which matrices begin with: rows of operands differ in their banks.
const uint kPieces = kChannels / 8;
const uint kPitch = kPieces + 1;
const uint kWeightPitch = kPassing / 8 + 1;

// Invocations share out the scores: kLanes to a row, of which there are no more than invocations, each kColumns that
// lie together, whole eights. What is left over of the invocations has no row.
const uint kMostLanes = kPassing / 8;
const uint kShare = gl_WorkGroupSize.x / kRows;
const uint kLanes = kShare > kMostLanes ? kMostLanes : kShare;
const uint kColumns = kPassing / kLanes;

/// Those of a row are neighbours in their subgroup.
uint own_row() { return invocation_by_subgroups() / kLanes; }
uint first_column() { return invocation_by_subgroups() % kLanes * kColumns; }

float largest_of_row(float x) {
  for (uint step = 1; step < kLanes; step *= 2) x = max(x, subgroupShuffleXor(x, step));
  return x;
}
float total_of_row(float x) {
  for (uint step = 1; step < kLanes; step *= 2) x += subgroupShuffleXor(x, step);
  return x;
}

/// The subgroup's part of own rows, of passing rows, and of channels.
uint part_of_rows() { return subgroup() / kParts * kTiles * kM; }
uint part_of_passing() { return kFewPass ? subgroup() % kParts / OPERANDS * kN : subgroup() % kParts * kAcross * kN; }
uint part_of_channels() { return subgroup() % kParts * kWide * kN; }

const uint kReads = 4;  // eights that are under way at a time

// OPERANDS and WEIGHTS, which the kernel defines: how many tensors' rows it owns and lets pass, and how many kinds of
// weights it makes of the scores.
shared uvec4 tiles[OPERANDS * (kRows + kPassing) * kPitch];  // own rows, then those that pass
shared float scores[kRows * (OPERANDS * kPassing > kSlice ? OPERANDS * kPassing : kSlice)];
shared uvec4 weights[WEIGHTS * kRows * kWeightPitch];
shared float by_row[kRows];
const uint kFirstPassing = OPERANDS * kRows;

// Exponents of the powers of two that q, k, v and do are multiplied by.
ivec4 exponents = ivec4(0);
shared uint largest[4];
void find_scales() {
  if (!kScaled) return;
  const uint64_t found = address(SCALES);
  uint own[TENSORS];
  [[unroll]] for (uint i = 0; i < TENSORS; ++i) own[i] = own_largest(found + 4 * kLargestGroups * i, push.sizes[4]);
  if (invocation() < 4) largest[invocation()] = 0;
  barrier();
  [[unroll]] for (uint i = 0; i < TENSORS; ++i) atomicMax(largest[i], own[i]);
  barrier();
  exponents =
      ivec4(exponent_for(largest[0]), exponent_for(largest[1]), exponent_for(largest[2]), exponent_for(largest[3]));
}
// Slopes, weight (dp - delta), come to 2 kWidth 2^30 of scaled numbers at most: times 2^-kSlopeBits they are fp16's.
const int kSlopeBits = 16 + (kWidth <= 64 ? 6 : kWidth <= 128 ? 7 : kWidth <= 256 ? 8 : 9);

/// What sums of products of q and k are multiplied by, slopes, and what those add up to; do . o beside scaled numbers.
float score_scale() { return kScaled ? times_power(push.factors[0], -exponents.x - exponents.y) : push.factors[0]; }
float slope_scale() { return kScaled ? power_of_two(-kSlopeBits) : push.factors[0]; }
float slope_sum_scale() { return kScaled ? push.factors[0] : 1.0; }
float scaled_delta(float delta) { return kScaled ? times_power(delta, exponents.z + exponents.w) : delta; }

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, kM, kN>

/// Rows of one head of a tensor [tokens, heads, kWidth] in memory, from token `first` on. Those past `last` are its row
/// again, whose scores nobody sees. Where they begin is one for all invocations, so that a scalar unit can keep it.
struct Rows {
  uint64_t begin;
  uint pitch;  // bytes from a row to the next
  uint last;
};
Rows rows_of(uint64_t tensor, int first, int last, uint head, uint heads) {
  const uint pitch = heads * kWidth * 2;
  return Rows(tensor + uint64_t(uint(first)) * pitch + head * kWidth * 2, pitch, uint(last - first));
}

/// An invocation's eights of `count` rows, kReads at most, from the workgroup's number `begin` on; and into `tiles`,
/// from row `to` on.
#define kHeld(count) min(kReads, ((count)*kPieces + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x)
uint eight_of(uint begin, uint i, uint count) {
  return min(begin + i * gl_WorkGroupSize.x + invocation(), count * kPieces - 1);
}
void fetch(Rows rows, uint begin, uint count, out uvec4 held[kReads]) {
  [[unroll]] for (uint i = 0; i < kHeld(count); ++i) {
    const uint n = eight_of(begin, i, count);
    const uint piece = min(n % kPieces, kWidth / 8 - 1);
    held[i] = eight_at(rows.begin + (min(n / kPieces, rows.last) * rows.pitch + 16 * piece));
  }
}
void put(uvec4 held[kReads], uint begin, uint count, uint to, int exponent) {
  [[unroll]] for (uint i = 0; i < kHeld(count); ++i) {
    const uint n = eight_of(begin, i, count);
    const uvec4 eight = kScaled ? scaled_eight(held[i], power_of_two(exponent)) : held[i];
    tiles[(to + n / kPieces) * kPitch + n % kPieces] = n % kPieces < kWidth / 8 ? eight : uvec4(0);
  }
}

/// Copies `count` rows of a tensor with this exponent.
void stage(Rows rows, uint count, uint to, int exponent) {
  for (uint begin = 0; begin < count * kPieces; begin += kReads * gl_WorkGroupSize.x) {
    uvec4 held[kReads];
    fetch(rows, begin, count, held);
    put(held, begin, count, to, exponent);
  }
}

/// Rows that pass are under way while others are multiplied, where an invocation can hold them: the card's memory takes
/// hundreds of cycles to answer, and no compiler moves a read across a barrier.
const bool kAhead = kPassing * kPieces <= (kReadsAhead ? kReads * gl_WorkGroupSize.x : 0);
void fetch_passing(Rows rows, out uvec4 held[kReads]) {
  if (kAhead) fetch(rows, 0, kPassing, held);
}
/// The `rows` that were fetched.
void put_passing(Rows rows, uvec4 held[kReads], uint to, int exponent) {
  if (kAhead) {
    put(held, 0, kPassing, to, exponent);
  } else {
    stage(rows, kPassing, to, exponent);
  }
}

/// scores[at] = the subgroup's part of own rows of operand `at` times its passing rows, transposed.
void make_scores(uint at) {
  const uint own = at * kRows;
  const uint passing = kFirstPassing + at * kPassing;
  Sums sums[kTiles * kAcross];
  [[unroll]] for (uint i = 0; i < kTiles * kAcross; ++i) sums[i] = Sums(0.0);
  [[unroll]] for (uint k = 0; k < kChannels; k += kK) {
    fcoopmatNV<16, gl_ScopeSubgroup, kM, kK> left[kTiles];
    [[unroll]] for (uint i = 0; i < kTiles; ++i) {
      coopMatLoadNV(left[i], tiles, (own + part_of_rows() + i * kM) * kPitch + k / 8, kPitch, false);
    }
    [[unroll]] for (uint j = 0; j < kAcross; ++j) {
      fcoopmatNV<16, gl_ScopeSubgroup, kK, kN> right;
      coopMatLoadNV(right, tiles, (passing + part_of_passing() + j * kN) * kPitch + k / 8, kPitch, true);
      [[unroll]] for (uint i = 0; i < kTiles; ++i) {
        sums[i * kAcross + j] = coopMatMulAddNV(left[i], right, sums[i * kAcross + j]);
      }
    }
  }
  [[unroll]] for (uint i = 0; i < kTiles; ++i) {
    [[unroll]] for (uint j = 0; j < kAcross; ++j) {
      const uint place = (part_of_rows() + i * kM) * kPassing + part_of_passing() + j * kN;
      coopMatStoreNV(sums[i * kAcross + j], scores, at * kRows * kPassing + place, kPassing, false);
    }
  }
}
/// Of every operand.
void make_scores() {
  if (kFewPass) {
    const uint part = subgroup() % kParts;
    if (part < OPERANDS * (kPassing / kN)) make_scores(part % OPERANDS);
  } else {
    [[unroll]] for (uint at = 0; at < OPERANDS; ++at) make_scores(at);
  }
}
/// Eight scores of the invocation's columns.
void get_scores(uint at, uint row, uint eight, out float values[8]) {
  const uint from = (at * kRows + row) * kPassing + first_column() + 8 * eight;
  [[unroll]] for (uint c = 0; c < 8; ++c) values[c] = scores[from + c];
}

/// Eight weights in their place; gives the sum of what they are rounded to.
float put_weights(uint at, uint row, uint eight, float values[8]) {
  const uvec2 low = narrowed_raw(kUnitType, vec4(values[0], values[1], values[2], values[3]));
  const uvec2 high = narrowed_raw(kUnitType, vec4(values[4], values[5], values[6], values[7]));
  weights[(at * kRows + row) * kWeightPitch + first_column() / 8 + eight] = uvec4(low, high);
  const vec4 sums = widened_raw(kUnitType, 4, uvec4(low, 0, 0)) + widened_raw(kUnitType, 4, uvec4(high, 0, 0));
  return sums.x + sums.y + (sums.z + sums.w);
}

/// sums += weights[at] times passing rows from `passing` on.
void add_weighted(inout Sums sums[kSums], uint at, uint passing) {
  [[unroll]] for (uint k = 0; k < kPassing; k += kK) {
    fcoopmatNV<16, gl_ScopeSubgroup, kM, kK> left[kTiles];
    [[unroll]] for (uint i = 0; i < kTiles; ++i) {
      const uint place = (at * kRows + part_of_rows() + i * kM) * kWeightPitch + k / 8;
      coopMatLoadNV(left[i], weights, place, kWeightPitch, false);
    }
    [[unroll]] for (uint j = 0; j < kWide; ++j) {
      fcoopmatNV<16, gl_ScopeSubgroup, kK, kN> right;
      coopMatLoadNV(right, tiles, (passing + k) * kPitch + (part_of_channels() + j * kN) / 8, kPitch, false);
      [[unroll]] for (uint i = 0; i < kTiles; ++i) {
        sums[i * kWide + j] = coopMatMulAddNV(left[i], right, sums[i * kWide + j]);
      }
    }
  }
}

/// Sums go through `scores`, kSlice channels of all rows at a time: kN of each part.
uint place_in_slice(uint i) { return (part_of_rows() + i * kM) * kSlice + subgroup() % kParts * kN; }
void put_slice(Sums sums[kSums], uint j) {
  [[unroll]] for (uint i = 0; i < kTiles; ++i) {
    coopMatStoreNV(sums[i * kWide + j], scores, place_in_slice(i), kSlice, false);
  }
}

/// Multiplies each row by its number in `by_row`.
void multiply_rows(inout Sums sums[kSums]) {
  [[unroll]] for (uint j = 0; j < kWide; ++j) {
    put_slice(sums, j);
    barrier();
    for (uint n = invocation(); n < kRows * kSlice; n += gl_WorkGroupSize.x) {
      scores[n] *= by_row[n / kSlice];
    }
    barrier();
    [[unroll]] for (uint i = 0; i < kTiles; ++i) {
      coopMatLoadNV(sums[i * kWide + j], scores, place_in_slice(i), kSlice, false);
    }
    barrier();
  }
}

/// Writes rows of one head of a tensor [tokens, heads, kWidth].
void write_four(uint64_t to, int token, uint head, uint heads, uint channel, vec4 value) {
  if (channel >= kWidth || token >= int(push.sizes[0])) return;
  store_raw(to, kType, (uint(token) * heads + head) * kWidth + channel, value);
}
/// Each times its number in `by_row`, and all times 2^exponent.
void write_rows(Sums sums[kSums], uint64_t to, int first, uint head, uint heads, int exponent) {
  [[unroll]] for (uint j = 0; j < kWide; ++j) {
    barrier();
    put_slice(sums, j);
    barrier();
    for (uint n = 4 * invocation(); n < kRows * kSlice; n += 4 * gl_WorkGroupSize.x) {
      const uint row = n / kSlice;
      const uint part = n % kSlice / kN;
      const vec4 value = by_row[row] * vec4(scores[n], scores[n + 1], scores[n + 2], scores[n + 3]);
      write_four(to, first + int(row), head, heads, part * kWide * kN + j * kN + n % kN,
                 kScaled ? times_power(value, exponent) : value);
    }
  }
}
void write_zeros(uint64_t to, int first, uint head, uint heads) {
  for (uint n = 4 * invocation(); n < kRows * kChannels; n += 4 * gl_WorkGroupSize.x) {
    write_four(to, first + int(n / kChannels), head, heads, n % kChannels, vec4(0.0));
  }
}
