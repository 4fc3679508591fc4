// Rotary position embedding. Each token's cosines and sines are computed once, from the fp32 angle that transformers
// computes, and applied to all its heads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cpp"
#include "rondo/devices/rope.h"

#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels.h"
#include "kernels/sequences.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

#ifndef RONDO_CPU_KERNELS_ROPE_ONCE
#define RONDO_CPU_KERNELS_ROPE_ONCE
namespace rondo::devices::cpu {
inline constexpr std::int64_t kRopeTokens = 64;  // tokens of a task
inline constexpr std::int64_t kRopePairs = 64;   // pairs whose angles are computed at a time

struct RopeProblem {
  const std::int32_t* positions;
  const std::int32_t* bounds;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t head_dim;
  const RopeAttributes* attributes;
  float* table;  // [tokens][2][pairs]
  std::int64_t pairs() const { return static_cast<std::int64_t>(attributes->frequencies.size()); }
};

/// Frequencies of pairs first ... first + count - 1 for the sequence that holds `token`.
inline void frequencies_at(const RopeProblem& problem, std::int64_t token, std::int64_t first, std::int64_t count,
                           float* to) {
  const RopeAttributes& attributes = *problem.attributes;
  const std::int64_t length = attributes.dynamic_from == 0 ? 0 : Sequences(problem.bounds).at(token).length();
  for (std::int64_t i = 0; i < count; ++i) to[i] = rope_frequency(attributes, length, first + i);
}
}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;
using NarrowFloats = hn::Rebind<float, Doubles>;
using DoubleVector = hn::Vec<Doubles>;

struct Turn {
  DoubleVector cosine;
  DoubleVector sine;
};

/// Cosine and sine in fp64 by reduction to |r| <= pi / 4 and Taylor's series: far more exact than fp32 needs, so that
/// rounding to fp32 is all the error there is. |angle| < 2^31.
HWY_INLINE Turn turn_by(DoubleVector angle) {
  const Doubles d;
  const auto quarter = hn::Round(hn::Mul(angle, hn::Set(d, 0.63661977236758134308)));
  // pi / 2 in two parts, the first of 33 bits: its product with `quarter` is exact.
  auto r = hn::NegMulAdd(quarter, hn::Set(d, 1.57079632673412561417), angle);
  r = hn::NegMulAdd(quarter, hn::Set(d, 6.07710050650619224932e-11), r);
  const auto r2 = hn::Mul(r, r);
  auto s = hn::Set(d, 1.0 / 6227020800);
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 39916800));
  s = hn::MulAdd(s, r2, hn::Set(d, 1.0 / 362880));
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 5040));
  s = hn::MulAdd(s, r2, hn::Set(d, 1.0 / 120));
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 6));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  auto c = hn::Set(d, 1.0 / 479001600);
  c = hn::MulAdd(c, r2, hn::Set(d, -1.0 / 3628800));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0 / 40320));
  c = hn::MulAdd(c, r2, hn::Set(d, -1.0 / 720));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0 / 24));
  c = hn::MulAdd(c, r2, hn::Set(d, -0.5));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0));
  // quarter mod 4, in whole doubles.
  const auto q = hn::Sub(quarter, hn::Mul(hn::Floor(hn::Mul(quarter, hn::Set(d, 0.25))), hn::Set(d, 4.0)));
  const auto is_one = hn::Eq(q, hn::Set(d, 1.0));
  const auto is_two = hn::Eq(q, hn::Set(d, 2.0));
  const auto is_three = hn::Eq(q, hn::Set(d, 3.0));
  const auto swapped = hn::Or(is_one, is_three);
  const auto cosine = hn::IfThenElse(swapped, s, c);
  const auto sine = hn::IfThenElse(swapped, c, s);
  return {hn::IfThenElse(hn::Or(is_one, is_two), hn::Neg(cosine), cosine),
          hn::IfThenElse(hn::Or(is_two, is_three), hn::Neg(sine), sine)};
}

