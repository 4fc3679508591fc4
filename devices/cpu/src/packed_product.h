// Products of bf16 by processors that multiply it as such, behind RowProduct and WeightProduct (product.h).
//
// oneDNN's kernels are at their best where B lies in pairs of rows (pairs.h), A in dense rows and a tile's sums by
// themselves: B is put so once a product, by panels; A is read in place, but for rows shorter than a matrix unit's and
// the transposed one of a gradient of weights; sums stay in a thread's own tile until they are finished.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "product_shape.h"
#include "rondo/base/units.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

/// As RowProduct, which takes products of few rows itself.
class PackedRowProduct {
 public:
  static absl::StatusOr<PackedRowProduct> plan(TileEngine& engine, const ProductShape& shape);
  absl::Status prepare_rows(std::int64_t rows) const;
  Bytes scratch_bytes(std::uint32_t members) const;
  absl::Status run(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands, const Finish& finish,
                   std::byte* scratch) const;

 private:
  struct Scratch;
  /// A part of the columns, whose B lies in scratch.
  struct Panel {
    std::int64_t column = 0;
    std::int64_t columns = 0;
  };

  /// What a tile reads: rows of A and of the side's A.
  struct Left {
    const std::uint16_t* a = nullptr;
    const std::uint16_t* side_a = nullptr;
  };

  bool has_side() const { return shape_.side.inner > 0; }
  /// Tiles have whole groups of rows, of which those behind the last are zeros.
  bool fills_up() const { return shape_.usual_rows > 0; }
  absl::Status prepare_any_rows() const;
  Scratch divide(std::byte* scratch) const;
  TileShape tile_shape(std::int64_t rows, std::int64_t columns) const;
  TileShape side_shape(std::int64_t rows, std::int64_t columns) const;
  void pack(ThreadPool& pool, const Panel& panel, const ProductOperands& operands, const Scratch& scratch) const;
  absl::Status run_panel(ThreadPool& pool, std::int64_t rows, const Panel& panel, const Left& left,
                         const Finish& finish, const Scratch& scratch) const;
  absl::Status multiply(const Left& left, std::int64_t rows, std::int64_t n, std::int64_t columns,
                        const Scratch& scratch, std::uint32_t member, float* sums) const;

  ProductShape shape_;
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  std::int64_t panel_columns_ = 0;
};

/// As WeightProduct. The sums of a chunk of tokens are added to dw at once; a chunk is as long as its panels allow.
/// Where dw has few columns its transposed one is computed: numbers are put in pairs sooner than transposed.
class PackedWeightProduct {
 public:
  static absl::StatusOr<PackedWeightProduct> plan(TileEngine& engine, const WeightShape& shape);
  absl::Status prepare_tokens(std::int64_t tokens) const;
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

  WeightShape shape_;     // of what is computed
  bool swapped_ = false;  // it is dw transposed
  TileEngine* engine_ = nullptr;
  TileGrid grid_;
  std::int64_t chunk_ = 0;
  std::int64_t rows_block_ = 0;
};

}  // namespace rondo::devices::cpu
