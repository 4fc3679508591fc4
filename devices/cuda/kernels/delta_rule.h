// The gated delta rule token by token, and what its gradient needs of the states: no column of a state knows of
// another.
//
// A block takes kRuleColumns columns of a head's state, four threads a column, each with a quarter of its numbers in
// registers; a warp's columns wait for no other warp's but where rows of the next tokens are brought. Rows of q and k
// stay as they are: what divides them by their lengths is put to the sums over them. Of a state space (RuleParams) that
// is 1, and a token's error its value.
//
// The gradient goes backward over segments of the tokens, three kernels here and two in delta_gradient.h each:
// RuleErrors has what the tokens of each chunk found, from its checkpoint; RulePulls carries the state's gradient
// through the sequences and leaves it behind each chunk. Given both, chunks know all else by themselves.
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

inline constexpr int kRuleChunk = 64;  // tokens from one checkpoint to the next
inline constexpr int kRuleThreads = 128;
inline constexpr int kRuleLanes = 4;  // of a column
inline constexpr int kRuleColumns = kRuleThreads / kRuleLanes;
inline constexpr int kRuleTile = 16;                          // tokens whose rows are brought together
inline constexpr int kRuleKeys = kMostRuleSize / kRuleLanes;  // of a lane
inline constexpr int kRuleFours = kRuleKeys / 4;
static_assert(kRuleThreads == kMostRuleSize && kRuleThreads == 2 * kRuleTile * kRuleLanes);
static_assert(kRuleChunk % kRuleTile == 0);

/// A lane's numbers of a column: four in a row of every sixteen, from four times the lane on.
using RuleColumn = Array<float, static_cast<std::size_t>(kRuleKeys)>;

/// What a block has in shared memory: rows of a tile of tokens.
struct RuleShared {
  float* keys;     // [kRuleTile, kMostRuleSize], zero past D and past the last token
  float* queries;  // the same
  float* values;   // [kRuleTile, kRuleColumns] v or do
  float* results;  // the same: what the pass gives
  float* keep;     // [kRuleTile] exp(g)
  float* beta;     // [kRuleTile]
  float* lengths;  // [2, kRuleTile] what makes rows of keys and queries one long, and these 1 / sqrt(D)

  RONDO_KERNEL explicit RuleShared(unsigned char* memory) {
    keys = reinterpret_cast<float*>(memory);
    queries = keys + kRuleTile * kMostRuleSize;
    values = queries + kRuleTile * kMostRuleSize;
    results = values + kRuleTile * kRuleColumns;
    keep = results + kRuleTile * kRuleColumns;
    beta = keep + kRuleTile;
    lengths = beta + kRuleTile;
  }
};
inline constexpr int kRuleShared = 4 * kRuleTile * (2 * kMostRuleSize + 2 * kRuleColumns + 4);

/// What a thread brings of a tile while the one before is worked on.
struct RuleRows {
  Array<float, static_cast<std::size_t>(kRuleTile)> keys, queries;
  Array<float, static_cast<std::size_t>(kRuleTile* kRuleColumns / kRuleThreads)> values;
  float g, beta;
};

/// 1 / length of a row whose squares sum up to that.
RONDO_KERNEL float inverse_length(float squares) { return 1.0F / sqrtf(squares + 1e-6F); }

/// kRead: forward. kErrors: forward, without what is read. kPulls: backward.
enum class RulePass : std::uint8_t { kRead, kErrors, kPulls };

/// Blocks of columns of a head, in the grid's x.
constexpr std::int32_t rule_blocks(std::int32_t width) { return (width + kRuleColumns - 1) / kRuleColumns; }

/// The recurrence over some tokens of one sequence, for a block's columns of one head.
template <typename T, RulePass kPass>
struct RuleWalk {
  static constexpr bool kBackward = kPass == RulePass::kPulls;

  const RuleParams& p;
  const RuleShared shared;
  std::int64_t head;
  std::int64_t key_head;
  std::int32_t column;  // the block's first

  template <typename Block>
  RONDO_KERNEL RuleWalk(Block& block, const RuleParams& params) : p(params), shared(block.shared()) {
    const std::int32_t blocks = rule_blocks(p.width);
    head = block.x() / blocks;
    key_head = head / (p.heads / p.key_heads);
    column = static_cast<std::int32_t>(block.x() % blocks) * kRuleColumns;
  }

