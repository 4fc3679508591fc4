// Causal attention within sequences, tile by tile, for every storage and card; the gradient without atomics.
//
// A tile is attention_tile() tokens. The forward keeps a running maximum and sum a row; the gradient is computed twice
// over the pairs, once by tiles of keys (dk, dv) and once by tiles of queries (dq), each block alone writing its tile.
// Query head h reads key head h / (H / Hkv).
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kTileElements = 2048;                              // of a tile [tile, head_dim], at most
inline constexpr int kOwnElements = kTileElements / kAttentionThreads;  // of a thread

/// Rows of a tile: as many as keep four tiles of fp32 in 48 KiB. 0: no tile is small enough.
constexpr int attention_tile(int head_dim) {
  if (head_dim <= 64) return 32;
  if (head_dim <= 128) return 16;
  if (head_dim <= 256) return 8;
  return head_dim <= kMostHeadDim ? 4 : 0;
}

/// Bytes of shared memory: four tiles, two matrices of scores, six vectors of a tile's rows.
constexpr int attention_shared(int head_dim) {
  const int tile = attention_tile(head_dim);
  return 4 * (4 * tile * (head_dim + 1) + 2 * tile * (tile + 1) + 6 * tile);
}

/// What a block has in shared memory. Rows of tiles are head_dim + 1 apart: threads that walk down a column meet
/// different banks.
struct AttentionShared {
  float* tiles[4];
  float* scores[2];     // [tile, tile + 1]
  float* rows[4];       // [tile] each
  std::int32_t* first;  // [tile] first key of each query; past the last where the token is padding
  std::int32_t stride;
  std::int32_t score_stride;

  RONDO_KERNEL AttentionShared(unsigned char* memory, const AttentionParams& p)
      : stride(p.head_dim + 1), score_stride(p.tile + 1) {
    auto* at = reinterpret_cast<float*>(memory);
    for (float*& tile : tiles) {
      tile = at;
      at += p.tile * stride;
    }
    for (float*& score : scores) {
      score = at;
      at += p.tile * score_stride;
    }
    for (float*& row : rows) {
      row = at;
      at += p.tile;
    }
    first = reinterpret_cast<std::int32_t*>(at);
  }
};

inline constexpr std::int32_t kNoKey = 0x7FFFFFFF;
inline constexpr float kLowest = -3.0e38F;

/// The first row of a block of `rows` of all tokens, in a grid of heads by such blocks. Blocks are begun in the grid's
/// order, heads first: those with the most to do come first of all heads, so that none is left for the end. Early keys
/// are seen by many queries, late queries see many keys.
template <typename Block>
RONDO_KERNEL std::int32_t first_row(const Block& block, std::int32_t tokens, std::int32_t rows, bool are_keys) {
  const auto place = static_cast<std::int32_t>(block.y());
  return (are_keys ? place : (tokens + rows - 1) / rows - 1 - place) * rows;
}

/// The last query that may see `key`.
RONDO_KERNEL std::int32_t last_query(const AttentionParams& p, std::int32_t key) {
  const std::int32_t last = sequence_at(p.bounds, key).end - 1;
  return p.window > 0 && key + p.window - 1 < last ? key + p.window - 1 : last;
}

template <typename T>
struct AttentionTiles {
  /// Rows first ... of head `head` of `from` [tokens, heads, head_dim]; zero past `end`.
  template <typename Block>
  RONDO_KERNEL static void fetch(Block& block, const AttentionParams& p, const AttentionShared& shared, int tile,
                                 const void* from, std::int32_t heads, std::int32_t head, std::int32_t first,
                                 std::int32_t end) {
    block.each([&](int thread) {
      for (int e = thread; e < p.tile * p.head_dim; e += block.threads()) {
        const int row = e / p.head_dim;
        const int column = e % p.head_dim;
        const std::int64_t token = first + row;
        shared.tiles[tile][row * shared.stride + column] =
            token < end ? load(static_cast<const T*>(from) + (token * heads + head) * p.head_dim + column) : 0.0F;
      }
    });
  }

