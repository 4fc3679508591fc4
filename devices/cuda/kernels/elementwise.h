// Addition, gated activations, the soft cap, dropout, noise: a thread takes eight elements in a row.
#pragma once

#include "params.h"
#include "rondo/devices/random.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

inline constexpr int kElementsOfBlock = kMostThreads * kVector;

/// Runs body(Vector, first) for the block's elements: by the eight, and by one where the last are fewer.
template <typename Block, typename Body>
RONDO_KERNEL void for_elements(Block& block, std::int64_t elements, Body body) {
  block.each([&](int thread) {
    const std::int64_t first = block.x() * kElementsOfBlock + static_cast<std::int64_t>(thread) * kVector;
    if (first + kVector <= elements) {
      body(Vector<kVector>{}, first);
    } else {
      for (std::int64_t i = first; i < elements; ++i) body(Vector<1>{}, i);
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

/// Number of ActivationKind::kSigmoid.
inline constexpr int kSigmoidActivation = 4;

/// Number of ActivationKind::kRelu.
inline constexpr int kReluActivation = 5;

/// Number of ActivationKind::kIdentity.
inline constexpr int kIdentityActivation = 6;

/// kind: ActivationKind (0 silu, 1 gelu, 2 gelu with tanh, 4 sigmoid, 5 relu, 6 identity).
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
  if (kind == kSigmoidActivation) {
    // By the lesser exponential: 1 - sigmoid would cost digits.
    const Real tail = exponential(x < 0 ? x : -x);
    const Real share = one / (one + tail);
    return {x < 0 ? tail * share : share, tail * share * share};
  }
  if (kind == kReluActivation) return {x < 0 ? Real{0} : x, x > 0 ? one : Real{0}};
  if (kind == kIdentityActivation) return {x, one};
  constexpr auto scale = static_cast<Real>(0.79788456080286535588);  // sqrt(2 / pi)
  constexpr auto cubic = static_cast<Real>(0.044715);
  const Real inner = scale * (x + cubic * x * x * x);
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) keeps its digits where tanh is near -1.
  const Real share = one / (one + exponential(-2 * inner));
  const Real inner_slope = scale * (one + 3 * cubic * x * x);
  return {x * share, share + 2 * x * share * (one - share) * inner_slope};
}

/// Number of ActivationKind::kClampedSwiglu.
inline constexpr int kClampedActivation = 3;

/// activation(gate) * factor(up).
template <typename Real>
struct GatedFactors {
  Activated<Real> gate;
  Real up;
  bool up_counts;  // in the gradient: the factor's slope is 1, else 0
};

template <typename Real>
RONDO_KERNEL GatedFactors<Real> gated_factors(const ElementwiseParams& p, Real gate, Real up) {
  if (p.activation != kClampedActivation) return {activate(p.activation, gate), up, true};
  constexpr Real one = 1;
  const auto alpha = static_cast<Real>(p.alpha);
  const auto limit = static_cast<Real>(p.limit);
  // Not by fmin: a NaN stays one.
  const Real kept = gate > limit ? limit : gate;
  const bool up_counts = !(up > limit || up < -limit);
  if (!up_counts) up = up > 0 ? limit : -limit;
  const Real sigmoid = one / (one + exponential(-alpha * kept));
  const Real slope = gate > limit ? Real{0} : sigmoid * (one + alpha * kept * (one - sigmoid));
  return {{kept * sigmoid, slope}, up + one, up_counts};
}

/// alpha * tanh(a / alpha).
template <typename T>
struct SoftCap {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto x = load_vector<kCount>(static_cast<const T*>(p.a) + first);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) x[i] = p.alpha * tanhf(x[i] / p.alpha);
      store_vector<kCount>(static_cast<T*>(p.y) + first, x);
    });
  }
};

template <typename T>
struct Add {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto sum = load_vector<kCount>(static_cast<const T*>(p.a) + first);
      if (p.b != nullptr) add_vector(sum, load_vector<kCount>(static_cast<const T*>(p.b) + first));
      store_vector<kCount>(static_cast<T*>(p.y) + first, sum);
    });
  }
};