  template <typename Block>
  using State = typename Block::template Own<RuleColumn>;

  /// `from` [Hv, D, Dv], or null: zeros.
  template <typename Block>
  RONDO_KERNEL void begin(Block& block, State<Block>& state, const float* from) const {
    block.local([&](int thread) {
      for_state(thread,
                [&](int i, std::int64_t at) { state[thread][i] = at < 0 || from == nullptr ? 0.0F : from[at]; });
    });
  }
  template <typename Block>
  RONDO_KERNEL void put(Block& block, State<Block>& state, float* to) const {
    block.local([&](int thread) {
      for_state(thread, [&](int i, std::int64_t at) {
        if (at >= 0) to[at] = state[thread][i];
      });
    });
  }
  /// Of the states [..., Hv, D, Dv] of a chunk.
  RONDO_KERNEL std::int64_t state_of(std::int64_t chunk) const { return chunk * p.heads * p.size * p.width; }

  /// Tokens `begin` to `end`, backward where the pass is. Calls at_tile(first, end) for the tiles, which do not cross
  /// multiples of kRuleTile, before their tokens; write(token, column, beta, result) for all results.
  template <typename Block, typename AtTile, typename Write>
  RONDO_KERNEL void walk(Block& block, State<Block>& state, std::int32_t begin, std::int32_t end, AtTile at_tile,
                         Write write) const {
    if (begin >= end) return;
    typename Block::template Own<RuleRows> rows;
    Span tile = kBackward ? tile_before(begin, end) : tile_from(begin, end);
    block.local([&](int thread) { fetch(tile, thread, rows[thread]); });
    while (tile.begin < tile.end) {
      block.each([&](int thread) { share(thread, rows[thread]); });
      const Span next = kBackward ? tile_before(begin, tile.begin) : tile_from(tile.end, end);
      block.local([&](int thread) { fetch(next, thread, rows[thread]); });
      find_lengths(block);
      at_tile(tile.begin, tile.end);
      for (int i = 0; i < tile.end - tile.begin; ++i) {
        step(block, state, kBackward ? tile.end - tile.begin - 1 - i : i);
      }
      block.barrier();
      block.each([&](int thread) {
        for (int e = thread; e < (tile.end - tile.begin) * kRuleColumns; e += kRuleThreads) {
          const int row = e / kRuleColumns;
          const std::int32_t own = column + e % kRuleColumns;
          if (own < p.width) write(tile.begin + row, own, shared.beta[row], shared.results[e]);
        }
      });
      tile = next;
    }
  }

  /// Runs body(token, column) for the block's columns of the tokens from `begin` on, of which every slot takes some.
  template <typename Block, typename Body>
  RONDO_KERNEL void for_padding(Block& block, std::int32_t begin, std::int32_t end, Body body) const {
    block.local([&](int thread) {
      const std::int32_t own = column + thread % kRuleColumns;
      if (own >= p.width) return;
      constexpr int kRows = kRuleThreads / kRuleColumns;
      const auto slot = static_cast<std::int32_t>(block.y());
      for (std::int32_t token = begin + slot * kRows + thread / kRuleColumns; token < end; token += p.slots * kRows) {
        body(token, own);
      }
    });
  }

  /// Where a token has a number of the head's value.
  RONDO_KERNEL std::int64_t value_at(std::int64_t token, std::int32_t own) const {
    return (token * p.heads + head) * p.width + own;
  }

 private:
  RONDO_KERNEL static Span tile_from(std::int32_t begin, std::int32_t end) {
    const std::int32_t stop = (begin / kRuleTile + 1) * kRuleTile;
    return {begin, stop < end ? stop : end};
  }
  RONDO_KERNEL static Span tile_before(std::int32_t begin, std::int32_t end) {
    const std::int32_t start = end > begin ? (end - 1) / kRuleTile * kRuleTile : begin;
    return {start > begin ? start : begin, end};
  }

