// Softmax cross-entropy over one chunk of logits: losses, and (softmax - onehot) * scale.
//
// A row is read twice: once for maximum and sum, in blocks that stay in the first-level cache and whose sums meet in
// fp64, once for the gradient.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include <cmath>
#include <limits>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// sum of e^(x - maximum) over a row, and its maximum.
struct Normaliser {
  float maximum = -std::numeric_limits<float>::infinity();
  double sum = 0;
};

HWY_INLINE float maximum_over(const float* x, std::int64_t count) {
  const std::int64_t step = lanes();
  // A part of a vector is met with its first element in the lanes that it lacks.
  auto m0 = splat(x[0]);
  auto m1 = m0;
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    m0 = hn::Max(m0, load(x + i));
    m1 = hn::Max(m1, load(x + i + step));
  }
  for (; i < count; ++i) m0 = hn::Max(m0, splat(x[i]));
  return max_of(hn::Max(m0, m1));
}

HWY_INLINE float sum_of_exp(const float* x, std::int64_t count, float maximum) {
  const auto shift = splat(maximum);
  const std::int64_t step = lanes();
  auto s0 = zero();
  auto s1 = zero();
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    s0 = hn::Add(s0, exp_of(hn::Sub(load(x + i), shift)));
    s1 = hn::Add(s1, exp_of(hn::Sub(load(x + i + step), shift)));
  }
  if (i + step <= count) {
    s0 = hn::Add(s0, exp_of(hn::Sub(load(x + i), shift)));
    i += step;
  }
  if (i < count) {
    const Part rest{count - i};
    const auto present = hn::FirstN(Floats(), static_cast<std::size_t>(rest.count));
    s1 = hn::Add(s1, hn::IfThenElseZero(present, exp_of(hn::Sub(load(x + i, rest), shift))));
  }
  return sum_of(hn::Add(s0, s1));
}

Normaliser normaliser_of(const float* row, std::int64_t vocabulary) {
  constexpr std::int64_t kBlock = 2048;
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  Normaliser all;
  for (std::int64_t begin = 0; begin < vocabulary; begin += kBlock) {
    const std::int64_t count = HWY_MIN(kBlock, vocabulary - begin);
    const float found = maximum_over(row + begin, count);
    // A block of nothing but -infinity adds nothing, rather than the NaN of -infinity - -infinity.
    const float maximum = found < kLowest ? kLowest : found;
    const auto sum = static_cast<double>(sum_of_exp(row + begin, count, maximum));
    if (maximum > all.maximum) {
      all.sum = all.sum * std::exp(static_cast<double>(all.maximum) - static_cast<double>(maximum)) + sum;
      all.maximum = maximum;
    } else {
      all.sum += sum * std::exp(static_cast<double>(maximum) - static_cast<double>(all.maximum));
    }
  }
  return all;
}

template <typename T>
void write_gradient(const float* row, const Normaliser& all, std::int64_t target, T* gradient, float scale,
                    std::int64_t vocabulary) {
  const auto shift = splat(all.maximum);
  const auto inverse = splat(static_cast<float>(1.0 / all.sum));
  const auto probability = [=](Vector x) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(x, shift)), inverse); };
  // Taken before the row is written: gradient may be the logits themselves.
  const auto factor = splat(scale);
  const auto at_target = hn::Mul(hn::Sub(probability(splat(row[target])), splat(1.0F)), factor);
  for_vectors(vocabulary, [=](std::int64_t i, auto extent) HWY_ATTR {
    const auto p = probability(load(row + i, extent));
    store(hn::Mul(p, factor), gradient + i, extent);
  });
  T value[hn::MaxLanes(Floats())];
  store(at_target, value);
  gradient[target] = value[0];
}

