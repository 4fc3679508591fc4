// The softmax of attention's scores by tiles of keys, of what a thread holds of them: fragments of C, of the rows g and
// g + 8 of its warp's 16. What a row's weights are relative to is the largest score so far, to the base of two.
#pragma once

#include "matrix_tiles.h"

namespace rondo::devices::cuda {

/// kColumns8: keys of a tile, in eights. kSlices: columns of the sums, in eights.
template <int kColumns8, int kSlices>
struct RunningSoftmax {
  using Scores = Array<FragmentC, static_cast<std::size_t>(kColumns8)>;
  using Sums = Array<FragmentC, static_cast<std::size_t>(kSlices)>;

  /// What a thread knows of its two rows.
  struct Rows {
    Array<float, 2> maximum;  // of scores so far
    Array<float, 2> largest;  // of a tile's
    Array<float, 2> total;    // of weights so far, of the thread's own columns until finish()
  };

  RONDO_KERNEL static void begin(Rows& rows, Sums& sums) {
    RONDO_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) sums[slice] = FragmentC{};
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      rows.maximum[i] = -INFINITY;
      rows.total[i] = 0;
    }
  }

  /// Dot products of the queries from `query` on, whose first keys are `first`, with the keys from `key` on become
  /// weights by the new maximum, to which the sums so far are brought. `whole`: every query sees every key.
  /// row_of(thread): a thread's first row.
  template <typename Block, typename OwnScores, typename OwnSums, typename OwnRows, typename RowOf>
  RONDO_KERNEL static void advance(Block& block, const AttentionParams& p, bool capped, const std::int32_t* first,
                                   std::int32_t query, std::int32_t key, bool whole, OwnScores& scores, OwnSums& sums,
                                   OwnRows& rows, RowOf row_of) {
    block.local([&](int thread) {
      if (capped) cap(p.scale / p.cap, scores[thread]);
      const float factor = (capped ? p.cap : p.scale) * kLog2E;
      if (whole) {
        scale<true>(factor, first, query, key, row_of(thread), thread, scores[thread], rows[thread].largest);
      } else {
        scale<false>(factor, first, query, key, row_of(thread), thread, scores[thread], rows[thread].largest);
      }
    });
    block.quad_max([&](int thread) -> float& { return rows[thread].largest[0]; });
    block.quad_max([&](int thread) -> float& { return rows[thread].largest[1]; });
    block.local([&](int thread) { weigh(scores[thread], sums[thread], rows[thread]); });
  }

  /// The rows' totals over all columns.
  template <typename Block, typename OwnRows>
  RONDO_KERNEL static void finish(Block& block, OwnRows& rows) {
    block.quad_sum([&](int thread) -> float& { return rows[thread].total[0]; });
    block.quad_sum([&](int thread) -> float& { return rows[thread].total[1]; });
  }

  /// What sums are times in the end, and the logarithm of a row's sum of exponentials; 0 where nothing is seen.
  RONDO_KERNEL static float inverse(Rows& rows, int i) { return rows.total[i] > 0 ? 1.0F / rows.total[i] : 0.0F; }
  RONDO_KERNEL static float lse(Rows& rows, int i) {
    return rows.total[i] > 0 ? rows.maximum[i] * kLn2 + logf(rows.total[i]) : 0.0F;
  }

 private:
  /// Scores, times `factor`, become their hyperbolic tangents.
  RONDO_KERNEL static void cap(float factor, Scores& scores) {
    RONDO_UNROLL
    for (int n = 0; n < kColumns8; ++n) {
      RONDO_UNROLL
      for (int i = 0; i < 4; ++i) scores[n].x[i] = tanhf(scores[n].x[i] * factor);
    }
  }

  /// Scores times `factor`, minus infinity where a query does not see the key, and each row's largest among a thread's.
  /// `row`: the thread's first among those that begin at `query`, whose first keys are `first`.
  template <bool kAllSeen>
  RONDO_KERNEL static void scale(float factor, const std::int32_t* first, std::int32_t query, std::int32_t key, int row,
                                 int thread, Scores& scores, Array<float, 2>& largest) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int32_t from = first[row + 8 * i];
      const std::int32_t last = query + row + 8 * i;
      largest[i] = -INFINITY;
      RONDO_UNROLL
      for (int n = 0; n < 2 * kColumns8; ++n) {
        const std::int32_t at = key + n / 2 * 8 + 2 * (thread % 4) + n % 2;
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = kAllSeen || (at >= from && at <= last) ? score * factor : -INFINITY;
        largest[i] = fmaxf(largest[i], score);
      }
    }
  }

  /// Scores become weights 2^(score - maximum) by the new maximum, sums so far are brought to it.
  RONDO_KERNEL static void weigh(Scores& scores, Sums& sums, Rows& rows) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float now = fmaxf(rows.maximum[i], rows.largest[i]);
      const float from = now == -INFINITY ? 0.0F : now;  // nothing is seen so far: all weights are 0
      const float correction = power_of_two(rows.maximum[i] - from);
      rows.maximum[i] = now;
      float sum = 0;
      RONDO_UNROLL
      for (int n = 0; n < 2 * kColumns8; ++n) {
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = power_of_two(score - from);
        sum += score;
      }
      rows.total[i] = rows.total[i] * correction + sum;
      RONDO_UNROLL
      for (int slice = 0; slice < 2 * kSlices; ++slice) sums[slice / 2].x[2 * i + slice % 2] *= correction;
    }
  }
};

}  // namespace rondo::devices::cuda
