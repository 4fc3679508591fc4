// Products of a group by the matrix units, for bf16 and fp16 with rows of whole pieces of 16 bytes: a
// block 128 x 128 elements, each of its four warps 64 x 64 of them. The next part along what is summed over is copied
// to shared memory while the one before is multiplied.
#pragma once

#include "grouped.h"
#include "matrix_tiles.h"

namespace rondo::devices::cuda {

inline constexpr int kMatrixTile = 128;
inline constexpr int kMatrixDepth = 32;  // of a part
inline constexpr int kWarpRows = 2;      // warps of a block down its tile, sixteen rows each in turn
inline constexpr int kRowSlices = kMatrixTile / 16 / kWarpRows;
inline constexpr int kColumnSlices = 8;  // of a warp, eight columns each
inline constexpr int kMatrixPieces =
    kMatrixTile * kMatrixDepth / 8 / kMatrixThreads;  // of 16 bytes, of a part, a thread
static_assert(kMatrixThreads / kWarp / kWarpRows * kColumnSlices * 8 == kMatrixTile);
static_assert(kGroupChunk % kMatrixDepth == 0);

/// A matrix of two-byte numbers [count, inner], or with its numbers across [inner, count].
struct MatrixOperand {
  const std::uint16_t* at;
  std::int64_t step;   // from one row to the next
  std::int32_t first;  // of the block
  std::int32_t count;
};

/// Parts of an operand in shared memory. Rows are longer by 16 bytes: lanes meet different banks.
template <bool kAcross>
struct MatrixPart {
  static constexpr int kWidth = kAcross ? kMatrixTile : kMatrixDepth;
  static constexpr int kStride = kWidth + 8;
  static constexpr int kNumbers = (kAcross ? kMatrixDepth : kMatrixTile) * kStride;

  /// Those from `inner` on, zeros outside. There once Block::wait_copies() has been passed.
  RONDO_KERNEL static void fetch(std::uint16_t* to, const MatrixOperand& from, std::int32_t inner, std::int32_t end,
                                 int thread) {
    RONDO_UNROLL
    for (int i = 0; i < kMatrixPieces; ++i) {
      const int piece = thread + i * kMatrixThreads;
      const int row = piece / (kWidth / 8);
      const int column = piece % (kWidth / 8) * 8;
      const std::int32_t from_row = (kAcross ? inner : from.first) + row;
      const std::int32_t from_column = (kAcross ? from.first : inner) + column;
      const bool inside = from_row < (kAcross ? end : from.count) && from_column < (kAcross ? from.count : end);
      copy_16(to + row * kStride + column, from.at + from_row * from.step + from_column, inside);
    }
  }
  /// A of a product: sixteen rows from `row` on.
  RONDO_KERNEL static FragmentA left(const std::uint16_t* part, int row, int step, int thread) {
    auto x = load_matrices<kAcross>(thread, [&](int j, int r) {
      return kAcross ? part + (16 * step + 8 * (j / 2) + r) * kStride + row + 8 * (j % 2)
                     : part + (row + 8 * (j % 2) + r) * kStride + 16 * step + 8 * (j / 2);
    });
    return {{x[0], x[1], x[2], x[3]}};
  }
  /// B of two products: eight columns each from `column` on.
  RONDO_KERNEL static Array<FragmentB, 2> right(const std::uint16_t* part, int column, int step, int thread) {
    auto x = load_matrices<kAcross>(thread, [&](int j, int r) {
      return kAcross ? part + (16 * step + 8 * (j % 2) + r) * kStride + column + 8 * (j / 2)
                     : part + (column + 8 * (j / 2) + r) * kStride + 16 * step + 8 * (j % 2);
    });
    return {{{{x[0], x[1]}}, {{x[2], x[3]}}}};
  }
};

constexpr int kMatrixPartShared = kMatrixTile * (kMatrixDepth + 8) * 2;  // of either kind, at most
static_assert(MatrixPart<true>::kNumbers * 2 <= kMatrixPartShared);
inline constexpr int kMatrixProductShared = 4 * kMatrixPartShared;
inline constexpr int kMatrixGroupedShared = kMatrixProductShared + kGroupRowsShared;
static_assert(kMatrixGroupedShared <= 48 * 1024);

/// A tile of left times right, the first two dimensions of whose numbers a `kAcross` says to be the other way round.
template <typename T, bool kLeftAcross, bool kRightAcross>
struct MatrixProduct {
  using Left = MatrixPart<kLeftAcross>;
  using Right = MatrixPart<kRightAcross>;
  using Sums = Array<Array<FragmentC, kColumnSlices>, kRowSlices>;  // of a thread

