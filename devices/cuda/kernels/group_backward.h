// The gradient of attention by warpgroups (sm_90), see group_products.h. No atomics: it goes twice over the pairs, by
// keys and by queries, each block alone writing its rows. A block is one group, so that two of them share a
// multiprocessor: one multiplies while the other takes exponentials.
#pragma once

#include "group_products.h"

namespace rondo::devices::cuda {

inline constexpr int kGroupColumns = 64;  // streamed past a block's rows

/// Bytes of shared memory: two tiles of rows, twice two of columns, twice lse and delta of the columns.
constexpr int group_backward_shared(int head_dim) {
  return 2 * (kGroupRows + 2 * kGroupColumns) * head_dim * 2 + 4 * kGroupColumns * 4;
}

/// Four bytes to shared memory, as copy_16().
RONDO_KERNEL void copy_4(float* to, const float* from, bool real) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(shared), "l"(__cvta_generic_to_global(from)), "r"(real ? 4 : 0)
               : "memory");
#elif defined(__CUDACC__)
  __trap();
#else
  HostLater::mine().copy(to, from, real ? 4 : 0, 4);
#endif
}

/// kKeys: dk and dv, a block kGroupRows keys and a part of a key head's query heads, past which the queries stream;
/// else dq, a block kGroupRows queries and a head, past which the keys stream. `rows` are the block's, `columns` what
/// streams.
template <typename T, int kHead, bool kKeys>
struct GroupBackward {
  using Products = GroupProducts<T, kHead>;
  using Tiles = MatrixTiles<T, kHead>;
  using Pairs = Array<FragmentC, kGroupColumns / 8>;
  using Narrow = Array<FragmentA, kGroupColumns / 16>;
  using Sums = Array<FragmentC, static_cast<std::size_t>(kHead / 8)>;

