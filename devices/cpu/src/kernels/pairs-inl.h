// Numbers of 16 bits from two rows side by side, as what multiplies two at a time reads them: a word holds the first
// row's number in its low half, the second row's in its high one.
#if defined(RONDO_CPU_KERNELS_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_PAIRS_INL_H_
#undef RONDO_CPU_KERNELS_PAIRS_INL_H_
#else
#define RONDO_CPU_KERNELS_PAIRS_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// words[i] = low[i], high[i] side by side.
HWY_INLINE void interleave(const Bf16* low, const Bf16* high, std::uint32_t* words, std::int64_t count) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    const auto first = hn::PromoteTo(Bits(), hn::LoadU(HalfBits(), low + i));
    const auto second = hn::PromoteTo(Bits(), hn::LoadU(HalfBits(), high + i));
    hn::StoreU(hn::Or(first, hn::ShiftLeft<16>(second)), Bits(), words + i);
  }
  for (; i < count; ++i) words[i] = low[i] | (static_cast<std::uint32_t>(high[i]) << 16U);
}

/// rows [count, 2 columns] in words [count, columns] (leading dimension `stride`): low halves to row 2 i of `y`
/// (leading dimension y_stride), high ones to row 2 i + 1. columns: whole pairs of vectors.
HWY_INLINE void separate(const std::uint32_t* words, std::int64_t stride, std::int64_t count, std::int64_t columns,
                         Bf16* y, std::int64_t y_stride) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t i = 0; i < columns; i += lanes()) {
      const auto pair = hn::LoadU(Bits(), words + row * stride + i);
      const auto low = hn::And(pair, hn::Set(Bits(), 0xFFFFU));
      Bf16* to = y + 2 * row * y_stride + i;
      hn::StoreU(hn::DemoteTo(HalfBits(), hn::BitCast(Ints(), low)), HalfBits(), to);
      hn::StoreU(hn::DemoteTo(HalfBits(), hn::BitCast(Ints(), hn::ShiftRight<16>(pair))), HalfBits(), to + y_stride);
    }
  }
}

/// The bits of v with those of the nearest bf16 above (ties away from zero), for numbers and NaNs that came from bf16.
HWY_INLINE hn::Vec<Bits> rounded_bits(Vector v) { return hn::Add(hn::BitCast(Bits(), v), hn::Set(Bits(), 0x8000U)); }
/// Of two vectors side by side: `first` in the lower lanes.
HWY_INLINE void store_halves(hn::Vec<Bits> first, hn::Vec<Bits> second, Bf16* to) {
  const hn::Repartition<std::uint16_t, Bits> d;
  hn::StoreU(hn::ConcatOdd(d, hn::BitCast(d, second), hn::BitCast(d, first)), d, to);
}
/// Words of which `low` gives the low halves.
HWY_INLINE hn::Vec<Bits> paired(hn::Vec<Bits> low, hn::Vec<Bits> high) {
  return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(Bits(), 0xFFFF0000U)));
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_PAIRS_INL_H_
