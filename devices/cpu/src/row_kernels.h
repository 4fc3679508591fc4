// The small vector kernels around matrix products: products of few rows, the step from fp32 sums to a stored result,
// and copies into the layouts that tiles read.
//
// Storage is fp32, bf16 or fp16; arithmetic fp32. Tasks follow from sizes alone. None allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

/// A matrix or vector as it lies in memory, dense unless said otherwise.
struct ConstArray {
  const void* data = nullptr;
  Storage storage = Storage::kFloat32;

  ConstArray at(std::int64_t element) const {
    if (data == nullptr) return *this;
    return {static_cast<const std::byte*>(data) + element * size_of(storage), storage};
  }
  explicit operator bool() const { return data != nullptr; }
};
struct Array {
  void* data = nullptr;
  Storage storage = Storage::kFloat32;

  Array at(std::int64_t element) const { return {static_cast<std::byte*>(data) + element * size_of(storage), storage}; }
};

/// What becomes of the sums of a product: out = alpha * sum + bias + addend, rounded once. bias [columns] and addend
/// [rows, columns] may be null. Pointers are to the whole matrices.
struct Finish {
  float alpha = 1.0F;
  ConstArray bias;
  ConstArray addend;
  Array out;

  /// Sums that are already the result: fp32, unscaled, nothing added.
  bool trivial() const { return out.storage == Storage::kFloat32 && alpha == 1.0F && !bias && !addend; }
};

/// One tile: sums fp32 [rows, columns] with leading dimension `sums_stride`, which belongs at (row, column) of a result
/// with `width` columns. `sums` may be that place itself.
void finish_tile(const Finish& finish, const float* sums, std::int64_t sums_stride, std::int64_t row,
                 std::int64_t column, std::int64_t rows, std::int64_t columns, std::int64_t width);

/// Most rows that few_rows_product takes.
inline constexpr std::int64_t kFewRows = 16;

/// out = finish(x w^T) for x [rows, inner] and w [columns, inner], reading w once: bound by memory, as generation is.
/// scratch: few_rows_scratch() bytes.
void few_rows_product(ThreadPool& pool, ConstArray x, ConstArray w, const Finish& finish, std::int64_t rows,
                      std::int64_t columns, std::int64_t inner, std::byte* scratch);
std::size_t few_rows_scratch(std::int64_t rows, std::int64_t inner);

/// Copies x [rows, columns] (leading dimension `stride`) to fp32 column blocks: block b holds columns b * width ... as
/// [rows, width] (the last one narrower: [rows, rest]), one after the other.
void pack_column_blocks(ThreadPool& pool, ConstArray x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                        std::int64_t width, float* blocks);

/// Copies x [rows, columns], dense, to fp32 blocks of its transpose: block b holds rows b * width ... as [columns,
/// width] (the last one narrower: [columns, rest]), one after the other.
void pack_row_blocks(ThreadPool& pool, ConstArray x, std::int64_t rows, std::int64_t columns, std::int64_t width,
                     float* blocks);

/// y = factor x in its own storage, n elements on the calling thread. x and y may be the same.
void convert_row(ConstArray x, Array y, std::int64_t n, float factor = 1.0F);

/// y += x, n elements on the calling thread.
void add_row(ConstArray x, float* y, std::int64_t n);

/// y += factor x, likewise.
void add_scaled_row(ConstArray x, float factor, float* y, std::int64_t n);

/// The sum of x[i] y[i], likewise. Both have the same storage.
float dot_of_rows(ConstArray x, ConstArray y, std::int64_t n);

}  // namespace rondo::devices::cpu