  /// Calls finish(sum, row, column, low, high) for pairs of elements of the result behind every `chunk` of numbers that
  /// are summed over and behind the last; sum: how many chunks came before.
  template <typename Block, typename Finish>
  RONDO_KERNEL static void run(Block& block, const MatrixOperand& left, const MatrixOperand& right, std::int32_t inner,
                               std::int32_t chunk, Finish finish) {
    auto* shared = reinterpret_cast<std::uint16_t*>(block.shared());
    constexpr int kPart = kMatrixPartShared / 2;
    typename Block::template Own<Sums> sums;
    const auto fetch = [&](std::int32_t at, int thread) {
      std::uint16_t* to = shared + at / kMatrixDepth % 2 * 2 * kPart;
      Left::fetch(to, left, at, inner, thread);
      Right::fetch(to + kPart, right, at, inner, thread);
    };
    block.local([&](int thread) {
      clear(sums[thread]);
      if (inner > 0) fetch(0, thread);
    });
    // Slices of rows with any: where an expert has few, most of a tile has nothing to do.
    const std::int32_t rows = left.count - left.first < kMatrixTile ? left.count - left.first : kMatrixTile;
    const int slices = (rows + 16 * kWarpRows - 1) / (16 * kWarpRows);
    std::int32_t sum = 0;
    for (std::int32_t at = 0; at < inner; at += kMatrixDepth) {
      block.wait_copies();  // and all are through with the part before
      const std::int32_t next = at + kMatrixDepth;
      if (next < inner) block.local([&](int thread) { fetch(next, thread); });
      const std::uint16_t* part = shared + at / kMatrixDepth % 2 * 2 * kPart;
      RONDO_UNROLL
      for (int step = 0; step < kMatrixDepth / 16; ++step) multiply(block, sums, part, part + kPart, step, slices);
      if (next < inner && next % chunk != 0) continue;
      put(block, sums, left, right, [&](auto... of) { finish(sum, of...); });
      ++sum;
    }
    if (inner <= 0) put(block, sums, left, right, [&](auto... of) { finish(0, of...); });
  }

 private:
  RONDO_KERNEL static void clear(Sums& sums) {
    RONDO_UNROLL
    for (int m = 0; m < kRowSlices; ++m) {
      RONDO_UNROLL
      for (int n = 0; n < kColumnSlices; ++n) sums[m][n] = FragmentC{};
    }
  }
  RONDO_KERNEL static int row_of(int thread, int slice) {
    return 16 * (thread / kWarp % kWarpRows + kWarpRows * slice);
  }
  RONDO_KERNEL static int column_of(int thread) { return 8 * kColumnSlices * (thread / kWarp / kWarpRows); }

  template <typename Block, typename Own>
  RONDO_KERNEL static void multiply(Block& block, Own& sums, const std::uint16_t* left, const std::uint16_t* right,
                                    int step, int slices) {
    typename Block::template Own<Array<Array<FragmentB, 2>, kColumnSlices / 2>> b;
    typename Block::template Own<FragmentA> a;
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int n = 0; n < kColumnSlices / 2; ++n)
        b[thread][n] = Right::right(right, column_of(thread) + 16 * n, step, thread);
    });
    RONDO_UNROLL
    for (int m = 0; m < kRowSlices; ++m) {
      if (m >= slices) continue;
      block.local([&](int thread) { a[thread] = Left::left(left, row_of(thread, m), step, thread); });
      RONDO_UNROLL
      for (int n = 0; n < kColumnSlices; ++n) {
        block.template multiply<T::kIsBfloat>([&](int thread) -> FragmentC& { return sums[thread][m][n]; },
                                              [&](int thread) -> FragmentA& { return a[thread]; },
                                              [&](int thread) -> FragmentB& { return b[thread][n / 2][n % 2]; });
      }
    }
  }

  /// Hands the sums out; they are zero then.
  template <typename Block, typename Own, typename Write>
  RONDO_KERNEL static void put(Block& block, Own& sums, const MatrixOperand& left, const MatrixOperand& right,
                               Write write) {
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int i = 0; i < 2 * kColumnSlices * kRowSlices; ++i) {
        const int m = i / (2 * kColumnSlices);
        const int n = i / 2 % kColumnSlices;
        const std::int32_t row = left.first + row_of(thread, m) + thread % kWarp / 4 + 8 * (i % 2);
        const std::int32_t column = right.first + column_of(thread) + 8 * n + 2 * (thread % 4);
        const FragmentC& c = sums[thread][m][n];
        if (row < left.count && column < right.count) write(row, column, c.x[2 * (i % 2)], c.x[2 * (i % 2) + 1]);
      }
      clear(sums[thread]);
    });
  }
};

