// The gated delta rule's gradient by chunks: sums over the values, given what RuleErrors and RulePulls have found
// (delta_rule.h).
//
// Within a part of a chunk that belongs to one sequence, u and s being rows of keys and queries of length one (these
// divided by sqrt(D)), G the sum of g up to and with a token, S the state before the part, L its gradient behind it,
// r the pulls and d = beta e what was written:
//   P[i][j] = -beta_i exp(G_i - G_j) (r_i . d_j)  j < i         Q[t][j] = exp(G_t - G_j) (do_t . d_j)  j <= t
//   ds(t) = sum of Q[t][j] u(j) + exp(G_t) S do_t
//   du(i) = X(i) + Y(i): X(i) = sum of P[i][j] u(j) - beta_i exp(G_i) S r_i
//                        Y(i) = sum of P[t][i] u(t) + sum of Q[t][i] s(t) + exp(G_end - G_i) L d_i
//   dbeta_i = r_i . e_i
// An exponential of G_i stands before all of ds(i) and X(i), one of -G_i before all of Y(i), one of G_end before what L
// is in. So dg_i is the sum over t >= i of s(t) . ds(t) + u(t) . (X(t) - Y(t)), and
//   exp(G_end) <L, S> + sum over all i of exp(G_end - G_i) u(i) . L d_i.
// Of a state space there is neither P nor X, and u and s are the rows as they are.
#pragma once

#include "delta_rule.h"

namespace rondo::devices::cuda {

inline constexpr int kGradientSide = 64;  // of a product: tokens by tokens, or by numbers of D
inline constexpr int kGradientStep = 8;   // of what a product sums over, at a time
inline constexpr int kGradientStride = kGradientSide + 4;
inline constexpr int kGradientTiles = 5;
inline constexpr int kGradientLanes = kMostThreads / (kGradientSide / 4);  // threads that have four rows together
static_assert(kGradientSide == kRuleChunk && kMostThreads == 4 * kRuleChunk);
static_assert(kMostThreads * 2 == kGradientSide * kGradientStep);

/// What a block has in shared memory. A tile: kGradientStep rows of kGradientSide numbers.
struct GradientShared {
  double* sums;     // [kRuleChunk] G
  float* of_keys;   // P [kGradientSide, kGradientStride]
  float* of_reads;  // Q
  float* tiles[kGradientTiles];
  float* beta;     // [kRuleChunk], zero past the last token
  float* from;     // [kRuleChunk] exp(G_i)
  float* until;    // [kRuleChunk] exp(G_end - G_i)
  float* lengths;  // [2, kRuleChunk] as in RuleShared
  float* slopes;   // [kRuleChunk] first g, then what dg sums up

