// Products of a group of linear layers, each of the rows of one expert. How many these are is known on the card alone:
// a grid has the blocks that the worst case takes, and those without work leave.
#pragma once

#include "product.h"

namespace rondo::devices::cuda {

/// Rows of an expert whose sum is made before it is added to a weight's gradient.
inline constexpr int kGroupChunk = 512;

/// The rows that a block makes: from `first` on, of those of an expert, or of padding, from `begin` to `end`.
struct GroupRows {
  std::int32_t expert;  // that of padding is one past the last
  std::int32_t begin;
  std::int32_t end;
  std::int32_t first;  // not below `end`: none
};
inline constexpr int kGroupRowsShared = 3 * 4;

/// Tiles of rows that a grid has to have.
constexpr std::int64_t tiles_of_group(std::int64_t rows, std::int64_t experts, int tile) {
  return rows / tile + experts + 1;
}

/// The number of an expert's first tile, whose rows begin at `begin`: what quotients leave out is less than the one
/// more that each expert has.
template <typename Integer>
RONDO_KERNEL Integer first_tile(Integer begin, Integer expert, std::int32_t tile) {
  return begin / tile + expert;
}

/// Params: with rows, experts and their offsets. `found`: kGroupRowsShared bytes.
template <typename Block, typename Params>
RONDO_KERNEL GroupRows rows_of_tile(Block& block, const Params& p, std::int32_t number, std::int32_t tile,
                                    std::int32_t* found) {
  block.each([&](int thread) {
    for (std::int32_t e = thread; e <= p.experts; e += block.threads()) {
      const bool last = e == p.experts;
      const std::int32_t begin = p.offsets[e];
      const std::int32_t end = last ? static_cast<std::int32_t>(p.rows) : p.offsets[e + 1];
      if (number < first_tile(begin, e, tile) || (!last && number > end / tile + e)) continue;
      found[0] = e;
      found[1] = begin;
      found[2] = end;
    }
  });
  const std::int32_t begin = found[1];
  return {found[0], begin, found[2], begin + (number - first_tile(begin, found[0], tile)) * tile};
}

/// The launch is for the rows' expert; the first one is for those of padding.
RONDO_KERNEL bool is_of_launch(const GroupedParams& p, const GroupRows& rows) {
  if (rows.expert == p.experts) return p.first == 0;
  return rows.expert >= p.first && rows.expert < p.first + kMostGroup;
}

/// Behind that of the product.
inline constexpr int kGroupedShared = kProductShared + kGroupRowsShared;

/// A block a tile of the result.
template <typename T>
struct Grouped {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedParams& p) {
    auto* found = reinterpret_cast<std::int32_t*>(block.shared() + kProductShared);
    const GroupRows rows = rows_of_tile(block, p, static_cast<std::int32_t>(block.y()), kTile, found);
    if (rows.first >= rows.end || !is_of_launch(p, rows)) return;
    const bool real = rows.expert < p.experts;
    ProductParams one{};
    one.a = static_cast<const T*>(p.a) + rows.begin * p.inner;
    one.b = real ? p.w[rows.expert - p.first] : nullptr;
    if (real && p.addend != nullptr) one.addend = static_cast<const T*>(p.addend) + rows.begin * p.columns;
    one.c = static_cast<T*>(p.c) + rows.begin * p.columns;
    one.rows = rows.end - rows.begin;
    one.columns = p.columns;
    one.inner = real ? p.inner : 0;
    one.a_row = p.inner;
    one.a_column = 1;
    one.b_row = p.transposed != 0 ? 1 : p.columns;
    one.b_column = p.transposed != 0 ? p.inner : 1;
    one.alpha = p.alpha;
    one.addend_storage = one.c_storage = storage_of<T>();
    Product<T>::tile(block, one, rows.first - rows.begin, block.x() * kTile);
  }
};

/// A block a tile of an expert's gradient, of which there may be more than a grid has rows.
struct GradientTile {
  std::int64_t expert;  // of the launch's
  std::int64_t row;
  std::int64_t column;
};
RONDO_KERNEL GradientTile gradient_tile(const GroupedGradientParams& p, std::int64_t number, std::int64_t tile) {
  const std::int64_t across = (p.columns + tile - 1) / tile;
  const std::int64_t down = (p.rows + tile - 1) / tile;
  return {number / across / down, number / across % down * tile, number % across * tile};
}

template <typename T>
struct GroupedGradient {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedGradientParams& p) {
    const GradientTile tile = gradient_tile(p, block.x(), kTile);
    const std::int32_t* offsets = p.offsets + p.first + tile.expert;
    std::int64_t begin = offsets[0];
    const std::int64_t end = offsets[1];
    if (begin == end && p.addend != nullptr) return;
    ProductParams one{};
    one.c = p.dw[tile.expert];
    one.addend = p.addend != nullptr ? one.c : nullptr;
    one.rows = p.rows;
    one.columns = p.columns;
    one.a_row = 1;
    one.a_column = p.rows;
    one.b_row = p.columns;
    one.b_column = 1;
    one.alpha = p.alpha;
    one.addend_storage = one.c_storage = Storage::kFloat32;
    do {
      one.a = static_cast<const T*>(p.dy) + begin * p.rows;
      one.b = static_cast<const T*>(p.x) + begin * p.columns;
      one.inner = end - begin < kGroupChunk ? end - begin : kGroupChunk;
      Product<T>::tile(block, one, tile.row, tile.column);
      one.addend = one.c;
      begin += kGroupChunk;
    } while (begin < end);
  }
};

}  // namespace rondo::devices::cuda
