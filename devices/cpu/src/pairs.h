// bf16 matrices as oneDNN's kernels want them: what multiplies two numbers at a time reads them side by side.
//
// B [inner, columns] in pairs: blocks of kPairColumns columns, of each the pairs of rows one after the other, of each
// the columns' two numbers: oneDNN's format BA16a64b2a. Rows are filled up with zeros to whole kPairRows, columns to
// whole blocks. None of these functions allocates.
#pragma once

#include <cstdint>

#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

inline constexpr std::int64_t kPairColumns = 64;
inline constexpr std::int64_t kPairRows = 32;

constexpr std::int64_t whole_pairs(std::int64_t rows) { return (rows + kPairRows - 1) / kPairRows * kPairRows; }
/// Elements of [inner, columns] in pairs. Column n, a multiple of kPairColumns, begins pair_elements(inner, n) in.
constexpr std::int64_t pair_elements(std::int64_t inner, std::int64_t columns) {
  return whole_pairs(inner) * ((columns + kPairColumns - 1) / kPairColumns * kPairColumns);
}

/// `pairs` from x [inner, columns] with leading dimension `stride`.
void pack_pairs(ThreadPool& pool, const std::uint16_t* x, std::int64_t stride, std::int64_t inner, std::int64_t columns,
                std::uint16_t* pairs);
/// The same from x [columns, inner], dense.
void pack_pairs_of_rows(ThreadPool& pool, const std::uint16_t* x, std::int64_t inner, std::int64_t columns,
                        std::uint16_t* pairs);
/// y [columns, whole_pairs(rows)], the rest of its rows zero, from x [rows, columns] with leading dimension `stride`.
void transpose_halves(ThreadPool& pool, const std::uint16_t* x, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, std::uint16_t* y);
/// y [rows, whole_pairs(columns)], the rest of its rows zero, from x [rows, columns], dense.
void fill_up_rows(ThreadPool& pool, const std::uint16_t* x, std::int64_t rows, std::int64_t columns, std::uint16_t* y);
/// y [rows, columns] with leading dimension `stride` += alpha x, x dense, on the calling thread.
void add_tile(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y, std::int64_t stride);

/// y [columns, rows] with leading dimension `stride` += alpha x transposed, x [rows, columns] dense; likewise.
void add_tile_transposed(const float* x, std::int64_t rows, std::int64_t columns, float alpha, float* y,
                         std::int64_t stride);

}  // namespace rondo::devices::cpu
