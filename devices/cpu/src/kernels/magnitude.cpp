// DoRA forward: lengths of the rows of W + alpha B A, several rows at a time, and the scaling of a product's columns.
//
// The sum with B A exists one vector of a row at a time: each vector of A is read once for kBlockRows rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/magnitude.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

#ifndef RONDO_CPU_KERNELS_MAGNITUDE_ONCE
#define RONDO_CPU_KERNELS_MAGNITUDE_ONCE
namespace rondo::devices::cpu {
inline constexpr std::int64_t kBlockRows = 8;
}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct Magnitude {
  const T* w;
  const T* a;
  const T* b;
  const float* m;
  float alpha;
  float* scale;
  float* inverse;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rank;
};

/// Adds the squares of one vector of each row. `factors`: alpha b as [rank, kBlockRows].
template <typename T, typename Extent>
HWY_INLINE void add_squares(const Magnitude<T>& p, const T* const* rows, const float* factors, std::int64_t i,
                            Extent extent, Vector* squares) {
  Vector sums[kBlockRows];
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kBlockRows; ++k) sums[k] = load(rows[k] + i, extent);
  for (std::int64_t r = 0; r < p.rank; ++r) {
    const auto low = load(p.a + r * p.width + i, extent);
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kBlockRows; ++k) {
      sums[k] = hn::MulAdd(splat(factors[r * kBlockRows + k]), low, sums[k]);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kBlockRows; ++k) squares[k] = hn::MulAdd(sums[k], sums[k], squares[k]);
}

/// Rows first ... first + kBlockRows - 1. Where there are fewer, the last one stands for those that are not there.
template <typename T>
void magnitude_block(const Magnitude<T>& p, std::int64_t first, float* factors) {
  const T* rows[kBlockRows];
  Vector squares[kBlockRows];
  for (std::int64_t k = 0; k < kBlockRows; ++k) {
    const std::int64_t row = HWY_MIN(first + k, p.rows - 1);
    rows[k] = p.w + row * p.width;
    squares[k] = zero();
    for (std::int64_t r = 0; r < p.rank; ++r) factors[r * kBlockRows + k] = p.alpha * widened(p.b[row * p.rank + r]);
  }
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= p.width; i += step) add_squares(p, rows, factors, i, Whole{}, squares);
  if (i < p.width) add_squares(p, rows, factors, i, Part{p.width - i}, squares);
  for (std::int64_t k = 0; k < HWY_MIN(kBlockRows, p.rows - first); ++k) {
    const float norm = std::sqrt(sum_of(squares[k]));
    p.scale[first + k] = norm == 0.0F ? 0.0F : p.m[first + k] / norm;
    p.inverse[first + k] = norm == 0.0F ? 0.0F : 1.0F / norm;
  }
}

template <typename T>
void magnitude_typed(ThreadPool& pool, const Magnitude<T>& p, float* factors) {
  pool.parallel_for(divide_up(p.rows, kBlockRows), [&p, factors](std::int64_t task, std::uint32_t member) HWY_ATTR {
    magnitude_block(p, task * kBlockRows, factors + static_cast<std::int64_t>(member) * p.rank * kBlockRows);
  });
}

template <typename T>
void column_scale_typed(ThreadPool& pool, const T* x, const float* scale, std::int64_t each, const T* bias,
                        const T* addend, T* y, std::int64_t tokens, std::int64_t width) {
  const std::int64_t step = task_rows(width);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const std::int64_t at = token * width;
      const std::int64_t columns = each == 1 ? width : each;  // worked on together
      for (std::int64_t first = 0; first < width; first += columns) {
        const auto of_all = hn::Set(Floats(), scale[first / columns]);
        for_vectors(columns, [=](std::int64_t from, auto extent) HWY_ATTR {
          const std::int64_t i = first + from;
          auto value = hn::Mul(load(x + at + i, extent), each == 1 ? load(scale + i, extent) : of_all);
          if (bias != nullptr) value = hn::Add(value, load(bias + i, extent));
          if (addend != nullptr) value = hn::Add(value, load(addend + at + i, extent));
          store(value, y + at + i, extent);
        });
      }
    }
  });
}

void magnitude_any(ThreadPool& pool, Storage storage, const void* w, const void* a, const void* b, const float* m,
                   float alpha, float* scale, float* inverse, std::int64_t rows, std::int64_t width, std::int64_t rank,
                   float* factors) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    magnitude_typed<T>(pool,
                       {static_cast<const T*>(w), static_cast<const T*>(a), static_cast<const T*>(b), m, alpha, scale,
                        inverse, rows, width, rank},
                       factors);
  });
}

void column_scale_any(ThreadPool& pool, Storage storage, const void* x, const float* scale, std::int64_t each,
                      const void* bias, const void* addend, void* y, std::int64_t tokens, std::int64_t width) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    column_scale_typed(pool, static_cast<const T*>(x), scale, each, static_cast<const T*>(bias),
                       static_cast<const T*>(addend), static_cast<T*>(y), tokens, width);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(magnitude_any);
HWY_EXPORT(column_scale_any);

void magnitude_scale(ThreadPool& pool, Storage storage, const void* w, const void* a, const void* b, const float* m,
                     float alpha, float* scale, float* inverse, std::int64_t rows, std::int64_t width,
                     std::int64_t rank, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(magnitude_any)
  (pool, storage, w, a, b, m, alpha, scale, inverse, rows, width, rank, reinterpret_cast<float*>(scratch));
}

std::size_t magnitude_scratch(std::int64_t rank, std::uint32_t threads) {
  return static_cast<std::size_t>(rank * kBlockRows) * threads * sizeof(float);
}

void column_scale(ThreadPool& pool, Storage storage, const void* x, const float* scale, std::int64_t each,
                  const void* bias, const void* addend, void* y, std::int64_t tokens, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(column_scale_any)(pool, storage, x, scale, each, bias, addend, y, tokens, width);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
