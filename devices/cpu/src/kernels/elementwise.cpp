// Elementwise kernels: add, the soft cap, and the gated activations (SiLU, GELU, its tanh form) forward and backward.
//
// Sigmoid is e^-|x| and one division, GELU the complementary error function: no cancellation on either side.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// An activation's value and slope at one point.
struct Activated {
  Vector value;
  Vector slope;
};

struct Gradients {
  Vector gate;
  Vector up;
};

struct Sigmoid {
  Vector value;
  Vector rest;  // 1 - value
};

HWY_INLINE Sigmoid sigmoid(Vector x) {
  const auto one = splat(1.0F);
  const auto e = exp_of(hn::Neg(hn::Abs(x)));
  const auto large = hn::Div(one, hn::Add(one, e));
  const auto small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, zero());
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

struct Silu {
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, sigmoid(x).value); }
  static HWY_INLINE Activated both(Vector x) {
    const Sigmoid s = sigmoid(x);
    const auto y = hn::Mul(x, s.value);
    return {y, hn::MulAdd(y, s.rest, s.value)};
  }
};

/// Not by Max: a NaN stays one.
struct Relu {
  static HWY_INLINE Vector value(Vector x) { return hn::IfThenElse(hn::Lt(x, zero()), zero(), x); }
  static HWY_INLINE Activated both(Vector x) {
    return {value(x), hn::IfThenElse(hn::Gt(x, zero()), splat(1.0F), zero())};
  }
};

struct Identity {
  static HWY_INLINE Vector value(Vector x) { return x; }
  static HWY_INLINE Activated both(Vector x) { return {x, splat(1.0F)}; }
};

/// x sigmoid(2 z) = 0.5 x (1 + tanh z), z = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  static HWY_INLINE Vector twice_z(Vector x) {
    const auto cubic = hn::MulAdd(hn::Mul(x, x), splat(0.044715F), splat(1.0F));
    return hn::Mul(hn::Mul(x, splat(1.5957691216F)), cubic);
  }
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, sigmoid(twice_z(x)).value); }
  static HWY_INLINE Activated both(Vector x) {
    const Sigmoid s = sigmoid(twice_z(x));
    const auto y = hn::Mul(x, s.value);
    const auto inner = hn::MulAdd(hn::Mul(x, x), splat(0.134145F), splat(1.0F));
    return {y, hn::MulAdd(hn::Mul(y, s.rest), hn::Mul(inner, splat(1.5957691216F)), s.value)};
  }
};

/// x Phi(x). With t = |x| / sqrt 2: erfc(t) = e^(-t^2) g(t), and (1 + 2 t) g(t) is a smooth function of
/// u = (t - 2.5) / (t + 2.5) (after Shepherd and Laframboise 1981), here a polynomial through the Chebyshev nodes of
/// 0 <= t <= 10, beyond which e^(-t^2) is 0 in fp32.
struct Gelu {
  struct Normal {
    Vector cumulative;
    Vector bell;  // e^(-x^2 / 2)
  };
  static HWY_INLINE Normal normal(Vector x) {
    static constexpr float kFit[] = {-6.044443277e-5F, -4.90894684e-5F, 5.977256277e-4F, 4.580152422e-4F,
                                     -4.373319405e-3F, 9.431295359e-4F, 3.275997288e-2F, -0.1029686508F,
                                     0.1576299588F,    -0.09902445793F, -0.122356764F,   1.264838184F};
    const auto magnitude = hn::Mul(hn::Abs(x), splat(0.70710678118F));
    const auto t = hn::IfThenElse(hn::Gt(magnitude, splat(10.0F)), splat(10.0F), magnitude);
    const auto denominator = hn::Mul(hn::Add(t, splat(2.5F)), hn::MulAdd(t, splat(2.0F), splat(1.0F)));
    const auto inverse = hn::Div(splat(1.0F), denominator);
    // One division serves u and the factor 1 / (1 + 2 t).
    const auto u = hn::Mul(hn::Sub(t, splat(2.5F)), hn::Mul(inverse, hn::MulAdd(t, splat(2.0F), splat(1.0F))));
    auto fit = splat(kFit[0]);
    for (int i = 1; i < 12; ++i) fit = hn::MulAdd(fit, u, splat(kFit[i]));
    const auto bell = exp_of(hn::Mul(hn::Mul(x, x), splat(-0.5F)));
    const auto scaled = hn::Mul(fit, hn::Mul(inverse, hn::Add(t, splat(2.5F))));
    const auto half_erfc = hn::Mul(hn::Mul(scaled, splat(0.5F)), bell);
    const auto negative = hn::Lt(x, zero());
    return {hn::IfThenElse(negative, half_erfc, hn::Sub(splat(1.0F), half_erfc)), bell};
  }
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, normal(x).cumulative); }
  static HWY_INLINE Activated both(Vector x) {
    const Normal n = normal(x);
    return {hn::Mul(x, n.cumulative), hn::MulAdd(hn::Mul(x, splat(0.3989422804F)), n.bell, n.cumulative)};
  }
};

