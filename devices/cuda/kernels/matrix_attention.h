// Causal attention and its gradient by the matrix units (sm_80 and later), for bf16 and fp16 and heads of 64 and 128.
//
// Products of stored numbers are exact in fp32. What the softmax and its gradient give is fp32, of which a two-byte number
// holds a third: it is multiplied in three parts, each what the parts before it left over, so that the result is that of
// fp32 arithmetic. A block has four warps of 16 rows each. No atomics: the gradient goes twice over the pairs, by keys and
// by queries.
#pragma once

#include "attention.h"

namespace rondo::devices::cuda {

inline constexpr int kMatrixRows = 64;     // of a block: four warps' 16
inline constexpr int kMatrixThreads = 128;
inline constexpr int kForwardKeys = 64;    // of a tile of the forward
inline constexpr int kBackwardColumns = 16;  // streamed past the block's rows by the gradient
inline constexpr int kParts = 3;

/// Bytes of shared memory of the forward and of the gradient kernels.
constexpr int matrix_forward_shared(int head_dim) { return 2 * kForwardKeys * (head_dim + 8) * 2 + kMatrixRows * 4; }
constexpr int matrix_backward_shared(int head_dim) {
  return 2 * (kMatrixRows + kBackwardColumns) * (head_dim + 8) * 2 + 3 * kMatrixRows * 4;
}
static_assert(matrix_forward_shared(128) <= 48 * 1024 && matrix_backward_shared(128) <= 48 * 1024);

/// Two numbers that lie side by side; the address is a multiple of four.
RONDO_KERNEL std::uint32_t load_pair(const std::uint16_t* at) {
#ifdef __CUDACC__
  return *reinterpret_cast<const std::uint32_t*>(at);
#else
  std::uint32_t pair = 0;
  std::memcpy(&pair, at, sizeof(pair));
  return pair;
#endif
}
RONDO_KERNEL void store_pair(std::uint16_t* at, std::uint32_t pair) {
#ifdef __CUDACC__
  *reinterpret_cast<std::uint32_t*>(at) = pair;
#else
  std::memcpy(at, &pair, sizeof(pair));
#endif
}
RONDO_KERNEL std::uint32_t pair_of(std::uint32_t low, std::uint32_t high) { return low | (high << 16U); }

/// Takes what T holds of x off it.
template <typename T>
RONDO_KERNEL std::uint32_t take_part(float& x) {
  T part;
  store(&part, x);
  x -= load(&part);
  return part.bits;
}

/// Tiles of rows of a head in shared memory. Rows are 8 numbers longer than the head: lanes meet different banks.
template <typename T, int kHead>
struct MatrixTiles {
  static constexpr bool kBfloat = T::kIsBfloat;
  static constexpr int kStride = kHead + 8;
  static constexpr int kSteps = kHead / 16;  // of a product along the head
  static constexpr int kSlices = kHead / 8;  // of a product's result across the head

  /// `count` rows from token `first` on; zero from `end` on.
  RONDO_KERNEL static void fetch(std::uint16_t* to, const void* from, std::int64_t heads, std::int64_t head,
                                 std::int32_t first, int count, std::int32_t end, int thread) {
    for (int e = thread; e < count * (kHead / 2); e += kMatrixThreads) {
      const int row = e / (kHead / 2);
      const int column = e % (kHead / 2) * 2;
      const std::int64_t token = first + row;
      const auto* at = static_cast<const std::uint16_t*>(from) + (token * heads + head) * kHead + column;
      store_pair(to + row * kStride + column, token < end ? load_pair(at) : 0U);
    }
  }

