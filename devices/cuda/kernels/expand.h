// Encoded weights to numbers, see rondo/devices/encoding.h: a thread takes elements as elementwise.h gives them out. So
// a warp's elements lie in one block, and what they share is read once for all.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

/// Rounded by itself: the compiler may fuse a plain product with the sum behind it, and the result would be another.
RONDO_KERNEL float rounded_product(float a, float b) {
#ifdef __CUDACC__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
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
    for_elements(block, p.elements, [&](std::int64_t i) {
      store(static_cast<T*>(p.y) + i, rounded_product(static_cast<float>(p.codes[i]), p.scales[i / kBlockElements]));
    });
  }
};

template <typename T>
struct ExpandNf4 {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ExpandNf4Params& p) {
    // The lanes of a warp ask for different ones of the 16 values, which parameters serve one after the other.
    auto* values = reinterpret_cast<float*>(block.shared());
    block.each([&](int thread) {
      if (thread < kNf4Codes) values[thread] = p.values[thread];
    });
    const float offset = *p.offset;
    for_elements(block, p.elements, [&](std::int64_t i) {
      const std::int64_t place = i / kBlockElements;
      const float scaled = rounded_product(p.map[p.block_codes[place]], p.block_scales[place / kBlocksOfScale]);
      const std::uint32_t pair = p.codes[i / 2];
      const std::uint32_t code = i % 2 == 0 ? pair >> 4U : pair & 15U;
      store(static_cast<T*>(p.y) + i, rounded_product(values[code], rounded_sum(scaled, offset)));
    });
  }
};

}  // namespace rondo::devices::cuda
