// See pairs.h. Compiled once per instruction set and chosen at run time, as the kernels in kernels/ are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pairs.cpp"
#include "pairs.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include "kernels/pairs-inl.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

constexpr std::int64_t kWords = kPairRows / 2;  // words of a column that are written at a time: a line of cache
constexpr Bf16 kZeros[kPairColumns] = {};

/// The words of up to kPairRows rows from x on, `count` columns of them: rows that are not there are zero.
HWY_INLINE void interleave_rows(const Bf16* x, std::int64_t stride, std::int64_t rows, std::int64_t count,
                                std::uint32_t* words, std::int64_t words_stride) {
  for (std::int64_t p = 0; p < kWords; ++p) {
    const Bf16* low = 2 * p < rows ? x + 2 * p * stride : kZeros;
    const Bf16* high = 2 * p + 1 < rows ? x + (2 * p + 1) * stride : kZeros;
    interleave(low, high, words + p * words_stride, count);
  }
}

/// One block of columns, `count` of which are there.
void pack_block(const Bf16* x, std::int64_t stride, std::int64_t inner, std::int64_t count, Bf16* pairs) {
  auto* words = reinterpret_cast<std::uint32_t*>(pairs);
  for (std::int64_t row = 0; row < inner; row += kPairRows, words += kWords * kPairColumns) {
    if (count < kPairColumns) std::memset(words, 0, kWords * kPairColumns * sizeof(*words));
    interleave_rows(x + row * stride, stride, inner - row, count, words, kPairColumns);
  }
}

/// Words go by as floats, which they are not.
HWY_INLINE void copy_word(const float* from, float* to) { std::memcpy(to, from, sizeof(*to)); }

/// y [kWords, count] (leading dimension y_stride) from x [count, kWords] of words (leading dimension x_stride).
HWY_INLINE void transpose_words(const float* x, std::int64_t x_stride, std::int64_t count, float* y,
                                std::int64_t y_stride) {
  std::int64_t c = 0;
  for (; c + kQuad <= count; c += kQuad) {
    for (std::int64_t p = 0; p < kWords; p += kQuad)
      transpose_quad(x + c * x_stride + p, x_stride, y + p * y_stride + c, y_stride);
  }
  for (; c < count; ++c) {
    for (std::int64_t p = 0; p < kWords; ++p) copy_word(x + c * x_stride + p, y + p * y_stride + c);
  }
}

/// The same block of x [columns, inner].
void pack_block_of_rows(const Bf16* x, std::int64_t inner, std::int64_t count, Bf16* pairs) {
  HWY_ALIGN Bf16 rest[kPairColumns * kPairRows];
  Bf16* to = pairs;
  for (std::int64_t k = 0; k < inner; k += kPairRows, to += kPairRows * kPairColumns) {
    if (count < kPairColumns) std::memset(to, 0, kPairRows * kPairColumns * sizeof(*to));
    const Bf16* from = x + k;
    std::int64_t stride = inner;
    // Words are read as floats, and only moved. Rows of an odd length, and what does not fill a word's row, go by a
    // copy.
    if (inner % 2 != 0 || k + kPairRows > inner) {
      std::memset(rest, 0, sizeof(rest));
      const auto bytes = static_cast<std::size_t>(std::min(kPairRows, inner - k)) * sizeof(Bf16);
      for (std::int64_t c = 0; c < count; ++c) std::memcpy(rest + c * kPairRows, x + c * inner + k, bytes);
      from = rest;
      stride = kPairRows;
    }
    transpose_words(reinterpret_cast<const float*>(from), stride / 2, count, reinterpret_cast<float*>(to),
                    kPairColumns);
  }
}

