// matmul.comp's products for processors that pose as cards, from operands by texels: fp32 tensors where they lie,
// others as panel.comp has laid them out. A subgroup of eight computes 32 rows of 64 columns by itself, an invocation
// eight columns. Numbers of A go round: of those that the eight have fetched each takes its own first, then those of
// the neighbours whose numbers differ from its own in some of three bits, so that a texel of either operand serves very
// many multiplications, and most numbers are handed on by an instruction that stays within a half of the register. A
// larger tile's loop no longer fits what the processor keeps of decoded instructions, and takes a quarter longer.
//
// Slots, factors and the constants 2 to 10 are those of matmul.glsl, and so are the sums: rising order of K, one chunk
// a dispatch. The grid: tiles of rows that are near each other, tiles of columns, groups of those tiles of rows; so
// that a group's rows of A stay in the cache while all columns go by. Groups with a tile less than others have
// workgroups that do nothing.
// sizes: end of the rows, N, first row, first column, place of A in the panel or from its tensor's beginning, stride of
// out, fours of K, first of the list, most of the list, place of B, 0, stride of A and of B in texels.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"

layout(local_size_x = 8) in;
// 1: fetched where they lie, A(m, k) at k * stride + m and B(k, n) at k * stride + n. 0: from the panel.
layout(constant_id = 0) const uint kTensorA = 0;
layout(constant_id = 1) const uint kTensorB = 0;
layout(constant_id = 2) const uint kTypeOut = 0;
layout(constant_id = 3) const uint kTypeBias = 0;
layout(constant_id = 4) const uint kTypeAddend = 0;
layout(constant_id = 7) const bool kBias = false;
layout(constant_id = 8) const bool kAddend = false;
layout(constant_id = 9) const bool kAccumulate = false;
layout(constant_id = 10) const uint kListed = 0;
layout(constant_id = 11) const uint kFours = 2;        // fours of columns of an invocation
layout(constant_id = 12) const uint kStep = 1;         // 2: rows of the result have an even number of elements
layout(constant_id = 13) const bool kFetches = false;  // any tensor can be fetched
layout(constant_id = 14) const bool kFourOut = false;  // out is fp32 in whole texels, where it is read
layout(constant_id = 15) const bool kFourAddend = false;
layout(set = 0, binding = 0) uniform samplerBuffer panel;
layout(set = 0, binding = 1) uniform samplerBuffer memory;

