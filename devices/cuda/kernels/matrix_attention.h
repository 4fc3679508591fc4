// Causal attention by the matrix units (sm_80 and later), for bf16 and fp16 and heads of 64 and 128: a block 64
// queries, a warp 16 of them, past which the keys go by tiles with a running maximum.
#pragma once

#include "matrix_tiles.h"

namespace rondo::devices::cuda {

/// A block kMatrixRows queries and a head.
template <typename T, int kHead>
struct MatrixAttention {
  using Tiles = MatrixTiles<T, kHead>;
  static constexpr int kColumns8 = kForwardKeys / 8;

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    auto* keys = reinterpret_cast<std::uint16_t*>(block.shared());
    auto* values = keys + kForwardKeys * Tiles::kStride;
    auto* first = reinterpret_cast<std::int32_t*>(values + kForwardKeys * Tiles::kStride);  // [kMatrixRows]
    const auto query = static_cast<std::int32_t>(block.x()) * kMatrixRows;
    const auto head = static_cast<std::int32_t>(block.y());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + kMatrixRows < real ? query + kMatrixRows : real;
    typename Block::template Own<Array<FragmentA, Tiles::kSteps>> queries;
    typename Block::template Own<Array<FragmentC, Tiles::kSlices>> sums;
    typename Block::template Own<Array<FragmentC, kColumns8>> scores;
    typename Block::template Own<Array<FragmentA, kParts>> three;
    typename Block::template Own<Array<float, 2>> maximum;
    typename Block::template Own<Array<float, 2>> largest;
    typename Block::template Own<Array<float, 2>> total;  // of a thread's own columns until the end
    block.each([&](int thread) {
      if (thread < kMatrixRows) {
        const std::int32_t token = query + thread;
        first[thread] = token < real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
      }
      Tiles::fetch(keys, p.q, p.heads, head, query, kMatrixRows, end, thread);
    });
    block.each([&](int thread) {
      RONDO_UNROLL
      for (int step = 0; step < Tiles::kSteps; ++step) {
        queries[thread][step] = Tiles::rows(keys, thread / kWarp * 16, step, thread);
      }
      RONDO_UNROLL
      for (int slice = 0; slice < Tiles::kSlices; ++slice) sums[thread][slice] = FragmentC{};
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        maximum[thread][i] = kLowest;
        total[thread][i] = 0;
      }
    });
    // First keys never fall from one query to the next: those of the first query come first of all.
    for (std::int32_t key = query < real ? first[0] : end; key < end; key += kForwardKeys) {
      block.each([&](int thread) {
        Tiles::fetch(keys, p.k, p.kv_heads, kv_head, key, kForwardKeys, end, thread);
        Tiles::fetch(values, p.v, p.kv_heads, kv_head, key, kForwardKeys, end, thread);
      });
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; ++n) {
        block.local([&](int thread) { scores[thread][n] = FragmentC{}; });
        RONDO_UNROLL
        for (int step = 0; step < Tiles::kSteps; ++step) {
          block.template multiply<Tiles::kBfloat>(
              [&](int thread) -> FragmentC& { return scores[thread][n]; },
              [&](int thread) -> FragmentA& { return queries[thread][step]; },
              [&](int thread) { return Tiles::columns(keys, 8 * n, step, thread); });
        }
      }
      block.local([&](int thread) { mask(p, first, query, key, thread, scores[thread], largest[thread]); });
      block.quad_max([&](int thread) -> float& { return largest[thread][0]; });
      block.quad_max([&](int thread) -> float& { return largest[thread][1]; });
      block.local(
          [&](int thread) { weigh(scores[thread], sums[thread], maximum[thread], largest[thread], total[thread]); });
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; n += 2) {
        block.local([&](int thread) { three[thread] = Tiles::parts(scores[thread][n], scores[thread][n + 1]); });
        Tiles::add_product(block, sums, three, values, 8 * n);
      }
      block.barrier();  // the tiles are fetched anew
    }
    block.quad_sum([&](int thread) -> float& { return total[thread][0]; });
    block.quad_sum([&](int thread) -> float& { return total[thread][1]; });
    block.local([&](int thread) {
      Tiles::put(p.o, p.heads, head, query, p.tokens, thread, sums[thread],
                 [&](int i) { return total[thread][i] > 0 ? 1.0F / total[thread][i] : 0.0F; });
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int64_t token = query + thread / kWarp * 16 + thread % kWarp / 4 + 8 * i;
        if (thread % 4 != 0 || token >= p.tokens) continue;
        p.lse[token * p.heads + head] = total[thread][i] > 0 ? maximum[thread][i] + logf(total[thread][i]) : 0.0F;
      }
    });
  }

 private:
  /// Scales the scores that are seen, takes the others out, and finds each row's largest among a thread's.
  RONDO_KERNEL static void mask(const AttentionParams& p, const std::int32_t* first, std::int32_t query,
                                std::int32_t key, int thread, Array<FragmentC, kColumns8>& scores,
                                Array<float, 2>& largest) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = thread / kWarp * 16 + thread % kWarp / 4 + 8 * i;
      largest[i] = kLowest;
      RONDO_UNROLL
      for (int n = 0; n < 2 * kColumns8; ++n) {
        const std::int32_t at = key + n / 2 * 8 + 2 * (thread % 4) + n % 2;
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = at >= first[row] && at <= query + row ? score * p.scale : kLowest;
        largest[i] = fmaxf(largest[i], score);
      }
    }
  }

  /// Scores become weights relative to the new maximum, sums so far are brought to it.
  RONDO_KERNEL static void weigh(Array<FragmentC, kColumns8>& scores, Array<FragmentC, Tiles::kSlices>& sums,
                                 Array<float, 2>& maximum, Array<float, 2>& largest, Array<float, 2>& total) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float now = fmaxf(maximum[i], largest[i]);
      const float correction = expf(maximum[i] - now);
      maximum[i] = now;
      float sum = 0;
      RONDO_UNROLL
      for (int n = 0; n < 2 * kColumns8; ++n) {
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = score > kLowest ? expf(score - now) : 0.0F;
        sum += score;
      }
      total[i] = total[i] * correction + sum;
      RONDO_UNROLL
      for (int slice = 0; slice < 2 * Tiles::kSlices; ++slice) {
        sums[slice / 2].x[2 * i + slice % 2] *= correction;
      }
    }
  }
};

// In the order that of_matrix() counts in.
using MatrixAttentionBf16x64 = MatrixAttention<Bf16, 64>;
using MatrixAttentionBf16x128 = MatrixAttention<Bf16, 128>;
using MatrixAttentionFp16x64 = MatrixAttention<Fp16, 64>;
using MatrixAttentionFp16x128 = MatrixAttention<Fp16, 128>;

}  // namespace rondo::devices::cuda
