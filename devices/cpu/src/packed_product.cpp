// See packed_product.h.
#include "packed_product.h"

#include <algorithm>
#include <utility>

#include "pairs.h"
#include "rondo/base/status.h"
#include "tiling.h"

namespace rondo::devices::cpu {
namespace {

using Half = std::uint16_t;

/// Tiles whose columns are whole blocks of pairs.
constexpr TileGrid kPackedRowGrids[] = {{128, 192}, {128, 128}, {64, 128}, {64, 64}};
constexpr TileGrid kPackedWeightGrids[] = {{128, 192}, {128, 128}, {64, 128}, {64, 64}, {16, 64}};

constexpr Bytes bytes_of(std::int64_t elements, std::size_t size) {
  return round_up(static_cast<std::uint64_t>(elements) * size, 64);
}

/// Hands out parts of a scratch, which is null while sizes are asked for.
class Parts {
 public:
  explicit Parts(std::byte* scratch) : scratch_(scratch) {}
  template <typename T>
  T* take(std::int64_t elements) {
    T* place = scratch_ == nullptr ? nullptr : reinterpret_cast<T*>(scratch_ + size_);
    size_ += bytes_of(elements, sizeof(T));
    return place;
  }
  Bytes size() const { return size_; }

 private:
  std::byte* scratch_;
  Bytes size_ = 0;
};

/// What each member of a pool has: the sums of a tile, then the engine's scratch.
struct Members {
  std::byte* first = nullptr;
  Bytes sums_bytes = 0;
  Bytes bytes = 0;  // of one