  RONDO_KERNEL explicit GradientShared(unsigned char* memory) {
    sums = reinterpret_cast<double*>(memory);
    of_keys = reinterpret_cast<float*>(sums + kRuleChunk);
    of_reads = of_keys + kGradientSide * kGradientStride;
    float* at = of_reads + kGradientSide * kGradientStride;
    for (float*& tile : tiles) {
      tile = at;
      at += kGradientStep * kGradientStride;
    }
    beta = at;
    from = beta + kRuleChunk;
    until = from + kRuleChunk;
    lengths = until + kRuleChunk;
    slopes = lengths + 2 * kRuleChunk;
  }
};
inline constexpr int kGradientShared =
    8 * kRuleChunk + 4 * (kGradientStride * (2 * kGradientSide + kGradientTiles * kGradientStep) + 6 * kRuleChunk);
static_assert(kGradientShared + 1024 <= 48 * 1024);  // what sums over a block take lies before it

/// Four rows by four columns of a product, a thread's.
using Corner = Array<float, 16>;

RONDO_KERNEL void add_corner(Corner& sums, Numbers<4>& rows, Numbers<4>& columns) {
  RONDO_UNROLL
  for (int i = 0; i < 16; ++i) sums[i] += rows[i / 4] * columns[i % 4];
}

/// A block a chunk of a head: gradients of keys and queries of length one, of g and of beta.
template <typename T>
struct RuleGradient {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RuleParams& p) {
    const std::int32_t real = real_tokens(p.bounds);
    Part part;
    part.head = block.x();
    part.key_head = part.head / (p.heads / p.key_heads);
    const std::int32_t chunk = p.first / kRuleChunk + static_cast<std::int32_t>(block.y());
    const std::int32_t begin = chunk * kRuleChunk;
    const std::int32_t stop = begin + kRuleChunk;
    const std::int32_t end = stop < real ? stop : real;
    const std::int64_t state_size = std::int64_t{p.size} * p.width;
    part.before = p.checkpoints + (chunk * std::int64_t{p.heads} + part.head) * state_size;
    for (std::int32_t token = begin; token < end;) {
      const Span whole = sequence_at(p.bounds, token);
      part.begin = token;
      part.end = whole.end < end ? whole.end : end;
      if (whole.begin == token) part.before = nullptr;
      part.behind = whole.end > stop ? p.ends + (block.y() * p.heads + part.head) * state_size : nullptr;
      of_part(block, p, part);
      token = part.end;
    }
    block.local([&](int thread) {
      const std::int32_t token = begin + thread;
      if (thread >= kRuleChunk || token < real || token >= p.tokens) return;
      p.dg[std::int64_t{token} * p.heads + part.head] = 0;
      p.dbeta[std::int64_t{token} * p.heads + part.head] = 0;
    });
  }

 private:
  struct Part {
    std::int64_t head;
    std::int64_t key_head;
    std::int32_t begin;
    std::int32_t end;
    const float* before;  // [D, Dv] S, null: zeros
    const float* behind;  // [D, Dv] L, null: zeros
  };
  struct Sums {
    Corner x, y, read;
  };

  template <typename Block>
  RONDO_KERNEL static void of_part(Block& block, const RuleParams& p, const Part& part) {
    const GradientShared shared(block.shared());
    find_gates(block, p, part, shared);
    find_pairs(block, p, part, shared);
    typename Block::template Own<Sums> sums;
    typename Block::template Own<Numbers<4>> slopes;  // of four tokens, over a thread's numbers of D
    typename Block::template Own<float> at_end;
    typename Block::template Own<float> inner;  // <L, S>
    block.local([&](int thread) {
      slopes[thread] = {};
      at_end[thread] = 0;
      inner[thread] = 0;
    });
    for (std::int32_t first = 0; first < p.size; first += kGradientSide) {
      block.local([&](int thread) { sums[thread] = {}; });
      if (part.before != nullptr || part.behind != nullptr) add_states(block, p, part, shared, first, sums, inner);
      block.local([&](int thread) { at_end[thread] += dot_of_ends(p, part, shared, first, thread, sums[thread]); });
      add_pairs(block, p, part, shared, first, sums);
      block.local([&](int thread) { put(p, part, shared, first, thread, sums[thread], slopes[thread]); });
    }
    const float whole = block.sum(at_end) + shared.from[part.end - part.begin - 1] * block.sum(inner);
    block.each([&](int thread) {  // to the tiles, through which all threads are
      RONDO_UNROLL
      for (int i = 0; i < 4; ++i)
        shared.tiles[0][row_of(thread, i) * kGradientLanes + thread % kGradientLanes] = slopes[thread][i];
    });
    block.each([&](int thread) {
      if (thread >= kRuleChunk) return;
      float sum = 0;
      for (int lane = 0; lane < kGradientLanes; ++lane) sum += shared.tiles[0][thread * kGradientLanes + lane];
      shared.slopes[thread] = sum;
    });
    block.each([&](int thread) {
      const std::int32_t count = part.end - part.begin;
      if (thread >= count) return;
      float sum = whole;
      for (int i = count - 1; i >= thread; --i) sum += shared.slopes[i];
      if (thread == 0 && part.before == nullptr) sum = 0;  // there is nothing to decay
      p.dg[(std::int64_t{part.begin} + thread) * p.heads + part.head] = sum;
    });
  }

