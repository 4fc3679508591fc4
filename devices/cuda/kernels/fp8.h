// Products of eight bits, see rondo/devices/fp8.h: operands to codes and powers of two, and sums back to numbers.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

inline constexpr int kFp8Columns = 32;                        // of a block of Fp8Largest and Fp8Columns
inline constexpr int kFp8Lanes = kMostThreads / kFp8Columns;  // their rows at a time
inline constexpr int kFp8Chunk = 512;                         // rows of a block of Fp8Largest
inline constexpr int kFp8Rows = 64;                           // of one of Fp8Columns
inline constexpr int kFp8Stride = kFp8Rows + 4;               // of a column in its tile
inline constexpr int kFp8LargestShared = kMostThreads * 4;
inline constexpr int kFp8ColumnsShared = kFp8Columns * (4 + kFp8Stride);

/// As fp8_scale().
RONDO_KERNEL float fp8_power(float largest, int top) {
  const auto exponent = static_cast<int>(bits_of(largest) >> 23U);
  if (!(largest > 0.0F) || exponent == 0xFF) return 1.0F;
  return float_of(static_cast<std::uint32_t>(exponent > top + 1 ? exponent - top : 1) << 23U);
}

/// What is not finite counts as infinite: maxima of a block do not see a NaN.
RONDO_KERNEL float fp8_magnitude(float x) {
  const std::uint32_t magnitude = bits_of(x) & 0x7FFFFFFFU;
  return float_of(magnitude < 0x7F800000U ? magnitude : 0x7F800000U);
}

template <int kCount, typename Code>
RONDO_KERNEL void store_codes(Code* at, Numbers<kCount> x) {
#ifdef __CUDACC__
  if constexpr (kCount == kVector) {  // then `at` is a multiple of 8
    std::uint32_t words[2] = {0, 0};
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) {
      Code code;
      store(&code, x[i]);
      words[i / 4] |= static_cast<std::uint32_t>(code.bits) << (8 * (i % 4));
    }
    *reinterpret_cast<uint2*>(at) = {words[0], words[1]};
  } else
#endif
  {
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) store(at + i, x[i]);
  }
}

/// A block a row of [rows, columns].
template <typename T, typename Code = E4m3>
struct Fp8Rows {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8Params& p) {
    const T* from = static_cast<const T*>(p.from) + block.x() * p.columns;
    typename Block::template Own<float> largest;
    block.each([&](int thread) {
      float most = 0;
      for_row(p.columns, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(from + d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) most = fmaxf(most, fp8_magnitude(some[i]));
      });
      largest[thread] = most;
    });
    auto* const codes = static_cast<Code*>(p.codes) + block.x() * p.columns;
    const float scale = fp8_power(block.max(largest), Code::kTop);
    block.each([&](int thread) {
      if (thread == 0) p.scales[block.x()] = scale;
      const float factor = 1.0F / scale;
      for_row(p.columns, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(from + d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) some[i] *= factor;
        store_codes<kCount>(codes + d, some);
      });
    });
  }
};

/// For gradients.
template <typename T>
using Fp8RowsE5m2 = Fp8Rows<T, E5m2>;

/// The largest magnitudes of 32 columns of [rows, columns] in a chunk of rows.
template <typename T>
struct Fp8Largest {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8Params& p) {
    auto* lanes = reinterpret_cast<float*>(block.shared());  // [kFp8Lanes, kFp8Columns]
    const std::int64_t first = block.x() * kFp8Columns;
    const std::int64_t begin = block.y() * kFp8Chunk;
    const std::int64_t end = begin + kFp8Chunk < p.rows ? begin + kFp8Chunk : p.rows;
    block.each([&](int thread) {
      const std::int64_t column = first + thread % kFp8Columns;
      float most = 0;
      for (std::int64_t row = begin + thread / kFp8Columns; row < end && column < p.columns; row += kFp8Lanes) {
        most = fmaxf(most, fp8_magnitude(load(static_cast<const T*>(p.from) + row * p.columns + column)));
      }
      lanes[thread] = most;
    });
    block.each([&](int thread) {
      if (thread >= kFp8Columns || first + thread >= p.columns) return;
      float most = 0;
      for (int lane = 0; lane < kFp8Lanes; ++lane) most = fmaxf(most, lanes[lane * kFp8Columns + thread]);
      p.largest[block.y() * p.columns + first + thread] = most;
    });
  }
};

/// Codes of 64 rows of 32 columns, which become rows: [columns, rows].
template <typename T>
struct Fp8Columns {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8Params& p) {
    auto* factors = reinterpret_cast<float*>(block.shared());  // [kFp8Columns]
    auto* tile = reinterpret_cast<E4m3*>(factors + kFp8Columns);
    const std::int64_t first = block.x() * kFp8Columns;
    const std::int64_t begin = block.y() * kFp8Rows;
    block.each([&](int thread) {
      if (thread >= kFp8Columns || first + thread >= p.columns) return;
      float most = 0;
      for (std::int64_t row = 0; row < p.rows; row += kFp8Chunk) {
        most = fmaxf(most, p.largest[row / kFp8Chunk * p.columns + first + thread]);
      }
      const float scale = fp8_power(most, E4m3::kTop);
      factors[thread] = 1.0F / scale;
      if (block.y() == 0) p.scales[first + thread] = scale;
    });
    block.each([&](int thread) {
      const int column = thread % kFp8Columns;
      if (first + column >= p.columns) return;
      for (int row = thread / kFp8Columns; row < kFp8Rows && begin + row < p.rows; row += kFp8Lanes) {
        const float x = load(static_cast<const T*>(p.from) + (begin + row) * p.columns + first + column);
        store(tile + column * kFp8Stride + row, x * factors[column]);
      }
    });
    block.each([&](int thread) {
      for (int e = thread; e < kFp8Columns * kFp8Rows; e += block.threads()) {
        const std::int64_t column = first + e / kFp8Rows;
        const std::int64_t row = begin + e % kFp8Rows;
        if (column >= p.columns || row >= p.rows) continue;
        static_cast<E4m3*>(p.codes)[column * p.rows + row] = tile[e / kFp8Rows * kFp8Stride + e % kFp8Rows];
      }
    });
  }
};

/// y = alpha sums times both powers (+ bias) (+ addend), [rows, columns].
template <typename T>
struct Fp8Result {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8ResultParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto y = load_vector<kCount>(p.sums + first);
      RowColumn at(first, p.columns);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        y[i] *= p.alpha * p.row_scales[at.row] * p.column_scales[at.column];
        if (p.bias != nullptr) y[i] += load_any(p.bias, p.bias_storage, at.column);
        if (p.addend != nullptr) y[i] += load_any(p.addend, p.addend_storage, first + i);
        at.next();
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, y);
    });
  }
};

}  // namespace rondo::devices::cuda
