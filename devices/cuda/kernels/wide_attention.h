// Causal attention by the matrix units for heads that wide_tiles.h is for: a block wide_rows()
// queries, past which the keys go by tiles with a running maximum. Warps that share queries hand each other their
// scores in fp32; each makes weights of all of them and adds up the values' channels of its part.
#pragma once

#include "running_softmax.h"
#include "wide_tiles.h"

namespace rondo::devices::cuda {

/// Whether keys and values come one after the other to the same place: two tiles of them have no room.
constexpr bool wide_in_turns(int head) { return head > 256; }

/// Bytes of shared memory: queries, keys, values, scores that are handed over, the first key of each query.
constexpr int wide_forward_shared(int head) {
  const int tiles = wide_rows(head) + (wide_in_turns(head) ? 1 : 2) * kWideKeys;
  const int scores = wide_parts(head) > 1 ? wide_rows(head) * (kWideKeys + 8) * 4 : 0;
  return tiles * head * 2 + scores + wide_rows(head) * 4;
}
static_assert(wide_forward_shared(128) <= kMostWideShared && wide_forward_shared(256) <= kMostWideShared &&
              wide_forward_shared(512) <= kMostWideShared);

/// A block wide_rows(kHead) queries and a head.
template <typename T, int kHead>
struct WideAttention {
  using Tiles = WideTiles<T, kHead>;
  using Sums = typename Tiles::Sums;
  static constexpr int kColumns8 = kWideKeys / 8;
  static constexpr int kOwn8 = kColumns8 / Tiles::kParts;  // of them a warp's own
  static constexpr int kScores = kWideKeys + 8;            // numbers from row to row: lanes meet different banks
  static constexpr bool kInTurns = wide_in_turns(kHead);
  using Softmax = RunningSoftmax<kColumns8, Tiles::kSlices>;
  using Scores = typename Softmax::Scores;

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    auto* queries = reinterpret_cast<std::uint16_t*>(block.shared());
    auto* keys = queries + Tiles::kRows * kHead;
    auto* values = kInTurns ? keys : keys + kWideKeys * kHead;
    auto* handed = reinterpret_cast<float*>(values + kWideKeys * kHead);  // [kRows, kScores]
    auto* first =                                                         // [kRows]
        reinterpret_cast<std::int32_t*>(Tiles::kParts > 1 ? handed + Tiles::kRows * kScores : handed);
    const std::int32_t query = first_row(block, p.tokens, Tiles::kRows, false);
    const auto head = static_cast<std::int32_t>(block.x());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + Tiles::kRows < real ? query + Tiles::kRows : real;
    typename Block::template Own<Sums> sums;
    typename Block::template Own<Scores> scores;
    typename Block::template Own<FragmentA> weights;
    typename Block::template Own<typename Softmax::Rows> rows;
    block.each([&](int thread) {
      Softmax::begin(rows[thread], sums[thread]);
      Tiles::fetch(p, queries, p.q, p.heads, head, query, Tiles::kRows, end, thread);
      if (thread >= Tiles::kRows) return;
      const std::int32_t token = query + thread;
      first[thread] = token < real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
    });
    const auto fetch = [&](std::uint16_t* to, const void* from, std::int32_t key) {
      block.local([&](int thread) { Tiles::fetch(p, to, from, p.kv_heads, kv_head, key, kWideKeys, end, thread); });
    };
    // First keys never fall from one query to the next: those of the first query come first of all. Where there is room
    // values are on their way while scores are computed, the next keys while values are added up.
    std::int32_t key = query < real ? first[0] : end;
    if (key < end) fetch(keys, p.k, key);
    while (key < end) {
      block.wait_copies();  // and all are through with the values before
      if (!kInTurns) fetch(values, p.v, key);
      find_scores(block, queries, keys, handed, scores);
      block.wait_copies();  // and all are through with the keys
      const std::int32_t next = key + kWideKeys;
      if (kInTurns) {
        fetch(values, p.v, key);
      } else if (next < end) {
        fetch(keys, p.k, next);
      }
      take_scores(block, handed, scores);
      // Whether every query sees every key of the tile; padding sees none.
      const bool whole = next - 1 <= query && first[Tiles::kRows - 1] <= key;
      Softmax::advance(block, p, p.cap > 0, first, query, key, whole, scores, sums, rows,
                       [](int thread) { return Tiles::row_of(thread) + thread % kWarp / 4; });
      if (kInTurns) block.wait_copies();
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; n += 2) {
        block.local([&](int thread) { weights[thread] = Tiles::narrowed(scores[thread][n], scores[thread][n + 1]); });
        Tiles::add_product(block, sums, weights, values, 8 * n);
      }
      key = next;
      if (kInTurns && key < end) {
        block.barrier();  // all are through with the values
        fetch(keys, p.k, key);
      }
    }
    Softmax::finish(block, rows);
    block.wait_copies();  // queries that see nothing have been fetched too
    block.local([&](int thread) { put(p, query, head, thread, sums[thread], rows[thread]); });
  }

 private:
  /// A warp's own columns, to the others where there are any.
  template <typename Block, typename OwnScores>
  RONDO_KERNEL static void find_scores(Block& block, const std::uint16_t* queries, const std::uint16_t* keys,
                                       float* handed, OwnScores& scores) {
    if constexpr (Tiles::kParts == 1) {
      Tiles::template find_scores<kColumns8>(block, scores, queries, keys, [](int) { return 0; });
    } else {
      typename Block::template Own<Array<FragmentC, static_cast<std::size_t>(kOwn8)>> own;
      const auto column = [](int thread) { return Tiles::part_of(thread) * 8 * kOwn8; };
      Tiles::template find_scores<kOwn8>(block, own, queries, keys, column);
      block.local([&](int thread) {
        RONDO_UNROLL
        for (int n = 0; n < kOwn8; ++n) {
          RONDO_UNROLL
          for (int i = 0; i < 2; ++i) {
            float* const to = handed_at(handed, i, column(thread) + 8 * n, thread);
            to[0] = own[thread][n].x[2 * i];
            to[1] = own[thread][n].x[2 * i + 1];
          }
        }
      });
    }
  }

  /// All columns.
  template <typename Block, typename OwnScores>
  RONDO_KERNEL static void take_scores(Block& block, float* handed, OwnScores& scores) {
    if constexpr (Tiles::kParts > 1) {
      block.local([&](int thread) {
        RONDO_UNROLL
        for (int n = 0; n < kColumns8; ++n) {
          RONDO_UNROLL
          for (int i = 0; i < 2; ++i) {
            const float* const from = handed_at(handed, i, 8 * n, thread);
            scores[thread][n].x[2 * i] = from[0];
            scores[thread][n].x[2 * i + 1] = from[1];
          }
        }
      });
    }
  }

  /// A thread's two numbers of row g + 8 i of its warp's and the eight columns from `column` on.
  RONDO_KERNEL static float* handed_at(float* handed, int i, int column, int thread) {
    const int row = Tiles::row_of(thread) + thread % kWarp / 4 + 8 * i;
    return handed + row * kScores + column + 2 * (thread % 4);
  }

  RONDO_KERNEL static void put(const AttentionParams& p, std::int32_t query, std::int32_t head, int thread, Sums& sums,
                               typename Softmax::Rows& rows) {
    Tiles::put(p, p.o, p.heads, head, query, thread, sums, [&](int i) { return Softmax::inverse(rows, i); });
    if (Tiles::part_of(thread) != 0 || thread % 4 != 0) return;
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t token = query + Tiles::row_of(thread) + thread % kWarp / 4 + 8 * i;
      if (token >= p.tokens) continue;
      p.lse[token * p.heads + head] = Softmax::lse(rows, i);
    }
  }
};

// In the order that of_wide() counts in.
using WideAttentionBf16x128 = WideAttention<Bf16, 128>;
using WideAttentionBf16x256 = WideAttention<Bf16, 256>;
using WideAttentionBf16x512 = WideAttention<Bf16, 512>;
using WideAttentionFp16x128 = WideAttention<Fp16, 128>;
using WideAttentionFp16x256 = WideAttention<Fp16, 256>;
using WideAttentionFp16x512 = WideAttention<Fp16, 512>;

}  // namespace rondo::devices::cuda