  /// Runs body(i, place in a state [Hv, D, Dv]) for a lane's numbers; the place is -1 where there is none.
  template <typename Body>
  RONDO_KERNEL void for_state(int thread, Body body) const {
    const std::int32_t own = column + thread / kRuleLanes;
    RONDO_UNROLL
    for (int i = 0; i < kRuleKeys; ++i) {
      const int row = (i / 4 * kRuleLanes + thread % kRuleLanes) * 4 + i % 4;
      body(i, row < p.size && own < p.width ? (head * p.size + row) * p.width + own : std::int64_t{-1});
    }
  }

  RONDO_KERNEL void fetch(const Span& tile, int thread, RuleRows& rows) const {
    const T* const k = static_cast<const T*>(p.k) + key_head * p.size + thread;
    const T* const q = static_cast<const T*>(p.q) + key_head * p.size + thread;
    const std::int64_t step = std::int64_t{p.key_heads} * p.size;
    RONDO_UNROLL
    for (int row = 0; row < kRuleTile; ++row) {
      const bool there = tile.begin + row < tile.end && thread < p.size;
      rows.keys[row] = there ? load(k + (tile.begin + row) * step) : 0.0F;
      rows.queries[row] = there && kPass != RulePass::kErrors ? load(q + (tile.begin + row) * step) : 0.0F;
    }
    const std::int32_t own = column + thread % kRuleColumns;
    RONDO_UNROLL
    for (int i = 0; i < kRuleTile * kRuleColumns / kRuleThreads; ++i) {
      const std::int32_t token = tile.begin + thread / kRuleColumns + i * (kRuleThreads / kRuleColumns);
      const bool there = token < tile.end && own < p.width;
      rows.values[i] = there ? load(static_cast<const T*>(kBackward ? p.d_o : p.v) + value_at(token, own)) : 0.0F;
    }
    const bool gated = thread < kRuleTile && tile.begin + thread < tile.end;
    const std::int64_t gate = (std::int64_t{tile.begin} + thread) * p.heads + head;
    rows.g = gated ? p.g[gate] : 0.0F;
    rows.beta = gated ? p.beta[gate] : 0.0F;
  }

  RONDO_KERNEL void share(int thread, RuleRows& rows) const {
    RONDO_UNROLL
    for (int row = 0; row < kRuleTile; ++row) {
      shared.keys[row * kMostRuleSize + thread] = rows.keys[row];
      shared.queries[row * kMostRuleSize + thread] = rows.queries[row];
    }
    RONDO_UNROLL
    for (int i = 0; i < kRuleTile * kRuleColumns / kRuleThreads; ++i) {
      shared.values[thread + i * kRuleThreads] = rows.values[i];
    }
    if (thread >= kRuleTile) return;
    shared.keep[thread] = expf(rows.g);
    shared.beta[thread] = rows.beta;
  }

