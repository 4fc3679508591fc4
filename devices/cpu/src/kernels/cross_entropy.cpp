// Softmax cross-entropy over one chunk of logits, of the whole vocabulary or of a part: losses, and
// (softmax - onehot) * scale.
//
// A row is read once for maximum and sum, in blocks that stay in the first-level cache and whose sums meet in fp64, and
// once for the gradient: of the last part at once, of others when the statistics of all are known.
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
struct RowSums {
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

RowSums sums_of(const float* row, std::int64_t vocabulary) {
  constexpr std::int64_t kBlock = 2048;
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  RowSums all;
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

/// Of the parts that `statistics` are of, and this one.
RowSums joined(const float* statistics, const RowSums& part) {
  const float maximum = HWY_MAX(statistics[0], part.maximum);
  const auto share = [maximum](float of, double sum) {
    return sum * std::exp(static_cast<double>(of) - static_cast<double>(maximum));
  };
  return {maximum, share(statistics[0], static_cast<double>(statistics[1])) + share(part.maximum, part.sum)};
}

/// kCapped: of logits cap * tanh(x / cap) along x.
template <bool kCapped, typename T>
void write_gradient(const PartLogits& part, std::int64_t token, const float* normaliser, T* gradient, float scale) {
  const float* row = part.logits + token * part.rows;
  const std::int64_t target = part.targets[token];
  const auto shift = splat(normaliser[0]);
  const auto inverse = splat(normaliser[1]);
  const auto probability = [=](Vector x) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(x, shift)), inverse); };
  const auto inverse_cap = splat(kCapped ? 1.0F / part.cap : 0.0F);
  const auto with_slope = [=](Vector gradient_of_capped, Vector x) HWY_ATTR {
    if constexpr (!kCapped) return gradient_of_capped;
    const auto t = hn::Mul(x, inverse_cap);
    return hn::NegMulAdd(hn::Mul(gradient_of_capped, t), t, gradient_of_capped);
  };
  // Taken before the row is written: gradient may be the logits themselves.
  const auto factor = splat(scale);
  const auto hit = splat(row[HWY_MAX(target, 0)]);
  const auto at_target = with_slope(hn::Mul(hn::Sub(probability(hit), splat(1.0F)), factor), hit);
  for_vectors(part.rows, [=](std::int64_t i, auto extent) HWY_ATTR {
    const auto x = load(row + i, extent);
    store(with_slope(hn::Mul(probability(x), factor), x), gradient + i, extent);
  });
  if (target < 0) return;
  T value[hn::MaxLanes(Floats())];
  store(at_target, value);
  gradient[target] = value[0];
}

template <typename T>
void write_gradient(const PartLogits& part, std::int64_t token, const float* normaliser, T* gradient, float scale) {
  if (part.cap > 0.0F) return write_gradient<true>(part, token, normaliser, gradient, scale);
  write_gradient<false>(part, token, normaliser, gradient, scale);
}

/// Calls `work(token, row of the gradient)` for each token; the row is null where no gradient is wanted. Rows past the
/// last token get zeros.
template <typename T, typename Work>
void for_tokens(ThreadPool& pool, const PartLogits& part, const PartGradient& gradient, Work work) {
  auto* to = static_cast<T*>(gradient.to);
  const std::int64_t step = task_rows(part.rows);
  const std::int64_t all = to == nullptr ? part.tokens : HWY_MAX(part.tokens, gradient.filled_up);
  pool.parallel_for(divide_up(all, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(all, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      T* row = to == nullptr ? nullptr : to + token * part.rows;
      if (token < part.tokens) {
        work(token, row);
      } else {
        std::memset(row, 0, static_cast<std::size_t>(part.rows) * sizeof(T));
      }
    }
  });
}

void statistics_any(ThreadPool& pool, const PartLogits& part, float* statistics) {
  for_tokens<float>(pool, part, {}, [=](std::int64_t token, float*) HWY_ATTR {
    const float* row = part.logits + token * part.rows;
    float* so_far = statistics + token * 3;
    const RowSums all = joined(so_far, sums_of(row, part.rows));
    so_far[0] = all.maximum;
    so_far[1] = static_cast<float>(all.sum);
    if (part.targets[token] >= 0) so_far[2] = row[part.targets[token]];
  });
}

void loss_any(ThreadPool& pool, const PartLogits& last, const float* statistics, double* losses, float* normalisers,
              const PartGradient& gradient) {
  with_storage(gradient.storage, [&](auto type) {
    using T = decltype(type);
    const float scale = gradient.scale;
    for_tokens<T>(pool, last, gradient, [=](std::int64_t token, T* to) HWY_ATTR {
      const float* row = last.logits + token * last.rows;
      const float* before = statistics + token * 3;
      const std::int64_t target = last.targets[token];
      const RowSums all = joined(before, sums_of(row, last.rows));
      const float target_logit = target < 0 ? before[2] : row[target];
      losses[token] = std::log(all.sum) + (static_cast<double>(all.maximum) - static_cast<double>(target_logit));
      float* normaliser = normalisers + token * 2;
      normaliser[0] = all.maximum;
      normaliser[1] = static_cast<float>(1.0 / all.sum);
      if (to != nullptr) write_gradient(last, token, normaliser, to, scale);
    });
  });
}

void gradient_any(ThreadPool& pool, const PartLogits& part, const float* normalisers, const PartGradient& gradient) {
  with_storage(gradient.storage, [&](auto type) {
    using T = decltype(type);
    const float scale = gradient.scale;
    for_tokens<T>(pool, part, gradient, [=](std::int64_t token, T* to) HWY_ATTR {
      write_gradient(part, token, normalisers + token * 2, to, scale);
    });
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(statistics_any);
HWY_EXPORT(loss_any);
HWY_EXPORT(gradient_any);

void vocabulary_statistics(ThreadPool& pool, const PartLogits& part, float* statistics) {
  HWY_DYNAMIC_DISPATCH(statistics_any)(pool, part, statistics);
}

void vocabulary_loss(ThreadPool& pool, const PartLogits& last, const float* statistics, double* losses,
                     float* normalisers, const PartGradient& gradient) {
  HWY_DYNAMIC_DISPATCH(loss_any)(pool, last, statistics, losses, normalisers, gradient);
}

void vocabulary_gradient(ThreadPool& pool, const PartLogits& part, const float* normalisers,
                         const PartGradient& gradient) {
  HWY_DYNAMIC_DISPATCH(gradient_any)(pool, part, normalisers, gradient);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
