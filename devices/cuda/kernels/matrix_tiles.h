// What attention and its gradient by the matrix units share: tiles of rows, fragments of them, products in parts.
//
// Products of stored numbers are exact in fp32. What the softmax and its gradient give is fp32, of which a two-byte
// number holds a third: it is multiplied in three parts, each what the parts before it left over, so that the result is
// that of fp32 arithmetic. A block has four warps of 16 rows each. No atomics: the gradient goes twice over the pairs,
// by keys and by queries.
#pragma once

#include "attention.h"

namespace rondo::devices::cuda {

inline constexpr int kMatrixRows = 64;  // of a block: four warps' 16
inline constexpr int kMatrixThreads = 128;
inline constexpr int kForwardKeys = 64;      // of a tile of the forward
inline constexpr int kBackwardColumns = 16;  // streamed past the block's rows by the gradient
inline constexpr int kParts = 3;

/// Bytes of shared memory of the forward and of the gradient kernels.
constexpr int matrix_forward_shared(int head_dim) { return 2 * kForwardKeys * (head_dim + 8) * 2 + kMatrixRows * 4; }
constexpr int matrix_backward_shared(int head_dim) {
  return 2 * (kMatrixRows + kBackwardColumns) * (head_dim + 8) * 2 + 3 * kMatrixRows * 4;
}
static_assert(matrix_forward_shared(128) <= 48 * 1024 && matrix_backward_shared(128) <= 48 * 1024);

/// Two numbers that lie side by side; the address is a multiple of four.
RONDO_KERNEL std::uint32_t load_pair(const std::uint16_t* at) {
#ifdef __CUDACC__
  return *reinterpret_cast<const std::uint32_t*>(at);
#else
  std::uint32_t pair = 0;
  std::memcpy(&pair, at, sizeof(pair));
  return pair;
#endif
}
RONDO_KERNEL void store_pair(std::uint16_t* at, std::uint32_t pair) {
#ifdef __CUDACC__
  *reinterpret_cast<std::uint32_t*>(at) = pair;
#else
  std::memcpy(at, &pair, sizeof(pair));
#endif
}
RONDO_KERNEL std::uint32_t pair_of(std::uint32_t low, std::uint32_t high) { return low | (high << 16U); }

/// Takes what T holds of x off it.
template <typename T>
RONDO_KERNEL std::uint32_t take_part(float& x) {
  T part;
  store(&part, x);
  x -= load(&part);
  return part.bits;
}

/// Tiles of rows of a head in shared memory. Rows are 8 numbers longer than the head: lanes meet different banks.
template <typename T, int kHead>
struct MatrixTiles {
  static constexpr bool kBfloat = T::kIsBfloat;
  static constexpr int kStride = kHead + 8;
  static constexpr int kSteps = kHead / 16;  // of a product along the head
  static constexpr int kSlices = kHead / 8;  // of a product's result across the head

  /// `count` rows from token `first` on; zero from `end` on.
  RONDO_KERNEL static void fetch(std::uint16_t* to, const void* from, std::int64_t heads, std::int64_t head,
                                 std::int32_t first, int count, std::int32_t end, int thread) {
    for (int e = thread; e < count * (kHead / 2); e += kMatrixThreads) {
      const int row = e / (kHead / 2);
      const int column = e % (kHead / 2) * 2;
      const std::int64_t token = first + row;
      const auto* at = static_cast<const std::uint16_t*>(from) + (token * heads + head) * kHead + column;
      store_pair(to + row * kStride + column, token < end ? load_pair(at) : 0U);
    }
  }

  /// A: rows `row` ..., numbers 16 step ... .
  RONDO_KERNEL static FragmentA rows(const std::uint16_t* tile, int row, int step, int thread) {
    const int g = thread % kWarp / 4;
    const int q = thread % 4;
    FragmentA a;
    RONDO_UNROLL
    for (int r = 0; r < 4; ++r) {
      a.x[r] = load_pair(tile + (row + g + 8 * (r % 2)) * kStride + 16 * step + 2 * q + 8 * (r / 2));
    }
    return a;
  }
  /// B of a product with the rows transposed: its columns are the rows `row` ..., its rows the numbers 16 step ... .
  RONDO_KERNEL static FragmentB columns(const std::uint16_t* tile, int row, int step, int thread) {
    FragmentB b;
    RONDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      b.x[r] = load_pair(tile + (row + thread % kWarp / 4) * kStride + 16 * step + 2 * (thread % 4) + 8 * r);
    }
    return b;
  }
  /// B of a product with the rows as they are: its rows are the rows `row` ..., its columns the numbers 8 slice ... .
  RONDO_KERNEL static FragmentB across(const std::uint16_t* tile, int row, int slice, int thread) {
    FragmentB b;
    RONDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      const std::uint16_t* at = tile + (row + 2 * (thread % 4) + 8 * r) * kStride + 8 * slice + thread % kWarp / 4;
      b.x[r] = pair_of(at[0], at[kStride]);
    }
    return b;
  }
  /// Two neighbouring tiles of C as an A of three parts: what was 16 rows by 8 and 8 columns is 16 by 16.
  RONDO_KERNEL static Array<FragmentA, kParts> parts(const FragmentC& left, const FragmentC& right) {
    Array<FragmentA, kParts> result;
    RONDO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const FragmentC& from = r / 2 == 0 ? left : right;
      float low = from.x[2 * (r % 2)];
      float high = from.x[2 * (r % 2) + 1];
      RONDO_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t low_bits = take_part<T>(low);
        result[part].x[r] = pair_of(low_bits, take_part<T>(high));
      }
    }
    return result;
  }
  /// sums [16, kHead] += A of three parts times the rows of a tile.
  template <typename Block, typename Sums, typename Parts>
  RONDO_KERNEL static void add_product(Block& block, Sums& sums, Parts& three, const std::uint16_t* tile, int row) {
    RONDO_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      typename Block::template Own<FragmentB> b;
      block.local([&](int thread) { b[thread] = across(tile, row, slice, thread); });
      RONDO_UNROLL
      for (int part = kParts - 1; part >= 0; --part) {  // the small ones first
        block.template multiply<kBfloat>([&](int thread) -> FragmentC& { return sums[thread][slice]; },
                                         [&](int thread) -> FragmentA& { return three[thread][part]; },
                                         [&](int thread) -> FragmentB& { return b[thread]; });
      }
    }
  }
  /// Writes 16 rows a warp of the block's, from token `first` on, times factor(thread, 0 or 1: the row g or g + 8).
  template <typename Sums, typename Factor>
  RONDO_KERNEL static void put(void* to, std::int64_t heads, std::int64_t head, std::int32_t first, std::int32_t tokens,
                               int thread, Sums& sums, Factor factor) {
    RONDO_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int64_t token = first + thread / kWarp * 16 + thread % kWarp / 4 + 8 * i;
        if (token >= tokens) continue;
        float low = sums[slice].x[2 * i] * factor(i);
        float high = sums[slice].x[2 * i + 1] * factor(i);
        auto* at = static_cast<std::uint16_t*>(to) + (token * heads + head) * kHead + 8 * slice + 2 * (thread % 4);
        const std::uint32_t low_bits = take_part<T>(low);
        store_pair(at, pair_of(low_bits, take_part<T>(high)));
      }
    }
  }
};

}  // namespace rondo::devices::cuda