/// Cosines and sines (times amplitude, the sines times direction too) of `count` pairs at one position.
HWY_INLINE void fill_table(const float* frequencies, std::int32_t position, std::int64_t count, float amplitude,
                           float direction, float* cosines, float* sines) {
  const NarrowFloats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float cosine_buffer[kRopePairs];
  HWY_ALIGN float sine_buffer[kRopePairs];
  for (std::int64_t i = 0; i < count; i += step) {
    const auto angle = hn::Mul(hn::Set(d, static_cast<float>(position)), hn::LoadU(d, frequencies + i));
    const Turn turn = turn_by(hn::PromoteTo(Doubles(), angle));
    hn::StoreU(hn::Mul(hn::DemoteTo(d, turn.cosine), hn::Set(d, amplitude)), d, cosine_buffer + i);
    hn::StoreU(hn::Mul(hn::DemoteTo(d, turn.sine), hn::Set(d, amplitude * direction)), d, sine_buffer + i);
  }
  std::memcpy(cosines, cosine_buffer, static_cast<std::size_t>(count) * sizeof(float));
  std::memcpy(sines, sine_buffer, static_cast<std::size_t>(count) * sizeof(float));
}

HWY_INLINE void tables_of_tokens(const RopeProblem& problem, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = problem.pairs();
  const RopeAttributes& attributes = *problem.attributes;
  for (std::int64_t first = 0; first < half; first += kRopePairs) {
    const std::int64_t count = HWY_MIN(kRopePairs, half - first);
    float frequencies[kRopePairs] = {};
    std::int64_t known_until = begin;  // tokens that `frequencies` hold for
    for (std::int64_t token = begin; token < end; ++token) {
      if (token == known_until) {
        frequencies_at(problem, token, first, count, frequencies);
        known_until = attributes.dynamic_from == 0 ? end : Sequences(problem.bounds).at(token).end;
      }
      float* row = problem.table + token * 2 * half;
      const std::int32_t position = problem.positions[token];
      fill_table(frequencies, position, count, rope_amplitude(attributes, position), attributes.direction, row + first,
                 row + half + first);
    }
  }
}

template <typename T>
void rope_typed(ThreadPool& pool, const T* x, T* y, const RopeProblem& problem) {
  pool.parallel_for(divide_up(problem.tokens, kRopeTokens), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t begin = task * kRopeTokens;
    const std::int64_t end = HWY_MIN(problem.tokens, begin + kRopeTokens);
    tables_of_tokens(problem, begin, end);
    const std::int64_t half = problem.pairs();
    const std::int64_t rest = problem.head_dim - 2 * half;
    for (std::int64_t token = begin; token < end; ++token) {
      const float* cosines = problem.table + token * 2 * half;
      const float* sines = cosines + half;
      for (std::int64_t head = 0; head < problem.heads; ++head) {
        const std::int64_t at = (token * problem.heads + head) * problem.head_dim;
        for_vectors(half, [=](std::int64_t i, auto extent) HWY_ATTR {
          const auto left = load(x + at + i, extent);
          const auto right = load(x + at + half + i, extent);
          const auto cosine = load(cosines + i, extent);
          const auto sine = load(sines + i, extent);
          store(hn::NegMulAdd(right, sine, hn::Mul(left, cosine)), y + at + i, extent);
          store(hn::MulAdd(left, sine, hn::Mul(right, cosine)), y + at + half + i, extent);
        });
        std::copy_n(x + at + 2 * half, rest, y + at + 2 * half);
      }
    }
  });
}

void rope_any(ThreadPool& pool, Storage storage, const void* x, void* y, const RopeProblem& problem) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    rope_typed(pool, static_cast<const T*>(x), static_cast<T*>(y), problem);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(rope_any);

void rope(ThreadPool& pool, Storage storage, const void* x, const std::int32_t* positions, const std::int32_t* bounds,
          void* y, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, const RopeAttributes& attributes,
          std::byte* scratch) {
  const RopeProblem problem{positions, bounds, tokens, heads, head_dim, &attributes, reinterpret_cast<float*>(scratch)};
  HWY_DYNAMIC_DISPATCH(rope_any)(pool, storage, x, y, problem);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
