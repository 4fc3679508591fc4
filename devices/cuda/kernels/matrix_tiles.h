// What attention and its gradient by the matrix units share: tiles of rows, fragments of them, products. bf16 from
// sm_80 on, fp16 from sm_75 on.
//
// Products have fp32 sums. What the softmax and its gradient give is rounded to the tensors' type before it is
// multiplied, as transformers and FlashAttention do. A block has four warps of 16 rows each. No atomics: the gradient
// goes twice over the pairs, by keys and by queries.
#pragma once

#include "attention.h"

namespace rondo::devices::cuda {

inline constexpr int kMatrixRows = 64;  // of a block: four warps' 16
inline constexpr int kMatrixThreads = 128;
inline constexpr int kForwardKeys = 64;  // of a tile of the forward

/// Streamed past the block's rows by the gradient: as many as leave room for two blocks on a consumer card.
constexpr int backward_columns(int head_dim) { return head_dim <= 64 ? 32 : 16; }

/// Bytes of shared memory of the forward and of the gradient kernels.
constexpr int matrix_forward_shared(int head_dim) { return 2 * kForwardKeys * (head_dim + 8) * 2 + kMatrixRows * 4; }
constexpr int matrix_backward_shared(int head_dim) {
  return 2 * (kMatrixRows + backward_columns(head_dim)) * (head_dim + 8) * 2 + kMatrixRows * 3 * 4;
}
static_assert(matrix_forward_shared(128) <= 48 * 1024 && matrix_backward_shared(128) <= 48 * 1024);

/// Two numbers side by side; the address is a multiple of four.
RONDO_KERNEL void store_pair(std::uint16_t* at, std::uint32_t pair) {
#ifdef __CUDACC__
  *reinterpret_cast<std::uint32_t*>(at) = pair;
#else
  std::memcpy(at, &pair, sizeof(pair));
#endif
}
inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2 = 0.69314718F;

/// 2^x with an error of 2^-22 of itself at most (PTX ISA, "ex2"), for what is rounded to two bytes anyway.
RONDO_KERNEL float power_of_two(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// Sixteen bytes to shared memory, zeros unless `real`: there once Block::wait_copies() has been passed. Both addresses
/// are multiples of 16.
RONDO_KERNEL void copy_16(std::uint16_t* to, const std::uint16_t* from, bool real) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = real ? 16 : 0;  // to be read; the rest is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#elif defined(__CUDACC__)
  *reinterpret_cast<uint4*>(to) = real ? __ldg(reinterpret_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
#else
  HostLater::mine().copy(to, from, real ? 16 : 0, 16);
#endif
}

/// What the gradient knows of the queries at hand, in shared memory.
struct QueryRows {
  std::int32_t* first;  // key that each sees; kNoKey: padding
  float* lse;           // to the base of two
  float* delta;

  static constexpr int kBytes = 3 * 4;  // of a query

  /// For `count` queries from `memory` on.
  RONDO_KERNEL QueryRows(void* memory, int count)
      : first(static_cast<std::int32_t*>(memory)), lse(reinterpret_cast<float*>(first + count)), delta(lse + count) {}

  /// A thread's of the `count` queries from token `query` on, of which those from `end` on are none.
  RONDO_KERNEL void fetch(const AttentionParams& p, std::int32_t query, int count, std::int32_t head, std::int32_t end,
                          int thread) const {
    if (thread >= count) return;
    const std::int32_t token = query + thread;
    const bool real = token < end;
    first[thread] = real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
    lse[thread] = real ? p.lse[static_cast<std::int64_t>(token) * p.heads + head] * kLog2E : 0.0F;
    delta[thread] = real ? p.delta[static_cast<std::int64_t>(token) * p.heads + head] : 0.0F;
  }

  /// Of query `query` of those at hand: a score, not yet scaled, becomes its weight e^(score - lse), as a power of two,
  /// and do . v becomes scale weight (do . v - delta), with a cap times its slope.
  template <bool kCapped>
  RONDO_KERNEL void differentiate(const AttentionParams& p, int query, bool seen, float& score, float& product) const {
    float slope = p.scale;
    if constexpr (kCapped) {
      score = tanhf(score * (p.scale / p.cap));
      slope *= 1.0F - score * score;
    }
    const float factor = (kCapped ? p.cap : p.scale) * kLog2E;
    const float weight = power_of_two(seen ? score * factor - lse[query] : -INFINITY);
    product = seen ? slope * weight * (product - delta[query]) : 0.0F;
    score = weight;
  }
};

/// What one ldmatrix of four 8 x 8 matrices of two-byte numbers gives a lane (PTX ISA, "ldmatrix"): number j holds of
/// matrix j's row lane / 4 the elements 2 (lane % 4) and the next; kTransposed: of its column lane / 4. row_at(j, r):
/// where row r of matrix j begins in shared memory, a multiple of 16 bytes.
template <bool kTransposed, typename RowAt>
RONDO_KERNEL Array<std::uint32_t, 4> load_matrices(int thread, RowAt row_at) {
  const int lane = thread % kWarp;
  Array<std::uint32_t, 4> x;
#ifdef __CUDACC__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row_at(lane / 8, lane % 8)));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.values[0]), "=r"(x.values[1]), "=r"(x.values[2]), "=r"(x.values[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.values[0]), "=r"(x.values[1]), "=r"(x.values[2]), "=r"(x.values[3])
                 : "r"(at)
                 : "memory");
  }
#else
  const int first = 2 * (lane % 4);
  for (int j = 0; j < 4; ++j) {
    x[j] = kTransposed ? pair_of(row_at(j, first)[lane / 4], row_at(j, first + 1)[lane / 4])
                       : pair_of(row_at(j, lane / 4)[first], row_at(j, lane / 4)[first + 1]);
  }
#endif
  return x;
}

