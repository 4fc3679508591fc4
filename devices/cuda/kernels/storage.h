// How numbers are stored: fp32, bf16 and fp16, read as fp32 and rounded once (to nearest, ties to even) when stored.
#pragma once

#include <cstdint>
#include <cstring>

#include "block.h"
#include "rondo/devices/fp8.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace rondo::devices::cuda {

/// Storage of a tensor, for kernels that take it as an argument. The others are of a product's operands: both kE4m3, or
/// the left one kE5m2 and the right one kE4m3.
enum class Storage : std::int32_t { kFloat32, kBfloat16, kFloat16, kE4m3, kE5m2 };
inline constexpr int kStorages = 3;  // of tensors

struct Bf16 {
  static constexpr bool kIsBfloat = true;
  std::uint16_t bits;
};
struct Fp16 {
  static constexpr bool kIsBfloat = false;
  std::uint16_t bits;
};
/// Formats of eight bits, see rondo/devices/fp8.h. kPast: the pattern of the least fp32 that is past their range;
/// kLeast: of their least normal number.
struct E4m3 {
  static constexpr std::uint32_t kFraction = 3;
  static constexpr std::uint32_t kBias = 7;
  static constexpr int kTop = kE4m3Top;
  static constexpr bool kHasInfinity = false;          // what would be infinite or NaN is a number, but for the last
  static constexpr std::uint32_t kPast = 0x43E80001;   // above 464
  static constexpr std::uint32_t kLeast = 0x3C800000;  // 2^-6
  std::uint8_t bits;
};
struct E5m2 {
  static constexpr std::uint32_t kFraction = 2;
  static constexpr std::uint32_t kBias = 15;
  static constexpr int kTop = kE5m2Top;
  static constexpr bool kHasInfinity = true;
  static constexpr std::uint32_t kPast = 0x47700000;   // 61440
  static constexpr std::uint32_t kLeast = 0x38800000;  // 2^-14
  std::uint8_t bits;
};

/// Of a tensor of T.
template <typename T>
constexpr Storage storage_of() {
  if constexpr (sizeof(T) == 4) {
    return Storage::kFloat32;
  } else {
    return T::kIsBfloat ? Storage::kBfloat16 : Storage::kFloat16;
  }
}

RONDO_KERNEL std::uint32_t bits_of(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
#endif
}

RONDO_KERNEL float float_of(std::uint32_t bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}

RONDO_KERNEL float load(const float* at) { return *at; }
RONDO_KERNEL float load(const Bf16* at) { return float_of(static_cast<std::uint32_t>(at->bits) << 16U); }

RONDO_KERNEL float load(const Fp16* at) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(at->bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(at->bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (at->bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = at->bits & 0x3FFU;
  if (exponent == 0x1F) return float_of(sign | 0x7F800000U | (fraction << 13U));
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23U) | (fraction << 13U));
  const float small = static_cast<float>(fraction) * 0x1.0p-24F;  // subnormal or zero: exact
  return sign != 0 ? -small : small;
#endif
}

RONDO_KERNEL void store(float* at, float x) { *at = x; }

/// A NaN stays one.
RONDO_KERNEL void store(Bf16* at, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(at->bits) : "f"(x));
#else
  const std::uint32_t bits = bits_of(x);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = nan ? (bits >> 16U) | 0x40U : (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  at->bits = static_cast<std::uint16_t>(rounded);
#endif
}

RONDO_KERNEL void store(Fp16* at, float x) {
#ifdef __CUDACC__
  at->bits = __half_as_ushort(__float2half_rn(x));
#else
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t result = 0;
  if (magnitude > 0x7F800000U) {
    result = 0x7E00U;
  } else if (magnitude >= 0x477FF000U) {  // 65520 and more round to infinity
    result = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // normal: 2^-14 and more
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
    result = (rounded >> 13U) - (112U << 10U);
  } else {  // adding 0.5 leaves the fraction in units of 2^-24, rounded to nearest even
    result = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  }
  at->bits = static_cast<std::uint16_t>(sign | result);
#endif
}

