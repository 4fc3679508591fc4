// What the vector kernels share: loading and storing fp32, bf16 and fp16 as fp32 vectors, whole or in part, sums over
// lanes, and exp. Included once per instruction set (Highway's foreach_target), hence the unusual guard.
//
// Elements are computed by the same instructions wherever they stand: the rest of a row that does not fill a vector
// goes through a padded buffer, never through other code. Nothing here depends on the number of lanes but the order of
// sums.
#if defined(RONDO_CPU_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_VECTOR_INL_H_
#undef RONDO_CPU_KERNELS_VECTOR_INL_H_
#else
#define RONDO_CPU_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/storage.h"
#include "rondo/base/float16.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::RebindToSigned<Floats>;
using Bits = hn::RebindToUnsigned<Floats>;
using HalfBits = hn::Rebind<std::uint16_t, Floats>;
using Halves = hn::Rebind<hwy::float16_t, Floats>;
using Vector = hn::Vec<Floats>;

/// bf16 as stored.
using Bf16 = std::uint16_t;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Floats())); }

// Extents of a vector access: all lanes, or the first `count` (0 < count < lanes()), the others reading as zero.
struct Whole {};
struct Part {
  std::int64_t count;
};

template <typename T>
HWY_INLINE void copy_part(const T* from, T* to, Part part) {
  std::memcpy(to, from, static_cast<std::size_t>(part.count) * sizeof(T));
}

HWY_INLINE Vector load(const float* p, Whole = {}) { return hn::LoadU(Floats(), p); }
HWY_INLINE Vector load(const Bf16* p, Whole = {}) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), hn::LoadU(HalfBits(), p))));
}
/// Exactly. Processors with AVX2 convert fp16 themselves (F16C), whatever their mode for subnormals; others do it in
/// whole numbers, to the same bits.
HWY_INLINE Vector load(const Fp16* p, Whole = {}) {
#if HWY_TARGET <= HWY_AVX2
  return hn::PromoteTo(Floats(), hn::BitCast(Halves(), hn::LoadU(HalfBits(), &p->bits)));
#else
  const Ints d;
  const auto bits = hn::BitCast(d, hn::PromoteTo(Bits(), hn::LoadU(HalfBits(), &p->bits)));
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFF));
  const auto bias = hn::Set(d, 0x38000000);  // 112, by which the exponents differ
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), bias);
  const auto large = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7BFF)), hn::Add(normal, bias), normal);
  const auto small = hn::BitCast(d, hn::Mul(hn::ConvertTo(Floats(), magnitude), hn::Set(Floats(), 0x1p-24F)));
  const auto value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x3FF)), large, small);
  return hn::BitCast(Floats(), hn::Or(value, hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000)))));
#endif
}
template <typename T>
HWY_INLINE Vector load(const T* p, Part part) {
  HWY_ALIGN T buffer[hn::MaxLanes(Floats())] = {};
  copy_part(p, buffer, part);
  return load(buffer);
}

HWY_INLINE float widened(float x) { return x; }
HWY_INLINE float widened(Bf16 x) { return from_bfloat16(x); }
HWY_INLINE float widened(Fp16 x) { return from_float16(x.bits); }

