// Highway kernels of the optimizer, compiled for every instruction set that the compiler knows and chosen at run time.
#include "optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimizer_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target: it includes this file once for every target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::offload::HWY_NAMESPACE {
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

/// Upper halves of the lanes, rounded to nearest, ties to even.
template <class D>
hn::Vec<hn::Rebind<std::uint32_t, D>> RoundedBits(D /*d*/, hn::Vec<D> x) {
  const hn::Rebind<std::uint32_t, D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), nan, rounded);
}

void RoundToBfloat16(const float* HWY_RESTRICT x, std::uint16_t* HWY_RESTRICT y, std::size_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::TruncateTo(d16, RoundedBits(d, hn::LoadU(d, x + i))), d16, y + i);
  const hn::CappedTag<float, 1> d1;
  const hn::Rebind<std::uint16_t, decltype(d1)> d161;
  for (; i < n; ++i) hn::StoreU(hn::TruncateTo(d161, RoundedBits(d1, hn::LoadU(d1, x + i))), d161, y + i);
}

/// One vector's update; the arithmetic and its order are PyTorch's.
template <class D>
struct Updated {
  hn::Vec<D> master, first, second;
};
template <class D>
Updated<D> Update(D d, hn::Vec<D> p, hn::Vec<D> m, hn::Vec<D> v, hn::Vec<D> gradient, const StepFactors& f,
                  float keep) {
  const auto g = hn::Mul(gradient, hn::Set(d, f.gradient_factor));
  m = hn::MulAdd(hn::Sub(g, m), hn::Set(d, f.rest1), m);
  v = hn::MulAdd(hn::Mul(g, g), hn::Set(d, f.rest2), hn::Mul(v, hn::Set(d, f.beta2)));
  const auto denominator = hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.inverse_correction2), hn::Set(d, f.epsilon));
  p = hn::Mul(p, hn::Set(d, keep));
  p = hn::NegMulAdd(hn::Set(d, f.step_size), hn::Div(m, denominator), p);
  return {p, m, v};
}

template <class D>
void UpdateAt(D d, float* master, float* first, float* second, const float* gradient, std::uint16_t* published,
              const StepFactors& factors, float keep) {
  const auto updated =
      Update(d, hn::LoadU(d, master), hn::LoadU(d, first), hn::LoadU(d, second), hn::LoadU(d, gradient), factors, keep);
  hn::StoreU(updated.master, d, master);
  hn::StoreU(updated.first, d, first);
  hn::StoreU(updated.second, d, second);
  if (published != nullptr) {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(hn::TruncateTo(d16, RoundedBits(d, updated.master)), d16, published);
  }
}

void AdamW(float* master, float* first, float* second, const float* gradient, std::uint16_t* published, std::size_t n,
           const StepFactors& factors, float weight_decay) {
  const float keep = 1.0F - factors.learning_rate * weight_decay;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    UpdateAt(d, master + i, first + i, second + i, gradient + i, published == nullptr ? nullptr : published + i,
             factors, keep);
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) {
    UpdateAt(d1, master + i, first + i, second + i, gradient + i, published == nullptr ? nullptr : published + i,
             factors, keep);
  }
}

}  // namespace rondo::offload::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::offload {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AddTo);
HWY_EXPORT(RoundToBfloat16);
HWY_EXPORT(AdamW);

double sum_of_squares(const float* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n); }
void add_to(float* y, const float* x, std::size_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(y, x, n); }
void round_to_bfloat16(const float* x, std::uint16_t* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(RoundToBfloat16)(x, y, n);
}
void adamw(float* master, float* first_moment, float* second_moment, const float* gradient, std::uint16_t* published,
           std::size_t n, const StepFactors& factors, float weight_decay) {
  HWY_DYNAMIC_DISPATCH(AdamW)(master, first_moment, second_moment, gradient, published, n, factors, weight_decay);
}

}  // namespace rondo::offload
#endif  // HWY_ONCE