  /// What a thread knows of its two rows.
  struct Rows {
    std::int32_t from[2];  // the first and the last column that pair with each
    std::int32_t to[2];
    float lse[2];  // of queries, to the base of two
    float delta[2];
  };
  /// A tile of columns.
  struct Columns {
    SharedRows scores;     // queries or keys
    SharedRows gradients;  // do or values
    float* lse;            // of queries
    float* delta;
  };

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    constexpr int kNumbers = kGroupColumns * kHead;
    auto* const shared = reinterpret_cast<std::uint16_t*>(block.shared());
    auto* const numbers = reinterpret_cast<float*>(shared + 2 * kGroupRows * kHead + 4 * kNumbers);
    const SharedRows scored{shared, kGroupRows};                      // keys or queries
    const SharedRows given{shared + kGroupRows * kHead, kGroupRows};  // values or do
    const auto columns = [&](int place) {
      std::uint16_t* at = shared + 2 * kGroupRows * kHead + 2 * place * kNumbers;
      float* of_queries = numbers + 2 * place * kGroupColumns;
      return Columns{{at, kGroupColumns}, {at + kNumbers, kGroupColumns}, of_queries, of_queries + kGroupColumns};
    };
    const std::int32_t group = p.heads / p.kv_heads;
    const std::int32_t of_block = kKeys ? group / p.splits : 1;  // heads
    const auto x = static_cast<std::int32_t>(block.x());
    const std::int32_t own_head = kKeys ? x / p.splits : x;
    const std::int32_t first_head = kKeys ? x * of_block : x;
    const std::int32_t row = first_row(block, p.tokens, kGroupRows, kKeys);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t row_end = row + kGroupRows < real ? row + kGroupRows : real;
    std::int32_t begin = row;
    std::int32_t end = row;  // padding pairs with nothing
    if (row < real) {
      begin = kKeys ? row : first_key(sequence_at(p.bounds, row), row, p.window);
      end = kKeys ? last_query(p, row_end - 1) + 1 : row_end;
    }
    const std::int32_t tiles = (end - begin + kGroupColumns - 1) / kGroupColumns;
    typename Block::template Own<Sums> first_sums;  // dk or dq
    typename Block::template Own<Array<FragmentC, static_cast<std::size_t>(kKeys ? kHead / 8 : 1)>> second_sums;  // dv
    typename Block::template Own<Pairs> weights;
    typename Block::template Own<Pairs> gradients;
    typename Block::template Own<Narrow> narrow_weights;
    typename Block::template Own<Narrow> narrow_gradients;
    typename Block::template Own<Rows> rows;
    // Of keys and values in shared memory: sums take the registers.
    using OwnRows = Array<FragmentA, static_cast<std::size_t>(kKeys ? 1 : kHead / 16)>;
    typename Block::template Own<OwnRows> own_scored;
    typename Block::template Own<OwnRows> own_given;
    std::int32_t tile = 0;
    std::int32_t head = first_head;
    int place = 0;
    const auto fetch_columns = [&](int to, std::int32_t of_head, std::int32_t of_tile) {
      block.local(
          [&](int thread) { fetch(p, columns(to), begin + of_tile * kGroupColumns, of_head, group, end, thread); });
    };
    block.local([&](int thread) {
      begin_rows(p, row, own_head, real, thread, first_sums[thread], second_sums[thread], rows[thread]);
    });
    if (tiles > 0) {
      block.local([&](int thread) {
        const std::int32_t heads = kKeys ? p.kv_heads : p.heads;
        fetch_rows<kHead, kGroup, kGroupRows>(scored.at, kKeys ? p.k : p.q, heads, own_head, row, row_end, thread);
        fetch_rows<kHead, kGroup, kGroupRows>(given.at, kKeys ? p.v : p.d_o, heads, own_head, row, row_end, thread);
      });
      fetch_columns(0, head, 0);
      if constexpr (!kKeys) {
        block.wait_shared([] {});
        block.local([&](int thread) {
          Products::load_rows(own_scored[thread], scored, thread);
          Products::load_rows(own_given[thread], given, thread);
        });
      }
    }
    // Where every row pairs with every column of a tile nothing is masked. No branch lies between products and what is
    // computed meanwhile: the compiler would wait for them there.
    const std::int32_t last_row = row + kGroupRows - 1;
    std::int32_t whole_from = kNoKey;
    std::int32_t whole_to = kKeys ? end : row;
    if (last_row < real) {
      whole_from = kKeys ? last_row : first_key(sequence_at(p.bounds, last_row), last_row, p.window);
      if constexpr (kKeys) whole_to = last_query(p, row);
    }
    const auto add_pairs = [&]<bool kMasked>(std::int32_t column, const Columns& now) {
      if constexpr (kKeys) {
        Products::begin_dots(block, weights, scored, now.scores);
        Products::begin_dots(block, gradients, given, now.gradients);
      } else {
        Products::begin_dots(block, weights, own_scored, now.scores);
        Products::begin_dots(block, gradients, own_given, now.gradients);
      }
      if (head < first_head + of_block) fetch_columns(place, head, tile);
      Products::template wait<1>();
      Products::hold(weights);
      block.local([&](int thread) {
        if constexpr (kMasked) mask(rows[thread], column, thread, weights[thread]);
        weigh(p, now, rows[thread], thread, weights[thread]);
        if constexpr (kKeys) narrow(weights[thread], narrow_weights[thread]);
      });
      if constexpr (kKeys) {
        Products::begin_sums(block, second_sums, narrow_weights, now.gradients);
        Products::template wait<1>();
      } else {
        Products::template wait<0>();
      }
      Products::hold(gradients);
      block.local([&](int thread) {
        differentiate(p, now, rows[thread], thread, weights[thread], gradients[thread]);
        narrow(gradients[thread], narrow_gradients[thread]);
      });
      Products::begin_sums(block, first_sums, narrow_gradients, now.scores);
      if constexpr (!kKeys) {
        Products::template wait<0>();
        Products::hold(first_sums);
      }
    };
    while (tiles > 0 && head < first_head + of_block) {
      // This tile is there, all are through with the one before.
      block.wait_shared([] { Products::template wait<0>(); });
      Products::hold(first_sums);
      if constexpr (kKeys) Products::hold(second_sums);
      const std::int32_t column = begin + tile * kGroupColumns;
      const Columns now = columns(place);
      if (++tile == tiles) {
        tile = 0;
        ++head;
      }
      place = 1 - place;
      if (column >= whole_from && column + kGroupColumns - 1 <= whole_to) {
        add_pairs.template operator()<false>(column, now);
      } else {
        add_pairs.template operator()<true>(column, now);
      }
    }
    Products::template wait<0>();
    Products::hold(first_sums);
    if constexpr (kKeys) Products::hold(second_sums);
    block.local([&](int thread) {
      if constexpr (kKeys) {
        Tiles::put_of_keys(p, own_head, x % p.splits, row, thread, first_sums[thread], second_sums[thread]);
      } else {
        Tiles::put(p, p.dq, p.heads, own_head, row, thread, first_sums[thread]);
      }
    });
  }

 private:
  template <typename Second>
  RONDO_KERNEL static void begin_rows(const AttentionParams& p, std::int32_t row, std::int32_t head, std::int32_t real,
                                      int thread, Sums& first_sums, Second& second_sums, Rows& rows) {
    RONDO_UNROLL
    for (int slice = 0; slice < kHead / 8; ++slice) {
      first_sums[slice] = FragmentC{};
      if constexpr (kKeys) second_sums[slice] = FragmentC{};
    }
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int32_t token = row + Products::row_of(thread, 2 * i);
      rows.from[i] = kNoKey;
      rows.to[i] = -1;
      rows.lse[i] = 0;
      rows.delta[i] = 0;
      if (token >= real) continue;
      if constexpr (kKeys) {
        rows.from[i] = token;
        rows.to[i] = last_query(p, token);
      } else {
        rows.from[i] = first_key(sequence_at(p.bounds, token), token, p.window);
        rows.to[i] = token;
        rows.lse[i] = p.lse[static_cast<std::int64_t>(token) * p.heads + head] * kLog2E;
        rows.delta[i] = p.delta[static_cast<std::int64_t>(token) * p.heads + head];
      }
    }
  }

  RONDO_KERNEL static void fetch(const AttentionParams& p, const Columns& to, std::int32_t column, std::int32_t head,
                                 std::int32_t group, std::int32_t end, int thread) {
    const std::int32_t heads = kKeys ? p.heads : p.kv_heads;
    const std::int32_t from_head = kKeys ? head : head / group;
    fetch_rows<kHead, kGroup, kGroupColumns>(to.scores.at, kKeys ? p.q : p.k, heads, from_head, column, end, thread);
    fetch_rows<kHead, kGroup, kGroupColumns>(to.gradients.at, kKeys ? p.d_o : p.v, heads, from_head, column, end,
                                             thread);
    if constexpr (kKeys) {
      const int place = thread % kGroupColumns;
      const std::int64_t at = static_cast<std::int64_t>(column + place) * p.heads + head;
      const bool real = column + place < end;
      if (thread < kGroupColumns) {
        copy_4(to.lse + place, p.lse + at, real);
      } else {
        copy_4(to.delta + place, p.delta + at, real);
      }
    }
  }

  RONDO_KERNEL static void mask(const Rows& rows, std::int32_t column, int thread, Pairs& weights) {
    RONDO_UNROLL
    for (int e = 0; e < kGroupColumns / 2; ++e) {
      const int i = e % 4;
      const std::int32_t at = column + place_of(e, thread);
      weights[e / 4].x[i] = at >= rows.from[i / 2] && at <= rows.to[i / 2] ? weights[e / 4].x[i] : -INFINITY;
    }
  }

  /// Dot products become weights e^(score - lse), as powers of two.
  RONDO_KERNEL static void weigh(const AttentionParams& p, const Columns& columns, const Rows& rows, int thread,
                                 Pairs& weights) {
    const float factor = p.scale * kLog2E;
    RONDO_UNROLL
    for (int e = 0; e < kGroupColumns / 2; ++e) {
      const float lse = kKeys ? columns.lse[place_of(e, thread)] * kLog2E : rows.lse[e % 4 / 2];
      weights[e / 4].x[e % 4] = power_of_two(weights[e / 4].x[e % 4] * factor - lse);
    }
  }

  /// do . v becomes scale weight (do . v - delta).
  RONDO_KERNEL static void differentiate(const AttentionParams& p, const Columns& columns, const Rows& rows, int thread,
                                         Pairs& weights, Pairs& gradients) {
    RONDO_UNROLL
    for (int e = 0; e < kGroupColumns / 2; ++e) {
      const float delta = kKeys ? columns.delta[place_of(e, thread)] : rows.delta[e % 4 / 2];
      float& gradient = gradients[e / 4].x[e % 4];
      gradient = p.scale * weights[e / 4].x[e % 4] * (gradient - delta);
    }
  }

  /// The column, among the tile's, of a thread's number e.
  RONDO_KERNEL static int place_of(int e, int thread) { return e / 4 * 8 + 2 * (thread % 4) + e % 2; }

  RONDO_KERNEL static void narrow(Pairs& pairs, Narrow& narrowed) {
    RONDO_UNROLL
    for (int n = 0; n < kGroupColumns / 16; ++n) narrowed[n] = Tiles::narrowed(pairs[2 * n], pairs[2 * n + 1]);
  }
};

// In the order that of_matrix() counts in.
using GroupKeysBf16x64 = GroupBackward<Bf16, 64, true>;
using GroupKeysBf16x128 = GroupBackward<Bf16, 128, true>;
using GroupKeysFp16x64 = GroupBackward<Fp16, 64, true>;
using GroupKeysFp16x128 = GroupBackward<Fp16, 128, true>;
using GroupQueriesBf16x64 = GroupBackward<Bf16, 64, false>;
using GroupQueriesBf16x128 = GroupBackward<Bf16, 128, false>;
using GroupQueriesFp16x64 = GroupBackward<Fp16, 64, false>;
using GroupQueriesFp16x128 = GroupBackward<Fp16, 128, false>;

}  // namespace rondo::devices::cuda
