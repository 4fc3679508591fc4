// See row_kernels.h. Compiled once per instruction set and chosen at run time, as the kernels in kernels/ are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "row_kernels.cpp"
#include "row_kernels.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <type_traits>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// The storage is looked at per vector: a predicted branch costs less than eight copies of every loop.
template <typename Extent>
HWY_INLINE Vector load_any(ConstArray x, std::int64_t i, Extent extent) {
  if (x.storage == Storage::kFloat32) return load(static_cast<const float*>(x.data) + i, extent);
  if (x.storage == Storage::kBfloat16) return load(static_cast<const Bf16*>(x.data) + i, extent);
  return load(static_cast<const Fp16*>(x.data) + i, extent);
}

template <typename Extent>
HWY_INLINE void store_any(Vector v, Array y, std::int64_t i, Extent extent) {
  if (y.storage == Storage::kFloat32) {
    store(v, static_cast<float*>(y.data) + i, extent);
  } else if (y.storage == Storage::kBfloat16) {
    store(v, static_cast<Bf16*>(y.data) + i, extent);
  } else {
    store(v, static_cast<Fp16*>(y.data) + i, extent);
  }
}

void convert_any(ConstArray x, Array y, std::int64_t n, float factor) {
  const auto factors = splat(factor);
  for_vectors(n, [=](std::int64_t i, auto extent)
                     HWY_ATTR { store_any(hn::Mul(load_any(x, i, extent), factors), y, i, extent); });
}

template <typename T>
void widen_rows(const T* x, std::int64_t stride, float* y, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for_vectors(columns, [=](std::int64_t i, auto extent)
                             HWY_ATTR { store(load(x + r * stride + i, extent), y + r * columns + i, extent); });
  }
}

/// y [rows, columns], dense, from x with leading dimension `stride`.
void widen_any(ConstArray x, std::int64_t stride, float* y, std::int64_t rows, std::int64_t columns) {
  with_storage(x.storage,
               [&](auto type) { widen_rows(static_cast<const decltype(type)*>(x.data), stride, y, rows, columns); });
}

/// y [columns, rows], dense, from x [rows, columns] with leading dimension `stride`. Strips of x's columns: what they
/// write stays in the first cache until its lines are whole.
template <typename T>
void transpose_rows(const T* x, std::int64_t stride, float* y, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kStrip = 32;
  for (std::int64_t begin = 0; begin < columns; begin += kStrip) {
    const std::int64_t end = std::min(columns, begin + kStrip);
    for (std::int64_t r = 0; r < rows; r += kQuad) {
      const std::int64_t whole = r + kQuad <= rows ? begin + (end - begin) / kQuad * kQuad : begin;
      for (std::int64_t c = begin; c < whole; c += kQuad) {
        transpose_quad(x + r * stride + c, stride, y + c * rows + r, rows);
      }
      for (std::int64_t i = r; i < std::min(rows, r + kQuad); ++i) {
        for (std::int64_t c = whole; c < end; ++c) y[c * rows + i] = widened(x[i * stride + c]);
      }
    }
  }
}

void transpose_any(ConstArray x, std::int64_t stride, float* y, std::int64_t rows, std::int64_t columns) {
  with_storage(x.storage, [&](auto type) {
    transpose_rows(static_cast<const decltype(type)*>(x.data), stride, y, rows, columns);
  });
}

void add_any(ConstArray x, float* y, std::int64_t n) {
  for_vectors(n, [=](std::int64_t i, auto extent)
                     HWY_ATTR { store(hn::Add(load(y + i, extent), load_any(x, i, extent)), y + i, extent); });
}

void add_scaled_any(ConstArray x, float factor, float* y, std::int64_t n) {
  const auto factors = splat(factor);
  for_vectors(n, [=](std::int64_t i, auto extent) HWY_ATTR {
    store(hn::MulAdd(factors, load_any(x, i, extent), load(y + i, extent)), y + i, extent);
  });
}

float dot_of_any(ConstArray x, ConstArray y, std::int64_t n) {
  auto sum = zero();
  for_vectors(n, [=, &sum](std::int64_t i, auto extent)
                     HWY_ATTR { sum = hn::MulAdd(load_any(x, i, extent), load_any(y, i, extent), sum); });
  return sum_of(sum);
}

