// Encoded weights to numbers, see rondo/devices/encoding.h: a thread takes elements as elementwise.h gives them out,
// eights that lie in one block of codes.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

RONDO_KERNEL float rounded_sum(float a, float b) {
#ifdef __CUDACC__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

template <typename T>
struct ExpandInt8 {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ExpandInt8Params& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      const float scale = p.scales[first / kBlockElements];
      Numbers<kCount> y;
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) y[i] = rounded_product(static_cast<float>(p.codes[first + i]), scale);
      store_vector<kCount>(static_cast<T*>(p.y) + first, y);
    });
  }
};

/// Codes of four bits, kUpper the place of a byte's upper half: y = their values times scale_at(first element of some).
/// The lanes of a warp ask for different ones of the 16 values, which parameters serve one after the other.
template <typename T, int kUpper, typename Block, typename Params, typename ScaleAt>
RONDO_KERNEL void expand_nibbles(Block& block, const Params& p, const float* of_codes, const ScaleAt& scale_at) {
  auto* values = reinterpret_cast<float*>(block.shared());
  block.each([&](int thread) {
    if (thread < kNibbleCodes) values[thread] = of_codes[thread];
  });
  for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
    constexpr int kCount = decltype(vector)::kNumbers;
    const float scale = scale_at(first);
    Numbers<kCount> y;
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t pair = p.codes[(first + i) / 2];
      y[i] = rounded_product(values[(first + i) % 2 == kUpper ? pair >> 4U : pair & 15U], scale);
    }
    store_vector<kCount>(static_cast<T*>(p.y) + first, y);
  });
}

template <typename T>
struct ExpandNf4 {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ExpandNf4Params& p) {
    const float offset = *p.offset;
    expand_nibbles<T, 0>(block, p, p.values, [&](std::int64_t first) {
      const std::int64_t place = first / kBlockElements;
      const float scaled = rounded_product(p.map[p.block_codes[place]], p.block_scales[place / kBlocksOfScale]);
      return rounded_sum(scaled, offset);
    });
  }
};

template <typename T>
struct ExpandMxfp4 {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ExpandMxfp4Params& p) {
    expand_nibbles<T, 1>(block, p, p.doubled, [&](std::int64_t first) {
      const std::uint32_t scale = p.scales[first / kMxfp4Elements];
      return float_of(scale < 2 ? 0x00200000U << scale : (scale - 1) << 23U);  // half of a power of two
    });
  }
};

}  // namespace rondo::devices::cuda
