// Sums over rows, and the last token's row. Sums go by chunks whose partial sums are added in rising order.
#pragma once

#include "params.h"
#include "vectors.h"

namespace rondo::devices::cuda {

/// Sums over rows by chunks of kSumChunk tokens: enough blocks to draw on the whole card's memory.
inline constexpr int kSumChunk = 128;
/// Threads of a block of ColumnSums that go along a row, each with a vector of columns; and its rows at a time.
inline constexpr int kColumnThreads = 32;
inline constexpr int kRowLanes = kMostThreads / kColumnThreads;

/// Columns of a block.
constexpr std::int64_t columns_of_block(std::int64_t columns) {
  return columns % kVector == 0 ? kColumnThreads * kVector : kColumnThreads;
}
constexpr int column_sums_shared(std::int64_t columns) {
  return kRowLanes * static_cast<int>(columns_of_block(columns)) * static_cast<int>(sizeof(float));
}

template <typename T>
struct ColumnSums {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ColumnSumsParams& p) {
    of_chunk(block, p, block.y() * p.chunk);
  }

  /// Of the rows from `begin` on; to row y of the partial sums.
  template <typename Block>
  RONDO_KERNEL static void of_chunk(Block& block, const ColumnSumsParams& p, std::int64_t begin) {
    if (p.columns % kVector == 0) {
      sum<kVector>(block, p, begin);
    } else {
      sum<1>(block, p, begin);
    }
  }

 private:
  template <int kCount, typename Block>
  RONDO_KERNEL static void sum(Block& block, const ColumnSumsParams& p, std::int64_t begin) {
    constexpr int kColumns = kColumnThreads * kCount;
    auto* lanes = reinterpret_cast<float*>(block.shared());  // [kRowLanes, kColumns]
    const std::int64_t first = block.x() * kColumns;
    const std::int64_t end = begin + p.chunk < p.rows ? begin + p.chunk : p.rows;
    block.each([&](int thread) {
      const std::int64_t column = first + thread % kColumnThreads * kCount;
      Numbers<kCount> sums{};
      if (column < p.columns) {
        const std::int64_t row = begin + thread / kColumnThreads;
        add_in_order<4>(sums, (end - row + kRowLanes - 1) / kRowLanes,
                        [&](std::int64_t i) { return product_of<kCount>(p, row + i * kRowLanes, column); });
      }
      store_vector<kCount>(lanes + thread / kColumnThreads * kColumns + thread % kColumnThreads * kCount, sums);
    });
    block.each([&](int thread) {
      const std::int64_t column = first + thread;
      if (thread >= kColumns || column >= p.columns) return;
      float sum = 0;
      RONDO_UNROLL
      for (int lane = 0; lane < kRowLanes; ++lane) sum += lanes[lane * kColumns + thread];
      p.partial[block.y() * p.columns + column] = p.column_scales == nullptr ? sum : sum * p.column_scales[column];
    });
  }

  template <int kCount>
  RONDO_KERNEL static Numbers<kCount> product_of(const ColumnSumsParams& p, std::int64_t row, std::int64_t column) {
    const std::int64_t at = row * p.columns + column;
    auto product = load_vector<kCount>(static_cast<const T*>(p.dy) + at);
    if (p.x == nullptr) return product;
    auto x = load_vector<kCount>(static_cast<const T*>(p.x) + at);
    const float scale = p.scales == nullptr ? 1.0F : p.scales[row];
    const float mean = p.means == nullptr ? 0.0F : p.means[row];
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) product[i] *= (x[i] - mean) * scale;
    return product;
  }
};

struct ColumnTotals {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ColumnTotalsParams& p) {
    block.each([&](int thread) {
      const std::int64_t column = block.x() * block.threads() + thread;
      if (column >= p.columns) return;
      auto total = load_vector<1>(p.totals + column);
      add_in_order<16>(total, p.chunks,
                       [&](std::int64_t chunk) { return load_vector<1>(p.partial + chunk * p.columns + column); });
      p.totals[column] = total[0];
    });
  }
};

struct SelectLast {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SelectLastParams& p) {
    const std::int64_t last = p.bounds[1 + p.bounds[0]] - 1;
    block.each([&](int thread) {
      for (std::int64_t c = thread; c < p.width; c += block.threads()) {
        store_any(p.y, p.storage, c, load_any(p.x, p.storage, last * p.width + c));
      }
    });
  }
};

}  // namespace rondo::devices::cuda
