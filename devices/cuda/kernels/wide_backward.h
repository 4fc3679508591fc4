// The gradient of attention by the matrix units for heads that wide_tiles.h is for, see gradient_pass.h. Warps that
// share rows hand each other the weights and the scores' gradients of their columns, rounded to the tensors' type, as
// they are multiplied.
#pragma once

#include "gradient_pass.h"
#include "wide_tiles.h"

namespace rondo::devices::cuda {

/// Bytes of shared memory: two tiles of rows and of columns each, weights and gradients that are handed over, what is
/// known of the queries, which are a block's rows or its columns.
constexpr int wide_backward_shared(int head) {
  const int handed = wide_parts(head) > 1 ? 2 * wide_rows(head) * kWideColumns * 2 : 0;
  return 2 * (wide_rows(head) + kWideColumns) * head * 2 + handed + wide_rows(head) * QueryRows::kBytes;
}
static_assert(wide_backward_shared(128) <= kMostWideShared && wide_backward_shared(256) <= kMostWideShared &&
              wide_backward_shared(512) <= kMostWideShared);

/// `rows` are the block's, wide_rows(kHead), `columns` what streams.
template <typename T, int kHead, bool kKeys>
struct WideBackward {
  using Tiles = WideTiles<T, kHead>;
  static constexpr int kColumns8 = kWideColumns / 8;
  static constexpr int kOwn8 = Tiles::kParts == 1 ? kColumns8 : 1;  // of them a warp's own
  using Pairs = Array<FragmentC, static_cast<std::size_t>(kOwn8)>;

  struct Shared {
    std::uint16_t* rows[2];     // keys: k, v; queries: q, do
    std::uint16_t* columns[2];  // keys: q, do; queries: k, v
    std::uint16_t* handed[2];   // [kRows, kWideColumns]: gradients of scores, weights
    QueryRows queries;          // kRows at most

    RONDO_KERNEL explicit Shared(unsigned char* memory)
        : queries(memory + wide_backward_shared(kHead) - Tiles::kRows * QueryRows::kBytes, Tiles::kRows) {
      auto* at = reinterpret_cast<std::uint16_t*>(memory);
      for (int i = 0; i < 2; ++i) {
        rows[i] = at + i * Tiles::kRows * kHead;
        columns[i] = at + (2 * Tiles::kRows + i * kWideColumns) * kHead;
        handed[i] = at + 2 * (Tiles::kRows + kWideColumns) * kHead + i * Tiles::kRows * kWideColumns;
      }
    }
  };

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    GradientPass<WideBackward, kKeys, Tiles::kRows, kWideColumns>::run(block, p);
  }

  /// Weights and gradients of the scores of the rows and columns at hand, and what they add.
  template <typename Block, typename First, typename Second>
  RONDO_KERNEL static void add_pairs(Block& block, const AttentionParams& p, const Shared& shared, std::int32_t row,
                                     std::int32_t column, std::int32_t end, First& first_sums,
                                     [[maybe_unused]] Second& second_sums) {
    typename Block::template Own<Pairs> weights;
    typename Block::template Own<Pairs> gradients;
    typename Block::template Own<FragmentA> a;
    // Of stored numbers: scores from rows 0 and columns 0, do . v from rows 1 and columns 1.
    Tiles::template find_scores<kOwn8>(block, weights, shared.rows[0], shared.columns[0], own_column);
    Tiles::template find_scores<kOwn8>(block, gradients, shared.rows[1], shared.columns[1], own_column);
    block.local([&](int thread) {
      if (p.cap > 0) {
        differentiate<true>(p, shared, row, column, end, thread, weights[thread], gradients[thread]);
      } else {
        differentiate<false>(p, shared, row, column, end, thread, weights[thread], gradients[thread]);
      }
    });
    if constexpr (Tiles::kParts > 1) {
      block.each([&](int thread) {
        if (Tiles::part_of(thread) >= kColumns8) return;
        hand_over(shared.handed[0], thread, gradients[thread]);
        if constexpr (kKeys) hand_over(shared.handed[1], thread, weights[thread]);
      });
    }
    block.local([&](int thread) { a[thread] = taken(shared.handed[0], thread, gradients[thread]); });
    Tiles::add_product(block, first_sums, a, shared.columns[0], 0);
    if constexpr (kKeys) {
      block.local([&](int thread) { a[thread] = taken(shared.handed[1], thread, weights[thread]); });
      Tiles::add_product(block, second_sums, a, shared.columns[1], 0);
    }
  }

