// Biases of a group of linear layers, each added to the rows of one expert, and their gradients.
#pragma once

#include "grouped.h"
#include "rows.h"

namespace rondo::devices::cuda {

/// Rows of a block of GroupedBias, kRowLanes at a time.
inline constexpr int kBiasRows = 64;

/// A block columns_of_block() columns of kBiasRows rows.
template <typename T>
struct GroupedBias {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedBiasParams& p) {
    auto* found = reinterpret_cast<std::int32_t*>(block.shared());
    const GroupRows rows = rows_of_tile(block, p, static_cast<std::int32_t>(block.y()), kBiasRows, found);
    if (rows.first >= rows.end) return;
    if (p.columns % kVector == 0) {
      add<kVector>(block, p, rows);
    } else {
      add<1>(block, p, rows);
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // reads of a thread

  template <int kCount, typename Block>
  RONDO_KERNEL static void add(Block& block, const GroupedBiasParams& p, const GroupRows& rows) {
    block.local([&](int thread) {
      const std::int64_t column = (block.x() * kColumnThreads + thread % kColumnThreads) * kCount;
      if (column >= p.columns) return;
      const bool real = rows.expert < p.experts;
      Numbers<kCount> bias{};
      if (real) bias = load_vector<kCount>(static_cast<const T*>(p.bias) + rows.expert * p.columns + column);
      const auto end =
          rows.end - rows.first < kBiasRows ? std::int64_t{rows.end} : std::int64_t{rows.first} + kBiasRows;
      for (std::int64_t row = rows.first + thread / kColumnThreads; row < end; row += kAtOnce * kRowLanes) {
        Array<Numbers<kCount>, static_cast<std::size_t>(kAtOnce)> some;
        RONDO_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          some[i] = bias;
          const std::int64_t at = row + i * kRowLanes;
          if (!real || at >= end) continue;
          add_vector(some[i], load_vector<kCount>(static_cast<const T*>(p.x) + at * p.columns + column));
        }
        RONDO_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const std::int64_t at = row + i * kRowLanes;
          if (at < end) store_vector<kCount>(static_cast<T*>(p.y) + at * p.columns + column, some[i]);
        }
      }
    });
  }
};

/// Behind that of the sums.
constexpr int bias_sums_shared(std::int64_t columns) { return column_sums_shared(columns) + kGroupRowsShared; }

/// A block columns_of_block() columns of one chunk of an expert's rows.
template <typename T>
struct GroupedBiasSums {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedBiasParams& p) {
    auto* found = reinterpret_cast<std::int32_t*>(block.shared() + column_sums_shared(p.columns));
    const GroupRows rows = rows_of_tile(block, p, static_cast<std::int32_t>(block.y()), kGroupChunk, found);
    if (rows.first >= rows.end || rows.expert >= p.experts) return;
    ColumnSumsParams one{};
    one.dy = p.x;
    one.partial = p.partial;
    one.rows = rows.end;
    one.columns = p.columns;
    one.chunk = kGroupChunk;
    ColumnSums<T>::of_chunk(block, one, rows.first);
  }
};

/// A block kMostThreads columns of an expert.
struct GroupedBiasTotals {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const GroupedBiasParams& p) {
    const std::int64_t expert = block.y();
    const std::int64_t begin = p.offsets[expert];
    const std::int64_t rows = p.offsets[expert + 1] - begin;
    ColumnTotalsParams one{};
    one.partial = p.partial + first_tile(begin, expert, kGroupChunk) * p.columns;
    one.totals = p.totals + expert * p.columns;
    one.chunks = (rows + kGroupChunk - 1) / kGroupChunk;
    one.columns = p.columns;
    ColumnTotals::run(block, one);
  }
};

}  // namespace rondo::devices::cuda