  Members() = default;
  Members(std::byte* at, const TileGrid& grid, const TileEngine& engine)
      : first(at),
        sums_bytes(bytes_of(grid.rows * grid.columns, sizeof(float))),
        bytes(sums_bytes + engine.member_scratch_bytes()) {}
  float* sums(std::uint32_t member) const { return reinterpret_cast<float*>(first + member * bytes); }
  std::byte* engine_scratch(std::uint32_t member) const { return first + member * bytes + sums_bytes; }
};

/// Rows shorter than a matrix unit's are filled up: else oneDNN takes the processor's slower instructions.
bool is_short(std::int64_t inner) { return inner < kPairRows && multiplies_in_tiles(); }
std::int64_t row_elements(std::int64_t inner) { return is_short(inner) ? whole_pairs(inner) : inner; }

TileShape dense_tile(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  TileShape tile;
  tile.rows = rows;
  tile.columns = columns;
  tile.inner = inner;
  tile.lda = inner;
  tile.ldc = columns;
  return tile;
}

/// Rows of which tiles have whole groups where their number is not known beforehand.
constexpr std::int64_t kRowGroup = 16;

const Half* halves(ConstArray x) { return static_cast<const Half*>(x.data); }

}  // namespace

struct PackedRowProduct::Scratch {
  Half* b = nullptr;       // [inner, panel_columns] in pairs
  Half* side_b = nullptr;  // [side.inner, panel_columns] in pairs
  Half* a = nullptr;       // [rows, whole_pairs(inner)], where rows are short
  Half* side_a = nullptr;
  Half* last_a = nullptr;  // [kRowGroup, row_elements(inner)]: the rows of an incomplete group, then zeros
  Members members;
  Bytes shared = 0;
};

absl::StatusOr<PackedRowProduct> PackedRowProduct::plan(TileEngine& engine, const ProductShape& shape) {
  PackedRowProduct product;
  product.shape_ = shape;
  product.engine_ = &engine;
  product.grid_ = choose_grid(shape.rows_to_cut(), shape.columns, kPackedRowGrids);
  const std::int64_t inner = whole_pairs(shape.inner) + whole_pairs(shape.side.inner);
  product.panel_columns_ = std::min(shape.columns, at_least_one_step(kPanelElements / inner, product.grid_.columns));
  RONDO_RETURN_IF_ERROR(product.fills_up() ? product.prepare_any_rows() : product.prepare_rows(shape.rows));
  return product;
}

TileShape PackedRowProduct::tile_shape(std::int64_t rows, std::int64_t columns) const {
  return dense_tile(rows, columns, row_elements(shape_.inner));
}

TileShape PackedRowProduct::side_shape(std::int64_t rows, std::int64_t columns) const {
  TileShape tile = dense_tile(rows, columns, row_elements(shape_.side.inner));
  tile.accumulate = true;
  tile.alpha = shape_.side.alpha;
  return tile;
}

absl::Status PackedRowProduct::prepare_rows(std::int64_t rows) const {
  RONDO_RETURN_IF_ERROR(prepare_tiles(*engine_, grid_, rows, shape_.columns,
                                      [this](std::int64_t m, std::int64_t n) { return tile_shape(m, n); }));
  if (!has_side()) return absl::OkStatus();
  return prepare_tiles(*engine_, grid_, rows, shape_.columns,
                       [this](std::int64_t m, std::int64_t n) { return side_shape(m, n); });
}

absl::Status PackedRowProduct::prepare_any_rows() const {
  for (std::int64_t rows = kRowGroup; rows <= grid_.rows; rows += kRowGroup) RONDO_RETURN_IF_ERROR(prepare_rows(rows));
  return absl::OkStatus();
}

PackedRowProduct::Scratch PackedRowProduct::divide(std::byte* scratch) const {
  Parts parts(scratch);
  const std::int64_t side = shape_.side.inner;
  Scratch result;
  result.b = parts.take<Half>(pair_elements(shape_.inner, panel_columns_));
  if (has_side()) result.side_b = parts.take<Half>(pair_elements(side, panel_columns_));
  if (is_short(shape_.inner)) result.a = parts.take<Half>(shape_.rows * whole_pairs(shape_.inner));
  if (has_side() && is_short(side)) result.side_a = parts.take<Half>(shape_.rows * whole_pairs(side));
  if (fills_up()) result.last_a = parts.take<Half>(kRowGroup * row_elements(shape_.inner));
  result.shared = parts.size();
  result.members = Members(scratch == nullptr ? nullptr : scratch + result.shared, grid_, *engine_);
  return result;
}

Bytes PackedRowProduct::scratch_bytes(std::uint32_t members) const {
  const Scratch scratch = divide(nullptr);
  return scratch.shared + members * scratch.members.bytes;
}

void PackedRowProduct::pack(ThreadPool& pool, const Panel& panel, const ProductOperands& operands,
                            const Scratch& scratch) const {
  const auto pack_one = [&](ConstArray b, bool transposed, std::int64_t inner, Half* pairs) {
    if (transposed) {
      pack_pairs_of_rows(pool, halves(b) + panel.column * inner, inner, panel.columns, pairs);
    } else {
      pack_pairs(pool, halves(b) + panel.column, shape_.columns, inner, panel.columns, pairs);
    }
  };
  pack_one(operands.b, shape_.b_transposed, shape_.inner, scratch.b);
  if (has_side()) pack_one(operands.side_b, shape_.side.b_transposed, shape_.side.inner, scratch.side_b);
}

absl::Status PackedRowProduct::run(ThreadPool& pool, std::int64_t rows, const ProductOperands& operands,
                                   const Finish& finish, std::byte* scratch) const {
  const Scratch parts = divide(scratch);
  if (parts.a != nullptr) fill_up_rows(pool, halves(operands.a), rows, shape_.inner, parts.a);
  if (parts.side_a != nullptr) fill_up_rows(pool, halves(operands.side_a), rows, shape_.side.inner, parts.side_a);
  const Left left{parts.a != nullptr ? parts.a : halves(operands.a),
                  parts.side_a != nullptr ? parts.side_a : halves(operands.side_a)};
  if (const std::int64_t last = rows % kRowGroup; fills_up() && last > 0) {
    const std::int64_t stride = row_elements(shape_.inner);
    std::copy_n(left.a + (rows - last) * stride, last * stride, parts.last_a);
    std::fill_n(parts.last_a + last * stride, (kRowGroup - last) * stride, Half{0});
  }
  Panel panel;
  for (; panel.column < shape_.columns; panel.column += panel_columns_) {
    panel.columns = std::min(panel_columns_, shape_.columns - panel.column);
    pack(pool, panel, operands, parts);
    RONDO_RETURN_IF_ERROR(run_panel(pool, rows, panel, left, finish, parts));
  }
  return absl::OkStatus();
}

absl::Status PackedRowProduct::multiply(const Left& left, std::int64_t rows, std::int64_t n, std::int64_t columns,
                                        const Scratch& scratch, std::uint32_t member, float* sums) const {
  std::byte* own = scratch.members.engine_scratch(member);
  RONDO_RETURN_IF_ERROR(
      engine_->run(tile_shape(rows, columns), member, left.a, scratch.b + pair_elements(shape_.inner, n), sums, own));
  if (!has_side()) return absl::OkStatus();
  return engine_->run(side_shape(rows, columns), member, left.side_a,
                      scratch.side_b + pair_elements(shape_.side.inner, n), sums, own);
}

absl::Status PackedRowProduct::run_panel(ThreadPool& pool, std::int64_t rows, const Panel& panel, const Left& left,
                                         const Finish& finish, const Scratch& scratch) const {
  const std::int64_t stride = row_elements(shape_.inner);
  const std::int64_t side_stride = row_elements(shape_.side.inner);
  const auto run_tile = [&](std::int64_t m, std::int64_t n, std::int64_t tile_rows, std::int64_t tile_columns,
                            std::uint32_t member) -> absl::Status {
    float* sums = scratch.members.sums(member);
    const std::int64_t last = fills_up() ? tile_rows % kRowGroup : 0;
    const std::int64_t whole = tile_rows - last;
    if (whole > 0) {
      const Left from{left.a + m * stride, has_side() ? left.side_a + m * side_stride : nullptr};
      RONDO_RETURN_IF_ERROR(multiply(from, whole, n, tile_columns, scratch, member, sums));
    }
    if (last > 0) {
      float* last_sums = sums + whole * tile_columns;
      RONDO_RETURN_IF_ERROR(multiply({scratch.last_a}, kRowGroup, n, tile_columns, scratch, member, last_sums));
    }
    finish_tile(finish, sums, tile_columns, m, panel.column + n, tile_rows, tile_columns, shape_.columns);
    return absl::OkStatus();
  };
  return for_tiles(pool, grid_, rows, panel.columns, run_tile);
}

struct PackedWeightProduct::Scratch {
  Half* a = nullptr;  // [rows_block, whole_pairs(chunk)]
  Half* b = nullptr;  // [chunk, columns] in pairs
  Members members;
  Bytes shared = 0;
};

absl::StatusOr<PackedWeightProduct> PackedWeightProduct::plan(TileEngine& engine, const WeightShape& shape) {
  PackedWeightProduct product;
  product.shape_ = shape;
  product.swapped_ = shape.columns < shape.rows && shape.columns <= kPairColumns;
  if (product.swapped_) std::swap(product.shape_.rows, product.shape_.columns);
  const WeightShape& own = product.shape_;
  product.engine_ = &engine;
  product.grid_ = choose_grid(own.rows, own.columns, kPackedWeightGrids);
  product.chunk_ = std::min(own.tokens, at_least_one_step(kPanelElements / own.columns, kTokenChunk));
  product.rows_block_ =
      std::min(own.rows, at_least_one_step(kPanelElements / whole_pairs(product.chunk_), product.grid_.rows));
  RONDO_RETURN_IF_ERROR(product.prepare_tokens(shape.tokens));
  return product;
}

TileShape PackedWeightProduct::tile_shape(std::int64_t tokens, std::int64_t rows, std::int64_t columns) const {
  return dense_tile(rows, columns, whole_pairs(tokens));
}

absl::Status PackedWeightProduct::prepare_tokens(std::int64_t tokens) const {
  for (const std::int64_t chunk : extents(tokens, chunk_)) {
    if (chunk == 0) continue;
    for (const std::int64_t rows : extents(shape_.rows, rows_block_)) {
      if (rows == 0) continue;
      RONDO_RETURN_IF_ERROR(prepare_tiles(*engine_, grid_, rows, shape_.columns,
                                          [&](std::int64_t m, std::int64_t n) { return tile_shape(chunk, m, n); }));
    }
  }
  return absl::OkStatus();
}

absl::Status PackedWeightProduct::prepare_any_tokens() const {
  for (std::int64_t tokens = kPairRows; tokens < chunk_; tokens += kPairRows) {
    RONDO_RETURN_IF_ERROR(prepare_tokens(tokens));
  }
  return absl::OkStatus();
}

PackedWeightProduct::Scratch PackedWeightProduct::divide(std::byte* scratch) const {
  Parts parts(scratch);
  Scratch result;
  result.a = parts.take<Half>(rows_block_ * whole_pairs(chunk_));
  result.b = parts.take<Half>(pair_elements(chunk_, shape_.columns));
  result.shared = parts.size();
  result.members = Members(scratch == nullptr ? nullptr : scratch + result.shared, grid_, *engine_);
  return result;
}

Bytes PackedWeightProduct::scratch_bytes(std::uint32_t members) const {
  const Scratch scratch = divide(nullptr);
  return scratch.shared + members * scratch.members.bytes;
}

absl::Status PackedWeightProduct::run(ThreadPool& pool, std::int64_t tokens, ConstArray a, ConstArray b, float* dw,
                                      std::byte* scratch) const {
  const Scratch parts = divide(scratch);
  if (swapped_) std::swap(a, b);
  for (std::int64_t token = 0; token < tokens; token += chunk_) {
    const std::int64_t chunk = std::min(chunk_, tokens - token);
    pack_pairs(pool, halves(b) + token * shape_.columns, shape_.columns, chunk, shape_.columns, parts.b);
    for (std::int64_t row = 0; row < shape_.rows; row += rows_block_) {
      const std::int64_t rows = std::min(rows_block_, shape_.rows - row);
      transpose_halves(pool, halves(a) + token * shape_.rows + row, shape_.rows, chunk, rows, parts.a);
      RONDO_RETURN_IF_ERROR(run_rows(pool, chunk, row, rows, dw, parts));
    }
  }
  return absl::OkStatus();
}

absl::Status PackedWeightProduct::run_rows(ThreadPool& pool, std::int64_t tokens, std::int64_t first_row,
                                           std::int64_t rows, float* dw, const Scratch& scratch) const {
  const auto run_tile = [&](std::int64_t m, std::int64_t n, std::int64_t tile_rows, std::int64_t tile_columns,
                            std::uint32_t member) -> absl::Status {
    float* sums = scratch.members.sums(member);
    RONDO_RETURN_IF_ERROR(engine_->run(tile_shape(tokens, tile_rows, tile_columns), member,
                                       scratch.a + m * whole_pairs(tokens), scratch.b + pair_elements(tokens, n), sums,
                                       scratch.members.engine_scratch(member)));
    const std::int64_t row = first_row + m;
    if (swapped_) {
      add_tile_transposed(sums, tile_rows, tile_columns, shape_.alpha, dw + n * shape_.rows + row, shape_.rows);
    } else {
      add_tile(sums, tile_rows, tile_columns, shape_.alpha, dw + row * shape_.columns + n, shape_.columns);
    }
    return absl::OkStatus();
  };
  return for_tiles(pool, grid_, rows, shape_.columns, run_tile);
}

}  // namespace rondo::devices::cpu
