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
    (void)a;
    (void)b;
    c.x[0] = 0;
    __trap();  // never launched on such cards
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

#else

/// What the warps of a block share where each is a thread of the host.
class HostTeam {
 public:
  virtual ~HostTeam() = default;
  /// Returns when all warps have called it.
  virtual void meet() = 0;
  double given[kMostThreads / kWarp];  // by each warp, to be combined
};

class HostBlock {
 public:
  template <typename T>
  struct Own {
    T values[kMostThreads];
    T& operator[](int thread) { return values[thread]; }
  };

  /// All of a block. `shared`: of the launch's size, aligned to 1024 bytes.
  HostBlock(std::int64_t x, std::int64_t y, int threads, unsigned char* shared)
      : x_(x), y_(y), threads_(threads), shared_(shared), end_(threads), turn_(static_cast<unsigned>(x + y)) {}
  /// Warp `warp` of the block, of which the others run beside it.
  HostBlock(const HostBlock& whole, int warp, HostTeam& team) : HostBlock(whole) {
    begin_ = warp * kWarp;
    end_ = begin_ + kWarp;
    team_ = &team;
  }

  std::int64_t x() const { return x_; }
  std::int64_t y() const { return y_; }
  int threads() const { return threads_; }
  unsigned char* shared() const { return shared_; }
  template <typename Phase>
  void each(Phase phase) {
    local(phase);
    barrier();
  }
  template <typename Phase>
  void local(Phase phase) {
    const bool backwards = turn_ % 2 != 0;
    const int mixed = turn_ % 3 == 2 ? 21 : 0;  // within a warp
    ++turn_;
    for (int i = begin_, thread = backwards ? end_ - 1 : begin_; i < end_; ++i, thread += backwards ? -1 : 1) {
      phase(thread ^ mixed);
    }
  }
  void barrier() {
    if (team_ != nullptr) team_->meet();
  }
  void wait_copies() { barrier(); }
  template <typename Before>
  void wait_shared(Before /*of the card's own products*/) {
    barrier();
  }
  /// Calls fn(first thread) for each warp that runs here.
  template <typename Function>
  void warps(Function fn) const {
    for (int warp = begin_; warp < end_; warp += kWarp) fn(warp);
  }
  template <bool kBfloat, typename C, typename A, typename B>
  void multiply(C c_of, A a_of, B b_of) const {
    warps([&](int warp) { multiply_warp<kBfloat>(warp, c_of, a_of, b_of); });
  }
  template <typename Value>
  void quad_max(Value value_of) const {
    for (int i = begin_; i < end_; i += 4) {
      float largest = value_of(i);
      for (int lane = 1; lane < 4; ++lane) largest = std::fmax(largest, value_of(i + lane));
      for (int lane = 0; lane < 4; ++lane) value_of(i + lane) = largest;
    }
  }
  template <typename Value>
  void quad_sum(Value value_of) const {
    for (int i = begin_; i < end_; i += 4) {
      const float sum = (value_of(i) + value_of(i + 1)) + (value_of(i + 2) + value_of(i + 3));
      for (int lane = 0; lane < 4; ++lane) value_of(i + lane) = sum;
    }
  }
  template <typename Value>
  void warp_max(Value value_of) const {
    warps([&](int warp) {
      float largest = value_of(warp);
      for (int lane = 1; lane < kWarp; ++lane) largest = std::fmax(largest, value_of(warp + lane));
      for (int lane = 0; lane < kWarp; ++lane) value_of(warp + lane) = largest;
    });
  }
  /// The numbers of A that the lanes of a warp hold; a_of(thread) gives a lane's.
  template <bool kBfloat, typename A>
  static void gather(int warp, A a_of, float (&a)[16][16]) {
    for (int lane = 0; lane < kWarp; ++lane) {
      const FragmentA left = a_of(warp + lane);
      for (int half = 0; half < 2; ++half) {
        for (int r = 0; r < 4; ++r) {
          a[lane / 4 + 8 * (r % 2)][2 * (lane % 4) + half + 8 * (r / 2)] = half_of<kBfloat>(left.x[r], half);
        }
      }
    }
  }
  float sum(Own<float>& own) {
    return combine(own, [](float a, float b) { return a + b; });
  }
  float max(Own<float>& own) {
    return combine(own, [](float a, float b) { return std::fmax(a, b); });
  }
  double sum(Own<double>& own) {
    return combine(own, [](double a, double b) { return a + b; });
  }

 private:
  /// In the order of the card's butterfly; what lane 0 holds at its end every lane holds.
  template <typename T, typename Operation>
  T combine(const Own<T>& own, Operation operation) {
    double alone[kMostThreads / kWarp] = {};
    double* const given = team_ != nullptr ? team_->given : alone;
    warps([&](int warp) {
      T lanes[kWarp];
      for (int lane = 0; lane < kWarp; ++lane) lanes[lane] = own.values[warp + lane];
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        for (int lane = 0; lane < offset; ++lane) lanes[lane] = operation(lanes[lane], lanes[lane + offset]);
      }
      given[warp / kWarp] = static_cast<double>(lanes[0]);
    });
    barrier();
    T total = static_cast<T>(given[0]);
    for (int warp = 1; warp < threads_ / kWarp; ++warp) total = operation(total, static_cast<T>(given[warp]));
    barrier();
    return total;
  }

  /// Puts the fragments of a warp's lanes together and multiplies.
  template <bool kBfloat, typename C, typename A, typename B>
  static void multiply_warp(int warp, C c_of, A a_of, B b_of) {
    float a[16][16];
    float b[16][8];
    gather<kBfloat>(warp, a_of, a);
    for (int lane = 0; lane < kWarp; ++lane) {
      const FragmentB right = b_of(warp + lane);
      for (int half = 0; half < 2; ++half) {
        for (int r = 0; r < 2; ++r) b[2 * (lane % 4) + half + 8 * r][lane / 4] = half_of<kBfloat>(right.x[r], half);
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      FragmentC& c = c_of(warp + lane);
      for (int i = 0; i < 4; ++i) {
        float sum = c.x[i];
        for (int k = 0; k < 16; ++k) sum += a[lane / 4 + 8 * (i / 2)][k] * b[k][2 * (lane % 4) + i % 2];
        c.x[i] = sum;
      }
    }
  }
  template <bool kBfloat>
  static float half_of(std::uint32_t pair, int half);  // in storage.h, which knows how numbers are stored

  const std::int64_t x_;
  const std::int64_t y_;
  const int threads_;
  unsigned char* const shared_;
  int begin_ = 0;  // the threads that run here
  int end_;
  unsigned turn_;  // of phases, which go through their threads in unlike orders
  HostTeam* team_ = nullptr;
};

#endif

}  // namespace rondo::devices::cuda