HWY_INLINE void store(Vector v, float* p, Whole = {}) { hn::StoreU(v, Floats(), p); }
/// To nearest, ties to even, in integers; a NaN stays one.
HWY_INLINE void store(Vector v, Bf16* p, Whole = {}) {
  const Bits d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFU)));
  const auto nan = hn::Or(bits, hn::Set(d, 0x400000U));
  // Not Ne(v, v): on some instruction sets that is an ordered comparison, false for NaN.
  const auto kept = hn::IfThenElse(hn::RebindMask(d, hn::Eq(v, v)), rounded, nan);
  // At most 0xFFFF, so that saturation never acts.
  const auto high = hn::BitCast(Ints(), hn::ShiftRight<16>(kept));
  hn::StoreU(hn::DemoteTo(HalfBits(), high), HalfBits(), p);
}
/// To nearest, ties to even, also below 2^-14; see to_float16().
HWY_INLINE void store(Vector v, Fp16* p, Whole = {}) {
#if HWY_TARGET <= HWY_AVX2
  hn::StoreU(hn::BitCast(HalfBits(), hn::DemoteTo(Halves(), v)), HalfBits(), &p->bits);
#else
  const Ints d;
  const auto bits = hn::BitCast(d, v);
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Sub(odd, hn::Set(d, 0x38000000 - 0xFFF))));
  const auto small = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(Floats(), magnitude), hn::Set(Floats(), 0.5F))),
                             hn::Set(d, 0x3F000000));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x38800000)), small, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x477FEFFF)), hn::Set(d, 0x7C00), half);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3FF)), hn::Set(d, 0x7E00));
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000)), nan, half);
  const auto sign = hn::BitCast(d, hn::ShiftLeft<15>(hn::ShiftRight<31>(hn::BitCast(Bits(), bits))));
  hn::StoreU(hn::DemoteTo(HalfBits(), hn::Or(half, sign)), HalfBits(), &p->bits);
#endif
}
template <typename T>
HWY_INLINE void store(Vector v, T* p, Part part) {
  HWY_ALIGN T buffer[hn::MaxLanes(Floats())];
  store(v, buffer);
  copy_part(buffer, p, part);
}

/// body(i, extent) for the vectors of n elements in rising order.
template <typename Body>
HWY_INLINE void for_vectors(std::int64_t n, const Body& body) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

HWY_INLINE Vector zero() { return hn::Zero(Floats()); }
HWY_INLINE Vector splat(float x) { return hn::Set(Floats(), x); }
HWY_INLINE float sum_of(Vector v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }
HWY_INLINE float max_of(Vector v) { return hn::GetLane(hn::MaxOfLanes(Floats(), v)); }

/// e^x = power * (1 + r + r^2 q), power being 2^n: x = n ln 2 + r with |r| <= ln 2 / 2, q fitted at Chebyshev nodes.
struct ExpParts {
  Vector power;
  Vector r;
  Vector q;
};
HWY_INLINE ExpParts exp_parts(Vector x) {
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits, here with the exponent's bias.
  constexpr float kWhole = 0x1.8p23F + 127.0F;
  const auto biased = hn::MulAdd(x, splat(1.44269504088896F), splat(kWhole));
  const auto power = hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::BitCast(Bits(), biased)));
  const auto n = hn::Sub(biased, splat(kWhole));
  // The high part of ln 2 has nine bits: its product with n is exact even without a fused multiply-add.
  auto r = hn::NegMulAdd(n, splat(0.693359375F), x);
  r = hn::NegMulAdd(n, splat(-2.12194440054690e-4F), r);
  auto q = hn::MulAdd(splat(0.0013926376F), r, splat(0.008363333082F));
  q = hn::MulAdd(q, r, splat(0.04166655346F));
  q = hn::MulAdd(q, r, splat(0.1666657606F));
  q = hn::MulAdd(q, r, splat(0.5F));
  return {power, r, q};
}

/// e^x within 1 ulp for x <= 88.3; 0 where the result would be below the normal range; NaN for NaN.
HWY_INLINE Vector exp_of(Vector x) {
  const ExpParts parts = exp_parts(x);
  const auto e = hn::MulAdd(hn::MulAdd(parts.q, parts.r, splat(1.0F)), parts.r, splat(1.0F));
  return hn::IfThenZeroElse(hn::Lt(x, splat(-87.3365F)), hn::Mul(e, parts.power));
}

/// 2^x within 3e-7 of itself for x <= 127, of x < -126 as of -126; NaN for NaN.
HWY_INLINE Vector exp2_of(Vector x) {
  constexpr float kWhole = 0x1.8p23F + 127.0F;      // see exp_parts()
  const auto clamped = hn::Max(splat(-126.0F), x);  // of a number and a NaN x86 takes the second
  const auto biased = hn::Add(clamped, splat(kWhole));
  const auto power = hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::BitCast(Bits(), biased)));
  const auto r = hn::Sub(clamped, hn::Sub(biased, splat(kWhole)));
  auto q = hn::MulAdd(splat(0.0013381302F), r, splat(0.009666368F));
  q = hn::MulAdd(q, r, splat(0.05550381F));
  q = hn::MulAdd(q, r, splat(0.2402235F));
  q = hn::MulAdd(q, r, splat(0.6931472F));
  return hn::Mul(hn::MulAdd(q, r, splat(1.0F)), power);
}

