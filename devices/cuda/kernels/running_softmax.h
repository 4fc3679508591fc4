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
  RONDO_KERNEL static void weigh(Scores& scores, Sums& sums, Array<float, 2>& maximum, Array<float, 2>& largest,
                                 Array<float, 2>& total) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float now = fmaxf(maximum[i], largest[i]);
      const float from = now == -INFINITY ? 0.0F : now;  // nothing is seen so far: all weights are 0
      const float correction = power_of_two(maximum[i] - from);
      maximum[i] = now;
      float sum = 0;
      RONDO_UNROLL
      for (int n = 0; n < 2 * kColumns8; ++n) {
        float& score = scores[n / 2].x[2 * i + n % 2];
        score = power_of_two(score - from);
        sum += score;
      }
      total[i] = total[i] * correction + sum;
      RONDO_UNROLL
      for (int slice = 0; slice < 2 * kSlices; ++slice) sums[slice / 2].x[2 * i + slice % 2] *= correction;
    }
  }
};

}  // namespace rondo::devices::cuda
