// Norms forward and backward, and the gradients of a bias and of a scale of columns: kernels that end in a sum over
// rows.
//
// Such a sum is cut into parts of kPartRows rows, each summed in rising order by one task; then the parts of a chunk of
// kTokenChunk rows are added in rising order, and the chunks to the gradient in rising order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

#ifndef RONDO_CPU_KERNELS_NORM_ONCE
#define RONDO_CPU_KERNELS_NORM_ONCE
namespace rondo::devices::cpu {
inline constexpr std::int64_t kPartRows = 64;
inline constexpr std::int64_t kPartsPerChunk = kTokenChunk / kPartRows;
static_assert(kTokenChunk % kPartRows == 0);
}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// Sum over a row of term(i, extent), in four interleaved partial sums.
template <typename Term>
HWY_INLINE float sum_over_row(std::int64_t width, const Term& term) {
  const std::int64_t step = lanes();
  auto s0 = zero();
  auto s1 = zero();
  auto s2 = zero();
  auto s3 = zero();
  std::int64_t i = 0;
  for (; i + 4 * step <= width; i += 4 * step) {
    s0 = hn::Add(s0, term(i, Whole{}));
    s1 = hn::Add(s1, term(i + step, Whole{}));
    s2 = hn::Add(s2, term(i + 2 * step, Whole{}));
    s3 = hn::Add(s3, term(i + 3 * step, Whole{}));
  }
  for (; i + step <= width; i += step) s0 = hn::Add(s0, term(i, Whole{}));
  if (i < width) s1 = hn::Add(s1, term(i, Part{width - i}));
  return sum_of(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// What is taken off the numbers of a row, and what they are multiplied by then.
struct RowScale {
  float mean;  // 0 where the norm is not centred
  float factor;
};

/// Numbers of a row less its mean; what a part leaves out stays 0.
HWY_INLINE Vector centred(Vector v, float mean, Whole) { return hn::Sub(v, splat(mean)); }
HWY_INLINE Vector centred(Vector v, float mean, Part part) {
  return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<std::size_t>(part.count)), hn::Sub(v, splat(mean)));
}

template <typename T>
HWY_INLINE RowScale scale_of_row(const T* x, std::int64_t width, const NormAttributes& norm) {
  const auto count = static_cast<float>(width);
  float mean = 0;
  if (norm.centred) {
    mean = sum_over_row(width, [x](std::int64_t i, auto extent) HWY_ATTR { return load(x + i, extent); }) / count;
  }
  const float squares = sum_over_row(width, [x, mean](std::int64_t i, auto extent) HWY_ATTR {
    const auto v = centred(load(x + i, extent), mean, extent);
    return hn::Mul(v, v);
  });
  return {mean, 1.0F / std::sqrt(squares / count + norm.epsilon)};
}

/// What a norm multiplies by: some of a row's weights from the i-th on, times their factor, and the offset.
template <typename T, typename Extent>
HWY_INLINE auto load_gain(const NormAttributes& norm, const T* w, std::int64_t i, Extent extent) {
  if (w == nullptr) return splat(norm.weight_offset);
  return hn::MulAdd(load(w + i, extent), splat(norm.weight_factor), splat(norm.weight_offset));
}

template <typename T>
void forward_typed(ThreadPool& pool, const T* x, const T* w, const T* bias, T* y, std::int64_t rows, std::int64_t width,
                   const NormAttributes& norm) {
  const std::int64_t step = task_rows(width);
  pool.parallel_for(divide_up(rows, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(rows, (task + 1) * step);
    for (std::int64_t row = task * step; row < end; ++row) {
      const T* from = x + row * width;
      T* to = y + row * width;
      const RowScale scale = scale_of_row(from, width, norm);
      const auto factor = splat(scale.factor);
      for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
        const auto normal = hn::Mul(centred(load(from + i, extent), scale.mean, extent), factor);
        const auto gain = load_gain(norm, w, i, extent);
        store(bias == nullptr ? hn::Mul(normal, gain) : hn::MulAdd(normal, gain, load(bias + i, extent)), to + i,
              extent);
      });
    }
  });
}

