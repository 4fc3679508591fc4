// Highway kernels of updates, compiled for every instruction set that the compiler knows and chosen at run time.
#include "rondo/devices/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "update_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target: it includes this file once for every target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four fp64 lanes at a time whatever the vector's width, so that the order of additions is one for all machines.
double SumOfSquares(const float* x, std::size_t n) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (; i < n; ++i) {
    const auto value = static_cast<double>(x[i]);
    sums[i % 8] += value * value;
  }
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

void AddTo(float* HWY_RESTRICT y, const float* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  for (; i < n; ++i) y[i] += x[i];
}

/// Upper halves of the lanes after adding `dither` (below 2^16) to their bits; NaN stays NaN.
template <class D>
hn::Vec<hn::Rebind<std::uint32_t, D>> UpperHalves(D /*d*/, hn::Vec<D> x, hn::Vec<hn::Rebind<std::uint32_t, D>> dither) {
  const hn::Rebind<std::uint32_t, D> du;
  const auto bits = hn::BitCast(du, x);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, dither));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), nan, rounded);
}

/// fp16 bits of the lanes from their magnitudes: `normal` and `small` are what they are from 2^-14 on and below.
template <class D>
hn::Vec<hn::Rebind<std::uint32_t, D>> Halves(D /*d*/, hn::Vec<D> x, hn::Vec<hn::Rebind<std::uint32_t, D>> normal,
                                             hn::Vec<hn::Rebind<std::uint32_t, D>> small) {
  const hn::Rebind<std::uint32_t, D> du;
  const hn::Rebind<std::int32_t, D> di;
  const auto bits = hn::BitCast(du, x);
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7FFFFFFFU)));
  // Up to 65520, halfway to the next power of two, the largest number; then infinity.
  auto half = hn::Min(hn::IfThenElse(hn::RebindMask(du, hn::Lt(magnitude, hn::Set(di, 0x38800000))), small, normal),
                      hn::Set(du, 0x7BFFU));
  const auto infinite = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 0x477FEFFF)));
  half = hn::IfThenElse(infinite, hn::Set(du, 0x7C00U), half);
  half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Set(du, 0x7E00U), half);
  return hn::Or(half, hn::ShiftLeft<15>(hn::ShiftRight<31>(bits)));
}

struct ToNearest {
  template <class D>
  hn::Vec<hn::Rebind<std::uint32_t, D>> operator()(D d, hn::Vec<D> x, std::size_t /*index*/) const {
    const hn::Rebind<std::uint32_t, D> du;
    const auto odd = hn::And(hn::ShiftRight<16>(hn::BitCast(du, x)), hn::Set(du, 1U));
    return UpperHalves(d, x, hn::Add(odd, hn::Set(du, 0x7FFFU)));
  }
};

struct HalfToNearest {
  template <class D>
  hn::Vec<hn::Rebind<std::uint32_t, D>> operator()(D d, hn::Vec<D> x, std::size_t /*index*/) const {
    const hn::Rebind<std::uint32_t, D> du;
    const auto magnitude = hn::And(hn::BitCast(du, x), hn::Set(du, 0x7FFFFFFFU));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1U));
    const auto normal = hn::ShiftRight<13>(hn::Sub(hn::Add(magnitude, odd), hn::Set(du, 0x38000000U - 0xFFFU)));
    // Adding 0.5 leaves units of 2^-24 in the low bits, rounded.
    const auto small =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F))), hn::Set(du, 0x3F000000U));
    return Halves(d, x, normal, small);
  }
};

/// 32 bits that a bijection of (key + index) gives: rounds of multiplying and folding down.
template <class D>
hn::Vec<hn::Rebind<std::uint32_t, D>> Dither(D /*d*/, std::uint32_t key, std::size_t index) {
  const hn::Rebind<std::uint32_t, D> du;
  auto r = hn::Add(hn::Iota(du, static_cast<std::uint32_t>(index)), hn::Set(du, key));
  r = hn::Mul(hn::Xor(r, hn::ShiftRight<16>(r)), hn::Set(du, 0x7FEB352DU));
  return hn::Mul(hn::Xor(r, hn::ShiftRight<15>(r)), hn::Set(du, 0x846CA68BU));
}