  template <typename Block>
  RONDO_KERNEL void find_lengths(Block& block) const {
    typename Block::template Own<float> squares;
    block.local([&](int thread) {
      // Keys and queries lie behind one another: rows of both.
      const float* const row = shared.keys + thread / kRuleLanes * kMostRuleSize + thread % kRuleLanes * 4;
      squares[thread] = 0;
      RONDO_UNROLL
      for (int i = 0; i < kRuleFours; ++i) {
        auto some = load_four(row + i * 4 * kRuleLanes);
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) squares[thread] += some[e] * some[e];
      }
    });
    block.quad_sum([&](int thread) -> float& { return squares[thread]; });
    block.each([&](int thread) {
      const int row = thread / kRuleLanes;
      if (thread % kRuleLanes != 0) return;
      const float factor = row < kRuleTile ? 1.0F : 1.0F / sqrtf(static_cast<float>(p.size));
      shared.lengths[row] = p.state_space != 0 ? 1.0F : inverse_length(squares[thread]) * factor;
    });
  }

  /// Runs body(four numbers of the row, first of the lane's to go with them) along a lane's part of a row.
  template <typename Body>
  RONDO_KERNEL static void along(const float* row, int thread, Body body) {
    RONDO_UNROLL
    for (int i = 0; i < kRuleFours; ++i) {
      body(load_four(row + (i * kRuleLanes + thread % kRuleLanes) * 4), 4 * i);
    }
  }
  RONDO_KERNEL static float total(Numbers<4>& parts) { return (parts[0] + parts[1]) + (parts[2] + parts[3]); }

  template <typename Block>
  RONDO_KERNEL void step(Block& block, State<Block>& state, int row) const {
    if constexpr (kBackward) {
      step_back(block, state, row);
    } else {
      step_on(block, state, row);
    }
  }

  /// S = exp(g) S; error = v - S^T k; S += k (beta error)^T; o = S^T q.
  template <typename Block>
  RONDO_KERNEL void step_on(Block& block, State<Block>& state, int row) const {
    const float* const key = shared.keys + row * kMostRuleSize;
    const float* const query = shared.queries + row * kMostRuleSize;
    typename Block::template Own<float> sums;
    block.local([&](int thread) {
      const float keep = shared.keep[row];
      Numbers<4> parts{};
      along(key, thread, [&](Numbers<4> some, int first) {
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) {
          state[thread][first + e] *= keep;
          parts[e] += state[thread][first + e] * some[e];
        }
      });
      sums[thread] = total(parts);
    });
    block.quad_sum([&](int thread) -> float& { return sums[thread]; });
    block.local([&](int thread) {
      const float length = shared.lengths[row];
      const int place = row * kRuleColumns + thread / kRuleLanes;
      const float known = p.state_space != 0 ? 0.0F : sums[thread] * length;
      const float error = shared.values[place] - known;
      const float written = shared.beta[row] * error * length;
      Numbers<4> parts{};
      along(key, thread, [&](Numbers<4> some, int first) {
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) state[thread][first + e] += written * some[e];
      });
      if constexpr (kPass == RulePass::kErrors) {
        if (thread % kRuleLanes == 0) shared.results[place] = error;
      } else {
        along(query, thread, [&](Numbers<4> some, int first) {
          RONDO_UNROLL
          for (int e = 0; e < 4; ++e) parts[e] += state[thread][first + e] * some[e];
        });
      }
      sums[thread] = total(parts);
    });
    if constexpr (kPass == RulePass::kErrors) return;
    block.quad_sum([&](int thread) -> float& { return sums[thread]; });
    block.local([&](int thread) {
      if (thread % kRuleLanes != 0) return;
      shared.results[row * kRuleColumns + thread / kRuleLanes] = sums[thread] * shared.lengths[kRuleTile + row];
    });
  }

  /// dS += q do^T; pull = dS^T k; dS -= k (beta pull)^T; dS = exp(g) dS.
  template <typename Block>
  RONDO_KERNEL void step_back(Block& block, State<Block>& state, int row) const {
    const float* const key = shared.keys + row * kMostRuleSize;
    const float* const query = shared.queries + row * kMostRuleSize;
    typename Block::template Own<float> sums;
    block.local([&](int thread) {
      const float d_o = shared.values[row * kRuleColumns + thread / kRuleLanes] * shared.lengths[kRuleTile + row];
      Numbers<4> parts{};
      along(query, thread, [&](Numbers<4> some, int first) {
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) state[thread][first + e] += d_o * some[e];
      });
      along(key, thread, [&](Numbers<4> some, int first) {
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) parts[e] += state[thread][first + e] * some[e];
      });
      sums[thread] = total(parts);
    });
    block.quad_sum([&](int thread) -> float& { return sums[thread]; });
    block.local([&](int thread) {
      const float length = shared.lengths[row];
      const float keep = shared.keep[row];
      const float pull = sums[thread] * length;
      const float taken = p.state_space != 0 ? 0.0F : shared.beta[row] * pull * length;
      along(key, thread, [&](Numbers<4> some, int first) {
        RONDO_UNROLL
        for (int e = 0; e < 4; ++e) state[thread][first + e] = (state[thread][first + e] - taken * some[e]) * keep;
      });
      if (thread % kRuleLanes == 0) shared.results[row * kRuleColumns + thread / kRuleLanes] = pull;
    });
  }
};