/// One row of the backward pass: dx, and dy * x^ times the weights' factor added to `part` where there is one.
template <typename T>
HWY_INLINE void norm_backward_row(const T* x, const T* w, const T* dy, const T* addend, T* dx, float* part,
                                  std::int64_t width, const NormAttributes& norm) {
  const RowScale scale = scale_of_row(x, width, norm);
  const float product = sum_over_row(width, [=](std::int64_t i, auto extent) HWY_ATTR {
    return hn::Mul(hn::Mul(load_gain(norm, w, i, extent), load(dy + i, extent)),
                   centred(load(x + i, extent), scale.mean, extent));
  });
  float slopes = 0;
  if (norm.centred) {
    slopes = sum_over_row(width, [=](std::int64_t i, auto extent)
                                     HWY_ATTR { return hn::Mul(load_gain(norm, w, i, extent), load(dy + i, extent)); });
  }
  const auto factor = splat(scale.factor);
  const auto weight_factor = splat(norm.weight_factor);
  // dx = (g dy - x^ mean(g dy x^) - mean(g dy)) / rms with x^ = c / rms and the gain g; the last mean where c is
  // centred.
  const auto mean = splat(product * scale.factor / static_cast<float>(width));
  const auto mean_slope = splat(slopes / static_cast<float>(width));
  for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
    const auto normal = hn::Mul(centred(load(x + i, extent), scale.mean, extent), factor);
    const auto slope = load(dy + i, extent);
    const auto risen = hn::Sub(hn::Mul(load_gain(norm, w, i, extent), slope), mean_slope);
    auto result = hn::Mul(hn::NegMulAdd(normal, mean, risen), factor);
    if (addend != nullptr) result = hn::Add(result, load(addend + i, extent));
    if (part != nullptr)
      store(hn::MulAdd(hn::Mul(slope, weight_factor), normal, load(part + i, extent)), part + i, extent);
    store(result, dx + i, extent);
  });
}

/// total += the parts of `rows` rows, chunk by chunk.
void add_parts(ThreadPool& pool, const float* parts, float* total, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kColumns = 512;
  const std::int64_t count = divide_up(rows, kPartRows);
  pool.parallel_for(divide_up(width, kColumns), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t begin = task * kColumns;
    for_vectors(HWY_MIN(kColumns, width - begin), [=](std::int64_t i, auto extent) HWY_ATTR {
      float* to = total + begin + i;
      auto sum = load(to, extent);
      for (std::int64_t first = 0; first < count; first += kPartsPerChunk) {
        const std::int64_t last = HWY_MIN(count, first + kPartsPerChunk);
        auto chunk = load(parts + first * width + begin + i, extent);
        for (std::int64_t part = first + 1; part < last; ++part) {
          chunk = hn::Add(chunk, load(parts + part * width + begin + i, extent));
        }
        sum = hn::Add(sum, chunk);
      }
      store(sum, to, extent);
    });
  });
}

template <typename T>
void backward_typed(ThreadPool& pool, const T* x, const T* w, const T* dy, const T* addend, T* dx, float* dw,
                    std::int64_t rows, std::int64_t width, const NormAttributes& norm, float* parts) {
  pool.parallel_for(divide_up(rows, kPartRows), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    float* part = dw == nullptr ? nullptr : parts + task * width;
    if (part != nullptr) std::memset(part, 0, static_cast<std::size_t>(width) * sizeof(float));
    const std::int64_t end = HWY_MIN(rows, (task + 1) * kPartRows);
    for (std::int64_t row = task * kPartRows; row < end; ++row) {
      const std::int64_t at = row * width;
      norm_backward_row(x + at, w, dy + at, addend == nullptr ? nullptr : addend + at, dx + at, part, width, norm);
    }
  });
  if (dw != nullptr) add_parts(pool, parts, dw, rows, width);
}

template <typename T>
void bias_typed(ThreadPool& pool, const T* dy, float* db, std::int64_t tokens, std::int64_t width, float* parts) {
  pool.parallel_for(divide_up(tokens, kPartRows), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    float* part = parts + task * width;
    std::memset(part, 0, static_cast<std::size_t>(width) * sizeof(float));
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * kPartRows);
    for (std::int64_t row = task * kPartRows; row < end; ++row) {
      const T* from = dy + row * width;
      for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
        store(hn::Add(load(part + i, extent), load(from + i, extent)), part + i, extent);
      });
    }
  });
  add_parts(pool, parts, db, tokens, width);
}