template <typename Code>
RONDO_KERNEL float load_code(const Code* at) {
  const std::uint32_t sign = static_cast<std::uint32_t>(at->bits & 0x80U) << 24U;
  const std::uint32_t magnitude = at->bits & 0x7FU;
  constexpr std::uint32_t kInfinite = 0x7FU >> Code::kFraction << Code::kFraction;
  if (Code::kHasInfinity && magnitude == kInfinite) return float_of(sign | 0x7F800000U);
  if (magnitude > (Code::kHasInfinity ? kInfinite : 0x7EU)) return float_of(sign | 0x7FC00000U);
  constexpr std::uint32_t kShift = 23 - Code::kFraction;
  if ((magnitude >> Code::kFraction) != 0)
    return float_of(sign | ((magnitude << kShift) + ((127 - Code::kBias) << 23U)));
  // Subnormal or zero: exact.
  const float small = static_cast<float>(magnitude) * float_of((128 - Code::kBias - Code::kFraction) << 23U);
  return sign != 0 ? -small : small;
}
RONDO_KERNEL float load(const E4m3* at) { return load_code(at); }
RONDO_KERNEL float load(const E5m2* at) { return load_code(at); }

/// NaN past the range and for what is not finite.
template <typename Code>
RONDO_KERNEL void store_code(Code* at, float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr std::uint32_t kShift = 23 - Code::kFraction;
  std::uint32_t result = 0;
  if (magnitude >= Code::kPast) {
    result = 0x7FU;
  } else if (magnitude >= Code::kLeast) {
    const std::uint32_t rounded = magnitude + ((1U << (kShift - 1U)) - 1U) + ((magnitude >> kShift) & 1U);
    result = (rounded >> kShift) - ((127 - Code::kBias) << Code::kFraction);
  } else {  // added to this, the fraction is left in units of the least number, rounded to nearest even
    const float unit = float_of((128 - Code::kBias - Code::kFraction + 23) << 23U);
    result = bits_of(float_of(magnitude) + unit) - bits_of(unit);
  }
  at->bits = static_cast<std::uint8_t>(((bits >> 24U) & 0x80U) | result);
}
RONDO_KERNEL void store(E4m3* at, float x) { store_code(at, x); }
RONDO_KERNEL void store(E5m2* at, float x) { store_code(at, x); }

/// Two numbers of two bytes side by side.
RONDO_KERNEL std::uint32_t pair_of(std::uint32_t low, std::uint32_t high) { return low | (high << 16U); }

/// Two numbers as T, side by side.
template <typename T>
RONDO_KERNEL std::uint32_t narrowed_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t both;
  if constexpr (T::kIsBfloat) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  T pair[2];
  store(&pair[0], low);
  store(&pair[1], high);
  return pair_of(pair[0].bits, pair[1].bits);
#endif
}

#ifndef __CUDACC__
template <bool kBfloat>
float HostBlock::half_of(std::uint32_t pair, int half) {
  const auto bits = static_cast<std::uint16_t>(half == 0 ? pair & 0xFFFFU : pair >> 16U);
  const Bf16 wide{bits};
  const Fp16 narrow{bits};
  return kBfloat ? load(&wide) : load(&narrow);
}
#endif

RONDO_KERNEL float load_any(const void* from, Storage storage, std::int64_t i) {
  if (storage == Storage::kFloat32) return load(static_cast<const float*>(from) + i);
  if (storage == Storage::kBfloat16) return load(static_cast<const Bf16*>(from) + i);
  return load(static_cast<const Fp16*>(from) + i);
}

RONDO_KERNEL void store_any(void* to, Storage storage, std::int64_t i, float x) {
  if (storage == Storage::kFloat32) return store(static_cast<float*>(to) + i, x);
  if (storage == Storage::kBfloat16) return store(static_cast<Bf16*>(to) + i, x);
  return store(static_cast<Fp16*>(to) + i, x);
}

}  // namespace rondo::devices::cuda
