// See product.h.
#include "product.h"

#include <algorithm>

#include "kernels.h"
#include "kernels/storage.h"
#include "rondo/base/status.h"
#include "rondo/devices/op.h"
#include "tiling.h"

namespace rondo::devices::cpu {
namespace {

constexpr std::int64_t kRowsBlock = 2160;
constexpr std::int64_t kSgemmRowsStep = 360;  // a multiple of the rows of sgemm's tiles

/// What sgemm is fastest on, of whole groups of rows.
constexpr TileGrid kRowGrids[] = {{120, 192}, {120, 96}, {72, 96}, {72, 48}};

constexpr std::size_t floats(std::int64_t n) {
  return static_cast<std::size_t>(round_up(static_cast<std::uint64_t>(n) * sizeof(float), 64));
}

/// Null stays null: sizes are asked for before there is any scratch.
float* at(std::byte* scratch, Bytes offset) {
  return scratch == nullptr ? nullptr : reinterpret_cast<float*>(scratch + offset);
}

/// Tiles of 48, 96 and 192 columns give the same bits, but for a single last column that only some of them
/// leave: it sums in another order where it has one column.
TileGrid choose_float_grid(const TileEngine& engine, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kAlwaysUsable = 96;
  return choose_grid(rows, columns, kRowGrids, [&](const TileGrid& grid) {
    return grid.columns <= engine.most_columns() && (columns % grid.columns == 1) == (columns % kAlwaysUsable == 1);
  });
}

}  // namespace

struct RowProduct::Scratch {
  float* a = nullptr;            // [rows_block, inner]
  float* b = nullptr;            // column blocks of [inner, columns_block] or of [inner_block, columns]
  float* side_a = nullptr;       // [rows_block, side.inner]
  float* side_b = nullptr;       // column blocks of [side.inner, columns]
  float* sums = nullptr;         // [rows_block filled up, columns], when the inner extent is cut
  float* last_a = nullptr;       // [group, inner]: the rows of an incomplete group, then zeros
  float* last_side_a = nullptr;  // [group, side.inner]
  float* last_sums = nullptr;    // [group, columns], when the others lie in the result
  std::byte* members = nullptr;  // each: a tile's sums, then the engine's scratch
  Bytes per_member = 0;
  Bytes shared = 0;

