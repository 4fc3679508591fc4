// How the delta rule's tokens are cut into pieces, and how a thread's scratch is laid out: sizes only.
//
// Within a piece of kPiece tokens the rule becomes products of small matrices (arXiv 2406.06484, with the decay of
// 2412.06464). Pieces are counted from the beginning of their stretch, which ends where its sequence does or where a
// checkpoint is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_layout.h"
#include "kernels/delta.h"
#include "kernels/sequences.h"

namespace rondo::devices::cpu {

inline constexpr std::int64_t kPiece = 16;      // a whole vector, or several: columns of a product
inline constexpr std::int64_t kDeltaPanel = 8;  // rows that a product works on together, or a multiple of these
inline constexpr std::int64_t kStretchPieces = kDeltaChunk / kPiece;
/// Value heads of a key head whose gradients a task takes one after another: state spaces have many.
inline constexpr std::int64_t kPartHeads = 16;
static_assert(kPiece % kDeltaPanel == 0 && kDeltaChunk % kPiece == 0);

struct DeltaLayout {
  explicit DeltaLayout(const DeltaShape& of)
      : shape(of),
        group(of.heads / of.key_heads),
        key_columns(divide_up(of.size, 16) * 16),
        value_columns(divide_up(of.width, 16) * 16),
        key_stride(stride_of(key_columns)),
        value_stride(stride_of(value_columns)),
        state_rows(divide_up(of.size, kDeltaPanel) * kDeltaPanel),
        state(state_rows * value_stride) {}

  /// From one row of `columns` elements to the next: an odd number of cache lines, so that rows do not fall to the same
  /// places of the cache.
  static std::int64_t stride_of(std::int64_t columns) { return (columns / 16 | 1) * 16; }

  /// Of the value heads of a key head; the last one may have fewer than the others.
  std::int64_t parts() const { return divide_up(group, kPartHeads); }
  std::int64_t heads_of_part() const { return std::min(group, kPartHeads); }

  DeltaShape shape;
  std::int64_t group;        // value heads of a key head
  std::int64_t key_columns;  // sizes filled up to whole vectors
  std::int64_t value_columns;
  std::int64_t key_stride;
  std::int64_t value_stride;
  std::int64_t state_rows;  // size filled up to whole panels
  std::int64_t state;       // elements of a state in scratch, [state_rows, value_stride]
};

/// What a piece needs of its keys and queries, whatever the value head.
struct PieceKeys {
  PieceKeys() = default;
  PieceKeys(const DeltaLayout& layout, Carver& carver)
      : rows(carver.take<float>(2 * kPiece * layout.key_stride)),
        turned(carver.take<float>(layout.key_columns * 2 * kPiece)),
        scores(carver.take<float>(2 * kPiece * kPiece)),
        inverse(carver.take<float>(2 * kPiece)) {}
  float* rows = nullptr;     // [2 kPiece][key_stride]: keys of length one, behind them queries, over sqrt(size)
  float* turned = nullptr;   // [key_columns][2 kPiece]: their transpose; forward has that of keys alone
  float* scores = nullptr;   // [2 kPiece][kPiece]: of keys and queries with keys
  float* inverse = nullptr;  // [2 kPiece]: 1 / length
};

/// And what it needs of one value head.
struct PieceValues {
  PieceValues() = default;
  PieceValues(const DeltaLayout& layout, Carver& carver)
      : decays(carver.take<float>(kPiece * kPiece)),
        overlaps(carver.take<float>(2 * kPiece * kPiece)),
        from_start(carver.take<float>(kPiece)),
        beta(carver.take<float>(kPiece)),
        known(carver.take<float>(2 * kPiece * layout.value_stride)),
        errors(carver.take<float>(kPiece * layout.value_stride)),
        written(carver.take<float>(kPiece * layout.value_stride)) {}
  /// Of token j at the end of the piece of n tokens.
  const float* to_end(std::int64_t n) const { return decays + (n - 1) * kPiece; }

  float* decays = nullptr;      // [kPiece][kPiece]: what is left of token j at token i, 0 for j > i
  float* overlaps = nullptr;    // [2 kPiece][kPiece]: decays times scores
  float* from_start = nullptr;  // [kPiece]: what is left of the state before the piece at token i
  float* beta = nullptr;        // [kPiece]
  float* known = nullptr;       // [2 kPiece][value_stride]: what keys and queries find in that state
  float* errors = nullptr;      // [kPiece][value_stride]: v - S^T k of each token, S as the token finds it
  float* written = nullptr;     // [kPiece][value_stride]: beta times that
};

/// Tokens begin ... end - 1 of a sequence between two checkpoints, cut into pieces.
struct Stretch {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t pieces() const { return divide_up(end - begin, kPiece); }
  std::int64_t first_of(std::int64_t piece) const { return begin + piece * kPiece; }
  std::int64_t tokens_of(std::int64_t piece) const { return std::min(kPiece, end - first_of(piece)); }
};

/// The stretch that token `from` begins or continues.
inline Stretch stretch_from(const TokenRange& sequence, std::int64_t from) {
  return {from, std::min(sequence.end, (from / kDeltaChunk + 1) * kDeltaChunk)};
}
/// The stretch that ends before token `end`.
inline Stretch stretch_before(const TokenRange& sequence, std::int64_t end) {
  return {std::max(sequence.begin, (end - 1) / kDeltaChunk * kDeltaChunk), end};
}

}  // namespace rondo::devices::cpu