/// Tiles of rows of a head in shared memory, and what is made of them. Own has
///   at(tile, row, piece): where eight numbers of a row begin
///   width(p): channels of a head, kSlices: those that a warp adds up, in eights
///   row_of(thread), slice_of(thread): the first of the 16 rows and of the eights of channels that its warp adds up
template <typename T, typename Own>
struct HeadTiles {
  static constexpr bool kBfloat = T::kIsBfloat;

  /// Two fragments of neighbours: 16 numbers along the head after the other, or eight columns after the other.
  using Neighbours = Array<FragmentB, 2>;

  /// A: rows `row` ..., numbers 16 step ... . REQUIRES, here and below: `row` is a multiple of eight.
  RONDO_KERNEL static FragmentA rows(const std::uint16_t* tile, int row, int step, int thread) {
    auto x = load_matrices<false>(thread,
                                  [&](int j, int r) { return Own::at(tile, row + 8 * (j % 2) + r, 2 * step + j / 2); });
    return {{x[0], x[1], x[2], x[3]}};
  }
  /// B of a product with the rows transposed: its columns are the rows `row` ..., its rows the numbers 16 step ... and,
  /// of the neighbour, 16 (step + 1) ... .
  RONDO_KERNEL static Neighbours columns(const std::uint16_t* tile, int row, int step, int thread) {
    auto x = load_matrices<false>(thread, [&](int j, int r) { return Own::at(tile, row + r, 2 * step + j); });
    return {{{{x[0], x[1]}}, {{x[2], x[3]}}}};
  }
  /// B of a product with the rows as they are: its rows are the rows `row` ..., its columns the numbers 8 slice ...
  /// and, of the neighbour, 8 (slice + 1) ... .
  RONDO_KERNEL static Neighbours across(const std::uint16_t* tile, int row, int slice, int thread) {
    auto x =
        load_matrices<true>(thread, [&](int j, int r) { return Own::at(tile, row + 8 * (j % 2) + r, slice + j / 2); });
    return {{{{x[0], x[1]}}, {{x[2], x[3]}}}};
  }
  /// Two neighbouring tiles of C as an A: what was 16 rows by 8 and 8 columns is 16 by 16.
  RONDO_KERNEL static FragmentA narrowed(const FragmentC& left, const FragmentC& right) {
    FragmentA a;
    RONDO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const FragmentC& from = r / 2 == 0 ? left : right;
      a.x[r] = narrowed_pair<T>(from.x[2 * (r % 2)], from.x[2 * (r % 2) + 1]);
    }
    return a;
  }
  /// A warp's sums [16, 8 kSlices] += A times 16 rows of a tile from `row` on.
  template <typename Block, typename Sums, typename A>
  RONDO_KERNEL static void add_product(Block& block, Sums& sums, A& a, const std::uint16_t* tile, int row) {
    RONDO_UNROLL
    for (int slice = 0; slice < Own::kSlices; slice += 2) {
      typename Block::template Own<Neighbours> b;
      block.local([&](int thread) { b[thread] = across(tile, row, Own::slice_of(thread) + slice, thread); });
      RONDO_UNROLL
      for (int next = 0; next < 2; ++next) {
        block.template multiply<kBfloat>([&](int thread) -> FragmentC& { return sums[thread][slice + next]; },
                                         [&](int thread) -> FragmentA& { return a[thread]; },
                                         [&](int thread) -> FragmentB& { return b[thread][next]; });
      }
    }
  }
  /// Writes a warp's 16 rows of the block's, from token `first` on, times factor(0 or 1: the row g or g + 8).
  template <typename Sums, typename Factor>
  RONDO_KERNEL static void put(const AttentionParams& p, void* to, std::int64_t heads, std::int64_t head,
                               std::int32_t first, int thread, Sums& sums, Factor factor) {
    const float factors[2] = {factor(0), factor(1)};
    for_pairs(p, first, thread, sums, [&](std::int64_t token, int channel, int i, float left, float right) {
      store_pair(static_cast<std::uint16_t*>(to) + (token * heads + head) * Own::width(p) + channel,
                 narrowed_pair<T>(left * factors[i], right * factors[i]));
    });
  }
  /// The same as they are.
  template <typename Sums>
  RONDO_KERNEL static void put(const AttentionParams& p, void* to, std::int64_t heads, std::int64_t head,
                               std::int32_t first, int thread, Sums& sums) {
    put(p, to, heads, head, first, thread, sums, [](int) { return 1.0F; });
  }
  /// dk and dv of a key head and a part of its query heads: to their places, or to the parts' where there are more.
  template <typename Sums>
  RONDO_KERNEL static void put_of_keys(const AttentionParams& p, std::int32_t head, std::int32_t part,
                                       std::int32_t first, int thread, Sums& dk, Sums& dv) {
    if (p.splits == 1) {
      put(p, p.dk, p.kv_heads, head, first, thread, dk);
      put(p, p.dv, p.kv_heads, head, first, thread, dv);
    } else {
      put_part(p, p.dk_parts, part, head, first, thread, dk);
      put_part(p, p.dv_parts, part, head, first, thread, dv);
    }
  }

 private:
  /// As put(), of sums over a part of a key head's query heads, see AttentionParams.
  template <typename Sums>
  RONDO_KERNEL static void put_part(const AttentionParams& p, float* to, std::int64_t part, std::int64_t head,
                                    std::int32_t first, int thread, Sums& sums) {
    for_pairs(p, first, thread, sums, [&](std::int64_t token, int channel, int, float left, float right) {
      float* const at = to + ((part * p.tokens + token) * p.kv_heads + head) * Own::width(p) + channel;
      at[0] = left;
      at[1] = right;
    });
  }

  /// Calls fn(token, channel, 0 or 1: the row g or g + 8, left, right) for each pair of a thread's sums whose token and
  /// channel there are.
  template <typename Sums, typename Function>
  RONDO_KERNEL static void for_pairs(const AttentionParams& p, std::int32_t first, int thread, Sums& sums,
                                     Function fn) {
    RONDO_UNROLL
    for (int slice = 0; slice < Own::kSlices; ++slice) {
      const int channel = 8 * (Own::slice_of(thread) + slice);
      if (channel >= Own::width(p)) continue;
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int64_t token = first + Own::row_of(thread) + thread % kWarp / 4 + 8 * i;
        if (token >= p.tokens) continue;
        fn(token, channel + 2 * (thread % 4), i, sums[slice].x[2 * i], sums[slice].x[2 * i + 1]);
      }
    }
  }
};

