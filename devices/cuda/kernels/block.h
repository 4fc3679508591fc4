// A block of threads, as kernels see it: phases that every thread runs, ended by a barrier.
//
// A kernel is a class with `template <typename Block> static void run(Block&, const Params&)`. On a card Block is the
// DeviceBlock: each() runs its phase once a thread. Compiled for the host it is the HostBlock: each() runs the phase
// for one thread after the other, in an order that differs from phase to phase, so that a kernel's indices, masks and
// sums can be tried where there is no card; a block's warps may also be threads of the host, so that a thread sanitizer
// sees what no barrier lies between. What lives across phases is either in shared memory or an Own<T>, one value a
// thread. Sums over a block have one order on both.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define RONDO_KERNEL __device__ __forceinline__
#define RONDO_UNROLL _Pragma("unroll")
#define RONDO_UNROLL_TWO _Pragma("unroll 2")  // where more would take the registers of a second block
#define RONDO_UNROLL_ALL _Pragma("unroll")    // by the host's compiler too
#else
#define RONDO_KERNEL inline
#define RONDO_UNROLL
#define RONDO_UNROLL_TWO
#define RONDO_UNROLL_ALL _Pragma("GCC unroll 16")
#endif

namespace rondo::devices::cuda {

/// Of a block, at most; always whole warps.
inline constexpr int kMostThreads = 256;
inline constexpr int kWarp = 32;

/// A fixed array that may live in registers.
template <typename T, std::size_t N>
struct Array {
  T values[N];
  RONDO_KERNEL T& operator[](int i) { return values[i]; }
};

/// What a lane of a warp holds of the matrices of one m16n8k16 product: A [16, 16] and B [16, 8] of two-byte numbers,
/// two in a register, C [16, 8] of fp32. With g = lane / 4 and q = lane % 4:
///   A: register r, half h: row g + 8 (r % 2), column 2 q + h + 8 (r / 2)
///   B: register r, half h: row 2 q + h + 8 r, column g
///   C: number i: row g + 8 (i / 2), column 2 q + i % 2
struct FragmentA {
  std::uint32_t x[4];
};
struct FragmentB {
  std::uint32_t x[2];
};
struct FragmentC {
  float x[4];
};

#ifdef __CUDACC__

class DeviceBlock {
 public:
  template <typename T>
  struct Own {
    T value;
    __device__ __forceinline__ T& operator[](int) { return value; }
  };

  __device__ __forceinline__ std::int64_t x() const { return blockIdx.x; }
  __device__ __forceinline__ std::int64_t y() const { return blockIdx.y; }
  __device__ __forceinline__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ unsigned char* shared() const {
    extern __shared__ __align__(1024) unsigned char rondo_shared[];
    return rondo_shared;
  }
  template <typename Phase>
  __device__ __forceinline__ void each(Phase phase) const {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  /// A phase without a barrier: for what a thread or its warp keeps to itself.
  template <typename Phase>
  __device__ __forceinline__ void local(Phase phase) const {
    phase(static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ void barrier() const { __syncthreads(); }
  /// A barrier behind which everything is there that copy_16() was to copy.
  __device__ __forceinline__ void wait_copies() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
  }
  /// The same for what warpgroups multiply (group_products.h); `before`: what each has to be through with at the
  /// barrier.
  template <typename Before>
  __device__ __forceinline__ void wait_shared(Before before) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.wait_all;" ::: "memory");
    before();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
  }
  /// c += a b by the matrix units, a warp each; the arguments give a thread's fragments.
  template <bool kBfloat, typename C, typename A, typename B>
  __device__ __forceinline__ void multiply(C c_of, A a_of, B b_of) const {
    const int thread = static_cast<int>(threadIdx.x);
    FragmentC& c = c_of(thread);
    const FragmentA& a = a_of(thread);
    const FragmentB& b = b_of(thread);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (kBfloat) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
          : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
          : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
    }
#else
    if constexpr (kBfloat) {
      c.x[0] = 0;
      __trap();  // never launched: sm_75 has units for fp16 alone
    } else {     // by halves of what is summed over
      RONDO_UNROLL
      for (int half = 0; half < 2; ++half) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
            : "r"(a.x[2 * half]), "r"(a.x[2 * half + 1]), "r"(b.x[half]));
      }
    }
#endif
  }
  /// Over the four lanes that share a row of C; all of them get it.
  template <typename Value>
  __device__ __forceinline__ void quad_max(Value value_of) const {
    float& value = value_of(static_cast<int>(threadIdx.x));
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
  }
  template <typename Value>
  __device__ __forceinline__ void quad_sum(Value value_of) const {
    float& value = value_of(static_cast<int>(threadIdx.x));
    value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
    value += __shfl_xor_sync(0xFFFFFFFFU, value, 2);
  }
  /// Over a warp's lanes; all of them get it.
  template <typename Value>
  __device__ __forceinline__ void warp_max(Value value_of) const {
    float& value = value_of(static_cast<int>(threadIdx.x));
    value = combine_warp(value, [](float a, float b) { return fmaxf(a, b); });
  }
  /// Bit i of masks: whether is(thread) holds for lane i of the warp.
  template <typename Is>
  __device__ __forceinline__ void ballot(Own<std::uint32_t>& masks, Is is) const {
    masks.value = __ballot_sync(0xFFFFFFFFU, is(static_cast<int>(threadIdx.x)));
  }
  __device__ __forceinline__ float sum(Own<float>& own) const {
    return combine(own.value, [](float a, float b) { return a + b; });
  }
  __device__ __forceinline__ float max(Own<float>& own) const {
    return combine(own.value, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ __forceinline__ double sum(Own<double>& own) const {
    return combine(own.value, [](double a, double b) { return a + b; });
  }

 private:
  template <typename T, typename Operation>
  __device__ __forceinline__ static T combine_warp(T value, Operation operation) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      value = operation(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
    }
    return value;
  }
  template <typename T, typename Operation>
  __device__ __forceinline__ static T combine(T value, Operation operation) {
    __shared__ T warps[kMostThreads / kWarp];
    value = combine_warp(value, operation);
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    T total = warps[0];
    for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) total = operation(total, warps[warp]);
    __syncthreads();  // the next combination writes `warps` again
    return total;
  }
};

#endif

}  // namespace rondo::devices::cuda

#ifndef __CUDACC__
#include "host_block.h"
#endif