/// Within 3 ulp; NaN for NaN. (e^2x - 1) / (e^2x + 1), the numerator without cancellation: by exp_parts() it is
/// 2^n (e^r - 1) + (2^n - 1).
HWY_INLINE Vector tanh_of(Vector x) {
  // Beyond, it is 1. Of a number and a NaN x86 takes the second.
  const ExpParts parts = exp_parts(hn::Max(splat(-20.0F), hn::Min(splat(20.0F), hn::Add(x, x))));
  const auto rest = hn::MulAdd(hn::Mul(parts.q, parts.r), parts.r, parts.r);  // e^r - 1
  const auto less = hn::MulAdd(parts.power, rest, hn::Sub(parts.power, splat(1.0F)));
  return hn::Div(less, hn::Add(less, splat(2.0F)));
}

using Quad = hn::FixedTag<float, 4>;
inline constexpr std::int64_t kQuad = 4;

HWY_INLINE hn::Vec<Quad> load_quad(const float* p) { return hn::LoadU(Quad(), p); }
HWY_INLINE hn::Vec<Quad> load_quad(const Bf16* p) {
  const hn::FixedTag<std::uint32_t, 4> wide;
  const hn::FixedTag<std::uint16_t, 4> narrow;
  return hn::BitCast(Quad(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, p))));
}

HWY_INLINE hn::Vec<Quad> load_quad(const Fp16* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<hwy::float16_t, 4> narrow;
  const hn::FixedTag<std::uint16_t, 4> bits;
  return hn::PromoteTo(Quad(), hn::BitCast(narrow, hn::LoadU(bits, &p->bits)));
#else
  HWY_ALIGN const float wide[] = {widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])};
  return hn::Load(Quad(), wide);
#endif
}

/// y [4, 4] (leading dimension y_stride) = x [4, 4] (leading dimension x_stride) transposed.
template <typename T>
HWY_INLINE void transpose_quad(const T* x, std::int64_t x_stride, float* y, std::int64_t y_stride) {
  const hn::FixedTag<double, 2> pairs;
  const auto a = load_quad(x);
  const auto b = load_quad(x + x_stride);
  const auto c = load_quad(x + 2 * x_stride);
  const auto d = load_quad(x + 3 * x_stride);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(Quad(), a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(Quad(), a, b));
  const auto cd_low = hn::BitCast(pairs, hn::InterleaveLower(Quad(), c, d));
  const auto cd_high = hn::BitCast(pairs, hn::InterleaveUpper(Quad(), c, d));
  hn::StoreU(hn::BitCast(Quad(), hn::InterleaveLower(pairs, ab_low, cd_low)), Quad(), y);
  hn::StoreU(hn::BitCast(Quad(), hn::InterleaveUpper(pairs, ab_low, cd_low)), Quad(), y + y_stride);
  hn::StoreU(hn::BitCast(Quad(), hn::InterleaveLower(pairs, ab_high, cd_high)), Quad(), y + 2 * y_stride);
  hn::StoreU(hn::BitCast(Quad(), hn::InterleaveUpper(pairs, ab_high, cd_high)), Quad(), y + 3 * y_stride);
}

/// y [columns, rows] (leading dimension y_stride) = x [rows, columns] (leading dimension x_stride) transposed; both
/// whole quads.
template <typename T>
HWY_INLINE void transpose_quads(const T* x, std::int64_t x_stride, std::int64_t rows, std::int64_t columns, float* y,
                                std::int64_t y_stride) {
  for (std::int64_t row = 0; row < rows; row += kQuad) {
    for (std::int64_t i = 0; i < columns; i += kQuad) {
      transpose_quad(x + row * x_stride + i, x_stride, y + i * y_stride + row, y_stride);
    }
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_VECTOR_INL_H_