struct Stochastically {
  std::uint32_t key;
  template <class D>
  hn::Vec<hn::Rebind<std::uint32_t, D>> operator()(D d, hn::Vec<D> x, std::size_t index) const {
    return UpperHalves(d, x, hn::ShiftRight<16>(Dither(d, key, index)));
  }
};

struct HalfStochastically {
  std::uint32_t key;
  template <class D>
  hn::Vec<hn::Rebind<std::uint32_t, D>> operator()(D d, hn::Vec<D> x, std::size_t index) const {
    const hn::Rebind<std::uint32_t, D> du;
    const hn::Rebind<std::int32_t, D> di;
    const auto dither = hn::ShiftRight<19>(Dither(d, key, index));
    const auto magnitude = hn::And(hn::BitCast(du, x), hn::Set(du, 0x7FFFFFFFU));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000U)), dither));
    // In units of 2^-37, of which 2^13 are the least number.
    const auto few = hn::Min(hn::BitCast(d, magnitude), hn::Set(d, 0x1p-14F));
    const auto units = hn::BitCast(du, hn::ConvertTo(di, hn::Mul(few, hn::Set(d, 0x1p37F))));
    return Halves(d, x, normal, hn::ShiftRight<13>(hn::Add(units, dither)));
  }
};

template <class D, class Rounding>
void RoundAt(D d, const float* x, std::uint16_t* y, std::size_t i, const Rounding& rounding) {
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, rounding(d, hn::LoadU(d, x + i), i)), d16, y + i);
}

template <class Rounding>
void Round(const float* HWY_RESTRICT x, std::uint16_t* HWY_RESTRICT y, std::size_t n, const Rounding& rounding) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) RoundAt(d, x, y, i, rounding);
  for (; i < n; ++i) RoundAt(hn::CappedTag<float, 1>(), x, y, i, rounding);
}
void RoundToNearest(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n) {
  if (narrow == Narrow::kFloat16) return Round(x, y, n, HalfToNearest());
  Round(x, y, n, ToNearest());
}
void RoundStochastically(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n, std::uint32_t key) {
  if (narrow == Narrow::kFloat16) return Round(x, y, n, HalfStochastically{key});
  Round(x, y, n, Stochastically{key});
}

/// Vectors of one update: the gradient as it came home in, the others changed.
template <class D>
struct Updated {
  hn::Vec<D> master, first, second, gradient;
};

/// a b + c, each rounded by itself: nothing here is fused, so that every processor and card has the same bits.
template <class V>
V MultiplyThenAdd(V a, V b, V c) {
  return hn::Add(hn::Mul(a, b), c);
}

/// The arithmetic and its order are PyTorch's.
struct AdamWRule {
  static constexpr int kMoments = 2;
  const StepFactors& f;
  template <class D>
  void operator()(D d, Updated<D>& x) const {
    const auto g = hn::Mul(x.gradient, hn::Set(d, f.gradient_factor));
    x.first = MultiplyThenAdd(hn::Sub(g, x.first), hn::Set(d, f.rest1), x.first);
    x.second = MultiplyThenAdd(hn::Mul(g, g), hn::Set(d, f.rest2), hn::Mul(x.second, hn::Set(d, f.beta2)));
    const auto denominator =
        MultiplyThenAdd(hn::Sqrt(x.second), hn::Set(d, f.inverse_correction2), hn::Set(d, f.epsilon));
    const auto kept = hn::Mul(x.master, hn::Set(d, f.kept));
    x.master = hn::Sub(kept, hn::Mul(hn::Set(d, f.step_size), hn::Div(x.first, denominator)));
  }
};

/// The buffer begins at 0, so that the first step's is the gradient, as PyTorch has it.
template <int kHeld>
struct SgdRule {
  static constexpr int kMoments = kHeld;
  const StepFactors& f;
  template <class D>
  void operator()(D d, Updated<D>& x) const {
    auto g = hn::Mul(x.gradient, hn::Set(d, f.gradient_factor));
    g = MultiplyThenAdd(x.master, hn::Set(d, f.decay), g);
    if (kHeld > 0) g = x.first = MultiplyThenAdd(x.first, hn::Set(d, f.momentum), g);
    x.master = hn::Sub(x.master, hn::Mul(hn::Set(d, f.learning_rate), g));
  }
};