/// Rows first ... of y, `count` of them.
void transpose_strip(const Bf16* x, std::int64_t stride, std::int64_t rows, std::int64_t count, Bf16* y) {
  HWY_ALIGN std::uint32_t words[kWords * kPairColumns];
  const std::int64_t y_stride = whole_pairs(rows) / 2;
  for (std::int64_t row = 0; row < rows; row += kPairRows) {
    interleave_rows(x + row * stride, stride, rows - row, count, words, kPairColumns);
    auto* to = reinterpret_cast<float*>(y) + row / 2;
    const auto* from = reinterpret_cast<const float*>(words);
    // A row's line of cache is written at once: rows may lie a page apart, all in one set of the cache.
    std::int64_t c = 0;
    for (; c + kQuad <= count; c += kQuad) {
      for (std::int64_t p = 0; p < kWords; p += kQuad) {
        transpose_quad(from + p * kPairColumns + c, kPairColumns, to + c * y_stride + p, y_stride);
      }
    }
    for (; c < count; ++c) {
      for (std::int64_t p = 0; p < kWords; ++p) copy_word(from + p * kPairColumns + c, to + c * y_stride + p);
    }
  }
}

void add_scaled(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * columns;
    float* to = y + r * stride;
    for_vectors(columns, [=](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Add(load(to + i, extent), hn::Mul(load(from + i, extent), splat(alpha))), to + i, extent);
    });
  }
}

/// y [columns, rows] += alpha times x [rows, columns] transposed.
void add_scaled_transposed(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y,
                           std::int64_t stride) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) y[c * stride + r] += alpha * x[r * columns + c];
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(pack_block);
HWY_EXPORT(pack_block_of_rows);
HWY_EXPORT(transpose_strip);
HWY_EXPORT(add_scaled);
HWY_EXPORT(add_scaled_transposed);

void pack_pairs(ThreadPool& pool, const std::uint16_t* x, std::int64_t stride, std::int64_t inner, std::int64_t columns,
                std::uint16_t* pairs) {
  // A block is cut where there are few: a task has rows of a block.
  constexpr std::int64_t kRows = 16 * kPairRows;
  const std::int64_t parts = divide_up(inner, kRows);
  pool.parallel_for(divide_up(columns, kPairColumns) * parts, [=](std::int64_t task, std::uint32_t) {
    const std::int64_t column = task / parts * kPairColumns;
    const std::int64_t row = task % parts * kRows;
    HWY_DYNAMIC_DISPATCH(pack_block)
    (x + row * stride + column, stride, std::min(kRows, inner - row), std::min(kPairColumns, columns - column),
     pairs + pair_elements(inner, column) + row * kPairColumns);
  });
}

void pack_pairs_of_rows(ThreadPool& pool, const std::uint16_t* x, std::int64_t inner, std::int64_t columns,
                        std::uint16_t* pairs) {
  pool.parallel_for(divide_up(columns, kPairColumns), [=](std::int64_t task, std::uint32_t) {
    const std::int64_t column = task * kPairColumns;
    HWY_DYNAMIC_DISPATCH(pack_block_of_rows)
    (x + column * inner, inner, std::min(kPairColumns, columns - column), pairs + pair_elements(inner, column));
  });
}

void transpose_halves(ThreadPool& pool, const std::uint16_t* x, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, std::uint16_t* y) {
  pool.parallel_for(divide_up(columns, kPairColumns), [=](std::int64_t task, std::uint32_t) {
    const std::int64_t column = task * kPairColumns;
    HWY_DYNAMIC_DISPATCH(transpose_strip)
    (x + column, stride, rows, std::min(kPairColumns, columns - column), y + column * whole_pairs(rows));
  });
}

void fill_up_rows(ThreadPool& pool, const std::uint16_t* x, std::int64_t rows, std::int64_t columns, std::uint16_t* y) {
  const std::int64_t width = whole_pairs(columns);
  const std::int64_t step = task_rows(width);
  pool.parallel_for(divide_up(rows, step), [=](std::int64_t task, std::uint32_t) {
    for (std::int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) {
      std::copy_n(x + row * columns, columns, y + row * width);
      std::fill(y + row * width + columns, y + (row + 1) * width, std::uint16_t{0});
    }
  });
}

void add_tile(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y, std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(x, rows, columns, alpha, y, stride);
}

void add_tile_transposed(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y,
                         std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(add_scaled_transposed)(x, rows, columns, alpha, y, stride);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
