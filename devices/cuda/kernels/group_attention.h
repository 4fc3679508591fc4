// Causal attention by warpgroups (sm_90), for bf16 and fp16 and heads of 64 and 128: a block kGroupQueries queries,
// past which the keys go by tiles with a running maximum. Scores of the next tile and sums of the values of this one
// are on their way together; softmax of the next scores is computed while the latter are, as FlashAttention-3 does
// (arXiv 2407.08608, algorithm 2).
#pragma once

#include "group_products.h"

namespace rondo::devices::cuda {

inline constexpr int kGroupQueries = 128;  // of a block: two groups
inline constexpr int kGroupKeys = 128;     // of a tile
inline constexpr int kGroupThreads = 2 * kGroup;

/// Bytes of shared memory: queries, two tiles of keys and two of values.
constexpr int group_attention_shared(int head_dim) { return (kGroupQueries + 4 * kGroupKeys) * head_dim * 2; }

/// A block kGroupQueries queries and a head.
template <typename T, int kHead>
struct GroupAttention {
  using Products = GroupProducts<T, kHead>;
  using Tiles = MatrixTiles<T, kHead>;
  using Scores = Array<FragmentC, kGroupKeys / 8>;
  using Sums = Array<FragmentC, static_cast<std::size_t>(kHead / 8)>;
  using Weights = Array<FragmentA, kGroupKeys / 16>;