/// body(first, count) for the tasks of n elements.
template <typename Body>
HWY_INLINE void for_tasks(ThreadPool& pool, std::int64_t n, const Body& body) {
  pool.parallel_for(divide_up(n, kTaskElements), [&body, n](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t begin = task * kTaskElements;
    body(begin, HWY_MIN(kTaskElements, n - begin));
  });
}

template <typename T>
void add_typed(ThreadPool& pool, const T* a, const T* b, T* y, std::int64_t n) {
  for_tasks(pool, n, [=](std::int64_t begin, std::int64_t count) HWY_ATTR {
    if (b == nullptr) {
      std::memcpy(y + begin, a + begin, static_cast<std::size_t>(count) * sizeof(T));
      return;
    }
    for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR {
      const std::int64_t at = begin + i;
      store(hn::Add(load(a + at, extent), load(b + at, extent)), y + at, extent);
    });
  });
}

template <typename T>
void soft_cap_typed(ThreadPool& pool, float cap, const T* x, T* y, std::int64_t n) {
  for_tasks(pool, n, [=](std::int64_t begin, std::int64_t count) HWY_ATTR {
    const auto most = splat(cap);
    const auto inverse = splat(1.0F / cap);
    for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR {
      store(hn::Mul(tanh_of(hn::Mul(load(x + begin + i, extent), inverse)), most), y + begin + i, extent);
    });
  });
}

struct SigmoidAlone {
  static HWY_INLINE Vector value(Vector x) { return sigmoid(x).value; }
  static HWY_INLINE Activated both(Vector x) {
    const Sigmoid s = sigmoid(x);
    return {s.value, hn::Mul(s.value, s.rest)};
  }
};

/// activation(gate) * up.
template <typename Activation>
struct TimesUp {
  HWY_INLINE Vector value(Vector gate, Vector up) const { return hn::Mul(Activation::value(gate), up); }
  HWY_INLINE Gradients gradients(Vector gate, Vector up, Vector dy) const {
    const Activated activated = Activation::both(gate);
    return {hn::Mul(hn::Mul(dy, up), activated.slope), hn::Mul(dy, activated.value)};
  }
};

/// g sigmoid(alpha g) (u + 1) of gate and up within their limits.
struct ClampedSwiglu {
  float alpha;
  float limit;

  HWY_INLINE Activated of_gate(Vector gate) const {
    const auto factor = splat(alpha);
    const auto g = hn::IfThenElse(hn::Gt(gate, splat(limit)), splat(limit), gate);
    const Sigmoid s = sigmoid(hn::Mul(factor, g));
    const auto y = hn::Mul(g, s.value);
    return {y, hn::MulAdd(hn::Mul(factor, y), s.rest, s.value)};
  }
  HWY_INLINE Vector of_up(Vector up) const {
    const auto most = splat(limit);
    const auto least = splat(-limit);
    up = hn::IfThenElse(hn::Gt(up, most), most, up);
    return hn::Add(hn::IfThenElse(hn::Lt(up, least), least, up), splat(1.0F));
  }
  HWY_INLINE Vector value(Vector gate, Vector up) const { return hn::Mul(of_gate(gate).value, of_up(up)); }
  HWY_INLINE Gradients gradients(Vector gate, Vector up, Vector dy) const {
    const Activated activated = of_gate(gate);
    const auto by_gate = hn::Mul(hn::Mul(dy, of_up(up)), activated.slope);
    const auto by_up = hn::Mul(dy, activated.value);
    const auto beyond = hn::Gt(hn::Abs(up), splat(limit));
    return {hn::IfThenZeroElse(hn::Gt(gate, splat(limit)), by_gate), hn::IfThenZeroElse(beyond, by_up)};
  }
};