  /// to[i][j] = <row i of tile a, row j of tile b>.
  template <typename Block>
  RONDO_KERNEL static void dots(Block& block, const AttentionParams& p, const AttentionShared& shared, int a, int b,
                                float* to) {
    block.each([&](int thread) {
      for (int e = thread; e < p.tile * p.tile; e += block.threads()) {
        const float* left = shared.tiles[a] + e / p.tile * shared.stride;
        const float* right = shared.tiles[b] + e % p.tile * shared.stride;
        float sum = 0;
        for (int d = 0; d < p.head_dim; ++d) sum += left[d] * right[d];
        to[e / p.tile * shared.score_stride + e % p.tile] = sum;
      }
    });
  }

  /// The first keys of the queries first ... .
  template <typename Block>
  RONDO_KERNEL static void find_first_keys(Block& block, const AttentionParams& p, const AttentionShared& shared,
                                           std::int32_t first) {
    block.each([&](int thread) {
      if (thread >= p.tile) return;
      const std::int32_t token = first + thread;
      const bool real = token < real_tokens(p.bounds);
      shared.first[thread] = real ? first_key(sequence_at(p.bounds, token), token, p.window) : kNoKey;
    });
  }

  /// Writes a thread's elements of a tile, each times `factor(row)`.
  template <typename Factor>
  RONDO_KERNEL static void put(const AttentionParams& p, void* to, std::int32_t heads, std::int32_t head,
                               std::int32_t first, int thread, Array<float, kOwnElements>& own, Factor factor) {
    RONDO_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int e = thread + i * kAttentionThreads;
      const int row = e / p.head_dim;
      const std::int64_t token = first + row;
      if (row >= p.tile || token >= p.tokens) continue;
      store(static_cast<T*>(to) + (token * heads + head) * p.head_dim + e % p.head_dim, own[i] * factor(row));
    }
  }
};

