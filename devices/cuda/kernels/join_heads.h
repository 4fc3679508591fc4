// Heads put together from parts, and the parts' gradients: a thread takes eight elements in a row.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

/// Runs body(Vector, i) for elements first ... of a vector of `kCount`: at once where rows are made of eights.
template <int kCount, typename Body>
RONDO_KERNEL void for_channels(bool of_eights, std::int64_t first, Body body) {
  if (of_eights) {
    body(Vector<kCount>{}, first);
  } else {
    for (int i = 0; i < kCount; ++i) body(Vector<1>{}, first + i);
  }
}

template <typename T>
struct JoinHeads {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const JoinHeadsParams& p) {
    const bool of_eights = (p.width | p.a_width | p.b_width) % kVector == 0;
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      for_channels<decltype(vector)::kNumbers>(of_eights, first, [&](auto some, std::int64_t i) {
        constexpr int kCount = decltype(some)::kNumbers;
        const std::int64_t row = i / p.width;  // of a token and head
        const std::int64_t column = i % p.width;
        Numbers<kCount> x{};
        if (column < p.a_width) {
          const std::int64_t from = p.a_heads == 1 ? row / p.heads : row;
          x = load_vector<kCount>(static_cast<const T*>(p.a) + from * p.a_width + column);
        } else if (column - p.a_width < p.b_width) {
          const std::int64_t from = p.b_heads == 1 ? row / p.heads : row;
          x = load_vector<kCount>(static_cast<const T*>(p.b) + from * p.b_width + column - p.a_width);
        }
        store_vector<kCount>(static_cast<T*>(p.y) + i, x);
      });
    });
  }
};

template <typename T>
struct HeadPart {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const HeadPartParams& p) {
    const bool of_eights = (p.width | p.x_width | p.first) % kVector == 0;
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      for_channels<decltype(vector)::kNumbers>(of_eights, first, [&](auto some, std::int64_t i) {
        constexpr int kCount = decltype(some)::kNumbers;
        const std::int64_t column = p.first + i % p.x_width;
        const T* const from = static_cast<const T*>(p.dy) + i / p.x_width * p.shared * p.width + column;
        Numbers<kCount> sum{};
        if (column < p.width) {
          add_in_order<4>(sum, p.shared, [&](std::int64_t h) { return load_vector<kCount>(from + h * p.width); });
        }
        store_vector<kCount>(static_cast<T*>(p.dx) + i, sum);
      });
    });
  }
};

}  // namespace rondo::devices::cuda
