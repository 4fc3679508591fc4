// Products of eight bits, see rondo/devices/fp8.h: operands to codes and powers of two, and sums back to numbers.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

inline constexpr int kFp8Columns = 64;                       // of a block of Fp8Largest and Fp8Columns
inline constexpr int kFp8Groups = kFp8Columns / kVector;     // threads side by side
inline constexpr int kFp8Lanes = kMostThreads / kFp8Groups;  // and one below the other
inline constexpr int kFp8Parts = kMostThreads / kFp8Columns;
inline constexpr int kFp8Chunk = 512;                       // rows of a block of Fp8Largest
inline constexpr int kFp8Word = 4;                          // codes side by side in a word
inline constexpr int kFp8Rows = kFp8Word * kFp8Lanes;       // of a block of Fp8Columns
inline constexpr int kFp8Stride = kFp8Rows / kFp8Word + 1;  // words of a column in its tile
inline constexpr int kFp8Piece = 4;                         // of them that a thread writes
inline constexpr int kFp8LargestShared = kFp8Lanes * kFp8Columns * 4;
inline constexpr int kFp8ColumnsShared = kFp8Columns * (1 + kFp8Parts + kFp8Stride) * 4;

/// As fp8_scale().
RONDO_KERNEL float fp8_power(float largest, int top) {
  const auto exponent = static_cast<int>(bits_of(largest) >> 23U);
  if (!(largest > 0.0F) || exponent == 0xFF) return 1.0F;
  return float_of(static_cast<std::uint32_t>(exponent > top + 1 ? exponent - top : 1) << 23U);
}

/// Grows with the magnitude; of what is not finite it is 0x7F800000 and more.
RONDO_KERNEL std::uint32_t magnitude_bits(float x) { return bits_of(x) & 0x7FFFFFFFU; }

RONDO_KERNEL std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

/// What is not finite counts as infinite: maxima of a block do not see a NaN.
RONDO_KERNEL float magnitude_of(std::uint32_t bits) { return float_of(bits < 0x7F800000U ? bits : 0x7F800000U); }

/// Codes of two numbers, the first in the low byte; NaN past the range.
template <typename Code>
RONDO_KERNEL std::uint32_t code_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The conversion turns what is past the range into the largest number, but a NaN into a NaN.
  low = magnitude_bits(low) < Code::kPast ? low : float_of(0x7FFFFFFFU);
  high = magnitude_bits(high) < Code::kPast ? high : float_of(0x7FFFFFFFU);
  std::uint16_t both;
  if constexpr (Code::kHasInfinity) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  Code pair[2];
  store(&pair[0], low);
  store(&pair[1], high);
  return pair[0].bits | (static_cast<std::uint32_t>(pair[1].bits) << 8U);
#endif
}

template <int kCount, typename Code>
RONDO_KERNEL void store_codes(Code* at, Numbers<kCount> x) {
#ifdef __CUDACC__
  if constexpr (kCount == kVector) {  // then `at` is a multiple of 8
    *reinterpret_cast<uint2*>(at) = {pair_of(code_pair<Code>(x[0], x[1]), code_pair<Code>(x[2], x[3])),
                                     pair_of(code_pair<Code>(x[4], x[5]), code_pair<Code>(x[6], x[7]))};
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
      std::uint32_t most = 0;
      for_row(p.columns, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(from + d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) most = larger(most, magnitude_bits(some[i]));
      });
      largest[thread] = magnitude_of(most);
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

/// Eight numbers of a row, from `column` on; zeros past the matrix's end.
template <typename T>
RONDO_KERNEL Numbers<kVector> load_eight(const Fp8Params& p, std::int64_t row, std::int64_t column) {
  Numbers<kVector> x = {};
  if (row >= p.rows || column >= p.columns) return x;
  const T* from = static_cast<const T*>(p.from) + row * p.columns + column;
  if (p.columns % kVector == 0) return load_vector<kVector>(from);
  RONDO_UNROLL
  for (int i = 0; i < kVector; ++i) {
    if (column + i < p.columns) x[i] = load(from + i);
  }
  return x;
}

/// The largest magnitudes of 64 columns of [rows, columns] in a chunk of rows.
template <typename T>
struct Fp8Largest {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8Params& p) {
    auto* lanes = reinterpret_cast<std::uint32_t*>(block.shared());  // [kFp8Lanes, kVector, kFp8Groups]
    const std::int64_t first = block.x() * kFp8Columns;
    const std::int64_t begin = block.y() * kFp8Chunk;
    const std::int64_t end = begin + kFp8Chunk < p.rows ? begin + kFp8Chunk : p.rows;
    block.each([&](int thread) {
      const int group = thread % kFp8Groups;
      const int lane = thread / kFp8Groups;
      Array<std::uint32_t, kVector> most = {};
#ifdef __CUDACC__
#pragma unroll 8
#endif
      for (std::int64_t row = begin + lane; row < end; row += kFp8Lanes) {
        auto some = load_eight<T>(p, row, first + group * kVector);
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) most[i] = larger(most[i], magnitude_bits(some[i]));
      }
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) lanes[lane * kFp8Columns + i * kFp8Groups + group] = most[i];
    });
    block.each([&](int thread) {
      const std::int64_t column = first + thread % kFp8Groups * kVector + thread / kFp8Groups;
      if (thread >= kFp8Columns || column >= p.columns) return;
      std::uint32_t most = 0;
      for (int lane = 0; lane < kFp8Lanes; ++lane) most = larger(most, lanes[lane * kFp8Columns + thread]);
      p.largest[block.y() * p.columns + column] = magnitude_of(most);
    });
  }
};