  /// A: rows `row` ..., numbers 16 step ... .
  RONDO_KERNEL static FragmentA rows(const std::uint16_t* tile, int row, int step, int thread) {
    const int g = thread % kWarp / 4;
    const int q = thread % 4;
    FragmentA a;
    RONDO_UNROLL
    for (int r = 0; r < 4; ++r) {
      a.x[r] = load_pair(tile + (row + g + 8 * (r % 2)) * kStride + 16 * step + 2 * q + 8 * (r / 2));
    }
    return a;
  }
  /// B of a product with the rows transposed: its columns are the rows `row` ..., its rows the numbers 16 step ... .
  RONDO_KERNEL static FragmentB columns(const std::uint16_t* tile, int row, int step, int thread) {
    FragmentB b;
    RONDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      b.x[r] = load_pair(tile + (row + thread % kWarp / 4) * kStride + 16 * step + 2 * (thread % 4) + 8 * r);
    }
    return b;
  }
  /// B of a product with the rows as they are: its rows are the rows `row` ..., its columns the numbers 8 slice ... .
  RONDO_KERNEL static FragmentB across(const std::uint16_t* tile, int row, int slice, int thread) {
    FragmentB b;
    RONDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      const std::uint16_t* at = tile + (row + 2 * (thread % 4) + 8 * r) * kStride + 8 * slice + thread % kWarp / 4;
      b.x[r] = pair_of(at[0], at[kStride]);
    }
    return b;
  }
  /// Two neighbouring tiles of C as an A of three parts: what was 16 rows by 8 and 8 columns is 16 by 16.
  RONDO_KERNEL static Array<FragmentA, kParts> parts(const FragmentC& left, const FragmentC& right) {
    Array<FragmentA, kParts> result;
    RONDO_UNROLL
    for (int r = 0; r < 4; ++r) {
      const FragmentC& from = r / 2 == 0 ? left : right;
      float low = from.x[2 * (r % 2)];
      float high = from.x[2 * (r % 2) + 1];
      RONDO_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t low_bits = take_part<T>(low);
        result[part].x[r] = pair_of(low_bits, take_part<T>(high));
      }
    }
    return result;
  }
  /// sums [16, kHead] += A of three parts times the rows of a tile.
  template <typename Block, typename Sums, typename Parts>
  RONDO_KERNEL static void add_product(Block& block, Sums& sums, Parts& three, const std::uint16_t* tile, int row) {
    RONDO_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      typename Block::template Own<FragmentB> b;
      block.local([&](int thread) { b[thread] = across(tile, row, slice, thread); });
      RONDO_UNROLL
      for (int part = kParts - 1; part >= 0; --part) {  // the small ones first
        block.template multiply<kBfloat>([&](int thread) -> FragmentC& { return sums[thread][slice]; },
                                         [&](int thread) -> FragmentA& { return three[thread][part]; },
                                         [&](int thread) -> FragmentB& { return b[thread]; });
      }
    }
  }
  /// Writes 16 rows a warp of the block's, from token `first` on, times factor(thread, 0 or 1: the row g or g + 8).
  template <typename Sums, typename Factor>
  RONDO_KERNEL static void put(void* to, std::int64_t heads, std::int64_t head, std::int32_t first, std::int32_t tokens,
                               int thread, Sums& sums, Factor factor) {
    RONDO_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      RONDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int64_t token = first + thread / kWarp * 16 + thread % kWarp / 4 + 8 * i;
        if (token >= tokens) continue;
        float low = sums[slice].x[2 * i] * factor(i);
        float high = sums[slice].x[2 * i + 1] * factor(i);
        auto* at = static_cast<std::uint16_t*>(to) + (token * heads + head) * kHead + 8 * slice + 2 * (thread % 4);
        const std::uint32_t low_bits = take_part<T>(low);
        store_pair(at, pair_of(low_bits, take_part<T>(high)));
      }
    }
  }
};

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
          block.template multiply<Tiles::kBfloat>([&](int thread) -> FragmentC& { return scores[thread][n]; },
                                                  [&](int thread) -> FragmentA& { return queries[thread][step]; },
                                                  [&](int thread) { return Tiles::columns(keys, 8 * n, step, thread); });
        }
      }
      block.local([&](int thread) { mask(p, first, query, key, thread, scores[thread], largest[thread]); });
      block.quad_max([&](int thread) -> float& { return largest[thread][0]; });
      block.quad_max([&](int thread) -> float& { return largest[thread][1]; });
      block.local([&](int thread) {
        weigh(scores[thread], sums[thread], maximum[thread], largest[thread], total[thread]);
      });
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

/// kKeys: dk and dv, a block kMatrixRows keys and a key head, past which the queries stream; else dq, a block kMatrixRows
/// queries and a head, past which the keys stream. `rows` are the block's, `columns` what streams.
template <typename T, int kHead, bool kKeys>
struct MatrixBackward {
  using Tiles = MatrixTiles<T, kHead>;

  struct Shared {
    std::uint16_t* rows[2];     // keys: k, v; queries: q, do
    std::uint16_t* columns[2];  // keys: q, do; queries: k, v
    std::int32_t* first;        // [kMatrixRows] of the queries, at hand
    float* lse;
    float* delta;

