// How attention is cut into blocks, and how scratch is laid out: sizes only, no arithmetic on values.
//
// The queries of a block are kept as rows (token, head of the group): all heads that share a key head are worked on
// together, so that keys and values are read and packed once for them. Blocks of queries and of keys are counted from
// the beginning of their own sequence: what a sequence gives does not depend on where it stands in the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "kernels/sequences.h"
#include "kernels/storage.h"
#include "kernels/tile_units.h"

namespace rondo::devices::cpu {

/// How large blocks are.
struct AttentionBlocks {
  std::int64_t panel;   // rows that are worked on together
  std::int64_t keys;    // of a block: whole panels
  std::int64_t rows;    // that a block of queries aims at,
  std::int64_t tokens;  // and the most tokens that it has
  std::int64_t filled;  // head_dim is filled up to a multiple of it
};

inline constexpr std::int64_t kPanel = 6;  // rows of a register tile
inline constexpr std::int64_t kKeys = 48;  // whole panels and whole vectors of up to 16 lanes
inline constexpr AttentionBlocks kVectorBlocks{
    .panel = kPanel, .keys = kKeys, .rows = 192, .tokens = 128, .filled = 16};

struct AttentionLayout {
  AttentionLayout(const AttentionShape& shape, const AttentionBlocks& blocks, const TileUnits* with)
      : units(with),
        heads(shape.heads),
        kv_heads(shape.kv_heads),
        head_dim(shape.head_dim),
        group(shape.heads / shape.kv_heads),
        width(divide_up(shape.head_dim, blocks.filled) * blocks.filled),
        panel(blocks.panel),
        keys(blocks.keys),
        block_tokens(std::clamp<std::int64_t>(blocks.rows / group, 4, blocks.tokens)),
        rows(whole_panels(block_tokens * group)) {}

  std::int64_t whole_panels(std::int64_t count) const { return divide_up(count, panel) * panel; }
  /// Where a row of a block of queries stands in [tokens, heads], counted from the block's first row.
  std::int64_t place_of(std::int64_t row) const { return row / group * heads + row % group; }
  /// First key of the block that holds the first key visible at `position`.
  std::int64_t first_key_block(std::int64_t position, std::uint32_t window) const {
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, position + 1 - window);
    return first / keys * keys;
  }

  const TileUnits* units;  // null: vectors
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t group;         // query heads of a key head
  std::int64_t width;         // elements from one row to the next in scratch: head_dim filled up
  std::int64_t panel;         // rows that are worked on together
  std::int64_t keys;          // of a block
  std::int64_t block_tokens;  // of a block of queries
  std::int64_t rows;          // of a block of queries, in whole panels
};

/// By tile units: whole tiles. What a block of queries needs of scratch stays in a second-level cache.
inline constexpr AttentionBlocks kTileForwardBlocks{
    .panel = kTile, .keys = 128, .rows = 512, .tokens = 512, .filled = kTile};
inline constexpr AttentionBlocks kTileBackwardBlocks{
    .panel = kTile, .keys = 128, .rows = 256, .tokens = 256, .filled = kTile};

inline AttentionLayout forward_layout(const AttentionShape& shape, const TileUnits* units) {
  return {shape, units == nullptr ? kVectorBlocks : kTileForwardBlocks, units};
}
inline AttentionLayout backward_layout(const AttentionShape& shape, const TileUnits* units) {
  return {shape, units == nullptr ? kVectorBlocks : kTileBackwardBlocks, units};
}

/// attention_backward's tensors, their storage not yet told.
struct BackwardPointers {
  const void *q, *k, *v, *o;
  const float* lse;
  const void* d_o;
  const std::int32_t* bounds;
  void *dq, *dk, *dv;
};

/// Hands out pieces of scratch, each on a cache line of its own. With no memory behind it, it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(std::int64_t count) {
    constexpr std::size_t kLine = 64;
    const std::size_t skew = base_ == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(base_) % kLine;
    const std::size_t first = skew == 0 ? 0 : kLine - skew;
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + first + at);
  }
  /// Bytes that hold all that was taken, wherever the memory begins.
  std::size_t size() const { return used_ + 64; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// Tokens of a sequence, counted from its beginning.
struct Span {
  std::int64_t first;
  std::int64_t count;
};

/// Bytes of a thread's scratch.
template <typename Scratch>
std::size_t scratch_size(const AttentionLayout& layout) {
  Carver carver(nullptr);
  const Scratch counted(layout, carver);
  static_cast<void>(counted);
  return carver.size();
}

/// Keys lo ... hi - 1 of a block are visible to a query.
struct Visible {
  std::int64_t lo;
  std::int64_t hi;
  bool empty() const { return hi <= lo; }
};

/// What a query at `position` sees of the keys first ... first + count - 1. A row without a query has position -1.
inline Visible visible_to(std::int64_t position, std::int64_t first, std::int64_t count, std::uint32_t window) {
  const std::int64_t hi = std::min(count, position + 1 - first);
  const std::int64_t lo = window == 0 ? 0 : std::max<std::int64_t>(0, position + 1 - window - first);
  return {lo, hi};
}

/// Calls fn(sequence, first) for every block of `size` tokens, counted from its sequence's beginning, whose first token
/// lies in begin ... end - 1. So a grid over the whole batch shares out the blocks, however short the sequences are.
template <typename Function>
void for_blocks_from(const Sequences& sequences, std::int64_t begin, std::int64_t end, std::int64_t size,
                     const Function& fn) {
  for (std::int64_t i = sequences.index_at(begin); i < sequences.count(); ++i) {
    const TokenRange sequence = sequences[i];
    if (sequence.begin >= end) return;
    const std::int64_t skipped = divide_up(std::max<std::int64_t>(0, begin - sequence.begin), size) * size;
    const std::int64_t last = std::min(end, sequence.end);
    for (std::int64_t first = sequence.begin + skipped; first < last; first += size) fn(sequence, first);
  }
}

}  // namespace rondo::devices::cpu