  RONDO_KERNEL static int row_of(int thread, int i) { return thread / kGradientLanes * 4 + i; }
  RONDO_KERNEL static int column_of(int thread) { return thread % kGradientLanes * 4; }
  /// Of q, k and of their gradients by key head.
  RONDO_KERNEL static std::int64_t key_at(const RuleParams& p, const Part& part, int row) {
    return ((std::int64_t{part.begin} + row) * p.key_heads + part.key_head) * p.size;
  }
  RONDO_KERNEL static std::int64_t value_at(const RuleParams& p, const Part& part, std::int64_t token) {
    return (token * p.heads + part.head) * p.width;
  }

  template <typename Block>
  RONDO_KERNEL static void find_gates(Block& block, const RuleParams& p, const Part& part,
                                      const GradientShared& shared) {
    const std::int32_t count = part.end - part.begin;
    typename Block::template Own<float> squares[2];
    block.each([&](int thread) {
      if (thread < kRuleChunk) {
        const std::int64_t gate = (std::int64_t{part.begin} + thread) * p.heads + part.head;
        shared.slopes[thread] = thread < count ? p.g[gate] : 0.0F;
        shared.beta[thread] = thread < count ? p.beta[gate] : 0.0F;
      }
      const bool there = thread / 4 < count;
      const std::int64_t row = key_at(p, part, thread / 4);
      squares[0][thread] = there ? part_of_squares(static_cast<const T*>(p.k) + row, p.size, thread % 4) : 0.0F;
      squares[1][thread] = there ? part_of_squares(static_cast<const T*>(p.q) + row, p.size, thread % 4) : 0.0F;
    });
    for (auto& some : squares) block.quad_sum([&](int thread) -> float& { return some[thread]; });
    block.each([&](int thread) {
      if (thread % 4 == 0) {
        const bool plain = p.state_space != 0;
        shared.lengths[thread / 4] = plain ? 1.0F : inverse_length(squares[0][thread]);
        shared.lengths[kRuleChunk + thread / 4] =
            plain ? 1.0F : inverse_length(squares[1][thread]) / sqrtf(static_cast<float>(p.size));
      }
      if (thread >= kRuleChunk) return;
      double sum = 0;
      for (int i = 0; i <= thread; ++i) sum += static_cast<double>(shared.slopes[i]);
      shared.sums[thread] = sum;
      shared.from[thread] = expf(static_cast<float>(sum));
    });
    block.local([&](int thread) {  // read behind find_pairs()
      if (thread < kRuleChunk) shared.until[thread] = decay_from(shared, thread, kRuleChunk - 1);
    });
  }
  RONDO_KERNEL static float part_of_squares(const T* row, std::int32_t size, int lane) {
    float sum = 0;
    for (std::int32_t d = lane; d < size; d += 4) {
      const float x = load(row + d);
      sum += x * x;
    }
    return sum;
  }
  /// exp(G_to - G_from): of fp64, since G may be far greater than what it grows by.
  RONDO_KERNEL static float decay_from(const GradientShared& shared, int from, int to) {
    return expf(static_cast<float>(shared.sums[to] - shared.sums[from]));
  }