    RONDO_KERNEL explicit Shared(unsigned char* memory) {
      auto* at = reinterpret_cast<std::uint16_t*>(memory);
      for (std::uint16_t*& tile : rows) {
        tile = at;
        at += kMatrixRows * Tiles::kStride;
      }
      for (std::uint16_t*& tile : columns) {
        tile = at;
        at += kBackwardColumns * Tiles::kStride;
      }
      first = reinterpret_cast<std::int32_t*>(at);
      lse = reinterpret_cast<float*>(first + kMatrixRows);
      delta = lse + kMatrixRows;
    }
  };

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    const Shared shared(block.shared());
    const auto row = static_cast<std::int32_t>(block.x()) * kMatrixRows;
    const auto own_head = static_cast<std::int32_t>(block.y());
    const std::int32_t group = p.heads / p.kv_heads;
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t row_end = row + kMatrixRows < real ? row + kMatrixRows : real;
    typename Block::template Own<Array<FragmentC, Tiles::kSlices>> first_sums;                 // dk or dq
    typename Block::template Own<Array<FragmentC, kKeys ? Tiles::kSlices : 1>> second_sums;  // dv
    block.each([&](int thread) {
      RONDO_UNROLL
      for (int slice = 0; slice < Tiles::kSlices; ++slice) {
        first_sums[thread][slice] = FragmentC{};
        if constexpr (kKeys) second_sums[thread][slice] = FragmentC{};
      }
      const std::int32_t heads = kKeys ? p.kv_heads : p.heads;
      Tiles::fetch(shared.rows[0], kKeys ? p.k : p.q, heads, own_head, row, kMatrixRows, row_end, thread);
      Tiles::fetch(shared.rows[1], kKeys ? p.v : p.d_o, heads, own_head, row, kMatrixRows, row_end, thread);
      if (!kKeys) fetch_queries(p, shared, row, kMatrixRows, own_head, row_end, thread);
    });
    if (row < real) {
      const std::int32_t end = kKeys ? last_query(p, row_end - 1) + 1 : row_end;
      const std::int32_t head_end = kKeys ? (own_head + 1) * group : own_head + 1;
      for (std::int32_t head = kKeys ? own_head * group : own_head; head < head_end; ++head) {
        for (std::int32_t column = kKeys ? row : shared.first[0]; column < end; column += kBackwardColumns) {
          block.each([&](int thread) { fetch_columns(p, shared, column, head, group, end, thread); });
          add_pairs(block, p, shared, row, column, end, first_sums, second_sums);
          block.barrier();  // the columns are fetched anew
        }
      }
    }
    block.local([&](int thread) {
      const auto as_they_are = [](int) { return 1.0F; };
      const std::int32_t heads = kKeys ? p.kv_heads : p.heads;
      Tiles::put(kKeys ? p.dk : p.dq, heads, own_head, row, p.tokens, thread, first_sums[thread], as_they_are);
      if constexpr (kKeys) {
        Tiles::put(p.dv, heads, own_head, row, p.tokens, thread, second_sums[thread], as_they_are);
      }
    });
  }

 private:
  /// The last query that may see `key`.
  RONDO_KERNEL static std::int32_t last_query(const AttentionParams& p, std::int32_t key) {
    const std::int32_t last = sequence_at(p.bounds, key).end - 1;
    return p.window > 0 && key + p.window - 1 < last ? key + p.window - 1 : last;
  }

  RONDO_KERNEL static void fetch_queries(const AttentionParams& p, const Shared& shared, std::int32_t query, int count,
                                         std::int32_t head, std::int32_t end, int thread) {
    if (thread >= count) return;
    const std::int32_t token = query + thread;
    const bool real = token < end;
    shared.first[thread] = real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
    shared.lse[thread] = real ? p.lse[static_cast<std::int64_t>(token) * p.heads + head] : 0.0F;
    shared.delta[thread] = real ? p.delta[static_cast<std::int64_t>(token) * p.heads + head] : 0.0F;
  }

  RONDO_KERNEL static void fetch_columns(const AttentionParams& p, const Shared& shared, std::int32_t column,
                                         std::int32_t head, std::int32_t group, std::int32_t end, int thread) {
    const std::int32_t heads = kKeys ? p.heads : p.kv_heads;
    const std::int32_t from_head = kKeys ? head : head / group;
    Tiles::fetch(shared.columns[0], kKeys ? p.q : p.k, heads, from_head, column, kBackwardColumns, end, thread);
    Tiles::fetch(shared.columns[1], kKeys ? p.d_o : p.v, heads, from_head, column, kBackwardColumns, end, thread);
    if (kKeys) fetch_queries(p, shared, column, kBackwardColumns, head, end, thread);
  }

  /// Weights and gradients of the scores of the rows and columns at hand, and what they add.
  template <typename Block, typename First, typename Second>
  RONDO_KERNEL static void add_pairs(Block& block, const AttentionParams& p, const Shared& shared, std::int32_t row,
                                     std::int32_t column, std::int32_t end, First& first_sums, Second& second_sums) {
    constexpr int kColumns8 = kBackwardColumns / 8;
    typename Block::template Own<Array<FragmentC, kColumns8>> weights;
    typename Block::template Own<Array<FragmentC, kColumns8>> gradients;
    typename Block::template Own<Array<FragmentA, kParts>> three;
    typename Block::template Own<FragmentA> a;
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; ++n) {
        weights[thread][n] = FragmentC{};
        gradients[thread][n] = FragmentC{};
      }
    });
    // Of stored numbers: scores from rows 0 and columns 0, do . v from rows 1 and columns 1.
    RONDO_UNROLL
    for (int which = 0; which < 2; ++which) {
      RONDO_UNROLL
      for (int step = 0; step < Tiles::kSteps; ++step) {
        block.local([&](int thread) {
          a[thread] = Tiles::rows(shared.rows[which], thread / kWarp * 16, step, thread);
        });
        RONDO_UNROLL
        for (int n = 0; n < kColumns8; ++n) {
          block.template multiply<Tiles::kBfloat>(
              [&](int thread) -> FragmentC& { return which == 0 ? weights[thread][n] : gradients[thread][n]; },
              [&](int thread) -> FragmentA& { return a[thread]; },
              [&](int thread) { return Tiles::columns(shared.columns[which], 8 * n, step, thread); });
        }
      }
    }
    block.local([&](int thread) {
      differentiate(p, shared, row, column, end, thread, weights[thread], gradients[thread]);
      three[thread] = Tiles::parts(gradients[thread][0], gradients[thread][1]);
    });
    Tiles::add_product(block, first_sums, three, shared.columns[0], 0);
    if constexpr (kKeys) {
      block.local([&](int thread) { three[thread] = Tiles::parts(weights[thread][0], weights[thread][1]); });
      Tiles::add_product(block, second_sums, three, shared.columns[1], 0);
    }
  }

  /// Scores become weights e^(score - lse); do . v becomes scale weight (do . v - delta).
  RONDO_KERNEL static void differentiate(const AttentionParams& p, const Shared& shared, std::int32_t row,
                                         std::int32_t column, std::int32_t end, int thread,
                                         Array<FragmentC, kBackwardColumns / 8>& weights,
                                         Array<FragmentC, kBackwardColumns / 8>& gradients) {
    RONDO_UNROLL
    for (int n = 0; n < kBackwardColumns / 8; ++n) {
      RONDO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at_row = thread / kWarp * 16 + thread % kWarp / 4 + 8 * (i / 2);
        const int at_column = 8 * n + 2 * (thread % 4) + i % 2;
        const int query = kKeys ? at_column : at_row;  // among those at hand
        const std::int32_t query_token = kKeys ? column + at_column : row + at_row;
        const std::int32_t key_token = kKeys ? row + at_row : column + at_column;
        const bool seen = query_token < end && key_token >= shared.first[query] && key_token <= query_token;
        const float weight = seen ? expf(weights[n].x[i] * p.scale - shared.lse[query]) : 0.0F;
        gradients[n].x[i] = seen ? p.scale * weight * (gradients[n].x[i] - shared.delta[query]) : 0.0F;
        weights[n].x[i] = weight;
      }
    }
  }
};

// In the order that of_matrix() counts in.
using MatrixAttentionBf16x64 = MatrixAttention<Bf16, 64>;
using MatrixAttentionBf16x128 = MatrixAttention<Bf16, 128>;
using MatrixAttentionFp16x64 = MatrixAttention<Fp16, 64>;
using MatrixAttentionFp16x128 = MatrixAttention<Fp16, 128>;
using MatrixKeysBf16x64 = MatrixBackward<Bf16, 64, true>;
using MatrixKeysBf16x128 = MatrixBackward<Bf16, 128, true>;
using MatrixKeysFp16x64 = MatrixBackward<Fp16, 64, true>;
using MatrixKeysFp16x128 = MatrixBackward<Fp16, 128, true>;
using MatrixQueriesBf16x64 = MatrixBackward<Bf16, 64, false>;
using MatrixQueriesBf16x128 = MatrixBackward<Bf16, 128, false>;
using MatrixQueriesFp16x64 = MatrixBackward<Fp16, 64, false>;
using MatrixQueriesFp16x128 = MatrixBackward<Fp16, 128, false>;

}  // namespace rondo::devices::cuda
