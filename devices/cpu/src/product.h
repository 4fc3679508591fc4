// Whole matrix products: cut into panels and tiles that follow from shapes alone, run on the pool.
//
// What sgemm cannot read (bf16, fp16), and B, of which it is fastest on dense tiles, is first copied to fp32 panels in
// scratch, once per product; oneDNN's primitives read operands in place; sums stay fp32 until the one rounding at the
// end. plan() is called when a program is compiled and prepares every tile shape; run() does not allocate.
//
// With sgemm a row of a RowProduct has the same bits whatever the number of rows and wherever among them it lies: tiles
// are whole groups of rows (TileEngine::row_group()), and the last incomplete group is computed filled up with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/units.h"
#include "rondo/devices/thread_pool.h"
#include "row_kernels.h"
#include "tile_engine.h"

namespace rondo::devices::cpu {

/// The engines of one program: fp32 tiles, and bf16 tiles where the processor has them (else null). They outlive the
/// products planned with them.
struct Engines {
  TileEngine* wide = nullptr;
  TileEngine* narrow = nullptr;

  TileEngine* choose(Storage a, Storage b) const {
    return narrow != nullptr && a == Storage::kBfloat16 && b == Storage::kBfloat16 ? narrow : wide;
  }
};

/// Extents of the tiles of a product.
struct TileGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// A second product added to a first one's sums before they are finished: alpha A [rows, inner] times B.
struct SideShape {
  std::int64_t inner = 0;  // 0: there is none
  bool b_transposed = false;
  Storage a_storage = Storage::kFloat32;
  Storage b_storage = Storage::kFloat32;
  float alpha = 1.0F;
};

/// A [rows, inner] times B into out [rows, columns].
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool b_transposed = false;  // B is stored [columns, inner], else [inner, columns]
  Storage a_storage = Storage::kFloat32;
  Storage b_storage = Storage::kFloat32;
  bool trivial_finish = false;  // the sums are the result: Finish::trivial()
  SideShape side = {};          // its operands take the same engine
};

struct ProductOperands {
  ConstArray a;
  ConstArray b;
  ConstArray side_a = {};  // with SideShape
  ConstArray side_b = {};
};

/// y = x w^T and dx = dy w.
class RowProduct {
 public:
  static absl::StatusOr<RowProduct> plan(const Engines& engines, const ProductShape& shape);
  /// Lets run() be called with `rows` less than planned.
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

  bool inner_is_cut() const { return inner_block_ < shape_.inner; }
  Scratch divide(std::byte* scratch) const;
  std::byte* engine_scratch(const Scratch& scratch, std::uint32_t member) const;
  /// From a row of sums to the next.
  std::int64_t sums_stride() const { return shape_.trivial_finish || inner_is_cut() ? shape_.columns : grid_.columns; }
  TileShape tile_shape(const Block& block, std::int64_t rows, std::int64_t columns) const;
  TileShape side_tile_shape(std::int64_t rows, std::int64_t columns) const;
  /// A tile over all of `inner`, of the product or of its side.
  TileShape whole_tile(std::int64_t rows, std::int64_t columns, std::int64_t inner, bool b_transposed) const;
  absl::Status prepare_block(const Block& block) const;
  absl::Status run_block(ThreadPool& pool, const Block& block, const ProductOperands& operands, const Finish& finish,
                         const Scratch& scratch) const;
  absl::Status run_tile(const Block& block, const Place& tile, const ProductOperands& operands, const Finish& finish,
                        const Scratch& scratch, std::uint32_t member) const;
  /// sums = (or +=) the rows of `left` times the tile's columns of B, and at the end of the inner extent the side.
  absl::Status multiply(const Block& block, const Place& tile, std::int64_t rows, const Left& left,
                        const ProductOperands& operands, const Scratch& scratch, std::uint32_t member,
                        float* sums) const;
  void copy_last_rows(std::int64_t rows, const ProductOperands& operands, const Scratch& scratch) const;
  void pack_side_b(ThreadPool& pool, ConstArray b, const Scratch& scratch) const;
  /// Calls enter_rows(m, rows) and enter_block(block), in order, until one fails.
  template <typename EnterRows, typename EnterBlock>
  absl::Status walk(std::int64_t rows, const EnterRows& enter_rows, const EnterBlock& enter_block) const;

  ProductShape shape_;
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  std::int64_t group_ = 1;  // TileEngine::row_group(); divides grid_.rows and, where there are several, rows_block_
  bool convert_a_ = false;
  bool pack_b_ = false;  // the side's too, into column blocks: of all layouts sgemm reads them fastest
  bool convert_side_a_ = false;
  std::int64_t rows_block_ = 0;
  std::int64_t columns_block_ = 0;
  std::int64_t inner_block_ = 0;
};

/// dw [rows, columns] += alpha A^T B for A [tokens, rows] and B [tokens, columns], in chunks of kTokenChunk tokens
/// whose sums are added in rising order.
class WeightProduct {
 public:
  struct Shape {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    float alpha = 1.0F;
    Storage a_storage = Storage::kFloat32;
    Storage b_storage = Storage::kFloat32;
  };
  static absl::StatusOr<WeightProduct> plan(const Engines& engines, const Shape& shape);
  absl::Status prepare_tokens(std::int64_t tokens) const;
  Bytes scratch_bytes(std::uint32_t members) const;
  absl::Status run(ThreadPool& pool, std::int64_t tokens, ConstArray a, ConstArray b, float* dw,
                   std::byte* scratch) const;

 private:
  struct Scratch;
  Scratch divide(std::byte* scratch) const;
  TileShape tile_shape(std::int64_t tokens, std::int64_t rows, std::int64_t columns) const;
  absl::Status prepare_chunk(std::int64_t tokens) const;
  absl::Status run_rows(ThreadPool& pool, std::int64_t tokens, std::int64_t first_row, std::int64_t rows, ConstArray a,
                        ConstArray b, float* dw, const Scratch& scratch) const;

  Shape shape_;
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  bool pack_ = false;  // into fp32 column blocks; primitives read the operands in place
  std::int64_t rows_block_ = 0;
};

}  // namespace rondo::devices::cpu
