// How a kernel of attention's gradient by the matrix units goes over the pairs: a block keeps its rows in shared
// memory, past which the columns stream, and alone writes what they come to. Twice in all, by keys and by queries: no
// atomics.
#pragma once

#include "attention.h"

namespace rondo::devices::cuda {

/// kKeys: dk and dv, a block kRows keys and a part of a key head's query heads, past which the queries stream; else dq,
/// a block kRows queries and a head, past which the keys stream; kColumns at a time. Kernel has
///   Tiles: a HeadTiles, and fetch()
///   Shared: rows[2] (keys: k, v; queries: q, do), columns[2] (the others) and queries, of memory
///   add_pairs(block, p, shared, row, column, end, sums, second_sums): of dk or dq, and of dv
template <typename Kernel, bool kKeys, int kRows, int kColumns>
struct GradientPass {
  using Tiles = typename Kernel::Tiles;

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    const typename Kernel::Shared shared(block.shared());
    const std::int32_t row = first_row(block, p.tokens, kRows, kKeys);
    const std::int32_t group = p.heads / p.kv_heads;
    const std::int32_t of_block = kKeys ? group / p.splits : 1;  // heads
    const auto x = static_cast<std::int32_t>(block.x());
    const std::int32_t own_head = kKeys ? x / p.splits : x;
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t row_end = row + kRows < real ? row + kRows : real;
    typename Block::template Own<Array<FragmentC, static_cast<std::size_t>(Tiles::kSlices)>> sums;
    typename Block::template Own<Array<FragmentC, static_cast<std::size_t>(kKeys ? Tiles::kSlices : 1)>> second_sums;
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int slice = 0; slice < Tiles::kSlices; ++slice) {
        sums[thread][slice] = FragmentC{};
        if constexpr (kKeys) second_sums[thread][slice] = FragmentC{};
      }
      const std::int32_t heads = kKeys ? p.kv_heads : p.heads;
      Tiles::fetch(p, shared.rows[0], kKeys ? p.k : p.q, heads, own_head, row, kRows, row_end, thread);
      Tiles::fetch(p, shared.rows[1], kKeys ? p.v : p.d_o, heads, own_head, row, kRows, row_end, thread);
      if (!kKeys) shared.queries.fetch(p, row, kRows, own_head, row_end, thread);
    });
    block.wait_copies();
    if (row < real) {
      const std::int32_t end = kKeys ? last_query(p, row_end - 1) + 1 : row_end;
      for (std::int32_t head = x * of_block; head < (x + 1) * of_block; ++head) {
        for (std::int32_t column = kKeys ? row : shared.queries.first[0]; column < end; column += kColumns) {
          block.local([&](int thread) { fetch_columns(p, shared, column, head, group, end, thread); });
          block.wait_copies();
          Kernel::add_pairs(block, p, shared, row, column, end, sums, second_sums);
          block.barrier();  // the columns are fetched anew
        }
      }
    }
    block.local([&](int thread) {
      if constexpr (kKeys) {
        Tiles::put_of_keys(p, own_head, x % p.splits, row, thread, sums[thread], second_sums[thread]);
      } else {
        Tiles::put(p, p.dq, p.heads, own_head, row, thread, sums[thread]);
      }
    });
  }

 private:
  template <typename Shared>
  RONDO_KERNEL static void fetch_columns(const AttentionParams& p, const Shared& shared, std::int32_t column,
                                         std::int32_t head, std::int32_t group, std::int32_t end, int thread) {
    const std::int32_t heads = kKeys ? p.heads : p.kv_heads;
    const std::int32_t from_head = kKeys ? head : head / group;
    Tiles::fetch(p, shared.columns[0], kKeys ? p.q : p.k, heads, from_head, column, kColumns, end, thread);
    Tiles::fetch(p, shared.columns[1], kKeys ? p.d_o : p.v, heads, from_head, column, kColumns, end, thread);
    if (kKeys) shared.queries.fetch(p, column, kColumns, head, end, thread);
  }
};

}  // namespace rondo::devices::cuda
