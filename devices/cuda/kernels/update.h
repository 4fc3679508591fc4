// What an optimizer does: rows added to a table, sums of squares, AdamW. The bits are those of update.h.
#pragma once

#include "elementwise.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices::cuda {

/// A block a row: of a list of as many as there may be.
struct AddRows {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AddRowsParams& p) {
    if (block.x() >= p.ids[0]) return;
    const std::int32_t row = p.ids[1 + block.x()];
    if (row < 0 || row >= p.height) {
      block.each([&](int thread) {
        if (thread == 0) *p.fault = {Fault::Code::kIdPastTable, static_cast<std::int32_t>(block.x()), row, p.height};
      });
      return;
    }
    if (row == p.padding_row) return;
    float* to = p.table + row * p.width;
    const float* from = p.rows + block.x() * p.width;
    block.each([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto sum = load_vector<kCount>(to + d);
        auto some = load_vector<kCount>(from + d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) sum[i] += some[i];
        store_vector<kCount>(to + d, sum);
      });
    });
  }
};

/// Threads that share a block of kUpdateBlock: a partial sum each.
inline constexpr int kPartialSums = 8;
inline constexpr int kSquaresOfBlock = kMostThreads / kPartialSums;

/// Products in fp64 of numbers of fp32 are exact: whether they are fused makes no difference.
struct SumOfSquares {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SumOfSquaresParams& p) {
    auto* partial = reinterpret_cast<double*>(block.shared());
    block.each([&](int thread) {
      const std::int64_t place = block.x() * kSquaresOfBlock + thread / kPartialSums;
      if (place >= p.blocks) return;
      const float* x = p.x + place * static_cast<std::int64_t>(kUpdateBlock) + thread % kPartialSums;
      double sum = 0;
      constexpr int kAtOnce = 16;  // reads under way
      for (std::size_t i = 0; i < kUpdateBlock; i += kPartialSums * kAtOnce) {
        Numbers<kAtOnce> some;
        RONDO_UNROLL
        for (int k = 0; k < kAtOnce; ++k) some[k] = x[i + static_cast<std::size_t>(k * kPartialSums)];
        RONDO_UNROLL
        for (int k = 0; k < kAtOnce; ++k) sum += static_cast<double>(some[k]) * static_cast<double>(some[k]);
      }
      partial[thread] = sum;
    });
    block.each([&](int thread) {
      const std::int64_t place = block.x() * kSquaresOfBlock + thread;
      if (thread >= kSquaresOfBlock || place >= p.blocks) return;
      const double* s = partial + thread * kPartialSums;
      p.sums[place] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
    });
  }
};

/// Of the element behind the block's key by `index`.
RONDO_KERNEL std::uint32_t dither(std::uint32_t key, std::uint32_t index) {
  std::uint32_t r = key + index;
  r = (r ^ (r >> 16U)) * 0x7FEB352DU;
  return (r ^ (r >> 15U)) * 0x846CA68BU;
}

template <typename T>
RONDO_KERNEL std::uint16_t rounded_stochastically(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if constexpr (T::kIsBfloat) {
    const std::uint32_t narrow = magnitude > 0x7F800000U ? (bits >> 16U) | 0x40U : (bits + (random >> 16U)) >> 16U;
    return static_cast<std::uint16_t>(narrow);
  }
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U;
  } else if (magnitude > 0x477FEFFFU) {
    half = 0x7C00U;
  } else {
    const std::uint32_t dithering = random >> 19U;
    if (magnitude < 0x38800000U) {
      half = (static_cast<std::uint32_t>(float_of(magnitude) * 0x1p37F) + dithering) >> 13U;
    } else {
      half = (magnitude - 0x38000000U + dithering) >> 13U;
    }
    if (half > 0x7BFFU) half = 0x7BFFU;
  }
  return static_cast<std::uint16_t>(half | ((bits >> 31U) << 15U));
}

/// One product fused with one sum, as processors that update on the host do it.
RONDO_KERNEL float fused(float a, float b, float c) { return fmaf(a, b, c); }
/// Never fused.
RONDO_KERNEL float times(float a, float b) {
#ifdef __CUDACC__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

struct UpdateFactors {
  float gradient_factor, kept, rest1, beta2, rest2, epsilon, step_size, inverse_correction2;
};
static_assert(sizeof(UpdateFactors) == kUpdateFactors * sizeof(float));

/// T: what is published in; float where the masters are.
template <typename T>
struct AdamW {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AdamWParams& p) {
    constexpr std::int64_t kOfBlock = static_cast<std::int64_t>(kUpdateBlock) / kElementsOfBlock;
    const std::int32_t* owner = p.owners + 2 * (block.x() / kOfBlock);
    const UpdateFactors f = reinterpret_cast<const UpdateFactors*>(p.factors)[owner[0]];
    const std::uint32_t key = rounding_key(p.keys[owner[0]], static_cast<std::size_t>(owner[1]));
    const auto begin = static_cast<std::uint32_t>(block.x() % kOfBlock * kElementsOfBlock);
    block.each([&](int thread) {
      const std::uint32_t within = begin + static_cast<std::uint32_t>(thread * kVector);
      const std::int64_t first = block.x() * kElementsOfBlock + static_cast<std::int64_t>(thread) * kVector;
      auto gradient = load_vector<kVector>(p.gradient + first);
      auto master = load_vector<kVector>(p.master + first);
      auto m = load_vector<kVector>(p.first + first);
      auto v = load_vector<kVector>(p.second + first);
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) {
        const float g = times(gradient[i], f.gradient_factor);
        m[i] = fused(g - m[i], f.rest1, m[i]);
        v[i] = fused(times(g, g), f.rest2, times(v[i], f.beta2));
        const float denominator = fused(sqrtf(v[i]), f.inverse_correction2, f.epsilon);
        master[i] = fused(-f.step_size, m[i] / denominator, times(master[i], f.kept));
      }
      store_vector<kVector>(p.first + first, m);
      store_vector<kVector>(p.second + first, v);
      store_vector<kVector>(p.master + first, master);
      if constexpr (sizeof(T) == 2) {
        Vector16 narrow;
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) {
          narrow.bits[i] = rounded_stochastically<T>(master[i], dither(key, within + static_cast<std::uint32_t>(i)));
        }
        *reinterpret_cast<Vector16*>(static_cast<T*>(p.published) + first) = narrow;
      }
    });
  }

 private:
  struct alignas(16) Vector16 {
    std::uint16_t bits[kVector];
  };
};

}  // namespace rondo::devices::cuda