 private:
  /// The first of a warp's own columns. Of four warps two have the same.
  RONDO_KERNEL static int own_column(int thread) { return 8 * kOwn8 * (Tiles::part_of(thread) % (kColumns8 / kOwn8)); }

  /// See QueryRows::differentiate().
  template <bool kCapped>
  RONDO_KERNEL static void differentiate(const AttentionParams& p, const Shared& shared, std::int32_t row,
                                         std::int32_t column, std::int32_t end, int thread, Pairs& weights,
                                         Pairs& gradients) {
    RONDO_UNROLL
    for (int n = 0; n < kOwn8; ++n) {
      RONDO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at_row = Tiles::row_of(thread) + thread % kWarp / 4 + 8 * (i / 2);
        const int at_column = own_column(thread) + 8 * n + 2 * (thread % 4) + i % 2;
        const int query = kKeys ? at_column : at_row;  // among those at hand
        const std::int32_t query_token = kKeys ? column + at_column : row + at_row;
        const std::int32_t key_token = kKeys ? row + at_row : column + at_column;
        const bool seen = query_token < end && key_token >= shared.queries.first[query] && key_token <= query_token;
        shared.queries.template differentiate<kCapped>(p, query, seen, weights[n].x[i], gradients[n].x[i]);
      }
    }
  }

  /// Where eight columns of a row lie among those handed over: exchanged every four rows, since two lie in a row.
  RONDO_KERNEL static std::uint16_t* handed_at(std::uint16_t* handed, int row, int piece) {
    return handed + row * kWideColumns + (piece ^ (row / 4 % 2)) * 8;
  }
  RONDO_KERNEL static void hand_over(std::uint16_t* handed, int thread, Pairs& own) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = Tiles::row_of(thread) + thread % kWarp / 4 + 8 * i;
      store_pair(handed_at(handed, row, own_column(thread) / 8) + 2 * (thread % 4),
                 narrowed_pair<T>(own[0].x[2 * i], own[0].x[2 * i + 1]));
    }
  }
  /// All columns of a warp's rows.
  RONDO_KERNEL static FragmentA taken(std::uint16_t* handed, int thread, Pairs& own) {
    if constexpr (Tiles::kParts == 1) {
      return Tiles::narrowed(own[0], own[1]);
    } else {
      auto x = load_matrices<false>(
          thread, [&](int j, int r) { return handed_at(handed, Tiles::row_of(thread) + 8 * (j % 2) + r, j / 2); });
      return {{x[0], x[1], x[2], x[3]}};
    }
  }
};

// In the order that of_wide() counts in.
using WideKeysBf16x128 = WideBackward<Bf16, 128, true>;
using WideKeysBf16x256 = WideBackward<Bf16, 256, true>;
using WideKeysBf16x512 = WideBackward<Bf16, 512, true>;
using WideKeysFp16x128 = WideBackward<Fp16, 128, true>;
using WideKeysFp16x256 = WideBackward<Fp16, 256, true>;
using WideKeysFp16x512 = WideBackward<Fp16, 512, true>;
using WideQueriesBf16x128 = WideBackward<Bf16, 128, false>;
using WideQueriesBf16x256 = WideBackward<Bf16, 256, false>;
using WideQueriesBf16x512 = WideBackward<Bf16, 512, false>;
using WideQueriesFp16x128 = WideBackward<Fp16, 128, false>;
using WideQueriesFp16x256 = WideBackward<Fp16, 256, false>;
using WideQueriesFp16x512 = WideBackward<Fp16, 512, false>;

}  // namespace rondo::devices::cuda