  /// Runs body(token of the part, value, place in a tile) for a thread's two numbers of a step along the values.
  template <typename Body>
  RONDO_KERNEL static void for_values(int thread, std::int32_t first, Body body) {
    RONDO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int value = 2 * (thread % 4) + i;
      body(thread / 4, first + value, value * kGradientStride + thread / 4);
    }
  }

  /// P and Q, and dbeta.
  template <typename Block>
  RONDO_KERNEL static void find_pairs(Block& block, const RuleParams& p, const Part& part,
                                      const GradientShared& shared) {
    const std::int32_t count = part.end - part.begin;
    typename Block::template Own<Array<Corner, 2>> pairs;
    typename Block::template Own<float> dbeta;
    block.local([&](int thread) {
      pairs[thread] = {};
      dbeta[thread] = 0;
    });
    for (std::int32_t first = 0; first < p.width; first += kGradientStep) {
      block.each([&](int thread) {
        for_values(thread, first, [&](int row, std::int32_t value, int place) {
          const bool there = row < count && value < p.width;
          const std::int64_t within = value_at(p, part, part.begin - p.first + row) + value;
          const float pull = there ? p.pulls[within] : 0.0F;
          const float error = there ? p.errors[within] : 0.0F;
          const T* const d_o = static_cast<const T*>(p.d_o) + value_at(p, part, part.begin + row) + value;
          shared.tiles[0][place] = pull;
          shared.tiles[1][place] = there ? load(d_o) : 0.0F;
          shared.tiles[2][place] = shared.beta[row] * error;
          dbeta[thread] += pull * error;
        });
      });
      block.each([&](int thread) {
        RONDO_UNROLL_TWO
        for (int k = 0; k < kGradientStep; ++k) {
          const int row = k * kGradientStride + row_of(thread, 0);
          auto pulls = load_four(shared.tiles[0] + row);
          auto reads = load_four(shared.tiles[1] + row);
          auto written = load_four(shared.tiles[2] + k * kGradientStride + column_of(thread));
          add_corner(pairs[thread][0], pulls, written);
          add_corner(pairs[thread][1], reads, written);
        }
      });
    }
    block.quad_sum([&](int thread) -> float& { return dbeta[thread]; });
    block.each([&](int thread) {
      if (thread % 4 == 0 && thread / 4 < count) {
        p.dbeta[(std::int64_t{part.begin} + thread / 4) * p.heads + part.head] = dbeta[thread];
      }
      RONDO_UNROLL
      for (int i = 0; i < 16; ++i) {
        const int row = row_of(thread, i / 4);
        const int column = column_of(thread) + i % 4;
        const float decay = column <= row ? decay_from(shared, column, row) : 0.0F;
        const int place = row * kGradientStride + column;
        shared.of_keys[place] =
            column < row && p.state_space == 0 ? -shared.beta[row] * decay * pairs[thread][0][i] : 0.0F;
        shared.of_reads[place] = decay * pairs[thread][1][i];
      }
    });
  }

  /// What S and L are in, for kGradientSide numbers of D from `first` on.
  template <typename Block>
  RONDO_KERNEL static void add_states(Block& block, const RuleParams& p, const Part& part, const GradientShared& shared,
                                      std::int32_t first, typename Block::template Own<Sums>& sums,
                                      typename Block::template Own<float>& inner) {
    const std::int32_t count = part.end - part.begin;
    for (std::int32_t step = 0; step < p.width; step += kGradientStep) {
      block.each([&](int thread) {
        for_values(thread, step, [&](int row, std::int32_t value, int place) {
          const bool there = row < count && value < p.width;
          const std::int64_t within = value_at(p, part, part.begin - p.first + row) + value;
          const T* const d_o = static_cast<const T*>(p.d_o) + value_at(p, part, part.begin + row) + value;
          const bool pulls = there && p.state_space == 0;
          shared.tiles[0][place] = pulls ? -shared.beta[row] * shared.from[row] * p.pulls[within] : 0.0F;
          shared.tiles[1][place] = there ? shared.from[row] * load(d_o) : 0.0F;
          shared.tiles[2][place] = there ? shared.until[row] * shared.beta[row] * p.errors[within] : 0.0F;
          const bool in_state = first + row < p.size && value < p.width;
          const std::int64_t at = std::int64_t{first + row} * p.width + value;
          const float before = in_state && part.before != nullptr ? part.before[at] : 0.0F;
          const float behind = in_state && part.behind != nullptr ? part.behind[at] : 0.0F;
          shared.tiles[3][place] = before;
          shared.tiles[4][place] = behind;
          inner[thread] += before * behind;
        });
      });
      block.each([&](int thread) {
        RONDO_UNROLL_TWO
        for (int k = 0; k < kGradientStep; ++k) {
          const int row = k * kGradientStride + row_of(thread, 0);
          const int column = k * kGradientStride + column_of(thread);
          auto pulls = load_four(shared.tiles[0] + row);
          auto reads = load_four(shared.tiles[1] + row);
          auto written = load_four(shared.tiles[2] + row);
          auto before = load_four(shared.tiles[3] + column);
          auto behind = load_four(shared.tiles[4] + column);
          add_corner(sums[thread].x, pulls, before);
          add_corner(sums[thread].read, reads, before);
          add_corner(sums[thread].y, written, behind);
        }
      });
    }
  }

  /// What P and Q are in.
  template <typename Block>
  RONDO_KERNEL static void add_pairs(Block& block, const RuleParams& p, const Part& part, const GradientShared& shared,
                                     std::int32_t first, typename Block::template Own<Sums>& sums) {
    const std::int32_t count = part.end - part.begin;
    for (std::int32_t step = 0; step < count; step += kGradientStep) {
      block.each([&](int thread) {
        RONDO_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int k = thread / kGradientSide + 4 * i;
          const int column = thread % kGradientSide;
          const int place = k * kGradientStride + column;
          shared.tiles[0][place] = unit(p, part, p.k, shared.lengths, step + k, first + column);
          shared.tiles[1][place] = unit(p, part, p.q, shared.lengths + kRuleChunk, step + k, first + column);
        }
      });
      block.each([&](int thread) {
        RONDO_UNROLL_TWO
        for (int k = 0; k < kGradientStep; ++k) {
          const int down = (step + k) * kGradientStride + row_of(thread, 0);
          auto keys = load_four(shared.tiles[0] + k * kGradientStride + column_of(thread));
          auto queries = load_four(shared.tiles[1] + k * kGradientStride + column_of(thread));
          auto keys_down = load_four(shared.of_keys + down);
          auto reads_down = load_four(shared.of_reads + down);
          Numbers<4> keys_across;
          Numbers<4> reads_across;
          RONDO_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int across = row_of(thread, i) * kGradientStride + step + k;
            keys_across[i] = shared.of_keys[across];
            reads_across[i] = shared.of_reads[across];
          }
          add_corner(sums[thread].x, keys_across, keys);
          add_corner(sums[thread].y, keys_down, keys);
          add_corner(sums[thread].y, reads_down, queries);
          add_corner(sums[thread].read, reads_across, keys);
        }
      });
    }
  }

  /// Number `d` of a token's row of length one; zero past the last token and D.
  RONDO_KERNEL static float unit(const RuleParams& p, const Part& part, const void* from, const float* lengths, int row,
                                 std::int32_t d) {
    if (row >= part.end - part.begin || d >= p.size) return 0.0F;
    return load(static_cast<const T*>(from) + key_at(p, part, row) + d) * lengths[row];
  }

  /// u . (exp(G_end - G) L d), which y has so far.
  RONDO_KERNEL static float dot_of_ends(const RuleParams& p, const Part& part, const GradientShared& shared,
                                        std::int32_t first, int thread, Sums& sums) {
    if (part.behind == nullptr) return 0.0F;
    float sum = 0;
    RONDO_UNROLL
    for (int i = 0; i < 16; ++i) {
      sum += sums.y[i] * unit(p, part, p.k, shared.lengths, row_of(thread, i / 4), first + column_of(thread) + i % 4);
    }
    return sum;
  }

  RONDO_KERNEL static void put(const RuleParams& p, const Part& part, const GradientShared& shared, std::int32_t first,
                               int thread, Sums& sums, Numbers<4>& slopes) {
    RONDO_UNROLL
    for (int i = 0; i < 16; ++i) {
      const int row = row_of(thread, i / 4);
      const std::int32_t d = first + column_of(thread) + i % 4;
      if (part.begin + row >= part.end || d >= p.size) continue;
      const std::int64_t at = ((part.begin - p.first + row) * std::int64_t{p.heads} + part.head) * p.size + d;
      p.dk_parts[at] = sums.x[i] + sums.y[i];
      p.dq_parts[at] = sums.read[i];
      slopes[i / 4] += unit(p, part, p.q, shared.lengths + kRuleChunk, row, d) * sums.read[i] +
                       unit(p, part, p.k, shared.lengths, row, d) * (sums.x[i] - sums.y[i]);
    }
  }
};