template <typename T, typename Gate>
void gated(ThreadPool& pool, const T* gate, const T* up, T* y, std::int64_t n, const Gate& activation) {
  for_tasks(pool, n, [=](std::int64_t begin, std::int64_t count) HWY_ATTR {
    for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR {
      const std::int64_t at = begin + i;
      const Vector factor = up == nullptr ? splat(1.0F) : load(up + at, extent);
      store(activation.value(load(gate + at, extent), factor), y + at, extent);
    });
  });
}

template <typename T, typename Gate>
void gated_backward(ThreadPool& pool, const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n,
                    const Gate& activation) {
  for_tasks(pool, n, [=](std::int64_t begin, std::int64_t count) HWY_ATTR {
    for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR {
      const std::int64_t at = begin + i;
      const Vector factor = up == nullptr ? splat(1.0F) : load(up + at, extent);
      const Gradients gradients = activation.gradients(load(gate + at, extent), factor, load(dy + at, extent));
      if (dup != nullptr) store(gradients.up, dup + at, extent);
      store(gradients.gate, dgate + at, extent);
    });
  });
}

template <typename Function>
void with_activation(const GatedActivationAttributes& attributes, const Function& fn) {
  switch (attributes.activation) {
    case ActivationKind::kSilu:
      return fn(TimesUp<Silu>{});
    case ActivationKind::kGelu:
      return fn(TimesUp<Gelu>{});
    case ActivationKind::kGeluTanh:
      return fn(TimesUp<GeluTanh>{});
    case ActivationKind::kSigmoid:
      return fn(TimesUp<SigmoidAlone>{});
    case ActivationKind::kRelu:
      return fn(TimesUp<Relu>{});
    case ActivationKind::kIdentity:
      return fn(TimesUp<Identity>{});
    case ActivationKind::kClampedSwiglu:
      return fn(ClampedSwiglu{attributes.alpha, attributes.limit});
  }
}

void add_any(ThreadPool& pool, Storage storage, const void* a, const void* b, void* y, std::int64_t n) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    add_typed(pool, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n);
  });
}

void soft_cap_any(ThreadPool& pool, Storage storage, float cap, const void* x, void* y, std::int64_t n) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    soft_cap_typed(pool, cap, static_cast<const T*>(x), static_cast<T*>(y), n);
  });
}

void gated_any(ThreadPool& pool, Storage storage, const GatedActivationAttributes& attributes, const void* gate,
               const void* up, void* y, std::int64_t n) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    with_activation(attributes, [&](auto activation) {
      gated(pool, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(y), n, activation);
    });
  });
}

void gated_backward_any(ThreadPool& pool, Storage storage, const GatedActivationAttributes& attributes,
                        const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t n) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    with_activation(attributes, [&](auto activation) {
      gated_backward(pool, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(dy),
                     static_cast<T*>(dgate), static_cast<T*>(dup), n, activation);
    });
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(add_any);
HWY_EXPORT(soft_cap_any);
HWY_EXPORT(gated_any);
HWY_EXPORT(gated_backward_any);

void add(ThreadPool& pool, Storage storage, const void* a, const void* b, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_any)(pool, storage, a, b, y, n);
}

void soft_cap(ThreadPool& pool, Storage storage, float cap, const void* x, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(soft_cap_any)(pool, storage, cap, x, y, n);
}

void gated_activation(ThreadPool& pool, Storage storage, const GatedActivationAttributes& activation, const void* gate,
                      const void* up, void* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(gated_any)(pool, storage, activation, gate, up, y, n);
}

void gated_activation_backward(ThreadPool& pool, Storage storage, const GatedActivationAttributes& activation,
                               const void* gate, const void* up, const void* dy, void* dgate, void* dup,
                               std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(gated_backward_any)(pool, storage, activation, gate, up, dy, dgate, dup, n);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