/// A block a tile of queries and a head. Tile 0: queries, 1: keys, 2: values. rows: maximum, sum, correction.
template <typename T>
struct Attention {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    using Tiles = AttentionTiles<T>;
    const AttentionShared shared(block.shared(), p);
    const std::int32_t query = first_row(block, p.tokens, p.tile, false);
    const auto head = static_cast<std::int32_t>(block.x());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + p.tile < real ? query + p.tile : real;
    typename Block::template Own<Array<float, kOwnElements>> sums;
    Tiles::find_first_keys(block, p, shared, query);
    Tiles::fetch(block, p, shared, 0, p.q, p.heads, head, query, end);
    block.each([&](int thread) {
      for (int i = 0; i < kOwnElements; ++i) sums[thread][i] = 0;
      if (thread >= p.tile) return;
      shared.rows[0][thread] = kLowest;
      shared.rows[1][thread] = 0;
    });
    // First keys never fall from one query to the next: those of the first query come first of all.
    for (std::int32_t key = query < real ? shared.first[0] : end; key < end; key += p.tile) {
      Tiles::fetch(block, p, shared, 1, p.k, p.kv_heads, kv_head, key, end);
      Tiles::fetch(block, p, shared, 2, p.v, p.kv_heads, kv_head, key, end);
      Tiles::dots(block, p, shared, 0, 1, shared.scores[0]);
      block.each([&](int thread) {
        if (thread < p.tile) weigh(p, shared, query + thread, key, thread);
      });
      block.each([&](int thread) { accumulate(p, shared, thread, sums[thread]); });
    }
    block.each([&](int thread) {
      Tiles::put(p, p.o, p.heads, head, query, thread, sums[thread],
                 [&](int row) { return shared.rows[1][row] > 0 ? 1.0F / shared.rows[1][row] : 0.0F; });
      if (thread >= p.tile || query + thread >= p.tokens) return;
      const float total = shared.rows[1][thread];
      p.lse[static_cast<std::int64_t>(query + thread) * p.heads + head] =
          total > 0 ? shared.rows[0][thread] + logf(total) : 0.0F;
    });
  }

 private:
  /// One query's scores become weights relative to the new maximum.
  RONDO_KERNEL static void weigh(const AttentionParams& p, const AttentionShared& shared, std::int32_t token,
                                 std::int32_t key, int row) {
    float* scores = shared.scores[0] + row * shared.score_stride;
    float maximum = shared.rows[0][row];
    if (p.cap > 0) {
      for (int j = 0; j < p.tile; ++j) scores[j] = p.cap * tanhf(scores[j] * p.scale / p.cap);
    }
    const float factor = p.cap > 0 ? 1.0F : p.scale;
    for (int j = 0; j < p.tile; ++j) {
      const bool seen = key + j >= shared.first[row] && key + j <= token;
      scores[j] = seen ? scores[j] * factor : kLowest;
      maximum = fmaxf(maximum, scores[j]);
    }
    float total = 0;
    for (int j = 0; j < p.tile; ++j) {
      const bool seen = key + j >= shared.first[row] && key + j <= token;
      scores[j] = seen ? expf(scores[j] - maximum) : 0.0F;
      total += scores[j];
    }
    const float correction = expf(shared.rows[0][row] - maximum);
    shared.rows[0][row] = maximum;
    shared.rows[1][row] = shared.rows[1][row] * correction + total;
    shared.rows[2][row] = correction;
  }

  RONDO_KERNEL static void accumulate(const AttentionParams& p, const AttentionShared& shared, int thread,
                                      Array<float, kOwnElements>& sums) {
    RONDO_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int e = thread + i * kAttentionThreads;
      const int row = e / p.head_dim;
      if (row >= p.tile) continue;
      const float* weights = shared.scores[0] + row * shared.score_stride;
      const float* values = shared.tiles[2] + e % p.head_dim;
      float sum = sums[i] * shared.rows[2][row];
      for (int j = 0; j < p.tile; ++j) sum += weights[j] * values[j * shared.stride];
      sums[i] = sum;
    }
  }
};

/// dk and dv, the sums of their parts in order; a block kMostThreads vectors, y 0: dk, 1: dv. Of kernels by the matrix
/// units, whose heads are made of vectors.
template <typename T>
struct AttentionJoin {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    const std::int64_t elements = static_cast<std::int64_t>(p.tokens) * p.kv_heads * p.head_dim;
    const float* parts = block.y() == 0 ? p.dk_parts : p.dv_parts;
    auto* const to = static_cast<T*>(block.y() == 0 ? p.dk : p.dv);
    block.each([&](int thread) {
      const std::int64_t e = (block.x() * block.threads() + thread) * kVector;
      if (e >= elements) return;
      auto sum = load_vector<kVector>(parts + e);
      add_in_order<2>(sum, p.splits - 1,
                      [&](std::int64_t i) { return load_vector<kVector>(parts + (i + 1) * elements + e); });
      store_vector<kVector>(to + e, sum);
    });
  }
};

inline constexpr int kDeltaRows = kMostThreads / 4;  // of a block: four threads each

/// The part of thread `thread` of `threads` in the product of two rows.
template <typename T>
RONDO_KERNEL float part_of_dot(const T* left, const T* right, std::int64_t width, int thread, int threads) {
  float sum = 0;
  for_row(width, thread, threads, [&](auto vector, std::int64_t d) {
    constexpr int kCount = decltype(vector)::kNumbers;
    auto a = load_vector<kCount>(left + d);
    auto b = load_vector<kCount>(right + d);
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) sum += a[i] * b[i];
  });
  return sum;
}