struct LionRule {
  static constexpr int kMoments = 1;
  const StepFactors& f;
  template <class D>
  void operator()(D d, Updated<D>& x) const {
    const auto g = hn::Mul(x.gradient, hn::Set(d, f.gradient_factor));
    const auto mixed = MultiplyThenAdd(g, hn::Set(d, f.rest1), hn::Mul(x.first, hn::Set(d, f.beta1)));
    // The rate with the sign of what is mixed; nothing where that is 0.
    const auto step = hn::CopySign(hn::Set(d, f.learning_rate), mixed);
    const auto kept = hn::Mul(x.master, hn::Set(d, f.kept));
    x.master = hn::Sub(kept, hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(d)), step));
    x.first = MultiplyThenAdd(g, hn::Set(d, f.rest2), hn::Mul(x.first, hn::Set(d, f.beta2)));
  }
};

template <class D, class Rule, class Rounding>
void UpdateAt(D d, const UpdateArrays& to, std::size_t i, const Rule& rule, const Rounding& rounding) {
  Updated<D> x{hn::LoadU(d, to.master + i), hn::Zero(d), hn::Zero(d), hn::LoadU(d, to.gradient + i)};
  if (Rule::kMoments > 0) x.first = hn::LoadU(d, to.first + i);
  if (Rule::kMoments > 1) x.second = hn::LoadU(d, to.second + i);
  rule(d, x);
  hn::StoreU(x.master, d, to.master + i);
  if (Rule::kMoments > 0) hn::StoreU(x.first, d, to.first + i);
  if (Rule::kMoments > 1) hn::StoreU(x.second, d, to.second + i);
  if (to.published != nullptr) {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(hn::TruncateTo(d16, rounding(d, x.master, i)), d16, to.published + i);
  }
}

template <class Rule, class Rounding>
void UpdateRounded(const UpdateArrays& arrays, std::size_t n, const Rule& rule, const Rounding& rounding) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) UpdateAt(d, arrays, i, rule, rounding);
  for (; i < n; ++i) UpdateAt(hn::CappedTag<float, 1>(), arrays, i, rule, rounding);
}
template <class Rule>
void UpdateAll(const UpdateArrays& arrays, std::size_t n, const Rule& rule, std::uint32_t key) {
  if (arrays.narrow == Narrow::kFloat16) return UpdateRounded(arrays, n, rule, HalfStochastically{key});
  UpdateRounded(arrays, n, rule, Stochastically{key});
}

void AdamW(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  UpdateAll(arrays, n, AdamWRule{factors}, key);
}
void Sgd(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  if (arrays.first == nullptr) return UpdateAll(arrays, n, SgdRule<0>{factors}, key);
  UpdateAll(arrays, n, SgdRule<1>{factors}, key);
}
void Lion(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  UpdateAll(arrays, n, LionRule{factors}, key);
}

}  // namespace rondo::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AddTo);
HWY_EXPORT(RoundToNearest);
HWY_EXPORT(RoundStochastically);
HWY_EXPORT(AdamW);
HWY_EXPORT(Sgd);
HWY_EXPORT(Lion);

double sum_of_squares(const float* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n); }
void add_to(float* y, const float* x, std::size_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(y, x, n); }
void add_rows(ThreadPool& threads, const std::int32_t* ids, const float* rows, std::size_t width,
              std::int64_t padding_row, float* table) {
  threads.parallel_for(ids[0], [&](std::int64_t i, std::uint32_t) {
    const std::int32_t row = ids[i + 1];
    if (row == padding_row) return;
    add_to(table + static_cast<std::size_t>(row) * width, rows + static_cast<std::size_t>(i) * width, width);
  });
}
void round_to_nearest(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(RoundToNearest)(x, narrow, y, n);
}
void round_stochastically(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n, std::uint32_t rounding_key) {
  HWY_DYNAMIC_DISPATCH(RoundStochastically)(x, narrow, y, n, rounding_key);
}
void adamw(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  HWY_DYNAMIC_DISPATCH(AdamW)(arrays, n, factors, key);
}
void sgd(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  HWY_DYNAMIC_DISPATCH(Sgd)(arrays, n, factors, key);
}
void lion(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t key) {
  HWY_DYNAMIC_DISPATCH(Lion)(arrays, n, factors, key);
}

}  // namespace rondo::devices
#endif  // HWY_ONCE