/// A block some columns of a head, and the sequences of a slot.
template <typename T>
struct Rule {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RuleParams& p) {
    const RuleWalk<T, RulePass::kRead> walk(block, p);
    T* const o = static_cast<T*>(p.o);
    typename Block::template Own<RuleColumn> state;
    for (auto s = static_cast<std::int32_t>(block.y()); s < p.bounds[0]; s += p.slots) {
      const Span sequence{p.bounds[1 + s], p.bounds[2 + s]};
      walk.begin(block, state, p.state != nullptr && p.positions[0] > 0 ? p.state : nullptr);
      walk.walk(
          block, state, sequence.begin, sequence.end,
          [&](std::int32_t first, std::int32_t) {
            if (p.checkpoints == nullptr || first % kRuleChunk != 0) return;
            walk.put(block, state, p.checkpoints + walk.state_of(first / kRuleChunk));
          },
          [&](std::int32_t token, std::int32_t own, float, float read) { store(o + walk.value_at(token, own), read); });
      if (p.state != nullptr && sequence.begin < sequence.end) walk.put(block, state, p.state);
    }
    const std::int32_t real = real_tokens(p.bounds);
    walk.for_padding(block, real, p.tokens,
                     [&](std::int32_t token, std::int32_t own) { store(o + walk.value_at(token, own), 0.0F); });
    if (p.checkpoints == nullptr) return;
    walk.begin(block, state, nullptr);
    const std::int32_t chunks = (p.tokens + kRuleChunk - 1) / kRuleChunk;
    const std::int32_t first = (real + kRuleChunk - 1) / kRuleChunk;
    for (std::int32_t c = first + static_cast<std::int32_t>(block.y()); c < chunks; c += p.slots) {
      walk.put(block, state, p.checkpoints + walk.state_of(c));
    }
  }
};

/// The errors of the segment's tokens, from each chunk's checkpoint. A block some columns of a head, and a chunk.
template <typename T>
struct RuleErrors {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RuleParams& p) {
    const RuleWalk<T, RulePass::kErrors> walk(block, p);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t begin = p.first + static_cast<std::int32_t>(block.y()) * kRuleChunk;
    const std::int32_t end = begin + kRuleChunk < real ? begin + kRuleChunk : real;
    typename Block::template Own<RuleColumn> state;
    const float* from = p.checkpoints + walk.state_of(begin / kRuleChunk);
    for (std::int32_t token = begin; token < end;) {
      const std::int32_t stop = sequence_at(p.bounds, token).end;
      const std::int32_t last = stop < end ? stop : end;
      walk.begin(block, state, from);
      walk.walk(
          block, state, token, last, [](std::int32_t, std::int32_t) {},
          [&](std::int32_t at, std::int32_t own, float, float error) {
            p.errors[walk.value_at(at - p.first, own)] = error;
          });
      from = nullptr;  // what follows in the chunk begins there
      token = last;
    }
  }
};

/// The state's gradient through the segment, and dv. A block some columns of a head, and the sequences of a slot.
template <typename T>
struct RulePulls {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RuleParams& p) {
    const RuleWalk<T, RulePass::kPulls> walk(block, p);
    T* const dv = static_cast<T*>(p.dv);
    const std::int32_t real = real_tokens(p.bounds);
    const std::int32_t stop = p.first + p.length;
    const std::int32_t last = stop < real ? stop : real;
    typename Block::template Own<RuleColumn> state;
    std::int32_t s = p.first < last ? sequence_number(p.bounds, p.first) : p.bounds[0];
    for (s += static_cast<std::int32_t>(block.y()); s < p.bounds[0] && p.bounds[1 + s] < last; s += p.slots) {
      const Span whole{p.bounds[1 + s], p.bounds[2 + s]};
      const Span part{whole.begin > p.first ? whole.begin : p.first, whole.end < last ? whole.end : last};
      walk.begin(block, state, whole.end > last ? p.carried : nullptr);
      walk.walk(
          block, state, part.begin, part.end,
          [&](std::int32_t, std::int32_t end) {
            if (end % kRuleChunk != 0 || end >= whole.end) return;
            walk.put(block, state, p.ends + walk.state_of((end - p.first) / kRuleChunk - 1));
          },
          [&](std::int32_t token, std::int32_t own, float beta, float pull) {
            p.pulls[walk.value_at(token - p.first, own)] = pull;
            store(dv + walk.value_at(token, own), beta * pull);
          });
      if (whole.begin < part.begin) walk.put(block, state, p.carry);
    }
    walk.for_padding(block, last > p.first ? last : p.first, stop < p.tokens ? stop : p.tokens,
                     [&](std::int32_t token, std::int32_t own) { store(dv + walk.value_at(token, own), 0.0F); });
  }
};

}  // namespace rondo::devices::cuda