inline constexpr int kUnitRows = kMostThreads / 4;  // of a block: four threads each

/// The value heads' parts added up, and from rows of length one to rows as they are. A block kUnitRows rows of the
/// segment's [tokens, Hk, D]; y 0: dq, 1: dk.
template <typename T>
struct RuleUnits {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RuleParams& p) {
    const bool of_keys = block.y() == 1;
    const float* const parts = of_keys ? p.dk_parts : p.dq_parts;
    const bool plain = p.state_space != 0;
    const float scale = of_keys || plain ? 1.0F : 1.0F / sqrtf(static_cast<float>(p.size));
    const std::int32_t real = real_tokens(p.bounds);
    typename Block::template Own<RuleColumn> rows;
    typename Block::template Own<RuleColumn> gradients;
    typename Block::template Own<float> squares;
    typename Block::template Own<float> along;
    block.local([&](int thread) {
      squares[thread] = 0;
      along[thread] = 0;
      const Place at(p, block.x(), thread);
      if (at.token >= real || at.token >= p.first + p.length) return;
      const T* const row = static_cast<const T*>(of_keys ? p.k : p.q) + at.row;
      for_numbers(p, thread, [&](int i, std::int32_t d) {
        rows[thread][i] = load(row + d);
        gradients[thread][i] = 0;
      });
      const std::int32_t group = p.heads / p.key_heads;
      for (std::int32_t j = 0; j < group; ++j) {
        const float* const part =
            parts + ((at.token - p.first) * p.heads + std::int64_t{at.key_head} * group + j) * p.size;
        for_numbers(p, thread, [&](int i, std::int32_t d) { gradients[thread][i] += part[d]; });
      }
      for_numbers(p, thread, [&](int i, std::int32_t) {
        gradients[thread][i] *= scale;
        squares[thread] += rows[thread][i] * rows[thread][i];
        along[thread] += rows[thread][i] * gradients[thread][i];
      });
    });
    block.quad_sum([&](int thread) -> float& { return squares[thread]; });
    block.quad_sum([&](int thread) -> float& { return along[thread]; });
    block.local([&](int thread) {
      const Place at(p, block.x(), thread);
      if (at.token >= p.tokens || at.token >= p.first + p.length) return;
      T* const to = static_cast<T*>(of_keys ? p.dk : p.dq) + at.row;
      const float length = plain ? 1.0F : inverse_length(squares[thread]);
      const float within = plain ? 0.0F : along[thread] * length * length;
      for_numbers(p, thread, [&](int i, std::int32_t d) {
        store(to + d, at.token < real ? (gradients[thread][i] - rows[thread][i] * within) * length : 0.0F);
      });
    });
  }

 private:
  struct Place {
    std::int64_t token;
    std::int32_t key_head;
    std::int64_t row;  // of q and k

    RONDO_KERNEL Place(const RuleParams& p, std::int64_t block, int thread) {
      const std::int64_t number = block * kUnitRows + thread / 4;
      token = p.first + number / p.key_heads;
      key_head = static_cast<std::int32_t>(number % p.key_heads);
      row = (token * p.key_heads + key_head) * p.size;
    }
  };
  template <typename Body>
  RONDO_KERNEL static void for_numbers(const RuleParams& p, int thread, Body body) {
    RONDO_UNROLL
    for (int i = 0; i < kRuleKeys; ++i) {
      const std::int32_t d = i * 4 + thread % 4;
      if (d < p.size) body(i, d);
    }
  }
};

}  // namespace rondo::devices::cuda