/// Codes of 128 rows of 64 columns, which become rows: [columns, rows].
template <typename T>
struct Fp8Columns {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const Fp8Params& p) {
    auto* factors = reinterpret_cast<float*>(block.shared());                        // [kFp8Columns]
    auto* parts = factors + kFp8Columns;                                             // [kFp8Parts, kFp8Columns]
    auto* tile = reinterpret_cast<std::uint32_t*>(parts + kFp8Parts * kFp8Columns);  // [kFp8Columns, kFp8Stride]
    const std::int64_t first = block.x() * kFp8Columns;
    const std::int64_t begin = block.y() * kFp8Rows;
    block.each([&](int thread) {
      const std::int64_t column = first + thread % kFp8Columns;
      const std::int64_t chunks = (p.rows + kFp8Chunk - 1) / kFp8Chunk;
      float most = 0;
      for (std::int64_t chunk = thread / kFp8Columns; chunk < chunks && column < p.columns; chunk += kFp8Parts) {
        most = fmaxf(most, p.largest[chunk * p.columns + column]);
      }
      parts[thread] = most;
    });
    block.each([&](int thread) {
      if (thread >= kFp8Columns) return;
      float most = parts[thread];
      for (int part = 1; part < kFp8Parts; ++part) most = fmaxf(most, parts[part * kFp8Columns + thread]);
      const float scale = fp8_power(most, E4m3::kTop);
      factors[thread] = 1.0F / scale;
      if (block.y() == 0 && first + thread < p.columns) p.scales[first + thread] = scale;
    });
    block.each([&](int thread) {
      const int group = thread % kFp8Groups;
      const int lane = thread / kFp8Groups;
      Array<Numbers<kVector>, kFp8Word> x;
      RONDO_UNROLL
      for (int r = 0; r < kFp8Word; ++r) x[r] = load_eight<T>(p, begin + lane * kFp8Word + r, first + group * kVector);
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) {
        const int column = group * kVector + i;
        const float factor = factors[column];
        tile[column * kFp8Stride + lane] = pair_of(code_pair<E4m3>(x[0][i] * factor, x[1][i] * factor),
                                                   code_pair<E4m3>(x[2][i] * factor, x[3][i] * factor));
      }
    });
    block.each([&](int thread) {
      constexpr int kPieces = kFp8Rows / (kFp8Word * kFp8Piece);  // of a column
      for (int e = thread; e < kFp8Columns * kPieces; e += block.threads()) {
        const std::int64_t column = first + e / kPieces;
        if (column >= p.columns) continue;
        const std::uint32_t* words = tile + e / kPieces * kFp8Stride + e % kPieces * kFp8Piece;
        write_piece(p, column, begin + e % kPieces * kFp8Word * kFp8Piece, words);
      }
    });
  }

 private:
  /// Codes of a column from `row` on.
  RONDO_KERNEL static void write_piece(const Fp8Params& p, std::int64_t column, std::int64_t row,
                                       const std::uint32_t* words) {
    auto* const to = static_cast<E4m3*>(p.codes) + column * p.rows + row;
#ifdef __CUDACC__
    if (p.rows % (kFp8Word * kFp8Piece) == 0) {
      if (row < p.rows) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
      return;
    }
#endif
    for (int k = 0; k < kFp8Word * kFp8Piece && row + k < p.rows; ++k) {
      to[k].bits = static_cast<std::uint8_t>(words[k / kFp8Word] >> (8 * (k % kFp8Word)));
    }
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
