// Whole matrix products: cut into panels and tiles that follow from shapes alone, run on the pool.
//
// What sgemm cannot read (bf16, fp16), and B, of which it is fastest on dense tiles, is first copied to fp32 panels in
// scratch, once per product; where bf16 is multiplied as such, packed_product.h does. Sums stay fp32 until the one
// rounding at the end. plan() is called when a program is compiled and prepares every tile shape; run() does not
// allocate.
//
// With sgemm a row of a RowProduct has the same bits whatever the number of rows and wherever among them it lies: tiles
// are whole groups of rows (TileEngine::row_group()), and the last incomplete group is computed filled up with zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "packed_product.h"
#include "product_shape.h"
#include "rondo/base/units.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

/// y = x w^T and dx = dy w.
class RowProduct {
 public:
  static absl::StatusOr<RowProduct> plan(const Engines& engines, const ProductShape& shape);
  /// Lets run() be called with `rows` less than planned. Where those are any (ProductShape::usual_rows) it may be.
  absl::Status prepare_rows(std::int64_t rows) const;
  /// Valid once everything of the program is planned: the engines' own scratch grows until then.
  Bytes scratch_bytes(std::uint32_t members) const;
  absl::Status run(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands, const Finish& finish,
                   std::byte* scratch) const;

  /// Products of few rows read their weights once, as few_rows_product; they have no side. They sum in an order of
  /// their own: a row's bits differ from those that it has in a product of more rows. Made for generation; a training
  /// microbatch of kFewRows tokens or fewer takes this way too.
  static bool few_rows(const ProductShape& shape) { return shape.b_transposed && shape.rows <= kFewRows; }

 private:
  /// A tile of the result.
  struct Place {
    std::int64_t row = 0, column = 0;
    std::int64_t row_in_block = 0;
    std::int64_t rows = 0, columns = 0;
  };
  /// Part of the product whose operands are in reach of the tiles: rows m ..., columns n ..., inner k ... of it.
  struct Block {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t rows = 0, columns = 0, inner = 0;
    bool last_inner = false;
  };
  struct Scratch;
  /// The first rows of A and of the side's A that a call reads, as the engine reads them.
  struct Left {
    const void* a = nullptr;
    const void* side_a = nullptr;
  };

  absl::Status run_tiles(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands, const Finish& finish,
                         std::byte* scratch) const;
  bool inner_is_cut() const { return inner_block_ < shape_.inner; }
  Scratch divide(std::byte* scratch) const;
  std::byte* engine_scratch(const Scratch& scratch, std::uint32_t member) const;
  /// From a row of sums to the next.
  std::int64_t sums_stride() const { return shape_.trivial_finish || inner_is_cut() ? shape_.columns : grid_.columns; }
  TileShape tile_shape(const Block& block, std::int64_t rows, std::int64_t columns) const;
  TileShape side_tile_shape(std::int64_t rows, std::int64_t columns) const;
  /// A tile over all of `inner`, of the product or of its side.
  TileShape whole_tile(std::int64_t rows, std::int64_t columns, std::int64_t inner) const;
  absl::Status run_block(ThreadPool& pool, const Block& block, const ProductOperands& operands, const Finish& finish,
                         const Scratch& scratch) const;
  absl::Status run_tile(const Block& block, const Place& tile, const ProductOperands& operands, const Finish& finish,
                        const Scratch& scratch, std::uint32_t member) const;
  /// sums = (or +=) the rows of `left` times the tile's columns of B, and at the end of the inner extent the side.
  absl::Status multiply(const Block& block, const Place& tile, std::int64_t rows, const Left& left,
                        const Scratch& scratch, std::uint32_t member, float* sums) const;
  void copy_last_rows(std::int64_t rows, const ProductOperands& operands, const Scratch& scratch) const;
  void pack_b(ThreadPool& pool, const Block& block, ConstArray b, const Scratch& scratch) const;
  void pack_side_b(ThreadPool& pool, ConstArray b, const Scratch& scratch) const;

  ProductShape shape_;
  std::optional<PackedRowProduct> packed_;  // then it does all but products of few rows
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  std::int64_t group_ = 1;  // TileEngine::row_group(); divides grid_.rows and, where there are several, rows_block_
  bool convert_a_ = false;
  bool convert_side_a_ = false;
  std::int64_t rows_block_ = 0;
  std::int64_t columns_block_ = 0;
  std::int64_t inner_block_ = 0;
};

/// dw [rows, columns] += alpha A^T B for A [tokens, rows] and B [tokens, columns], in chunks of kTokenChunk tokens
/// whose sums are added in rising order; packed ones in chunks of their own.
class WeightProduct {
 public:
  using Shape = WeightShape;
  static absl::StatusOr<WeightProduct> plan(const Engines& engines, const Shape& shape);
  absl::Status prepare_tokens(std::int64_t tokens) const;
  /// Lets run() be called with any number of tokens up to those that were planned.
  absl::Status prepare_any_tokens() const;
  Bytes scratch_bytes(std::uint32_t members) const;
  absl::Status run(ThreadPool& pool, std::int64_t tokens, ConstArray a, ConstArray b, float* dw,
                   std::byte* scratch) const;

 private:
  struct Scratch;
  Scratch divide(std::byte* scratch) const;
  TileShape tile_shape(std::int64_t tokens, std::int64_t rows, std::int64_t columns) const;
  absl::Status run_rows(ThreadPool& pool, std::int64_t tokens, std::int64_t first_row, std::int64_t rows, float* dw,
                        const Scratch& scratch) const;

  Shape shape_;
  std::optional<PackedWeightProduct> packed_;
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  std::int64_t rows_block_ = 0;
};

}  // namespace rondo::devices::cpu
