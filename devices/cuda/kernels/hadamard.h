// Activations between layers to codes of their Walsh-Hadamard transform, and back, see rondo/devices/encoding.h: eight
// threads a block of 64 elements, with eight numbers each, those 8 apart or eight in a row.
#pragma once

#include "params.h"

namespace rondo::devices::cuda {

inline constexpr int kHadamardEach = 8;
inline constexpr int kHadamardBlocks = kMostThreads / kHadamardEach;  // of a block of threads
inline constexpr int kHadamardShared = (kHadamardBlocks * kBlockElements + kMostThreads) * 4;

/// Rounded by itself, also where the compiler may choose a faster quotient.
RONDO_KERNEL float rounded_quotient(float a, float b) {
#ifdef __CUDACC__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// Adds and subtracts the pairs 1, 2 and 4 places apart.
template <typename Number>
RONDO_KERNEL void add_pairs(Array<Number, kHadamardEach>& x) {
  RONDO_UNROLL
  for (int stride = 1; stride < kHadamardEach; stride *= 2) {
    RONDO_UNROLL
    for (int i = 0; i < kHadamardEach; ++i) {
      if ((i & stride) != 0) continue;
      const Number sum = x[i] + x[i + stride];
      x[i + stride] = x[i] - x[i + stride];
      x[i] = sum;
    }
  }
}

/// Where a thread's numbers are: of which block, in memory shared by its eight threads.
struct HadamardPlace {
  RONDO_KERNEL HadamardPlace(std::int64_t group, int thread)
      : block(group * kHadamardBlocks + thread / kHadamardEach),
        eighth(thread % kHadamardEach),
        first(thread / kHadamardEach * kBlockElements) {}
  RONDO_KERNEL int apart(int i) const { return eighth + i * kHadamardEach; }
  RONDO_KERNEL int in_row(int i) const { return eighth * kHadamardEach + i; }
  std::int64_t block;
  int eighth;
  int first;
};

template <typename T>
struct EncodeHadamard {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const HadamardParams& p) {
    auto* numbers = reinterpret_cast<float*>(block.shared());
    auto* magnitudes = reinterpret_cast<std::uint32_t*>(numbers + kHadamardBlocks * kBlockElements);
    typename Block::template Own<Array<float, kHadamardEach>> own;
    block.each([&](int thread) {
      const HadamardPlace at(block.x(), thread);
      Array<float, kHadamardEach>& c = own[thread];
      for (int i = 0; i < kHadamardEach; ++i) {
        const bool exists = at.block < p.blocks;
        c[i] = exists ? load(static_cast<const T*>(p.numbers) + at.block * kBlockElements + at.apart(i)) : 0.0F;
      }
      add_pairs(c);
      for (int i = 0; i < kHadamardEach; ++i) numbers[at.first + at.apart(i)] = c[i];
    });
    block.each([&](int thread) {
      const HadamardPlace at(block.x(), thread);
      Array<float, kHadamardEach>& c = own[thread];
      for (int i = 0; i < kHadamardEach; ++i) c[i] = numbers[at.first + at.in_row(i)];
      add_pairs(c);
      // Bits of numbers without their signs are in the numbers' order, and what is not finite comes last.
      std::uint32_t most = 0;
      for (int i = 0; i < kHadamardEach; ++i) most = larger(most, bits_of(c[i]) & 0x7FFFFFFFU);
      magnitudes[thread] = most;
    });
    block.each([&](int thread) {
      const HadamardPlace at(block.x(), thread);
      if (at.block >= p.blocks) return;
      std::uint32_t most = 0;
      for (int i = 0; i < kHadamardEach; ++i) most = larger(most, magnitudes[thread - at.eighth + i]);
      put(p, at, own[thread], most);
    });
  }

 private:
  RONDO_KERNEL static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
  RONDO_KERNEL static void put(const HadamardParams& p, const HadamardPlace& at, Array<float, kHadamardEach>& c,
                               std::uint32_t most) {
    const bool is_finite = most < 0x7F800000U;
    const float m = float_of(most);
    const bool is_zero = !is_finite || m < p.least;
    const float inverse = is_zero ? 0.0F : rounded_quotient(p.limit, m);
    Array<int, kHadamardEach> codes;
    for (int i = 0; i < kHadamardEach; ++i) codes[i] = is_zero ? 0 : static_cast<int>(rintf(c[i] * inverse));
    if (p.four_bits) {
      std::uint8_t* bytes = p.codes + (at.block * kBlockElements + at.in_row(0)) / 2;
      for (int i = 0; i < kHadamardEach; i += 2) {
        bytes[i / 2] = static_cast<std::uint8_t>((codes[i] & 15) << 4 | (codes[i + 1] & 15));
      }
    } else {
      std::uint8_t* bytes = p.codes + at.block * kBlockElements + at.in_row(0);
      for (int i = 0; i < kHadamardEach; ++i) bytes[i] = static_cast<std::uint8_t>(codes[i] & 255);
    }
    if (at.eighth == 0) p.scales[at.block] = is_zero ? (is_finite ? 0.0F : float_of(0x7FC00000U)) : m * p.share;
  }
};

template <typename T>
struct ExpandHadamard {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const HadamardParams& p) {
    auto* sums = reinterpret_cast<int*>(block.shared());
    block.each([&](int thread) {
      const HadamardPlace at(block.x(), thread);
      Array<int, kHadamardEach> x;
      for (int i = 0; i < kHadamardEach; ++i) {
        x[i] = at.block < p.blocks ? code(p, at.block * kBlockElements + at.in_row(i)) : 0;
      }
      add_pairs(x);
      for (int i = 0; i < kHadamardEach; ++i) sums[at.first + at.in_row(i)] = x[i];
    });
    block.each([&](int thread) {
      const HadamardPlace at(block.x(), thread);
      if (at.block >= p.blocks) return;
      Array<int, kHadamardEach> x;
      for (int i = 0; i < kHadamardEach; ++i) x[i] = sums[at.first + at.apart(i)];
      add_pairs(x);
      T* y = static_cast<T*>(p.numbers) + at.block * kBlockElements;
      for (int i = 0; i < kHadamardEach; ++i) store(y + at.apart(i), static_cast<float>(x[i]) * p.scales[at.block]);
    });
  }

 private:
  RONDO_KERNEL static int code(const HadamardParams& p, std::int64_t i) {
    if (!p.four_bits) return static_cast<std::int8_t>(p.codes[i]);
    const int half = i % 2 == 0 ? p.codes[i / 2] >> 4 : p.codes[i / 2] & 15;
    return half < 8 ? half : half - 16;
  }
};

}  // namespace rondo::devices::cuda