/// A block a tile of the result; kAcross: of the gradient of the input.
template <typename T, bool kAcross>
struct MatrixGroupedProduct {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedParams& p) {
    auto* found = reinterpret_cast<std::int32_t*>(block.shared() + kMatrixProductShared);
    const GroupRows rows = rows_of_tile(block, p, static_cast<std::int32_t>(block.y()), kMatrixTile, found);
    if (rows.first >= rows.end || !is_of_launch(p, rows)) return;
    const bool real = rows.expert < p.experts;
    const MatrixOperand left{static_cast<const std::uint16_t*>(p.a), p.inner, rows.first, rows.end};
    const MatrixOperand right{static_cast<const std::uint16_t*>(real ? p.w[rows.expert - p.first] : nullptr),
                              kAcross ? p.columns : p.inner, static_cast<std::int32_t>(block.x()) * kMatrixTile,
                              static_cast<std::int32_t>(p.columns)};
    const auto inner = static_cast<std::int32_t>(real ? p.inner : 0);
    const auto* addend = real ? static_cast<const T*>(p.addend) : nullptr;
    MatrixProduct<T, false, kAcross>::run(
        block, left, right, inner, inner,
        [&](std::int32_t, std::int32_t row, std::int32_t column, float low, float high) {
          const std::int64_t at = row * p.columns + column;
          low *= p.alpha;
          high *= p.alpha;
          if (addend != nullptr) {
            low += load(addend + at);
            high += load(addend + at + 1);
          }
          store_pair(static_cast<std::uint16_t*>(p.c) + at, narrowed_pair<T>(low, high));
        });
  }
};
template <typename T>
using MatrixGrouped = MatrixGroupedProduct<T, false>;
template <typename T>
using MatrixGroupedAcross = MatrixGroupedProduct<T, true>;

/// Two numbers side by side, to which what is there is added or not; the address is a multiple of eight.
RONDO_KERNEL void put_two(float* at, float low, float high, bool adds) {
#ifdef __CUDACC__
  auto* both = reinterpret_cast<float2*>(at);
  const float2 before = adds ? *both : float2{0, 0};
  *both = {before.x + low, before.y + high};
#else
  at[0] = adds ? at[0] + low : low;
  at[1] = adds ? at[1] + high : high;
#endif
}

/// As GroupedGradient.
template <typename T>
struct MatrixGroupedGradient {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedGradientParams& p) {
    const GradientTile tile = gradient_tile(p, block.x(), kMatrixTile);
    const std::int32_t* offsets = p.offsets + p.first + tile.expert;
    const std::int64_t begin = offsets[0];
    const auto inner = static_cast<std::int32_t>(offsets[1] - begin);
    if (inner == 0 && p.addend != nullptr) return;
    const MatrixOperand left{static_cast<const std::uint16_t*>(p.dy) + begin * p.rows, p.rows,
                             static_cast<std::int32_t>(tile.row), static_cast<std::int32_t>(p.rows)};
    const MatrixOperand right{static_cast<const std::uint16_t*>(p.x) + begin * p.columns, p.columns,
                              static_cast<std::int32_t>(tile.column), static_cast<std::int32_t>(p.columns)};
    float* dw = p.dw[tile.expert];
    MatrixProduct<T, true, true>::run(
        block, left, right, inner, kGroupChunk,
        [&](std::int32_t sum, std::int32_t row, std::int32_t column, float low, float high) {
          put_two(dw + row * p.columns + column, p.alpha * low, p.alpha * high, sum > 0 || p.addend != nullptr);
        });
  }
};

}  // namespace rondo::devices::cuda
