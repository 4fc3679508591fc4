// Causal attention by the matrix units, for bf16 and fp16 and heads of 64 and 128: a block 64
// queries, a warp 16 of them, past which the keys go by tiles with a running maximum. Scores may be capped.
#pragma once

#include "matrix_tiles.h"
#include "running_softmax.h"

namespace rondo::devices::cuda {

/// A block kMatrixRows queries and a head.
template <typename T, int kHead, bool kCapped = false>
struct MatrixAttention {
  using Tiles = MatrixTiles<T, kHead>;
  static constexpr int kColumns8 = kForwardKeys / 8;
  using Softmax = RunningSoftmax<kColumns8, Tiles::kSlices>;

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    auto* keys = reinterpret_cast<std::uint16_t*>(block.shared());
    auto* values = keys + kForwardKeys * Tiles::kStride;
    auto* first = reinterpret_cast<std::int32_t*>(values + kForwardKeys * Tiles::kStride);  // [kMatrixRows]
    const std::int32_t query = first_row(block, p.tokens, kMatrixRows, false);
    const auto head = static_cast<std::int32_t>(block.x());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + kMatrixRows < real ? query + kMatrixRows : real;
    typename Block::template Own<Array<FragmentA, Tiles::kSteps>> queries;
    typename Block::template Own<Array<FragmentC, Tiles::kSlices>> sums;
    typename Block::template Own<Array<FragmentC, kColumns8>> scores;
    typename Block::template Own<typename Tiles::Neighbours> b;
    typename Block::template Own<FragmentA> weights;
    typename Block::template Own<typename Softmax::Rows> rows;
    block.local([&](int thread) {
      if (thread < kMatrixRows) {
        const std::int32_t token = query + thread;
        first[thread] = token < real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
      }
      Tiles::fetch(p, keys, p.q, p.heads, head, query, kMatrixRows, end, thread);
    });
    block.wait_copies();
    block.each([&](int thread) {
      RONDO_UNROLL
      for (int step = 0; step < Tiles::kSteps; ++step) {
        queries[thread][step] = Tiles::rows(keys, thread / kWarp * 16, step, thread);
      }
      Softmax::begin(rows[thread], sums[thread]);
    });
    // First keys never fall from one query to the next: those of the first query come first of all. Values are on their
    // way while scores are computed, the next keys while values are added up.
    std::int32_t key = query < real ? first[0] : end;
    const auto fetch_keys = [&](int thread) {
      Tiles::fetch(p, keys, p.k, p.kv_heads, kv_head, key, kForwardKeys, end, thread);
    };
    if (key < end) block.local(fetch_keys);
    while (key < end) {
      block.wait_copies();  // and all are through with the values before
      block.local(
          [&](int thread) { Tiles::fetch(p, values, p.v, p.kv_heads, kv_head, key, kForwardKeys, end, thread); });
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; ++n) {
        block.local([&](int thread) { scores[thread][n] = FragmentC{}; });
        RONDO_UNROLL
        for (int step = 0; step < Tiles::kSteps; step += 2) {
          block.local([&](int thread) { b[thread] = Tiles::columns(keys, 8 * n, step, thread); });
          RONDO_UNROLL
          for (int next = 0; next < 2; ++next) {
            block.template multiply<Tiles::kBfloat>(
                [&](int thread) -> FragmentC& { return scores[thread][n]; },
                [&](int thread) -> FragmentA& { return queries[thread][step + next]; },
                [&](int thread) -> FragmentB& { return b[thread][next]; });
          }
        }
      }
      // Whether every query sees every key of the tile; padding sees none.
      const bool whole = key + kForwardKeys - 1 <= query && first[kMatrixRows - 1] <= key;
      Softmax::advance(block, p, kCapped, first, query, key, whole, scores, sums, rows,
                       [](int thread) { return thread / kWarp * 16 + thread % kWarp / 4; });
      block.wait_copies();  // and all are through with the keys
      key += kForwardKeys;
      if (key < end) block.local(fetch_keys);
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; n += 2) {
        block.local([&](int thread) { weights[thread] = Tiles::narrowed(scores[thread][n], scores[thread][n + 1]); });
        Tiles::add_product(block, sums, weights, values, 8 * n);
      }
    }
    Softmax::finish(block, rows);
    block.local([&](int thread) {
      Tiles::put(p, p.o, p.heads, head, query, thread, sums[thread],
                 [&](int i) { return Softmax::inverse(rows[thread], i); });
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int64_t token = query + thread / kWarp * 16 + thread % kWarp / 4 + 8 * i;
        if (thread % 4 != 0 || token >= p.tokens) continue;
        p.lse[token * p.heads + head] = Softmax::lse(rows[thread], i);
      }
    });
  }
};

// In the order that of_matrix() counts in.
using MatrixAttentionBf16x64 = MatrixAttention<Bf16, 64>;
using MatrixAttentionBf16x128 = MatrixAttention<Bf16, 128>;
using MatrixAttentionFp16x64 = MatrixAttention<Fp16, 64>;
using MatrixAttentionFp16x128 = MatrixAttention<Fp16, 128>;
using CappedAttentionBf16x64 = MatrixAttention<Bf16, 64, true>;
using CappedAttentionBf16x128 = MatrixAttention<Bf16, 128, true>;
using CappedAttentionFp16x64 = MatrixAttention<Fp16, 64, true>;
using CappedAttentionFp16x128 = MatrixAttention<Fp16, 128, true>;

}  // namespace rondo::devices::cuda