  float* tile(std::uint32_t member) const { return reinterpret_cast<float*>(members + member * per_member); }
};

absl::StatusOr<RowProduct> RowProduct::plan(const Engines& engines, const ProductShape& shape) {
  RowProduct product;
  product.shape_ = shape;
  product.engine_ = engines.choose(shape.a_storage, shape.b_storage);
  if (product.engine_ == engines.narrow && !few_rows(shape)) {
    RONDO_ASSIGN_OR_RETURN(product.packed_, PackedRowProduct::plan(*engines.narrow, shape));
    return product;
  }
  product.grid_ = choose_float_grid(*product.engine_, shape.rows_to_cut(), shape.columns);
  product.group_ = product.engine_->row_group();
  product.convert_a_ = shape.a_storage != Storage::kFloat32;
  product.convert_side_a_ = shape.side.inner > 0 && shape.side.a_storage != Storage::kFloat32;
  // Weights are copied once per block of rows: it is cut short only where A's own panel would grow too large.
  const std::int64_t rows = product.convert_a_ ? std::min(kRowsBlock, 2 * kPanelElements / shape.inner) : kRowsBlock;
  product.rows_block_ = std::min(shape.rows, at_least_one_step(rows, kSgemmRowsStep));
  product.columns_block_ = shape.columns;
  product.inner_block_ = shape.inner;
  if (shape.b_transposed) {
    product.columns_block_ =
        std::min(shape.columns, at_least_one_step(kPanelElements / shape.inner, product.grid_.columns));
  } else {
    product.inner_block_ = std::min(shape.inner, at_least_one_step(kPanelElements / shape.columns, 256));
  }
  return product;
}

absl::Status RowProduct::prepare_rows(std::int64_t rows) const {
  return packed_ ? packed_->prepare_rows(rows) : absl::OkStatus();
}

TileShape RowProduct::tile_shape(const Block& block, std::int64_t rows, std::int64_t columns) const {
  TileShape tile = whole_tile(rows, columns, shape_.inner);
  tile.inner = block.inner;
  tile.accumulate = block.k > 0;
  return tile;
}

TileShape RowProduct::side_tile_shape(std::int64_t rows, std::int64_t columns) const {
  const SideShape& side = shape_.side;
  TileShape tile = whole_tile(rows, columns, side.inner);
  tile.accumulate = true;
  tile.alpha = side.alpha;
  return tile;
}

TileShape RowProduct::whole_tile(std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
  TileShape tile;
  tile.rows = rows;
  tile.columns = columns;
  tile.inner = inner;
  tile.lda = inner;
  tile.ldb = columns;
  tile.ldc = sums_stride();
  return tile;
}

RowProduct::Scratch RowProduct::divide(std::byte* scratch) const {
  Scratch parts;
  const auto take = [&](bool wanted, std::int64_t elements) {
    auto* place = at(scratch, parts.shared);
    if (wanted) parts.shared += floats(elements);
    return place;
  };
  parts.a = take(convert_a_, rows_block_ * shape_.inner);
  parts.b = take(true, shape_.b_transposed ? columns_block_ * shape_.inner : inner_block_ * shape_.columns);
  parts.side_a = take(convert_side_a_, rows_block_ * shape_.side.inner);
  parts.side_b = take(shape_.side.inner > 0, shape_.columns * shape_.side.inner);
  parts.sums = take(!shape_.trivial_finish && inner_is_cut(), (rows_block_ + group_ - 1) * shape_.columns);
  parts.last_a = take(group_ > 1, group_ * shape_.inner);
  parts.last_side_a = take(group_ > 1, group_ * shape_.side.inner);
  parts.last_sums = take(group_ > 1 && shape_.trivial_finish, group_ * shape_.columns);
  parts.members = reinterpret_cast<std::byte*>(at(scratch, parts.shared));
  parts.per_member = floats(grid_.rows * grid_.columns) + engine_->member_scratch_bytes();
  return parts;
}

Bytes RowProduct::scratch_bytes(std::uint32_t members) const {
  if (packed_) return packed_->scratch_bytes(members);
  if (few_rows(shape_)) return few_rows_scratch(shape_.rows, shape_.inner);
  const Scratch parts = divide(nullptr);
  return parts.shared + members * parts.per_member;
}

std::byte* RowProduct::engine_scratch(const Scratch& scratch, std::uint32_t member) const {
  return reinterpret_cast<std::byte*>(scratch.tile(member)) + floats(grid_.rows * grid_.columns);
}

absl::Status RowProduct::run(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands, const Finish& finish,
                             std::byte* scratch) const {
  if (packed_) return packed_->run(pool, rows, operands, finish, scratch);
  if (!few_rows(shape_)) return run_tiles(pool, rows, operands, finish, scratch);
  few_rows_product(pool, operands.a, operands.b, finish, rows, shape_.columns, shape_.inner, scratch);
  return absl::OkStatus();
}

absl::Status RowProduct::run_tiles(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands,
                                   const Finish& finish, std::byte* scratch) const {
  const ConstArray a = operands.a;
  const Scratch parts = divide(scratch);
  const auto widen = [&pool](ConstArray from, float* to, std::int64_t count) {
    to_float32(pool, from.storage, from.data, to, count);
  };
  if (shape_.side.inner > 0) pack_side_b(pool, operands.side_b, parts);
  if (rows % group_ != 0) copy_last_rows(rows, operands, parts);
  Block block;
  for (block.m = 0; block.m < rows; block.m += rows_block_) {
    block.rows = std::min(rows_block_, rows - block.m);
    if (convert_a_) widen(a.at(block.m * shape_.inner), parts.a, block.rows * shape_.inner);
    const std::int64_t side = shape_.side.inner;
    if (convert_side_a_) widen(operands.side_a.at(block.m * side), parts.side_a, block.rows * side);
    for (block.n = 0; block.n < shape_.columns; block.n += columns_block_) {
      block.columns = std::min(columns_block_, shape_.columns - block.n);
      for (block.k = 0; block.k < shape_.inner; block.k += inner_block_) {
        block.inner = std::min(inner_block_, shape_.inner - block.k);
        block.last_inner = block.k + block.inner == shape_.inner;
        pack_b(pool, block, operands.b, parts);
        RONDO_RETURN_IF_ERROR(run_block(pool, block, operands, finish, parts));
      }
    }
  }
  return absl::OkStatus();
}

void RowProduct::pack_b(ThreadPool& pool, const Block& block, ConstArray b, const Scratch& scratch) const {
  if (shape_.b_transposed) {
    pack_row_blocks(pool, b.at(block.n * shape_.inner), block.columns, shape_.inner, grid_.columns, scratch.b);
  } else {
    pack_column_blocks(pool, b.at(block.k * shape_.columns), shape_.columns, block.inner, shape_.columns, grid_.columns,
                       scratch.b);
  }
}

void RowProduct::pack_side_b(ThreadPool& pool, ConstArray b, const Scratch& scratch) const {
  const std::int64_t inner = shape_.side.inner;
  if (shape_.side.b_transposed) {
    pack_row_blocks(pool, b, shape_.columns, inner, grid_.columns, scratch.side_b);
  } else {
    pack_column_blocks(pool, b, shape_.columns, inner, shape_.columns, grid_.columns, scratch.side_b);
  }
}

void RowProduct::copy_last_rows(std::int64_t rows, const ProductOperands& operands, const Scratch& scratch) const {
  const std::int64_t count = rows % group_;
  const auto copy = [&](ConstArray a, std::int64_t inner, float* to) {
    convert_row(a.at((rows - count) * inner), {to}, count * inner);
    std::fill(to + count * inner, to + group_ * inner, 0.0F);
  };
  copy(operands.a, shape_.inner, scratch.last_a);
  if (shape_.side.inner > 0) copy(operands.side_a, shape_.side.inner, scratch.last_side_a);
}

absl::Status RowProduct::run_block(ThreadPool& pool, const Block& block, const ProductOperands& operands,
                                   const Finish& finish, const Scratch& scratch) const {
  return for_tiles(pool, grid_, block.rows, block.columns,
                   [&](std::int64_t m, std::int64_t n, std::int64_t rows, std::int64_t columns, std::uint32_t member) {
                     const Place tile{block.m + m, block.n + n, m, rows, columns};
                     return run_tile(block, tile, operands, finish, scratch, member);
                   });
}

absl::Status RowProduct::run_tile(const Block& block, const Place& tile, const ProductOperands& operands,
                                  const Finish& finish, const Scratch& scratch, std::uint32_t member) const {
  const std::int64_t last = tile.rows % group_;
  const std::int64_t whole = tile.rows - last;
  float* sums = shape_.trivial_finish ? static_cast<float*>(finish.out.data) + tile.row * shape_.columns + tile.column
                : inner_is_cut()      ? scratch.sums + tile.row_in_block * shape_.columns + tile.column
                                      : scratch.tile(member);
  // The zeros' sums have room behind a tile's in scratch, but not in the result.
  float* last_sums = last == 0               ? nullptr
                     : shape_.trivial_finish ? scratch.last_sums + tile.column
                                             : sums + whole * sums_stride();
  if (whole > 0) {
    const SideShape& side = shape_.side;
    const ConstArray a = convert_a_ ? ConstArray{scratch.a}.at(tile.row_in_block * shape_.inner + block.k)
                                    : operands.a.at(tile.row * shape_.inner + block.k);
    const ConstArray side_a = convert_side_a_ ? ConstArray{scratch.side_a}.at(tile.row_in_block * side.inner)
                                              : operands.side_a.at(tile.row * side.inner);
    RONDO_RETURN_IF_ERROR(multiply(block, tile, whole, {a.data, side_a.data}, scratch, member, sums));
  }
  if (last > 0) {
    const Left left{scratch.last_a + block.k, scratch.last_side_a};
    RONDO_RETURN_IF_ERROR(multiply(block, tile, group_, left, scratch, member, last_sums));
  }
  if (!block.last_inner) return absl::OkStatus();
  if (!shape_.trivial_finish) {
    finish_tile(finish, sums, sums_stride(), tile.row, tile.column, tile.rows, tile.columns, shape_.columns);
  } else if (last > 0) {
    finish_tile(finish, last_sums, sums_stride(), tile.row + whole, tile.column, last, tile.columns, shape_.columns);
  }
  return absl::OkStatus();
}

absl::Status RowProduct::multiply(const Block& block, const Place& tile, std::int64_t rows, const Left& left,
                                  const Scratch& scratch, std::uint32_t member, float* sums) const {
  const SideShape& side = shape_.side;
  const std::int64_t n = tile.column - block.n;
  // A column block begins n * inner elements in.
  const float* b = scratch.b + n * block.inner;
  const float* side_b = scratch.side_b + tile.column * side.inner;
  const bool with_side = block.last_inner && side.inner > 0;
  // Where sgemm has one column, a row's bits depend on the rows beside it.
  const std::int64_t step = group_ > 1 && tile.columns == 1 ? 1 : rows;
  const TileShape shape = tile_shape(block, step, tile.columns);
  const TileShape side_shape = side_tile_shape(step, tile.columns);
  std::byte* own = engine_scratch(scratch, member);
  for (std::int64_t row = 0; row < rows; row += step) {
    float* to = sums + row * sums_stride();
    const void* a = step == rows ? left.a : static_cast<const float*>(left.a) + row * shape_.inner;
    RONDO_RETURN_IF_ERROR(engine_->run(shape, member, a, b, to, own));
    if (!with_side) continue;
    const void* side_a = step == rows ? left.side_a : static_cast<const float*>(left.side_a) + row * side.inner;
    RONDO_RETURN_IF_ERROR(engine_->run(side_shape, member, side_a, side_b, to, own));
  }
  return absl::OkStatus();
}

struct WeightProduct::Scratch {
  float* a = nullptr;  // column blocks of [chunk, rows_block]
  float* b = nullptr;  // column blocks of [chunk, columns]
  std::byte* members = nullptr;
  Bytes shared = 0;
};

absl::StatusOr<WeightProduct> WeightProduct::plan(const Engines& engines, const Shape& shape) {
  constexpr TileGrid kGrids[] = {{192, 144}, {128, 96}, {64, 96}, {48, 48}, {16, 48}};
  WeightProduct product;
  product.shape_ = shape;
  product.engine_ = engines.choose(shape.a_storage, shape.b_storage);
  if (product.engine_ == engines.narrow) {
    RONDO_ASSIGN_OR_RETURN(product.packed_, PackedWeightProduct::plan(*engines.narrow, shape));
    return product;
  }
  product.grid_ = choose_grid(shape.rows, shape.columns, kGrids);
  product.rows_block_ =
      std::min(shape.rows, at_least_one_step(kPanelElements / std::min(shape.tokens, kTokenChunk), product.grid_.rows));
  return product;
}

absl::Status WeightProduct::prepare_tokens(std::int64_t tokens) const {
  return packed_ ? packed_->prepare_tokens(tokens) : absl::OkStatus();
}

absl::Status WeightProduct::prepare_any_tokens() const {
  return packed_ ? packed_->prepare_any_tokens() : absl::OkStatus();
}

TileShape WeightProduct::tile_shape(std::int64_t tokens, std::int64_t rows, std::int64_t columns) const {
  TileShape tile;
  tile.rows = rows;
  tile.columns = columns;
  tile.inner = tokens;
  tile.a_transposed = true;
  tile.lda = rows;
  tile.ldb = columns;
  tile.ldc = shape_.columns;
  tile.accumulate = true;
  tile.alpha = shape_.alpha;
  return tile;
}

WeightProduct::Scratch WeightProduct::divide(std::byte* scratch) const {
  Scratch parts;
  const std::int64_t chunk = std::min(shape_.tokens, kTokenChunk);
  parts.a = at(scratch, 0);
  parts.shared = floats(chunk * rows_block_);
  parts.b = at(scratch, parts.shared);
  parts.shared += floats(chunk * shape_.columns);
  parts.members = reinterpret_cast<std::byte*>(at(scratch, parts.shared));
  return parts;
}

Bytes WeightProduct::scratch_bytes(std::uint32_t members) const {
  if (packed_) return packed_->scratch_bytes(members);
  return divide(nullptr).shared + members * engine_->member_scratch_bytes();
}

absl::Status WeightProduct::run(ThreadPool& pool, std::int64_t tokens, ConstArray a, ConstArray b, float* dw,
                                std::byte* scratch) const {
  if (packed_) return packed_->run(pool, tokens, a, b, dw, scratch);
  const Scratch parts = divide(scratch);
  for (std::int64_t token = 0; token < tokens; token += kTokenChunk) {
    const std::int64_t chunk = std::min(kTokenChunk, tokens - token);
    const ConstArray a_chunk = a.at(token * shape_.rows);
    pack_column_blocks(pool, b.at(token * shape_.columns), shape_.columns, chunk, shape_.columns, grid_.columns,
                       parts.b);
    for (std::int64_t row = 0; row < shape_.rows; row += rows_block_) {
      const std::int64_t rows = std::min(rows_block_, shape_.rows - row);
      pack_column_blocks(pool, a_chunk.at(row), shape_.rows, chunk, rows, grid_.rows, parts.a);
      RONDO_RETURN_IF_ERROR(run_rows(pool, chunk, row, rows, dw, parts));
    }
  }
  return absl::OkStatus();
}

absl::Status WeightProduct::run_rows(ThreadPool& pool, std::int64_t tokens, std::int64_t first_row, std::int64_t rows,
                                     float* dw, const Scratch& scratch) const {
  const auto compute = [&](std::int64_t m, std::int64_t n, std::int64_t tile_rows, std::int64_t tile_columns,
                           std::uint32_t member) {
    return engine_->run(tile_shape(tokens, tile_rows, tile_columns), member, scratch.a + m * tokens,
                        scratch.b + n * tokens, dw + (first_row + m) * shape_.columns + n,
                        scratch.members + member * engine_->member_scratch_bytes());
  };
  return for_tiles(pool, grid_, rows, shape_.columns, compute);
}

}  // namespace rondo::devices::cpu
