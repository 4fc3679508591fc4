// Numbers by the eight: 16 bytes of bf16 or fp16 a read, which is what a card's memory gives a thread at its best.
#pragma once

#include "storage.h"

namespace rondo::devices::cuda {

inline constexpr int kVector = 8;

/// As many numbers side by side as a thread reads at once: kVector, or one where they do not come by the eight.
template <int kCount>
struct Vector {
  static constexpr int kNumbers = kCount;
};
template <int kCount>
using Numbers = Array<float, static_cast<std::size_t>(kCount)>;

/// T: float, Bf16 or Fp16. Of kVector numbers the address is a multiple of 16.
template <int kCount, typename T>
RONDO_KERNEL Numbers<kCount> load_vector(const T* at) {
  Numbers<kCount> x;
#ifdef __CUDACC__
  if constexpr (kCount == kVector && sizeof(T) == 4) {
    RONDO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float4 four = reinterpret_cast<const float4*>(at)[half];
      x[4 * half] = four.x;
      x[4 * half + 1] = four.y;
      x[4 * half + 2] = four.z;
      x[4 * half + 3] = four.w;
    }
  } else if constexpr (kCount == kVector) {
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const T one{static_cast<std::uint16_t>(i % 2 == 0 ? pairs[i / 2] & 0xFFFFU : pairs[i / 2] >> 16U)};
      x[i] = load(&one);
    }
  } else
#endif
  {
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] = load(at + i);
  }
  return x;
}

template <int kCount, typename T>
RONDO_KERNEL void store_vector(T* at, Numbers<kCount> x) {
#ifdef __CUDACC__
  if constexpr (kCount == kVector && sizeof(T) == 4) {
    RONDO_UNROLL
    for (int half = 0; half < 2; ++half) {
      reinterpret_cast<float4*>(at)[half] = {x[4 * half], x[4 * half + 1], x[4 * half + 2], x[4 * half + 3]};
    }
  } else if constexpr (kCount == kVector) {
    std::uint32_t pairs[4];
    RONDO_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = narrowed_pair<T>(x[2 * i], x[2 * i + 1]);
    *reinterpret_cast<uint4*>(at) = {pairs[0], pairs[1], pairs[2], pairs[3]};
  } else
#endif
  {
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) store(at + i, x[i]);
  }
}

/// Four numbers of fp32; the address is a multiple of 16.
RONDO_KERNEL Numbers<4> load_four(const float* at) {
#ifdef __CUDACC__
  const float4 four = *reinterpret_cast<const float4*>(at);
  return {{four.x, four.y, four.z, four.w}};
#else
  return {{at[0], at[1], at[2], at[3]}};
#endif
}

template <int kCount>
RONDO_KERNEL Numbers<kCount> load_any_vector(const void* from, Storage storage, std::int64_t i) {
  if (storage == Storage::kFloat32) return load_vector<kCount>(static_cast<const float*>(from) + i);
  if (storage == Storage::kBfloat16) return load_vector<kCount>(static_cast<const Bf16*>(from) + i);
  return load_vector<kCount>(static_cast<const Fp16*>(from) + i);
}

template <std::size_t kCount>
RONDO_KERNEL void add_vector(Array<float, kCount>& sum, Array<float, kCount> more) {
  RONDO_UNROLL
  for (int i = 0; i < static_cast<int>(kCount); ++i) sum[i] += more[i];
}

template <std::size_t kCount>
RONDO_KERNEL void scale_vector(Array<float, kCount>& x, float factor) {
  RONDO_UNROLL
  for (int i = 0; i < static_cast<int>(kCount); ++i) x[i] *= factor;
}

/// Adds read(0), read(1), ... read(count - 1) to a sum, in this order, kAtOnce of them being read at a time.
template <int kAtOnce, std::size_t kCount, typename Read>
RONDO_KERNEL void add_in_order(Array<float, kCount>& sum, std::int64_t count, Read read) {
  std::int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    Array<Array<float, kCount>, static_cast<std::size_t>(kAtOnce)> some;
    RONDO_UNROLL
    for (int k = 0; k < kAtOnce; ++k) some[k] = read(i + k);
    RONDO_UNROLL
    for (int k = 0; k < kAtOnce; ++k) add_vector(sum, some[k]);
  }
  for (; i < count; ++i) add_vector(sum, read(i));
}

/// Runs body(Vector, d) for the numbers of a row of `width`, whose first thread is `thread` of `threads`: by the eight
/// where rows are made of eights. Rows lie one after the other from an address that is a multiple of 16.
template <typename Body>
RONDO_KERNEL void for_row(std::int64_t width, int thread, int threads, Body body) {
  if (width % kVector == 0) {
    const std::int64_t step = static_cast<std::int64_t>(threads) * kVector;
    for (std::int64_t d = static_cast<std::int64_t>(thread) * kVector; d < width; d += step) body(Vector<kVector>{}, d);
  } else {
    for (std::int64_t d = thread; d < width; d += threads) body(Vector<1>{}, d);
  }
}

}  // namespace rondo::devices::cuda