/// One row of a tile. Addend: as stored, or void for none.
template <bool kBias, typename Addend, typename Out>
HWY_INLINE void finish_row(const float* from, Vector alpha, ConstArray bias, const void* addend, void* out,
                           std::int64_t columns) {
  for_vectors(columns, [=](std::int64_t i, auto extent) HWY_ATTR {
    auto v = hn::Mul(load(from + i, extent), alpha);
    if constexpr (kBias) v = hn::Add(v, load_any(bias, i, extent));
    if constexpr (!std::is_void_v<Addend>) v = hn::Add(v, load(static_cast<const Addend*>(addend) + i, extent));
    store(v, static_cast<Out*>(out) + i, extent);
  });
}

template <bool kBias, typename Addend, typename Out>
void finish_rows(const Finish& finish, const float* sums, std::int64_t sums_stride, std::int64_t row,
                 std::int64_t column, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  const auto alpha = splat(finish.alpha);
  const ConstArray bias = finish.bias.at(column);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t place = (row + r) * width + column;
    finish_row<kBias, Addend, Out>(sums + r * sums_stride, alpha, bias, finish.addend.at(place).data,
                                   finish.out.at(place).data, columns);
  }
}

template <bool kBias, typename Out>
void finish_with_addend(const Finish& finish, const float* sums, std::int64_t sums_stride, std::int64_t row,
                        std::int64_t column, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  if (!finish.addend) {
    return finish_rows<kBias, void, Out>(finish, sums, sums_stride, row, column, rows, columns, width);
  }
  with_storage(finish.addend.storage, [&](auto type) {
    finish_rows<kBias, decltype(type), Out>(finish, sums, sums_stride, row, column, rows, columns, width);
  });
}

void finish_any(const Finish& finish, const float* sums, std::int64_t sums_stride, std::int64_t row,
                std::int64_t column, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  with_storage(finish.out.storage, [&](auto type) {
    using Out = decltype(type);
    const auto tile = finish.bias ? finish_with_addend<true, Out> : finish_with_addend<false, Out>;
    tile(finish, sums, sums_stride, row, column, rows, columns, width);
  });
}

/// out[t * out_stride + c] = x[t] . w[c] for kTokens rows of x and kColumns rows of w, both with stride `inner`.
template <int kTokens, int kColumns, typename T>
HWY_INLINE void dot_block(const float* x, const T* w, std::int64_t inner, float* out, std::int64_t out_stride) {
  Vector sums[std::size_t{kTokens}][std::size_t{kColumns}];
  for (int t = 0; t < kTokens; ++t) {
    for (int c = 0; c < kColumns; ++c) sums[t][c] = zero();
  }
  for_vectors(inner, [&](std::int64_t i, auto extent) HWY_ATTR {
    Vector columns[std::size_t{kColumns}];
    for (int c = 0; c < kColumns; ++c) columns[c] = load(w + c * inner + i, extent);
    for (int t = 0; t < kTokens; ++t) {
      const auto token = load(x + t * inner + i, extent);
      for (int c = 0; c < kColumns; ++c) sums[t][c] = hn::MulAdd(token, columns[c], sums[t][c]);
    }
  });
  for (int t = 0; t < kTokens; ++t) {
    for (int c = 0; c < kColumns; ++c) out[t * out_stride + c] = sum_of(sums[t][c]);
  }
}

/// All rows of x against kColumns rows of w: four tokens at a time while there are.
template <int kColumns, typename T>
HWY_INLINE void dot_rows(const float* x, const T* w, std::int64_t rows, std::int64_t inner, float* out,
                         std::int64_t out_stride) {
  std::int64_t t = 0;
  for (; t + 4 <= rows; t += 4) dot_block<4, kColumns>(x + t * inner, w, inner, out + t * out_stride, out_stride);
  for (; t + 2 <= rows; t += 2) dot_block<2, kColumns>(x + t * inner, w, inner, out + t * out_stride, out_stride);
  for (; t < rows; ++t) dot_block<1, kColumns>(x + t * inner, w, inner, out + t * out_stride, out_stride);
}