/// What an activation is multiplied by: 1 where there is no up.
template <int kCount, typename T>
RONDO_KERNEL Numbers<kCount> load_up(const ElementwiseParams& p, std::int64_t first) {
  if (p.b != nullptr) return load_vector<kCount>(static_cast<const T*>(p.b) + first);
  Numbers<kCount> ones;
  RONDO_UNROLL
  for (int i = 0; i < kCount; ++i) ones[i] = 1;
  return ones;
}

template <typename T>
struct Gated {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    using Real = typename WideOf<T>::Type;
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto gate = load_vector<kCount>(static_cast<const T*>(p.a) + first);
      auto up = load_up<kCount, T>(p, first);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto factors = gated_factors(p, static_cast<Real>(gate[i]), static_cast<Real>(up[i]));
        gate[i] = static_cast<float>(factors.gate.value * factors.up);
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, gate);
    });
  }
};

template <typename T>
struct GatedBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ElementwiseParams& p) {
    using Real = typename WideOf<T>::Type;
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto gate = load_vector<kCount>(static_cast<const T*>(p.a) + first);
      auto up = load_up<kCount, T>(p, first);
      auto dy = load_vector<kCount>(static_cast<const T*>(p.c) + first);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto gradient = static_cast<Real>(dy[i]);
        const auto factors = gated_factors(p, static_cast<Real>(gate[i]), static_cast<Real>(up[i]));
        gate[i] = static_cast<float>(gradient * factors.up * factors.gate.slope);
        up[i] = factors.up_counts ? static_cast<float>(gradient * factors.gate.value) : 0.0F;
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, gate);
      if (p.z != nullptr) store_vector<kCount>(static_cast<T*>(p.z) + first, up);
    });
  }
};

/// Walks through the rows and columns of elements in a row: one division for all.
struct RowColumn {
  RONDO_KERNEL RowColumn(std::int64_t first, std::int64_t width)
      : columns(width), row(first / width), column(first % width) {}
  RONDO_KERNEL void next() {
    if (++column < columns) return;
    column = 0;
    ++row;
  }
  std::int64_t columns, row, column;
};

template <typename T>
struct Dropout {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const DropoutParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto x = load_vector<kCount>(static_cast<const T*>(p.x) + first);
      RowColumn at(first, p.columns);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const bool keep =
            dropout_keeps(p.keys[at.row], p.layer, p.site, static_cast<std::uint64_t>(at.column), p.probability);
        // A dropped number leaves no trace, even one that is not finite.
        const float lost = p.dropped == 0.0F ? 0.0F : x[i] * p.dropped;
        x[i] = keep ? x[i] * p.kept : lost;
        at.next();
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, x);
    });
  }
};

/// Rounded by itself: the compiler may fuse a plain product with the sum behind it, and the result would be another.
RONDO_KERNEL float rounded_product(float a, float b) {
#ifdef __CUDACC__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

template <typename T>
struct Noise {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const NoiseParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto x = load_vector<kCount>(static_cast<const T*>(p.x) + first);
      RowColumn at(first, p.columns);
      float scale = scale_of(p, at.row);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (i > 0 && at.column == 0) scale = scale_of(p, at.row);
        const float drawn = signed_uniform(p.keys[at.row], p.layer, p.site, static_cast<std::uint64_t>(at.column));
        x[i] += rounded_product(scale, drawn);
        at.next();
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, x);
    });
  }

 private:
  RONDO_KERNEL static float scale_of(const NoiseParams& p, std::int64_t token) {
    const Span sequence = sequence_at(p.bounds, static_cast<std::int32_t>(token));
    if (sequence.begin == sequence.end) return 0.0F;
    const auto numbers = static_cast<std::uint64_t>((sequence.end - sequence.begin) * p.columns);
    return p.amount * inverse_root(numbers);
  }
};

}  // namespace rondo::devices::cuda
