// The gates of linear attention and their gradient.
#pragma once

#include "elementwise.h"
#include "rows.h"

namespace rondo::devices::cuda {

/// Tokens whose terms are summed before they are added to the gradients of rates and bias.
inline constexpr int kDecayChunk = 512;
inline constexpr int kDecayBackwardShared = 2 * kMostThreads * 4;

RONDO_KERNEL float logarithm_past_one(float x) { return log1pf(x); }
RONDO_KERNEL double logarithm_past_one(double x) { return log1p(x); }

/// log(1 + exp(x)).
template <typename Real>
RONDO_KERNEL Real softplus(Real x) {
  const Real rest = logarithm_past_one(exponential(x > 0 ? -x : x));
  return x > 0 ? x + rest : rest;
}

/// A step of a state space.
template <typename Real>
RONDO_KERNEL Real clamped(const DecayParams& p, Real step) {
  if (step < static_cast<Real>(p.least_step)) return static_cast<Real>(p.least_step);
  return step > static_cast<Real>(p.most_step) ? static_cast<Real>(p.most_step) : step;
}

/// In fp64 as all that fp32 keeps (elementwise.h): these are a token's few numbers.
template <typename T>
struct Decay {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const DecayParams& p) {
    block.local([&](int thread) {
      const std::int64_t i = block.x() * block.threads() + thread;
      if (i >= p.tokens * p.heads) return;
      using Real = typename WideOf<float>::Type;
      const std::int64_t head = i % p.heads;
      const auto a = static_cast<Real>(load(static_cast<const T*>(p.a) + i));
      const Real soft = softplus(a + static_cast<Real>(p.bias[head]));
      if (p.b == nullptr) {
        const Real step = clamped(p, soft);
        p.g[i] = static_cast<float>(-exponential(static_cast<Real>(p.rates[head])) * step);
        p.beta[i] = static_cast<float>(step);
        return;
      }
      p.g[i] = static_cast<float>(-exponential(static_cast<Real>(p.rates[head])) * soft);
      const auto b = static_cast<Real>(load(static_cast<const T*>(p.b) + i));
      p.beta[i] = static_cast<float>(activate(kSigmoidActivation, b).value);
    });
  }
};

/// A block kColumnThreads heads of kDecayChunk tokens; ColumnTotals adds the chunks up.
template <typename T>
struct DecayBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const DecayParams& p) {
    auto* const sums = reinterpret_cast<float*>(block.shared());  // [2, kRowLanes, kColumnThreads]
    block.each([&](int thread) {
      const std::int64_t head = block.x() * kColumnThreads + thread % kColumnThreads;
      const std::int64_t begin = block.y() * kDecayChunk;
      const std::int64_t end = begin + kDecayChunk < p.tokens ? begin + kDecayChunk : p.tokens;
      float of_rate = 0;
      float of_bias = 0;
      if (head < p.heads) {
        const float rate = -expf(p.rates[head]);
        const float bias = p.bias[head];
        for (std::int64_t token = begin + thread / kColumnThreads; token < end; token += kRowLanes) {
          const std::int64_t i = token * p.heads + head;
          const float a = load(static_cast<const T*>(p.a) + i) + bias;
          const float along = p.dg[i] * rate;
          if (p.b == nullptr) {
            const float whole = softplus(a);
            const float step = clamped(p, whole);
            const float da = step == whole ? (p.dbeta[i] + along) * activate(kSigmoidActivation, a).value : 0.0F;
            store(static_cast<T*>(p.da) + i, da);
            of_rate += along * step;
            of_bias += da;
            continue;
          }
          const float da = along * activate(kSigmoidActivation, a).value;
          store(static_cast<T*>(p.da) + i, da);
          const float b = load(static_cast<const T*>(p.b) + i);
          store(static_cast<T*>(p.db) + i, p.dbeta[i] * activate(kSigmoidActivation, b).slope);
          of_rate += along * softplus(a);
          of_bias += da;
        }
      }
      sums[thread] = of_rate;
      sums[kMostThreads + thread] = of_bias;
    });
    if (p.rate_parts == nullptr) return;
    block.local([&](int thread) {
      const std::int64_t head = block.x() * kColumnThreads + thread % kColumnThreads;
      if (thread >= 2 * kColumnThreads || head >= p.heads) return;
      const float* from = sums + thread / kColumnThreads * kMostThreads + thread % kColumnThreads;
      float sum = 0;
      for (int lane = 0; lane < kRowLanes; ++lane) sum += from[lane * kColumnThreads];
      (thread < kColumnThreads ? p.rate_parts : p.bias_parts)[block.y() * p.heads + head] = sum;
    });
  }
};

}  // namespace rondo::devices::cuda