template <typename T>
void column_scale_backward_typed(ThreadPool& pool, const T* x, const float* scale, const float* inverse, const T* dy,
                                 T* dx, float* dm, std::int64_t tokens, std::int64_t width, float* parts) {
  pool.parallel_for(divide_up(tokens, kPartRows), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    float* part = parts + task * width;
    std::memset(part, 0, static_cast<std::size_t>(width) * sizeof(float));
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * kPartRows);
    for (std::int64_t row = task * kPartRows; row < end; ++row) {
      const std::int64_t at = row * width;
      for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
        const auto slope = load(dy + at + i, extent);
        store(hn::MulAdd(slope, load(x + at + i, extent), load(part + i, extent)), part + i, extent);
        store(hn::Mul(slope, load(scale + i, extent)), dx + at + i, extent);
      });
    }
    if (inverse == nullptr) return;
    for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Mul(load(part + i, extent), load(inverse + i, extent)), part + i, extent);
    });
  });
  add_parts(pool, parts, dm, tokens, width);
}

void norm_forward_any(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* bias, void* y,
                      std::int64_t rows, std::int64_t width, const NormAttributes& norm) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    forward_typed(pool, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
                  static_cast<T*>(y), rows, width, norm);
  });
}

void norm_backward_any(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* dy,
                       const void* addend, void* dx, float* dw, std::int64_t rows, std::int64_t width,
                       const NormAttributes& norm, float* parts) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    backward_typed(pool, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(dy),
                   static_cast<const T*>(addend), static_cast<T*>(dx), dw, rows, width, norm, parts);
  });
}

void bias_any(ThreadPool& pool, Storage storage, const void* dy, float* db, std::int64_t tokens, std::int64_t width,
              float* parts) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    bias_typed(pool, static_cast<const T*>(dy), db, tokens, width, parts);
  });
}

void column_scale_backward_any(ThreadPool& pool, Storage storage, const void* x, const float* scale,
                               const float* inverse, const void* dy, void* dx, float* dm, std::int64_t tokens,
                               std::int64_t width, float* parts) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    column_scale_backward_typed(pool, static_cast<const T*>(x), scale, inverse, static_cast<const T*>(dy),
                                static_cast<T*>(dx), dm, tokens, width, parts);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(norm_forward_any);
HWY_EXPORT(norm_backward_any);
HWY_EXPORT(bias_any);
HWY_EXPORT(column_scale_backward_any);

void norm_forward(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* bias, void* y,
                  std::int64_t rows, std::int64_t width, const NormAttributes& norm) {
  HWY_DYNAMIC_DISPATCH(norm_forward_any)(pool, storage, x, w, bias, y, rows, width, norm);
}

void norm_backward(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* dy, const void* addend,
                   void* dx, float* dw, std::int64_t rows, std::int64_t width, const NormAttributes& norm,
                   std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(norm_backward_any)
  (pool, storage, x, w, dy, addend, dx, dw, rows, width, norm, reinterpret_cast<float*>(scratch));
}

std::size_t norm_backward_scratch(std::int64_t rows, std::int64_t width) {
  return static_cast<std::size_t>(divide_up(rows, kPartRows) * width) * sizeof(float);
}

void bias_gradient(ThreadPool& pool, Storage storage, const void* dy, float* db, std::int64_t tokens,
                   std::int64_t width, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(bias_any)(pool, storage, dy, db, tokens, width, reinterpret_cast<float*>(scratch));
}

void column_scale_backward(ThreadPool& pool, Storage storage, const void* x, const float* scale, const float* inverse,
                           const void* dy, void* dx, float* dm, std::int64_t tokens, std::int64_t width,
                           std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(column_scale_backward_any)
  (pool, storage, x, scale, inverse, dy, dx, dm, tokens, width, reinterpret_cast<float*>(scratch));
}

std::size_t bias_gradient_scratch(std::int64_t tokens, std::int64_t width) {
  return norm_backward_scratch(tokens, width);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