/// A warp adds up all channels. Rows are 8 numbers longer than the head: lanes meet different banks.
template <typename T, int kHead>
struct MatrixTiles : HeadTiles<T, MatrixTiles<T, kHead>> {
  static constexpr int kStride = kHead + 8;
  static constexpr int kSteps = kHead / 16;  // of a product along the head
  static constexpr int kSlices = kHead / 8;  // of a product's result across the head

  RONDO_KERNEL static constexpr std::int64_t width(const AttentionParams&) { return kHead; }
  RONDO_KERNEL static int row_of(int thread) { return thread / kWarp * 16; }
  RONDO_KERNEL static constexpr int slice_of(int) { return 0; }
  RONDO_KERNEL static const std::uint16_t* at(const std::uint16_t* tile, int row, int piece) {
    return tile + row * kStride + 8 * piece;
  }

  /// `count` rows from token `first` on; zero from `end` on. There once Block::wait_copies() has been passed.
  RONDO_KERNEL static void fetch(const AttentionParams&, std::uint16_t* to, const void* from, std::int64_t heads,
                                 std::int64_t head, std::int32_t first, int count, std::int32_t end, int thread) {
    constexpr int kPieces = kHead / 8;  // of 16 bytes, of a row
    constexpr int kStep = kMatrixThreads / kPieces;
    const int column = thread % kPieces * 8;
    const std::int64_t step = heads * kHead;
    const auto* at = static_cast<const std::uint16_t*>(from) + first * step + head * kHead + column;
    RONDO_UNROLL
    for (int row = thread / kPieces; row < count; row += kStep) {
      copy_16(to + row * kStride + column, at + row * step, first + row < end);
    }
  }
};

}  // namespace rondo::devices::cuda
