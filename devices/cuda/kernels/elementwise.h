// Addition, gated activations, dropout: a thread takes kPerThread elements, a block's width apart.
#pragma once

#include "params.h"
#include "rondo/devices/random.h"

namespace rondo::devices::cuda {

inline constexpr int kPerThread = 4;
inline constexpr int kElementsOfBlock = kMostThreads * kPerThread;

/// Runs `body(i)` for the block's elements.
template <typename Block, typename Body>
RONDO_KERNEL void for_elements(Block& block, std::int64_t elements, Body body) {
  block.each([&](int thread) {
    RONDO_UNROLL
    for (int part = 0; part < kPerThread; ++part) {
      const std::int64_t i = block.x() * kElementsOfBlock + part * block.threads() + thread;
      if (i < elements) body(i);
    }
  });
}

/// What activations are computed in: fp64 where the result is stored in fp32, whose last digits four roundings in a row
/// would cost; fp32 is far more than narrower results hold.
template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<float> {
  using Type = double;
};

template <typename Real>
struct Activated {
  Real value;
  Real slope;
};

RONDO_KERNEL float exponential(float x) { return expf(x); }
RONDO_KERNEL double exponential(double x) { return exp(x); }
RONDO_KERNEL float error_tail(float x) { return erfcf(x); }
RONDO_KERNEL double error_tail(double x) { return erfc(x); }

/// kind: ActivationKind (0 silu, 1 gelu, 2 gelu with tanh).
template <typename Real>
RONDO_KERNEL Activated<Real> activate(int kind, Real x) {
  constexpr Real one = 1;
  constexpr Real half = 0.5;
  if (kind == 0) {
    const Real sigmoid = one / (one + exponential(-x));
    return {x * sigmoid, sigmoid * (one + x * (one - sigmoid))};
  }
  if (kind == 1) {
    // From the nearer tail: near 1 erfc would cost digits.
    constexpr auto root_half = static_cast<Real>(0.70710678118654752440);
    constexpr auto density = static_cast<Real>(0.39894228040143267794);  // 1 / sqrt(2 pi)
    const Real tail = half * error_tail((x < 0 ? -x : x) * root_half);
    const Real phi = x < 0 ? tail : one - tail;
    return {x * phi, phi + x * density * exponential(-half * x * x)};
  }
  constexpr auto scale = static_cast<Real>(0.79788456080286535588);  // sqrt(2 / pi)
  constexpr auto cubic = static_cast<Real>(0.044715);
  const Real inner = scale * (x + cubic * x * x * x);
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) keeps its digits where tanh is near -1.
  const Real share = one / (one + exponential(-2 * inner));
  const Real inner_slope = scale * (one + 3 * cubic * x * x);
  return {x * share, share + 2 * x * share * (one - share) * inner_slope};
}

template <typename T>
struct Add {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    for_elements(block, p.elements, [&](std::int64_t i) {
      const float sum = load(static_cast<const T*>(p.a) + i) + load(static_cast<const T*>(p.b) + i);
      store(static_cast<T*>(p.y) + i, sum);
    });
  }
};

template <typename T>
struct Gated {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    using Real = typename WideOf<T>::Type;
    for_elements(block, p.elements, [&](std::int64_t i) {
      const auto gate = static_cast<Real>(load(static_cast<const T*>(p.a) + i));
      const auto up = static_cast<Real>(load(static_cast<const T*>(p.b) + i));
      store(static_cast<T*>(p.y) + i, static_cast<float>(activate(p.activation, gate).value * up));
    });
  }
};

template <typename T>
struct GatedBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    using Real = typename WideOf<T>::Type;
    for_elements(block, p.elements, [&](std::int64_t i) {
      const auto gate = static_cast<Real>(load(static_cast<const T*>(p.a) + i));
      const auto up = static_cast<Real>(load(static_cast<const T*>(p.b) + i));
      const auto dy = static_cast<Real>(load(static_cast<const T*>(p.c) + i));
      const Activated<Real> activated = activate(p.activation, gate);
      store(static_cast<T*>(p.y) + i, static_cast<float>(dy * up * activated.slope));
      store(static_cast<T*>(p.z) + i, static_cast<float>(dy * activated.value));
    });
  }
};

template <typename T>
struct Dropout {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const DropoutParams& p) {
    for_elements(block, p.elements, [&](std::int64_t i) {
      const bool keep = dropout_keeps(p.keys[i / p.columns], p.layer, p.site, static_cast<std::uint64_t>(i % p.columns),
                                      p.probability);
      const float x = load(static_cast<const T*>(p.x) + i);
      // A dropped number leaves no trace, even one that is not finite.
      const float lost = p.dropped == 0.0F ? 0.0F : x * p.dropped;
      store(static_cast<T*>(p.y) + i, keep ? x * p.kept : lost);
    });
  }
};

}  // namespace rondo::devices::cuda