template <typename T>
void cross_entropy_typed(ThreadPool& pool, const float* logits, const std::int32_t* targets, double* losses,
                         T* gradient, float scale, std::int64_t tokens, std::int64_t vocabulary) {
  const std::int64_t step = task_rows(vocabulary);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const float* row = logits + token * vocabulary;
      T* to = gradient == nullptr ? nullptr : gradient + token * vocabulary;
      const std::int64_t target = targets[token];
      if (target < 0) {
        losses[token] = 0;
        if (to != nullptr) std::memset(to, 0, static_cast<std::size_t>(vocabulary) * sizeof(T));
        continue;
      }
      const Normaliser all = normaliser_of(row, vocabulary);
      losses[token] = std::log(all.sum) + (static_cast<double>(all.maximum) - static_cast<double>(row[target]));
      if (to != nullptr) write_gradient(row, all, target, to, scale, vocabulary);
    }
  });
}

void cross_entropy_any(ThreadPool& pool, Storage storage, const float* logits, const std::int32_t* targets,
                       double* losses, void* gradient, float scale, std::int64_t tokens, std::int64_t vocabulary) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    cross_entropy_typed(pool, logits, targets, losses, static_cast<T*>(gradient), scale, tokens, vocabulary);
  });
}

void statistics_any(ThreadPool& pool, const float* logits, const std::int32_t* targets, float* statistics,
                    std::int64_t tokens, std::int64_t rows) {
  const std::int64_t step = task_rows(rows);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const float* row = logits + token * rows;
      float* so_far = statistics + token * 3;
      const Normaliser part = normaliser_of(row, rows);
      const float maximum = HWY_MAX(so_far[0], part.maximum);
      const auto share = [maximum](float of, double sum) {
        return sum * std::exp(static_cast<double>(of) - static_cast<double>(maximum));
      };
      so_far[1] = static_cast<float>(share(so_far[0], static_cast<double>(so_far[1])) + share(part.maximum, part.sum));
      so_far[0] = maximum;
      if (targets[token] >= 0) so_far[2] = row[targets[token]];
    }
  });
}

template <typename T>
void gradient_typed(ThreadPool& pool, const float* logits, const std::int32_t* targets, const float* lse, T* gradient,
                    std::int64_t real, std::int64_t tokens, std::int64_t rows) {
  const std::int64_t step = task_rows(rows);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const float* row = logits + token * rows;
      T* to = gradient + token * rows;
      if (token >= real) {
        std::memset(to, 0, static_cast<std::size_t>(rows) * sizeof(T));
        continue;
      }
      const auto shift = splat(lse[token]);
      const auto probability = [=](Vector x) HWY_ATTR { return exp_of(hn::Sub(x, shift)); };
      const std::int64_t target = targets[token];
      // Taken before the row is written: gradient may be the logits themselves.
      const auto at_target = hn::Sub(probability(splat(row[HWY_MAX(target, 0)])), splat(1.0F));
      for_vectors(rows, [=](std::int64_t i, auto extent)
                            HWY_ATTR { store(probability(load(row + i, extent)), to + i, extent); });
      if (target < 0) continue;
      T value[hn::MaxLanes(Floats())];
      store(at_target, value);
      to[target] = value[0];
    }
  });
}

void gradient_any(ThreadPool& pool, Storage storage, const float* logits, const std::int32_t* targets, const float* lse,
                  void* gradient, std::int64_t real, std::int64_t tokens, std::int64_t rows) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    gradient_typed(pool, logits, targets, lse, static_cast<T*>(gradient), real, tokens, rows);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(cross_entropy_any);
HWY_EXPORT(statistics_any);
HWY_EXPORT(gradient_any);

void softmax_cross_entropy(ThreadPool& pool, Storage storage, const float* logits, const std::int32_t* targets,
                           double* losses, void* gradient, std::int64_t tokens, std::int64_t vocabulary, float scale) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_any)(pool, storage, logits, targets, losses, gradient, scale, tokens, vocabulary);
}

void vocabulary_statistics(ThreadPool& pool, const float* logits, const std::int32_t* targets, float* statistics,
                           std::int64_t tokens, std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(statistics_any)(pool, logits, targets, statistics, tokens, rows);
}

void vocabulary_gradient(ThreadPool& pool, Storage storage, const float* logits, const std::int32_t* targets,
                         const float* lse, void* gradient, std::int64_t real, std::int64_t tokens, std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(gradient_any)(pool, storage, logits, targets, lse, gradient, real, tokens, rows);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