template <typename T>
void dot_typed(const float* x, const T* w, std::int64_t rows, std::int64_t columns, std::int64_t inner, float* out,
               std::int64_t out_stride) {
  std::int64_t c = 0;
  if (rows == 1) {
    for (; c + 4 <= columns; c += 4) dot_rows<4>(x, w + c * inner, rows, inner, out + c, out_stride);
  }
  for (; c + 2 <= columns; c += 2) dot_rows<2>(x, w + c * inner, rows, inner, out + c, out_stride);
  for (; c < columns; ++c) dot_rows<1>(x, w + c * inner, rows, inner, out + c, out_stride);
}

void dot_any(const float* x, ConstArray w, std::int64_t rows, std::int64_t columns, std::int64_t inner, float* out,
             std::int64_t out_stride) {
  with_storage(w.storage, [&](auto type) {
    dot_typed(x, static_cast<const decltype(type)*>(w.data), rows, columns, inner, out, out_stride);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(convert_any);
HWY_EXPORT(widen_any);
HWY_EXPORT(transpose_any);
HWY_EXPORT(add_any);
HWY_EXPORT(add_scaled_any);
HWY_EXPORT(dot_of_any);
HWY_EXPORT(finish_any);
HWY_EXPORT(dot_any);

void convert_row(ConstArray x, Array y, std::int64_t n, float factor) {
  HWY_DYNAMIC_DISPATCH(convert_any)(x, y, n, factor);
}
void add_row(ConstArray x, float* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(add_any)(x, y, n); }
void add_scaled_row(ConstArray x, float factor, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled_any)(x, factor, y, n);
}
float dot_of_rows(ConstArray x, ConstArray y, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(dot_of_any)(x, y, n); }

void finish_tile(const Finish& finish, const float* sums, std::int64_t sums_stride, std::int64_t row,
                 std::int64_t column, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(finish_any)(finish, sums, sums_stride, row, column, rows, columns, width);
}

std::size_t few_rows_scratch(std::int64_t rows, std::int64_t inner) {
  return static_cast<std::size_t>(rows * inner) * sizeof(float);
}

void few_rows_product(ThreadPool& pool, ConstArray x, ConstArray w, const Finish& finish, std::int64_t rows,
                      std::int64_t columns, std::int64_t inner, std::byte* scratch) {
  constexpr std::int64_t kColumns = 32;  // rows of w a task: tens of kilobytes to read
  auto* x_wide = reinterpret_cast<float*>(scratch);
  convert_row(x, {x_wide}, rows * inner);
  pool.parallel_for(divide_up(columns, kColumns), [=, &finish](std::int64_t task, std::uint32_t) {
    const std::int64_t begin = task * kColumns;
    const std::int64_t count = std::min(kColumns, columns - begin);
    float sums[kFewRows * kColumns];
    HWY_DYNAMIC_DISPATCH(dot_any)(x_wide, w.at(begin * inner), rows, count, inner, sums, kColumns);
    finish_tile(finish, sums, kColumns, 0, begin, rows, count, columns);
  });
}

void pack_column_blocks(ThreadPool& pool, ConstArray x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                        std::int64_t width, float* blocks) {
  const std::int64_t step = task_rows(columns);
  pool.parallel_for(divide_up(rows, step), [=](std::int64_t task, std::uint32_t) {
    const std::int64_t first = task * step;
    const std::int64_t end = std::min(rows, first + step);
    for (std::int64_t begin = 0; begin < columns; begin += width) {
      const std::int64_t count = std::min(width, columns - begin);
      HWY_DYNAMIC_DISPATCH(widen_any)
      (x.at(first * stride + begin), stride, blocks + begin * rows + first * count, end - first, count);
    }
  });
}

void pack_row_blocks(ThreadPool& pool, ConstArray x, std::int64_t rows, std::int64_t columns, std::int64_t width,
                     float* blocks) {
  constexpr std::int64_t kColumns = 256;  // columns of a block a task: tens of thousands of elements
  const std::int64_t strips = divide_up(columns, kColumns);
  pool.parallel_for(divide_up(rows, width) * strips, [=](std::int64_t task, std::uint32_t) {
    const std::int64_t row = task / strips * width;
    const std::int64_t column = task % strips * kColumns;
    const std::int64_t count = std::min(width, rows - row);
    HWY_DYNAMIC_DISPATCH(transpose_any)
    (x.at(row * columns + column), columns, blocks + row * columns + column * count, count,
     std::min(kColumns, columns - column));
  });
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
