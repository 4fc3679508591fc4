// A block of threads played by the host, see block.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "block.h"

namespace rondo::devices::cuda {

/// What a card does in its own time between a begin and a wait, copies to shared memory and products of warpgroups:
/// done here at once or as late as may be. One for each thread of the host.
class HostLater {
 public:
  using Product = std::function<void()>;

  static HostLater& mine() {
    thread_local HostLater only;
    return only;
  }
  /// What is begun from now on. REQUIRES: is_idle().
  void set_late(bool late) { late_ = late; }
  /// `real` bytes from `from`, zeros behind them to `size`, which is 16 at most.
  void copy(void* to, const void* from, std::size_t real, std::size_t size) {
    copies_.push_back({to, from, real, size});
    if (!late_) finish_copies();
  }
  void finish_copies() {
    for (const Copy& copy : copies_) {
      unsigned char bytes[16] = {};
      if (copy.real > 0) std::memcpy(bytes, copy.from, copy.real);
      std::memcpy(copy.to, bytes, copy.size);
    }
    copies_.clear();
  }
  /// Products are done in the order in which they were begun.
  void multiply(Product product) {
    products_.push_back(std::move(product));
    if (!late_) finish_products(0);
  }
  void finish_products(std::size_t left) {
    for (; products_.size() > left; products_.pop_front()) products_.front()();
  }
  /// Nothing is under way.
  bool is_idle() const { return copies_.empty() && products_.empty(); }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t real;
    std::size_t size;
  };
  std::vector<Copy> copies_;
  std::deque<Product> products_;
  bool late_ = false;
};

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
  void wait_copies() {
    HostLater::mine().finish_copies();
    barrier();
  }
  template <typename Before>
  void wait_shared(Before before) {
    HostLater::mine().finish_copies();
    before();
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
  template <typename Is>
  void ballot(Own<std::uint32_t>& masks, Is is) const {
    warps([&](int warp) {
      std::uint32_t mask = 0;
      for (int lane = 0; lane < kWarp; ++lane) mask |= (is(warp + lane) ? 1U : 0U) << lane;
      for (int lane = 0; lane < kWarp; ++lane) masks[warp + lane] = mask;
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

}  // namespace rondo::devices::cuda
