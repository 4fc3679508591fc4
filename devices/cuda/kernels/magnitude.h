// DoRA: the lengths of the rows of W + alpha B A, a block a row, and the scaling of a product's columns.
#pragma once

#include "elementwise.h"

namespace rondo::devices::cuda {

template <typename T>
struct Magnitude {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const MagnitudeParams& p) {
    const T* w = static_cast<const T*>(p.w) + block.x() * p.width;
    const T* a = static_cast<const T*>(p.a);
    const T* b = static_cast<const T*>(p.b) + block.x() * p.rank;
    typename Block::template Own<float> squares;
    block.each([&](int thread) {
      float sum = 0;
      for (std::int64_t d = thread; d < p.width; d += block.threads()) {
        float low = 0;
        for (std::int64_t r = 0; r < p.rank; ++r) low += load(b + r) * load(a + r * p.width + d);
        const float value = load(w + d) + p.alpha * low;
        sum += value * value;
      }
      squares[thread] = sum;
    });
    const float norm = sqrtf(block.sum(squares));
    block.each([&](int thread) {
      if (thread != 0) return;
      p.scale[block.x()] = norm == 0.0F ? 0.0F : p.m[block.x()] / norm;
      p.inverse[block.x()] = norm == 0.0F ? 0.0F : 1.0F / norm;
    });
  }
};

template <typename T>
struct ColumnScale {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ColumnScaleParams& p) {
    for_elements(block, p.elements, [&](auto vector, std::int64_t first) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto y = load_vector<kCount>(static_cast<const T*>(p.x) + first);
      RowColumn at(first, p.columns);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        y[i] *= p.scale[p.each == 1 ? at.column : at.column / p.each];
        if (p.bias != nullptr) y[i] += load(static_cast<const T*>(p.bias) + at.column);
        at.next();
      }
      if (p.addend != nullptr) {
        auto addend = load_vector<kCount>(static_cast<const T*>(p.addend) + first);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) y[i] += addend[i];
      }
      store_vector<kCount>(static_cast<T*>(p.y) + first, y);
    });
  }
};

}  // namespace rondo::devices::cuda