/// delta [T, H] = do . o.
template <typename T>
struct AttentionDelta {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    const std::int64_t rows = static_cast<std::int64_t>(p.tokens) * p.heads;
    typename Block::template Own<float> sums;
    block.local([&](int thread) {
      const std::int64_t row = block.x() * kDeltaRows + thread / 4;
      sums[thread] = 0;
      if (row >= rows) return;
      sums[thread] = part_of_dot(static_cast<const T*>(p.d_o) + row * p.head_dim,
                                 static_cast<const T*>(p.o) + row * p.head_dim, p.head_dim, thread % 4, 4);
    });
    block.quad_sum([&](int thread) -> float& { return sums[thread]; });
    block.local([&](int thread) {
      const std::int64_t row = block.x() * kDeltaRows + thread / 4;
      if (thread % 4 == 0 && row < rows) p.delta[row] = sums[thread];
    });
  }
};

/// What both gradient kernels do with a tile of queries and a tile of keys: the weights p and the scores' gradients
/// scale p (dp - delta), with a cap times its slope. Tile 0: queries, 1: keys, 2: values, 3: do. rows: lse, delta.
template <typename T>
struct AttentionPairs {
  template <typename Block>
  RONDO_KERNEL static void fetch_queries(Block& block, const AttentionParams& p, const AttentionShared& shared,
                                         std::int32_t query, std::int32_t head, std::int32_t end) {
    using Tiles = AttentionTiles<T>;
    Tiles::find_first_keys(block, p, shared, query);
    Tiles::fetch(block, p, shared, 0, p.q, p.heads, head, query, end);
    Tiles::fetch(block, p, shared, 3, p.d_o, p.heads, head, query, end);
    block.each([&](int thread) {
      if (thread >= p.tile || query + thread >= end) return;
      const std::int64_t i = static_cast<std::int64_t>(query + thread) * p.heads + head;
      shared.rows[0][thread] = p.lse[i];
      shared.rows[1][thread] = p.delta[i];
    });
  }

  /// Into scores 0 the weights, into scores 1 the gradients of the scores.
  template <typename Block>
  RONDO_KERNEL static void differentiate(Block& block, const AttentionParams& p, const AttentionShared& shared,
                                         std::int32_t query, std::int32_t key, std::int32_t end) {
    using Tiles = AttentionTiles<T>;
    Tiles::dots(block, p, shared, 0, 1, shared.scores[0]);
    Tiles::dots(block, p, shared, 3, 2, shared.scores[1]);
    block.each([&](int thread) {
      if (p.cap > 0) {
        finish<true>(p, shared, query, key, end, thread, block.threads());
      } else {
        finish<false>(p, shared, query, key, end, thread, block.threads());
      }
    });
  }

 private:
  template <bool kCapped>
  RONDO_KERNEL static void finish(const AttentionParams& p, const AttentionShared& shared, std::int32_t query,
                                  std::int32_t key, std::int32_t end, int thread, int threads) {
    for (int e = thread; e < p.tile * p.tile; e += threads) {
      const int row = e / p.tile;
      const std::int32_t at = key + e % p.tile;
      const bool seen = query + row < end && at >= shared.first[row] && at <= query + row;
      const int i = row * shared.score_stride + e % p.tile;
      float score = shared.scores[0][i] * p.scale;
      float slope = p.scale;
      if constexpr (kCapped) {
        const float share = tanhf(score / p.cap);
        score = p.cap * share;
        slope *= 1.0F - share * share;
      }
      const float weight = seen ? expf(score - shared.rows[0][row]) : 0.0F;
      shared.scores[0][i] = weight;
      shared.scores[1][i] = seen ? slope * weight * (shared.scores[1][i] - shared.rows[1][row]) : 0.0F;
    }
  }
};