const uint kRows = 32;
const uint kRowsAtOnce = 4;
const uint kColumns = kFours * 4;
const uint kRowsStored = 16;
const uint kTile = kColumns * 8;

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }
/// One of two by a constant: without a branch, which would keep loops from being unrolled.
uint pick(uint second, uint two, uint one) { return second * two + (1 - second) * one; }
/// The `row`th sums of an invocation are of the row that its `turn`th neighbour has fetched, itself the first.
uint turn_of(uint row) { return pick(kTensorA, row / 4, row % 8); }
uint row_of(uint lane, uint row) {
  const uint neighbour = lane ^ turn_of(row);
  return pick(kTensorA, 4 * neighbour + row % 4, row / 8 * 8 + neighbour);
}
/// The first of an invocation's `four`th columns: in the panel its columns lie beside each other.
uint column_of(uint lane, uint four) { return pick(kTensorB, four * 32 + lane * 4, lane * kColumns + four * 4); }
uint texel_of(uint64_t address) { return uint((address - push.fetched) >> 4); }
/// Operands by views of their own: a view's function then reads line after line, which the processor foresees. Where
/// both are from the panel, B's place in it is one in memory.
vec4 fetch_a(uint at) { return kTensorA == 0 ? texelFetch(panel, int(at)) : texelFetch(memory, int(at)); }
vec4 fetch_b(uint at) {
  return kTensorB == 0 && kTensorA != 0 ? texelFetch(panel, int(at)) : texelFetch(memory, int(at));
}
/// The first tile of rows of a group: groups differ by one tile at most, since a processor gives each of its threads as
/// many workgroups as any other, one after the other.
uint group_begin(uint group) {
  const uint tiles = (push.sizes[0] - push.sizes[2] + kRows - 1) / kRows;
  return group * tiles / grid_depth();
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint row_tile = group_begin(workgroup().z) + workgroup().x;
  const uint first_row = push.sizes[2] + row_tile * kRows;
  const uint first_column = push.sizes[3] + workgroup().y * kTile;
  uint end = row_tile < group_begin(workgroup().z + 1) ? push.sizes[0] : 0;
  if (kListed == 1 || kListed == 2) end = min(end, present(address(5), push.sizes[7], push.sizes[8]));
  const uint fours = first_row < end ? push.sizes[6] : 0;
  const uint zero = push.sizes[10];  // which the compiler does not know
  // The neighbour in the other half of the register: with a constant the compiler would cross the halves for each
  // number that comes from there, not once for four.
  const uint across = (lane ^ 4) + zero;
  // Whether there is more to do, asked by each group of rows: the compiler then keeps the answer in a register, where
  // one for all is read from memory at each sum.
  uint ends[kRows / kRowsAtOnce];
  [[unroll]] for (uint i = 0; i < kRows / kRowsAtOnce; ++i) ends[i] = fours + i * zero;

  // From the panel, four inner elements of eight rows or columns a fetch; from tensors an inner element of all rows or
  // of 32 columns.
  const uint begin_b = kTensorB == 0 && kTensorA == 0 ? texel_of(Words(push.table).v[2]) : 0;
  uint at_a = push.sizes[4] + row_tile * push.sizes[6] * kRows + lane;
  uint step_a = 8;
  uint next_a = kRows;
  if (kTensorA != 0) {
    at_a = texel_of(address(0)) + push.sizes[4] + first_row / 4 + lane;
    step_a = push.sizes[11];
    next_a = 4 * step_a;
  }
  uint at_b = begin_b + push.sizes[9] + workgroup().y * push.sizes[6] * kTile + lane;
  uint step_b = 8 * kFours;
  uint next_b = kTile;
  if (kTensorB != 0) {
    at_b = texel_of(address(1)) + push.sizes[9] + first_column / 4 + lane;
    step_b = push.sizes[12];
    next_b = 4 * step_b;
  }
  float sums[kRows * kColumns];
  [[unroll]] for (uint i = 0; i < kRows * kColumns; ++i) sums[i] = 0.0;
  for (uint four = 0; four < fours; ++four) {
    vec4 b[kColumns];
    vec4 a[kRows / 8];
    [[unroll]] for (uint i = 0; i < kRows / 8; ++i) a[i] = fetch_a(at_a + i * step_a);
    [[unroll]] for (uint i = 0; i < kColumns; ++i) b[i] = fetch_b(at_b + i / kFours * step_b + i % kFours * 8);
    // In an order in which few registers hold what is needed next.
    [[unroll]] for (uint first = 0; first < kRows; first += kRowsAtOnce) {
      if (four < ends[first / kRowsAtOnce]) {
        float factors[4 * kRowsAtOnce];
        [[unroll]] for (uint k = 0; k < 4; ++k) {
          [[unroll]] for (uint i = 0; i < kRowsAtOnce; ++i) {
            const uint row = first + i;
            const float own = a[pick(kTensorA, k, row / 8)][pick(kTensorA, row % 4, k)];
            const float halves[2] = float[2](own, subgroupShuffle(own, across));
            factors[k * kRowsAtOnce + i] = subgroupShuffleXor(halves[turn_of(row) / 4], turn_of(row) % 4);
          }
        }
        [[unroll]] for (uint column = 0; column < kColumns; ++column) {
          [[unroll]] for (uint k = 0; k < 4; ++k) {
            const float of_b = b[pick(kTensorB, k * kFours + column / 4, column)][pick(kTensorB, column % 4, k)];
            [[unroll]] for (uint i = 0; i < kRowsAtOnce; ++i) {
              sums[(first + i) * kColumns + column] += factors[k * kRowsAtOnce + i] * of_b;
            }
          }
        }
      }
    }
    at_a += next_a;
    at_b += next_b;
  }

  const uint64_t to = address(2);
  const uint64_t addend = kAddend ? address(4) : 0ul;
  const uint width = push.sizes[1];
  const uint stride = push.sizes[5];
  const float alpha = push.factors[0];
  const uint to_texel = kFetches ? texel_of(to) : 0;
  const uint addend_texel = kFourAddend ? texel_of(addend) : 0;
  vec2 bias[kColumns];
  if (kBias) {
    const uint64_t biases = address(3);
    [[unroll]] for (uint j = 0; j < kColumns; j += kStep) {
      bias[j] = load_some(biases, kTypeBias, kStep, min(first_column + column_of(lane, j / 4) + j % 4, width - kStep));
    }
  }
  // A number of each line of the result is read first: reads wait for memory together, writes one after the other.
  // `touched` is 0 in the end.
  uint touched = 0;
  if (!kAccumulate && kListed != 2) {
    [[unroll]] for (uint i = 0; i < kRows * kFours / 4; ++i) {
      const uint line = i * 8 + lane;
      const uint m = min(first_row + line / (2 * kFours), push.sizes[0] - 1);
      const uint n = min(first_column + line % (2 * kFours) * 16, width - 1);
      const uint number = m * stride + n;
      if (kFetches) {
        touched |= floatBitsToUint(texelFetch(memory, int(to_texel + number / (kTypeOut == kFloat32 ? 4 : 8))).x);
      } else {
        touched |= Uints(to).v[kTypeOut == kFloat32 ? number : number / 2];
      }
    }
    touched &= zero;
  }
  // A loop for the sake of little code; the rows left move up, since arrays are registers.
  [[dont_unroll]] for (uint first = 0; first < kRows; first += kRowsStored) {
    [[unroll]] for (uint i = 0; i < kRowsStored; ++i) {
      const uint m = first_row + row_of(lane, first + i);
      const uint row = m < end ? (kListed == 2 ? listed(m) : m) : 0;
      [[unroll]] for (uint four = 0; four < kFours; ++four) {
        const uint first_n = first_column + column_of(lane, four);
        const uint four_at = row * stride + first_n;
        const vec4 more = kFourAddend ? texelFetch(memory, int(addend_texel + four_at / 4)) : vec4(0.0);
        const vec4 before = kFourOut && kAccumulate ? texelFetch(memory, int(to_texel + four_at / 4)) : vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j += kStep) {
          const uint n = first_n + j;
          const uint column = four * 4 + j;
          const uint last = kStep - 1;
          if (m < end && n < width) {
            const uint at = row * stride + n + touched;
            vec2 values = alpha * vec2(sums[i * kColumns + column], sums[i * kColumns + column + last]);
            if (kBias) values += bias[column];
            if (kAddend) {
              values += kFourAddend ? vec2(more[j], more[j + last]) : load_some(addend, kTypeAddend, kStep, at);
            }
            if (kAccumulate) {
              values += kFourOut ? vec2(before[j], before[j + last]) : load_some(to, kTypeOut, kStep, at);
            }
            store_some(to, kTypeOut, kStep, at, values, 32 + zero);
          }
        }
      }
    }
    [[unroll]] for (uint i = 0; i < (kRows - kRowsStored) * kColumns; ++i) sums[i] = sums[i + kRowsStored * kColumns];
  }
}
