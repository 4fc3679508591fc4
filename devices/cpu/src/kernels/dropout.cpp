// Dropout and noise: the decisions and numbers of random.h, several channels at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels.h"
#include "kernels/sequences.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"
#include "rondo/devices/random.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

using Words = hn::ScalableTag<std::uint64_t>;
using WordHalves = hn::Repartition<std::uint32_t, Words>;
using NarrowWords = hn::Rebind<std::uint32_t, Words>;
using WordVector = hn::Vec<Words>;

/// Low 64 bits of x * kFactor out of 32-bit products, which every instruction set has.
template <std::uint64_t kFactor>
HWY_INLINE WordVector times(WordVector x) {
  const WordHalves halves;
  const auto low = hn::BitCast(halves, hn::Set(Words(), kFactor & 0xFFFFFFFFU));
  const auto high = hn::BitCast(halves, hn::Set(Words(), kFactor >> 32U));
  const auto x_low = hn::BitCast(halves, x);
  const auto x_high = hn::BitCast(halves, hn::ShiftRight<32>(x));
  const auto cross = hn::Add(hn::MulEven(x_high, low), hn::MulEven(x_low, high));
  return hn::Add(hn::MulEven(x_low, low), hn::ShiftLeft<32>(cross));
}

/// mix64 of random.h.
HWY_INLINE WordVector mix(WordVector x) {
  x = hn::Add(x, hn::Set(Words(), 0x9E3779B97F4A7C15ULL));
  x = times<0xBF58476D1CE4E5B9ULL>(hn::Xor(x, hn::ShiftRight<30>(x)));
  x = times<0x94D049BB133111EBULL>(hn::Xor(x, hn::ShiftRight<27>(x)));
  return hn::Xor(x, hn::ShiftRight<31>(x));
}

/// The 24 bits of uniform_float for as many channels from `first` on as a vector of words has.
HWY_INLINE hn::Vec<NarrowWords> draw_words(WordVector key, std::int64_t first) {
  const auto channel = hn::Iota(Words(), static_cast<std::uint64_t>(first));
  // combine_keys ends in one mix64, uniform_float begins with another.
  return hn::TruncateTo(NarrowWords(), hn::ShiftRight<40>(mix(mix(hn::Xor(key, channel)))));
}

/// The same for channels first ... first + lanes() - 1. `mixed_key`: mix64 of token and place.
HWY_INLINE hn::Vec<Ints> draws(std::uint64_t mixed_key, std::int64_t first) {
  const auto key = hn::Set(Words(), mixed_key);
  const auto low = draw_words(key, first);
  const auto high = draw_words(key, first + static_cast<std::int64_t>(hn::Lanes(Words())));
  return hn::BitCast(Ints(), hn::Combine(Bits(), high, low));
}

template <typename T>
void dropout_typed(ThreadPool& pool, const T* x, const std::uint64_t* keys, T* y, std::int64_t tokens,
                   std::int64_t width, std::uint64_t place, float probability, bool rest) {
  // uniform >= p exactly when its 24 bits, a whole number, reach p 2^24.
  const auto threshold = static_cast<std::int32_t>(std::ceil(static_cast<double>(probability) * 0x1.0p24));
  const float scale = 1.0F / (1.0F - probability);
  const float kept = rest ? 1.0F - scale : scale;
  const float dropped = rest ? 1.0F : 0.0F;
  const std::int64_t step = task_rows(width);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const std::uint64_t key = mix64(combine_keys(keys[token], place));
      const std::int64_t at = token * width;
      for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
        const auto keep = hn::RebindMask(Floats(), hn::Gt(draws(key, i), hn::Set(Ints(), threshold - 1)));
        const auto factor = hn::IfThenElse(keep, splat(kept), splat(dropped));
        // A dropped number leaves no trace, even one that is not finite.
        const auto value = hn::Mul(load(x + at + i, extent), factor);
        store(rest ? value : hn::IfThenElseZero(keep, value), y + at + i, extent);
      });
    }
  });
}

template <typename T>
void noise_typed(ThreadPool& pool, const T* x, const std::uint64_t* keys, const std::int32_t* bounds, T* y,
                 std::int64_t tokens, std::int64_t width, std::uint64_t place, float amount) {
  const Sequences sequences(bounds);
  const std::int64_t step = task_rows(width);
  pool.parallel_for(divide_up(tokens, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(tokens, (task + 1) * step);
    for (std::int64_t token = task * step; token < end; ++token) {
      const std::uint64_t key = mix64(combine_keys(keys[token], place));
      const auto numbers = static_cast<std::uint64_t>(sequences.at(token).length() * width);
      const float scale = numbers == 0 ? 0.0F : amount * inverse_root(numbers);
      const std::int64_t at = token * width;
      for_vectors(width, [=](std::int64_t i, auto extent) HWY_ATTR {
        const auto drawn = hn::Sub(hn::Mul(hn::ConvertTo(Floats(), draws(key, i)), splat(0x1p-23F)), splat(1.0F));
        store(hn::Add(load(x + at + i, extent), hn::Mul(splat(scale), drawn)), y + at + i, extent);
      });
    }
  });
}

void noise_any(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, const std::int32_t* bounds,
               void* y, std::int64_t tokens, std::int64_t width, std::uint64_t place, float amount) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    noise_typed(pool, static_cast<const T*>(x), keys, bounds, static_cast<T*>(y), tokens, width, place, amount);
  });
}

void dropout_any(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, void* y,
                 std::int64_t tokens, std::int64_t width, std::uint64_t place, float probability, bool rest) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    dropout_typed(pool, static_cast<const T*>(x), keys, static_cast<T*>(y), tokens, width, place, probability, rest);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(dropout_any);
HWY_EXPORT(noise_any);

void dropout(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, void* y, std::int64_t tokens,
             std::int64_t width, std::uint32_t layer, const DropoutAttributes& attributes) {
  const std::uint64_t place = place_key(layer, attributes.site);
  HWY_DYNAMIC_DISPATCH(dropout_any)
  (pool, storage, x, keys, y, tokens, width, place, attributes.probability, attributes.rest);
}

void noise(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, const std::int32_t* bounds,
           void* y, std::int64_t tokens, std::int64_t width, std::uint32_t layer, const NoiseAttributes& attributes) {
  const std::uint64_t place = place_key(layer, attributes.site);
  HWY_DYNAMIC_DISPATCH(noise_any)(pool, storage, x, keys, bounds, y, tokens, width, place, attributes.amount);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
