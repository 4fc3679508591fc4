// Looking rows up in a table, and the gradient: for each id that comes, the sum of its tokens' rows.
//
// The gradient goes without atomics. Tokens are put into the order of their ids and, with one id, their own; then
// pieces of up to kPieceTokens tokens with one id are added up side by side, and the pieces of an id one after the
// other: the order of a sum follows from how often the id comes, and the most frequent one does not keep the card
// waiting.
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

struct Embedding {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const EmbeddingParams& p) {
    const std::int32_t id = p.ids[block.x()];
    const bool past = id >= p.vocabulary;
    block.each([&](int thread) {
      if (past && thread == 0) {
        *p.fault = {Fault::Code::kIdPastTable, static_cast<std::int32_t>(block.x()), id, p.vocabulary};
      }
      for (std::int64_t c = thread; c < p.width; c += block.threads()) {
        const float value =
            id < 0 || past ? 0.0F : load_any(p.table, p.table_storage, static_cast<std::int64_t>(id) * p.width + c);
        store_any(p.x, p.x_storage, block.x() * p.width + c, p.scale * value);
      }
    });
  }
};

inline constexpr std::int32_t kPieceTokens = 64;

/// Where the sum of a piece lies that begins at a place of the order, for an id of several. Of two ids that are next to
/// each other the last piece of one and the first of the other may begin within kPieceTokens places, no others.
RONDO_KERNEL std::int64_t sum_of_piece(std::int32_t place, bool is_first) {
  return 2 * static_cast<std::int64_t>(place / kPieceTokens) + (is_first ? 1 : 0);
}
constexpr std::int64_t sums_of_pieces(std::int64_t tokens) { return 2 * (tokens / kPieceTokens + 1); }

/// A block a token finds its place in the order. Padding comes last.
struct EmbeddingOrder {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const EmbeddingRowsParams& p) {
    constexpr std::int32_t kNone = 0x7FFFFFFF;
    const auto token = static_cast<std::int32_t>(block.x());
    const std::int32_t real = real_tokens(p.bounds);
    const auto id_of = [&](std::int32_t other) { return other < real && p.ids[other] >= 0 ? p.ids[other] : kNone; };
    const std::int32_t id = id_of(token);
    // Counts: exact up to 2^24 tokens.
    typename Block::template Own<float> lesser;
    typename Block::template Own<float> earlier;
    typename Block::template Own<float> same;
    block.local([&](int thread) {
      std::int32_t counts[3] = {0, 0, 0};
      for (std::int32_t other = thread; other < p.tokens; other += block.threads()) {
        const std::int32_t its = id_of(other);
        counts[0] += its < id ? 1 : 0;
        counts[1] += its == id && other < token ? 1 : 0;
        counts[2] += its == id ? 1 : 0;
      }
      lesser[thread] = static_cast<float>(counts[0]);
      earlier[thread] = static_cast<float>(counts[1]);
      same[thread] = static_cast<float>(counts[2]);
    });
    const auto before = static_cast<std::int32_t>(block.sum(earlier));
    const std::int32_t place = static_cast<std::int32_t>(block.sum(lesser)) + before;
    const auto count = static_cast<std::int32_t>(block.sum(same));
    block.local([&](int thread) {
      if (thread != 0) return;
      p.order[place] = token;
      p.within[place] = id == kNone ? -1 : before;
      p.count[place] = count;
    });
  }
};

/// A block a place of the order: the first of an id finds its row, the number of ids before it.
struct EmbeddingRanks {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const EmbeddingRowsParams& p) {
    const auto place = static_cast<std::int32_t>(block.x());
    if (place > 0 && p.within[place] != 0) return;
    typename Block::template Own<float> before;
    typename Block::template Own<float> all;
    block.local([&](int thread) {
      std::int32_t counts[2] = {0, 0};
      const std::int32_t end = place == 0 ? p.tokens : place;
      for (std::int32_t other = thread; other < end; other += block.threads()) {
        const std::int32_t first = p.within[other] == 0 ? 1 : 0;
        counts[0] += other < place ? first : 0;
        counts[1] += first;
      }
      before[thread] = static_cast<float>(counts[0]);
      all[thread] = static_cast<float>(counts[1]);
    });
    const auto row = static_cast<std::int32_t>(block.sum(before));
    const auto rows = static_cast<std::int32_t>(block.sum(all));
    block.local([&](int thread) {
      if (thread != 0) return;
      if (place == 0) p.row_ids[0] = rows;
      if (p.within[place] != 0) return;  // there is padding alone
      p.row_ids[1 + row] = p.ids[p.order[place]];
      p.start[row] = place;
      p.row[place] = row;
    });
  }
};

/// A block a place of the order: where a piece begins it is added up.
struct EmbeddingPieces {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const EmbeddingRowsParams& p) {
    const auto place = static_cast<std::int32_t>(block.x());
    const std::int32_t within = p.within[place];
    if (within < 0 || within % kPieceTokens != 0) return;
    const std::int32_t count = p.count[place];
    const std::int32_t left = count - within < kPieceTokens ? count - within : kPieceTokens;
    const bool whole = count <= kPieceTokens;
    float* const to = whole ? p.rows + p.row[place] * p.width : p.pieces + sum_of_piece(place, within == 0) * p.width;
    const float scale = whole ? p.scale : 1.0F;
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        Numbers<kCount> sum{};
        add_in_order<4>(sum, left, [&](std::int64_t i) {
          return load_any_vector<kCount>(p.dy, p.dy_storage, p.order[place + i] * p.width + d);
        });
        scale_vector(sum, scale);
        store_vector<kCount>(to + d, sum);
      });
    });
  }
};

/// A block a row of several pieces adds them up.
struct EmbeddingRows {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const EmbeddingRowsParams& p) {
    if (block.x() >= p.row_ids[0]) return;
    const std::int32_t start = p.start[block.x()];
    const std::int32_t count = p.count[start];
    if (count <= kPieceTokens) return;
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        Numbers<kCount> sum{};
        add_in_order<4>(sum, (count + kPieceTokens - 1) / kPieceTokens, [&](std::int64_t i) {
          const auto place = start + static_cast<std::int32_t>(i) * kPieceTokens;
          return load_vector<kCount>(p.pieces + sum_of_piece(place, i == 0) * p.width + d);
        });
        scale_vector(sum, p.scale);
        store_vector<kCount>(p.rows + block.x() * p.width + d, sum);
      });
    });
  }
};

}  // namespace rondo::devices::cuda
