// Attention of a few new tokens to a cache of keys and values: generation.
#pragma once

#include "params.h"
#include "sequences.h"

namespace rondo::devices::cuda {

inline constexpr int kCachedThreads = 128;  // keys at a time
inline constexpr int kCachedShared = 4 * (kMostHeadDim + kCachedThreads);

/// Puts the new keys and values at their positions; a block a token.
template <typename T>
struct CachePut {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CachedAttentionParams& p) {
    if (block.x() >= real_tokens(p.bounds)) return;
    const std::int64_t width = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
    const std::int64_t from = block.x() * width;
    const std::int64_t to = p.positions[block.x()] * width;
    block.each([&](int thread) {
      for (std::int64_t i = thread; i < width; i += block.threads()) {
        static_cast<T*>(p.k_cache)[to + i] = static_cast<const T*>(p.k)[from + i];
        static_cast<T*>(p.v_cache)[to + i] = static_cast<const T*>(p.v)[from + i];
      }
    });
  }
};

/// A block a token and a head: kCachedThreads keys at a time, a thread a key for the scores and a channel for the sums.
template <typename T>
struct CachedAttention {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CachedAttentionParams& p) {
    auto* query = reinterpret_cast<float*>(block.shared());  // [kMostHeadDim]
    float* weights = query + kMostHeadDim;                   // [kCachedThreads]
    const std::int64_t query_row = block.x() * p.heads + block.y();
    const std::int64_t row = query_row * p.head_dim;
    if (block.x() >= real_tokens(p.bounds)) {
      block.each([&](int thread) {
        if (thread == 0) p.lse[query_row] = 0;
        for (int d = thread; d < p.head_dim; d += block.threads()) store(static_cast<T*>(p.o) + row + d, 0.0F);
      });
      return;
    }
    const std::int64_t kv_width = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
    const std::int64_t kv_head = block.y() / (p.heads / p.kv_heads) * p.head_dim;
    const std::int32_t last = p.positions[block.x()];
    const std::int32_t from = p.window > 0 && last - p.window + 1 > 0 ? last - p.window + 1 : 0;
    typename Block::template Own<Array<float, kMostHeadDim / kCachedThreads>> sums;
    typename Block::template Own<float> score;
    typename Block::template Own<float> weight;
    float maximum = -3.0e38F;
    float total = 0;
    block.each([&](int thread) {
      for (int i = 0; i < kMostHeadDim / kCachedThreads; ++i) sums[thread][i] = 0;
      for (int d = thread; d < p.head_dim; d += block.threads()) query[d] = load(static_cast<const T*>(p.q) + row + d);
    });
    for (std::int32_t key = from; key <= last; key += kCachedThreads) {
      block.each([&](int thread) {
        score[thread] = -3.0e38F;
        if (key + thread > last) return;
        const T* k = static_cast<const T*>(p.k_cache) + (key + thread) * kv_width + kv_head;
        float sum = 0;
        for (int d = 0; d < p.head_dim; ++d) sum += query[d] * load(k + d);
        score[thread] = p.cap > 0 ? p.cap * tanhf(sum * p.scale / p.cap) : sum * p.scale;
      });
      const float largest = fmaxf(maximum, block.max(score));
      block.each([&](int thread) {
        weight[thread] = key + thread > last ? 0.0F : expf(score[thread] - largest);
        weights[thread] = weight[thread];
      });
      const float correction = expf(maximum - largest);
      total = total * correction + block.sum(weight);
      maximum = largest;
      const std::int32_t count = last - key + 1 < kCachedThreads ? last - key + 1 : kCachedThreads;
      block.each([&](int thread) {
        RONDO_UNROLL
        for (int i = 0; i < kMostHeadDim / kCachedThreads; ++i) {
          const int d = thread + i * kCachedThreads;
          if (d >= p.head_dim) continue;
          const T* v = static_cast<const T*>(p.v_cache) + key * kv_width + kv_head + d;
          float sum = sums[thread][i] * correction;
          for (std::int32_t j = 0; j < count; ++j) sum += weights[j] * load(v + j * kv_width);
          sums[thread][i] = sum;
        }
      });
    }
    block.each([&](int thread) {
      if (thread == 0) p.lse[query_row] = maximum + logf(total);
      RONDO_UNROLL
      for (int i = 0; i < kMostHeadDim / kCachedThreads; ++i) {
        const int d = thread + i * kCachedThreads;
        if (d < p.head_dim) store(static_cast<T*>(p.o) + row + d, sums[thread][i] / total);
      }
    });
  }
};

}  // namespace rondo::devices::cuda
