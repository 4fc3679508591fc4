// Matrix products where cuBLASLt is not: tiles of kTile x kTile in shared memory, kOwnRows x kOwnColumns elements a
// thread, summed over the inner dimension in rising order in fp32.
#pragma once

#include "params.h"

namespace rondo::devices::cuda {

inline constexpr int kTile = 64;
inline constexpr int kDepth = 16;  // of a step along the inner dimension
inline constexpr int kOwn = 4;     // rows and columns of a thread
inline constexpr int kTileThreads = (kTile / kOwn) * (kTile / kOwn);
inline constexpr int kTileStride = kTile + 1;  // odd: threads of a warp meet different banks
inline constexpr int kProductShared = 2 * kDepth * kTileStride * 4;
static_assert(kTileThreads == kMostThreads);

template <typename T, typename Left = T>
struct Product {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ProductParams& p) {
    tile(block, p, block.y() * kTile, block.x() * kTile);
  }

  /// The elements from there on.
  template <typename Block>
  RONDO_KERNEL static void tile(Block& block, const ProductParams& p, std::int64_t row, std::int64_t column) {
    auto* a = reinterpret_cast<float*>(block.shared());  // [kDepth, kTileStride]
    float* b = a + kDepth * kTileStride;                 // [kDepth, kTileStride]
    typename Block::template Own<Array<float, kOwn * kOwn>> sums;
    block.each([&](int thread) {
      RONDO_UNROLL
      for (int i = 0; i < kOwn * kOwn; ++i) sums[thread][i] = 0;
    });
    for (std::int64_t inner = 0; inner < p.inner; inner += kDepth) {
      block.each([&](int thread) {
        fetch(a, static_cast<const Left*>(p.a), p.a_row, p.a_column, row, p.rows, inner, p.inner, thread);
        fetch(b, static_cast<const T*>(p.b), p.b_column, p.b_row, column, p.columns, inner, p.inner, thread);
      });
      block.each([&](int thread) { multiply(a, b, thread, sums[thread]); });
    }
    block.each([&](int thread) { finish(p, row, column, thread, sums[thread]); });
  }

 private:
  /// to[k][i] = element (first + i, inner + k), zero outside. Threads run along whichever stride is 1.
  template <typename From>
  RONDO_KERNEL static void fetch(float* to, const From* from, std::int64_t stride, std::int64_t inner_stride,
                                 std::int64_t first, std::int64_t count, std::int64_t inner, std::int64_t inner_count,
                                 int thread) {
    for (int e = thread; e < kTile * kDepth; e += kTileThreads) {
      const int i = inner_stride == 1 ? e / kDepth : e % kTile;
      const int k = inner_stride == 1 ? e % kDepth : e / kTile;
      const bool inside = first + i < count && inner + k < inner_count;
      to[k * kTileStride + i] = inside ? load(from + (first + i) * stride + (inner + k) * inner_stride) : 0.0F;
    }
  }

  /// A thread's rows and columns lie kTile / kOwn apart.
  RONDO_KERNEL static void multiply(const float* a, const float* b, int thread, Array<float, kOwn * kOwn>& sums) {
    const int row = thread / (kTile / kOwn);
    const int column = thread % (kTile / kOwn);
    auto own = sums;  // in registers on the host too
    for (int k = 0; k < kDepth; ++k) {
      float left[kOwn];
      float right[kOwn];
      RONDO_UNROLL_ALL
      for (int i = 0; i < kOwn; ++i) {
        left[i] = a[k * kTileStride + row + i * (kTile / kOwn)];
        right[i] = b[k * kTileStride + column + i * (kTile / kOwn)];
      }
      RONDO_UNROLL_ALL
      for (int i = 0; i < kOwn; ++i) {
        RONDO_UNROLL_ALL
        for (int j = 0; j < kOwn; ++j) own[i * kOwn + j] += left[i] * right[j];
      }
    }
    sums = own;
  }

  RONDO_KERNEL static void finish(const ProductParams& p, std::int64_t first_row, std::int64_t first_column, int thread,
                                  Array<float, kOwn * kOwn>& sums) {
    RONDO_UNROLL
    for (int i = 0; i < kOwn * kOwn; ++i) {
      const std::int64_t row = first_row + thread / (kTile / kOwn) + i / kOwn * (kTile / kOwn);
      const std::int64_t column = first_column + thread % (kTile / kOwn) + i % kOwn * (kTile / kOwn);
      if (row >= p.rows || column >= p.columns) continue;
      float value = p.alpha * sums[i];
      if (p.bias != nullptr) value += load_any(p.bias, p.bias_storage, column);
      if (p.addend != nullptr) value += load_any(p.addend, p.addend_storage, row * p.columns + column);
      store_any(p.c, p.c_storage, row * p.columns + column, value);
    }
  }
};

using ProductE5m2 = Product<E4m3, E5m2>;

}  // namespace rondo::devices::cuda