  /// What a thread knows of its two rows.
  struct Rows {
    std::int32_t from[2];  // the first key that each sees
    float maximum[2];      // of dot products so far
    float largest[2];      // of a tile's
    float total[2];        // of weights so far, of the thread's own columns until the end
    float correction[2];   // what sums so far are times, by the new maximum
  };

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    auto* const shared = reinterpret_cast<std::uint16_t*>(block.shared());
    const SharedRows queries{shared, kGroupQueries};
    const auto keys = [&](std::int32_t tile) {
      return SharedRows{shared + (kGroupQueries + tile % 2 * kGroupKeys) * kHead, kGroupKeys};
    };
    const auto values = [&](std::int32_t tile) {
      return SharedRows{shared + (kGroupQueries + (2 + tile % 2) * kGroupKeys) * kHead, kGroupKeys};
    };
    const std::int32_t query = first_row(block, p.tokens, kGroupQueries, false);
    const auto head = static_cast<std::int32_t>(block.x());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + kGroupQueries < real ? query + kGroupQueries : real;
    // First keys never fall from one query to the next: those of the first query come first of all.
    const std::int32_t first = query < real ? first_key(sequence_at(p.bounds, query), query, p.window) : end;
    const std::int32_t tiles = (end - first + kGroupKeys - 1) / kGroupKeys;
    typename Block::template Own<Sums> sums;
    typename Block::template Own<Scores> scores;
    typename Block::template Own<Weights> weights;
    typename Block::template Own<Rows> rows;
    typename Block::template Own<typename Products::Rows> own_queries;
    const auto fetch_keys = [&](std::int32_t tile) {
      block.local([&](int thread) {
        fetch_rows<kHead, kGroupThreads, kGroupKeys>(keys(tile).at, p.k, p.kv_heads, kv_head, first + tile * kGroupKeys,
                                                     end, thread);
      });
    };
    const auto fetch_values = [&](std::int32_t tile) {
      block.local([&](int thread) {
        fetch_rows<kHead, kGroupThreads, kGroupKeys>(values(tile).at, p.v, p.kv_heads, kv_head,
                                                     first + tile * kGroupKeys, end, thread);
      });
    };
    block.local([&](int thread) { begin(p, query, real, thread, sums[thread], rows[thread]); });
    if (tiles > 0) {
      block.local([&](int thread) {
        fetch_rows<kHead, kGroupThreads, kGroupQueries>(queries.at, p.q, p.heads, head, query, end, thread);
      });
      fetch_keys(0);
      block.wait_shared([] {});
      block.local([&](int thread) { Products::load_rows(own_queries[thread], queries, thread); });
      Products::begin_dots(block, scores, own_queries, keys(0));
      if (tiles > 1) fetch_keys(1);
      fetch_values(0);
      Products::template wait<0>();
      Products::hold(scores);
      soften<true>(block, p, query, first, scores, rows);
    }
    // Where every query of the block sees every key of a tile nothing is masked. No branch lies between the products
    // and what is computed meanwhile: the compiler would wait for them there.
    const std::int32_t last = query + kGroupQueries - 1;
    const std::int32_t seen_from = last < real ? first_key(sequence_at(p.bounds, last), last, p.window) : kNoKey;
    const auto go_on = [&]<bool kMasked>(std::int32_t tile) {
      block.local([&](int thread) { narrow(scores[thread], weights[thread]); });
      Products::begin_dots(block, scores, own_queries, keys(tile + 1));
      if (tile + 2 < tiles) fetch_keys(tile + 2);
      fetch_values(tile + 1);
      block.local([&](int thread) { correct(rows[thread], sums[thread]); });
      Products::begin_sums(block, sums, weights, values(tile));
      Products::template wait<1>();
      Products::hold(scores);
      soften<kMasked>(block, p, query, first + (tile + 1) * kGroupKeys, scores, rows);
    };
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      // Keys of the next tile and values of this are there, all are through with those before.
      Products::hold(scores);
      block.wait_shared([] { Products::template wait<0>(); });
      Products::hold(sums);
      const std::int32_t next = first + (tile + 1) * kGroupKeys;
      if (tile + 1 == tiles) {
        block.local([&](int thread) {
          narrow(scores[thread], weights[thread]);
          correct(rows[thread], sums[thread]);
        });
        Products::begin_sums(block, sums, weights, values(tile));
        Products::template wait<0>();
        Products::hold(sums);
      } else if (next >= seen_from && next + kGroupKeys - 1 <= query) {
        go_on.template operator()<false>(tile);
      } else {
        go_on.template operator()<true>(tile);
      }
    }
    block.quad_sum([&](int thread) -> float& { return rows[thread].total[0]; });
    block.quad_sum([&](int thread) -> float& { return rows[thread].total[1]; });
    block.local([&](int thread) { put(p, query, head, thread, sums[thread], rows[thread]); });
  }

 private:
  RONDO_KERNEL static void begin(const AttentionParams& p, std::int32_t query, std::int32_t real, int thread,
                                 Sums& sums, Rows& rows) {
    RONDO_UNROLL
    for (int slice = 0; slice < kHead / 8; ++slice) sums[slice] = FragmentC{};
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int32_t token = query + Products::row_of(thread, 2 * i);
      rows.from[i] = token < real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
      rows.maximum[i] = -INFINITY;
      rows.total[i] = 0;
    }
  }

  /// Dot products with the keys from `key` on become weights 2^(factor (dot product - maximum)) by the new maximum.
  template <bool kMasked, typename Block, typename OwnScores, typename OwnRows>
  RONDO_KERNEL static void soften(Block& block, const AttentionParams& p, std::int32_t query, std::int32_t key,
                                  OwnScores& scores, OwnRows& rows) {
    block.local([&](int thread) {
      if constexpr (kMasked) {
        mask(query + Products::row_of(thread, 0), key, thread, scores[thread], rows[thread]);
      }
      find_largest(scores[thread], rows[thread]);
    });
    block.quad_max([&](int thread) -> float& { return rows[thread].largest[0]; });
    block.quad_max([&](int thread) -> float& { return rows[thread].largest[1]; });
    block.local([&](int thread) { weigh(p.scale * kLog2E, scores[thread], rows[thread]); });
  }

  RONDO_KERNEL static void mask(std::int32_t token, std::int32_t key, int thread, Scores& scores, const Rows& rows) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      RONDO_UNROLL
      for (int n = 0; n < kGroupKeys / 4; ++n) {
        const std::int32_t at = key + n / 2 * 8 + 2 * (thread % 4) + n % 2;
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = at >= rows.from[i] && at <= token + 8 * i ? score : -INFINITY;
      }
    }
  }

  RONDO_KERNEL static void find_largest(Scores& scores, Rows& rows) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      rows.largest[i] = -INFINITY;
      RONDO_UNROLL
      for (int n = 0; n < kGroupKeys / 4; ++n) {
        rows.largest[i] = fmaxf(rows.largest[i], scores[n / 2].x[2 * i + n % 2]);
      }
    }
  }

  RONDO_KERNEL static void weigh(float factor, Scores& scores, Rows& rows) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float now = fmaxf(rows.maximum[i], rows.largest[i]);
      const float from = now == -INFINITY ? 0.0F : now * factor;  // nothing is seen so far: all weights are 0
      rows.correction[i] = power_of_two(rows.maximum[i] * factor - from);
      rows.maximum[i] = now;
      float sum = 0;
      RONDO_UNROLL
      for (int n = 0; n < kGroupKeys / 4; ++n) {
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = power_of_two(score * factor - from);
        sum += score;
      }
      rows.total[i] = rows.total[i] * rows.correction[i] + sum;
    }
  }

  RONDO_KERNEL static void correct(Rows& rows, Sums& sums) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      RONDO_UNROLL
      for (int slice = 0; slice < kHead / 4; ++slice) sums[slice / 2].x[2 * i + slice % 2] *= rows.correction[i];
    }
  }

  RONDO_KERNEL static void narrow(Scores& scores, Weights& weights) {
    RONDO_UNROLL
    for (int n = 0; n < kGroupKeys / 16; ++n) weights[n] = Tiles::narrowed(scores[2 * n], scores[2 * n + 1]);
  }

  RONDO_KERNEL static void put(const AttentionParams& p, std::int32_t query, std::int32_t head, int thread, Sums& sums,
                               Rows& rows) {
    Tiles::put(p, p.o, p.heads, head, query, thread, sums,
               [&](int i) { return rows.total[i] > 0 ? 1.0F / rows.total[i] : 0.0F; });
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t token = query + Products::row_of(thread, 2 * i);
      if (thread % 4 != 0 || token >= p.tokens) continue;
      p.lse[token * p.heads + head] = rows.total[i] > 0 ? rows.maximum[i] * p.scale + logf(rows.total[i]) : 0.0F;
    }
  }
};

// In the order that of_matrix() counts in.
using GroupAttentionBf16x64 = GroupAttention<Bf16, 64>;
using GroupAttentionBf16x128 = GroupAttention<Bf16, 128>;
using GroupAttentionFp16x64 = GroupAttention<Fp16, 64>;
using GroupAttentionFp16x128 = GroupAttention<Fp16, 128>;

}  // namespace rondo::devices::cuda
