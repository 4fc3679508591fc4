// A block of threads, as kernels see it: phases that every thread runs, ended by a barrier.
//
// A kernel is a class with `template <typename Block> static void run(Block&, const Params&)`. On a card Block is the
// DeviceBlock: each() runs its phase once a thread. Compiled for the host it is the HostBlock: each() runs the phase for
// one thread after the other, so that a kernel's indices, masks and sums can be tried where there is no card. What lives
// across phases is either in shared memory or an Own<T>, one value a thread. Sums over a block have one order on both.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define RONDO_KERNEL __device__ __forceinline__
#define RONDO_UNROLL _Pragma("unroll")
#else
#define RONDO_KERNEL inline
#define RONDO_UNROLL
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
    extern __shared__ __align__(16) unsigned char rondo_shared[];
    return rondo_shared;
  }
  template <typename Phase>
  __device__ __forceinline__ void each(Phase phase) const {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
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
  __device__ __forceinline__ static T combine(T value, Operation operation) {
    __shared__ T warps[kMostThreads / kWarp];
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      value = operation(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
    }
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    T total = warps[0];
    for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) total = operation(total, warps[warp]);
    __syncthreads();  // the next combination writes `warps` again
    return total;
  }
};

#else

class HostBlock {
 public:
  template <typename T>
  struct Own {
    T values[kMostThreads];
    T& operator[](int thread) { return values[thread]; }
  };

  /// `shared`: of the launch's size, 16-byte aligned.
  HostBlock(std::int64_t x, std::int64_t y, int threads, unsigned char* shared)
      : x_(x), y_(y), threads_(threads), shared_(shared) {}

  std::int64_t x() const { return x_; }
  std::int64_t y() const { return y_; }
  int threads() const { return threads_; }
  unsigned char* shared() const { return shared_; }
  template <typename Phase>
  void each(Phase phase) const {
    for (int thread = 0; thread < threads_; ++thread) phase(thread);
  }
  float sum(Own<float>& own) const {
    return combine(own, [](float a, float b) { return a + b; });
  }
  float max(Own<float>& own) const {
    return combine(own, [](float a, float b) { return std::fmax(a, b); });
  }
  double sum(Own<double>& own) const {
    return combine(own, [](double a, double b) { return a + b; });
  }

 private:
  /// In the order of the card's butterfly; what lane 0 holds at its end every lane holds.
  template <typename T, typename Operation>
  T combine(const Own<T>& own, Operation operation) const {
    T total{};
    for (int warp = 0; warp < threads_ / kWarp; ++warp) {
      T lanes[kWarp];
      for (int lane = 0; lane < kWarp; ++lane) lanes[lane] = own.values[warp * kWarp + lane];
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        for (int lane = 0; lane < offset; ++lane) lanes[lane] = operation(lanes[lane], lanes[lane + offset]);
      }
      total = warp == 0 ? lanes[0] : operation(total, lanes[0]);
    }
    return total;
  }

  const std::int64_t x_;
  const std::int64_t y_;
  const int threads_;
  unsigned char* const shared_;
};

#endif

}  // namespace rondo::devices::cuda