/// dk and dv: a block a tile of keys and a key head; over its query heads and the tiles of queries in rising order.
template <typename T>
struct AttentionBackwardKeys {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    using Tiles = AttentionTiles<T>;
    const AttentionShared shared(block.shared(), p);
    const std::int32_t key = first_row(block, p.tokens, p.tile, true);
    const auto kv_head = static_cast<std::int32_t>(block.x());
    const std::int32_t group = p.heads / p.kv_heads;
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t key_end = key + p.tile < real ? key + p.tile : real;
    typename Block::template Own<Array<float, kOwnElements>> dk;
    typename Block::template Own<Array<float, kOwnElements>> dv;
    block.each([&](int thread) {
      for (int i = 0; i < kOwnElements; ++i) {
        dk[thread][i] = 0;
        dv[thread][i] = 0;
      }
    });
    Tiles::fetch(block, p, shared, 1, p.k, p.kv_heads, kv_head, key, key_end);
    Tiles::fetch(block, p, shared, 2, p.v, p.kv_heads, kv_head, key, key_end);
    const std::int32_t end = key < real ? last_query(p, key_end - 1) + 1 : key;
    for (std::int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int32_t query = key; query < end; query += p.tile) {
        AttentionPairs<T>::fetch_queries(block, p, shared, query, head, end);
        AttentionPairs<T>::differentiate(block, p, shared, query, key, end);
        block.each([&](int thread) {
          accumulate(p, shared, thread, shared.scores[0], shared.tiles[3], dv[thread]);
          accumulate(p, shared, thread, shared.scores[1], shared.tiles[0], dk[thread]);
        });
      }
    }
    block.each([&](int thread) {
      Tiles::put(p, p.dk, p.kv_heads, kv_head, key, thread, dk[thread], [](int) { return 1.0F; });
      Tiles::put(p, p.dv, p.kv_heads, kv_head, key, thread, dv[thread], [](int) { return 1.0F; });
    });
  }

 private:
  /// own += transposed weights times rows of queries.
  RONDO_KERNEL static void accumulate(const AttentionParams& p, const AttentionShared& shared, int thread,
                                      const float* weights, const float* rows, Array<float, kOwnElements>& own) {
    RONDO_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int e = thread + i * kAttentionThreads;
      const int key = e / p.head_dim;
      if (key >= p.tile) continue;
      float sum = own[i];
      for (int j = 0; j < p.tile; ++j) {
        sum += weights[j * shared.score_stride + key] * rows[j * shared.stride + e % p.head_dim];
      }
      own[i] = sum;
    }
  }
};

/// dq: a block a tile of queries and a head; over the tiles of keys in rising order.
template <typename T>
struct AttentionBackwardQueries {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    using Tiles = AttentionTiles<T>;
    const AttentionShared shared(block.shared(), p);
    const std::int32_t query = first_row(block, p.tokens, p.tile, false);
    const auto head = static_cast<std::int32_t>(block.x());
    const std::int32_t kv_head = head / (p.heads / p.kv_heads);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t end = query + p.tile < real ? query + p.tile : real;
    typename Block::template Own<Array<float, kOwnElements>> dq;
    AttentionPairs<T>::fetch_queries(block, p, shared, query, head, end);
    block.each([&](int thread) {
      for (int i = 0; i < kOwnElements; ++i) dq[thread][i] = 0;
    });
    for (std::int32_t key = query < real ? shared.first[0] : end; key < end; key += p.tile) {
      Tiles::fetch(block, p, shared, 1, p.k, p.kv_heads, kv_head, key, end);
      Tiles::fetch(block, p, shared, 2, p.v, p.kv_heads, kv_head, key, end);
      AttentionPairs<T>::differentiate(block, p, shared, query, key, end);
      block.each([&](int thread) {
        RONDO_UNROLL
        for (int i = 0; i < kOwnElements; ++i) {
          const int e = thread + i * kAttentionThreads;
          const int row = e / p.head_dim;
          if (row >= p.tile) continue;
          const float* gradients = shared.scores[1] + row * shared.score_stride;
          float sum = dq[thread][i];
          for (int j = 0; j < p.tile; ++j) sum += gradients[j] * shared.tiles[1][j * shared.stride + e % p.head_dim];
          dq[thread][i] = sum;
        }
      });
    }
    block.each(
        [&](int thread) { Tiles::put(p, p.dq, p.heads, head, query, thread, dq[thread], [](int) { return 1.0F; }); });
  }
};

}  // namespace rondo::devices::cuda
