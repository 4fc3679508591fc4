// The gradient of attention by the matrix units for heads that wide_tiles.h is for. No atomics: it goes twice over the
// pairs, by keys and by queries, each block alone writing its rows. Warps that share rows hand each other the weights
// and the scores' gradients of their columns, rounded to the tensors' type, as they are multiplied.
#pragma once

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

/// As MatrixBackward: kKeys: dk and dv, a block wide_rows(kHead) keys and a part of a key head's query heads, past
/// which the queries stream; else dq, a block as many queries and a head, past which the keys stream.
template <typename T, int kHead, bool kKeys>
struct WideBackward {
  using Tiles = WideTiles<T, kHead>;
  using Sums = typename Tiles::Sums;
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
    const Shared shared(block.shared());
    const std::int32_t row = first_row(block, p.tokens, Tiles::kRows, kKeys);
    const std::int32_t group = p.heads / p.kv_heads;
    const std::int32_t of_block = kKeys ? group / p.splits : 1;  // heads
    const auto x = static_cast<std::int32_t>(block.x());
    const std::int32_t own_head = kKeys ? x / p.splits : x;
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t row_end = row + Tiles::kRows < real ? row + Tiles::kRows : real;
    typename Block::template Own<Sums> first_sums;                                           // dk or dq
    typename Block::template Own<Array<FragmentC, kKeys ? Tiles::kSlices : 1>> second_sums;  // dv
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int slice = 0; slice < Tiles::kSlices; ++slice) {
        first_sums[thread][slice] = FragmentC{};
        if constexpr (kKeys) second_sums[thread][slice] = FragmentC{};
      }
      const std::int32_t heads = kKeys ? p.kv_heads : p.heads;
      for (int i = 0; i < 2; ++i) {
        const void* const from = kKeys ? (i == 0 ? p.k : p.v) : (i == 0 ? p.q : p.d_o);
        Tiles::fetch(shared.rows[i], from, heads, own_head, p.head_dim, row, Tiles::kRows, row_end, thread);
      }
      if (!kKeys) shared.queries.fetch(p, row, Tiles::kRows, own_head, row_end, thread);
    });
    block.wait_copies();
    if (row < real) {
      const std::int32_t end = kKeys ? last_query(p, row_end - 1) + 1 : row_end;
      for (std::int32_t head = x * of_block; head < (x + 1) * of_block; ++head) {
        for (std::int32_t column = kKeys ? row : shared.queries.first[0]; column < end; column += kWideColumns) {
          block.local([&](int thread) { fetch_columns(p, shared, column, head, group, end, thread); });
          block.wait_copies();
          add_pairs(block, p, shared, row, column, end, first_sums, second_sums);
          block.barrier();  // the columns are fetched anew
        }
      }
    }
    block.local([&](int thread) {
      if constexpr (kKeys) {
        put_of_keys(p, p.dk, p.dk_parts, own_head, x % p.splits, row, thread, first_sums[thread]);
        put_of_keys(p, p.dv, p.dv_parts, own_head, x % p.splits, row, thread, second_sums[thread]);
      } else {
        put(p, p.dq, p.heads, own_head, row, thread, first_sums[thread]);
      }
    });
  }

 private:
  RONDO_KERNEL static void fetch_columns(const AttentionParams& p, const Shared& shared, std::int32_t column,
                                         std::int32_t head, std::int32_t group, std::int32_t end, int thread) {
    const std::int32_t heads = kKeys ? p.heads : p.kv_heads;
    const std::int32_t from_head = kKeys ? head : head / group;
    for (int i = 0; i < 2; ++i) {
      const void* const from = kKeys ? (i == 0 ? p.q : p.d_o) : (i == 0 ? p.k : p.v);
      Tiles::fetch(shared.columns[i], from, heads, from_head, p.head_dim, column, kWideColumns, end, thread);
    }
    if (kKeys) shared.queries.fetch(p, column, kWideColumns, head, end, thread);
  }

  /// The first of a warp's own columns. Of four warps two have the same.
  RONDO_KERNEL static int own_column(int thread) { return 8 * kOwn8 * (Tiles::part_of(thread) % (kColumns8 / kOwn8)); }

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
      return Tiles::Narrow::narrowed(own[0], own[1]);
    } else {
      auto x = load_matrices<false>(
          thread, [&](int j, int r) { return handed_at(handed, Tiles::row_of(thread) + 8 * (j % 2) + r, j / 2); });
      return {{x[0], x[1], x[2], x[3]}};
    }
  }

  RONDO_KERNEL static void put(const AttentionParams& p, void* to, std::int64_t heads, std::int64_t head,
                               std::int32_t first, int thread, Sums& sums) {
    Tiles::for_pairs(first, p.tokens, p.head_dim, thread, sums,
                     [&](std::int64_t token, int channel, int, float left, float right) {
                       store_pair(static_cast<std::uint16_t*>(to) + (token * heads + head) * p.head_dim + channel,
                                  narrowed_pair<T>(left, right));
                     });
  }
  /// Of a key head and a part of its query heads: to their places, or to the parts' where there are more.
  RONDO_KERNEL static void put_of_keys(const AttentionParams& p, void* to, float* parts, std::int64_t head,
                                       std::int64_t part, std::int32_t first, int thread, Sums& sums) {
    if (p.splits == 1) {
      put(p, to, p.kv_heads, head, first, thread, sums);
      return;
    }
    Tiles::for_pairs(first, p.tokens, p.head_dim, thread, sums,
                     [&](std::int64_t token, int channel, int, float left, float right) {
                       float* const at = parts + ((part * p.tokens + token) * p.kv_heads + head) * p.head_dim + channel;
                       at[0] = left;
                       at[1] = right;
                     });
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
