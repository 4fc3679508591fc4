// Sinks behind attention: one more score of each query, whose value is zero.
#pragma once

#include "attention.h"

namespace rondo::devices::cuda {

/// Tokens whose terms are summed before they are added to the sinks' gradient.
inline constexpr int kSinkChunk = 512;

/// A block kDeltaRows queries, four threads each.
template <typename T>
struct AttentionSink {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionSinkParams& p) {
    block.local([&](int thread) {
      const std::int64_t row = block.x() * kDeltaRows + thread / 4;
      if (row >= static_cast<std::int64_t>(p.tokens) * p.heads) return;
      const float sink = load(static_cast<const T*>(p.sinks) + row % p.heads);
      const float lse = p.lse[row];
      const float lesser = expf(-fabsf(sink - lse));  // of the two exponentials, relative to the greater one
      const float share = (sink > lse ? lesser : 1.0F) / (1.0F + lesser);
      if (thread % 4 == 0) p.total[row] = fmaxf(sink, lse) + log1pf(lesser);
      for_row(p.head_dim, thread % 4, 4, [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(static_cast<const T*>(p.o) + row * p.head_dim + d);
        scale_vector(some, share);
        store_vector<kCount>(static_cast<T*>(p.y) + row * p.head_dim + d, some);
      });
    });
  }
};

/// A block a head and a chunk of tokens, kDeltaRows of them at a time; ColumnTotals adds the chunks up. Without lse and
/// sinks: the gradient of scales of heads, o being what they scale.
template <typename T>
struct AttentionSinkGradient {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionSinkParams& p) {
    const std::int64_t head = block.x();
    const std::int64_t begin = block.y() * kSinkChunk;
    const std::int64_t end = begin + kSinkChunk < p.tokens ? begin + kSinkChunk : p.tokens;
    const float sink = p.sinks == nullptr ? 0.0F : load(static_cast<const T*>(p.sinks) + head);
    typename Block::template Own<float> sums;
    block.local([&](int thread) {
      sums[thread] = 0;
      for (std::int64_t token = begin + thread / 4; token < end; token += kDeltaRows) {
        const std::int64_t row = token * p.heads + head;
        const T* const d_o = static_cast<const T*>(p.d_o) + row * p.head_dim;
        const T* const o = static_cast<const T*>(p.o) + row * p.head_dim;
        const float factor = p.lse == nullptr ? -1.0F : expf(sink - p.lse[row]);
        sums[thread] -= factor * part_of_dot(d_o, o, p.head_dim, thread % 4, 4);
      }
    });
    const float sum = block.sum(sums);
    block.local([&](int thread) {
      if (thread == 0) p.partial[block.y() * p.heads + head] = sum;
    });
  }
};

}  // namespace rondo::devices::cuda
