// Behind product.h.
#include "product.h"

#include <algorithm>
#include <array>

#include "tiles.h"

namespace rondo::devices::vulkan {
namespace {

/// Elements of an operand whose rows are listed, of up to four bytes.
constexpr std::int64_t kMostListed = (std::int64_t{1} << 30) - 1;

/// Whether an operand consists of fours that lie together, and all that is read from one place lies within 32 bits.
bool in_fours_a(const Product& p) {
  return p.stride_a % 4 == 0 && (p.transposed_a ? p.rows : p.depth) % 4 == 0 &&
         (p.listed != Product::Listed::kA || p.list_tokens * p.stride_a <= kMostListed);
}
bool in_fours_b(const Product& p) {
  return p.stride_b % 4 == 0 && (p.transposed_b ? p.depth : p.columns) % 4 == 0 &&
         (p.listed != Product::Listed::kB || p.list_tokens * p.stride_b <= kMostListed);
}
/// The same of eights: two fours along the inner extent, or two of neighbours across. A tile that is more than the
/// extent has must end with one.
bool in_eights(const Product& p, bool fours, bool along) {
  return fours && (p.depth >= MatrixUnits::kDepth || p.depth % (along ? 8 : 2) == 0);
}

/// What is searched of an operand. Where rows of another are listed, A's end with the list.
Searched searched_a(const Product& p) {
  const std::int64_t rows = p.listed == Product::Listed::kA ? p.list_tokens : p.transposed_a ? p.depth : p.rows;
  const bool ends = p.listed == Product::Listed::kOut || p.listed == Product::Listed::kB;
  return {p.a, p.type_a, rows, p.stride_a, ends, p.list, p.first_listed, p.most_listed};
}
Searched searched_b(const Product& p) {
  const std::int64_t rows = p.listed == Product::Listed::kB ? p.list_tokens : p.transposed_b ? p.columns : p.depth;
  return {p.b, p.type_b, rows, p.stride_b};
}

/// Of A and B, as far as that is not known. B's is not asked for where it is fp16 as it is.
std::array<Largest, 2> largest_of(OpLowering& op, const Product& p) {
  std::array<Largest, 2> found = {p.largest_a != nullptr ? *p.largest_a : Largest{},
                                  p.largest_b != nullptr ? *p.largest_b : Largest{}};
  const bool finds_a = found[0].count == 0;
  const bool finds_b = found[1].count == 0 && p.type_b != kFloat16Storage;
  if (finds_b && p.grouped == Product::Grouped::kRows) {
    found[0] = find_largest(op, std::array{searched_a(p)})[0];
    found[1] = find_largest_of_experts(op, searched_b(p), p.experts, p.offsets, p.tensors);
  } else if (finds_a && finds_b) {
    const auto both = find_largest(op, std::array{searched_a(p), searched_b(p)});
    found = {both[0], both[1]};
  } else if (finds_a) {
    found[0] = find_largest(op, std::array{searched_a(p)})[0];
  } else if (finds_b) {
    found[1] = find_largest(op, std::array{searched_b(p)})[0];
  }
  if (p.largest_a != nullptr) *p.largest_a = found[0];
  if (p.largest_b != nullptr) *p.largest_b = found[1];
  return found;
}

/// How many tiles of `tile` rows there are for a product's rows. Each expert's last, and that of padding, may have one
/// row; see grouped.glsl.
std::int64_t row_tiles_of(const Product& p, std::int64_t tile) {
  if (p.grouped != Product::Grouped::kRows) return parts_of(p.rows, tile);
  return p.rows / tile + std::min(p.experts + 1, p.rows);
}

/// A dispatch of workgroups of `rows` x `columns`. `more`: the constants from 11 on.
void add_tiles(OpLowering& op, Shader shader, const Product& p, const Constants& more, std::int64_t rows,
               std::int64_t columns, const std::array<Largest, 2>& largest) {
  const bool grouped = p.grouped != Product::Grouped::kNone;
  Constants constants = {p.type_a,
                         p.type_b,
                         p.type_out,
                         p.type_bias,
                         p.type_addend,
                         flag_of(p.transposed_a),
                         flag_of(p.transposed_b),
                         flag_of(p.has_bias),
                         flag_of(p.has_addend),
                         flag_of(p.adds()),
                         static_cast<std::uint32_t>(p.listed)};
  constants.insert(constants.end(), more.begin(), more.end());
  Dispatch& dispatch = op.add(shader, std::move(constants),
                              {p.a, p.b, p.out, p.has_bias ? p.bias : p.a, p.has_addend ? p.addend : p.a,
                               p.listed == Product::Listed::kNone ? p.a : p.list, largest[0].slot, largest[1].slot,
                               grouped ? p.offsets : p.a, grouped ? p.tensors : p.a},
                              {p.rows, p.columns, p.depth, p.stride_a, p.stride_b, p.columns,
                               p.accumulate ? kTokenChunk : p.depth, grouped ? p.experts : p.first_listed,
                               p.most_listed, largest[0].count, largest[1].count, largest[0].first, largest[1].first},
                              p.rows > 0 && p.columns > 0 ? 1 : 0);
  dispatch.push.factors[0] = p.alpha;
  dispatch.flops = flops_of(p.rows, p.columns, p.depth);
  const std::int64_t row_tiles = row_tiles_of(p, rows);
  if (p.grouped == Product::Grouped::kRows) {  // some tiles may be full, and all others nobody's
    dispatch.uneven = {1,
                       static_cast<double>(row_tiles) / static_cast<double>(std::max<std::int64_t>(p.rows / rows, 1))};
  }
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(p.columns, columns)), static_cast<std::uint32_t>(row_tiles),
                     p.grouped == Product::Grouped::kDepth ? static_cast<std::uint32_t>(p.experts) : 1U};
}

}  // namespace

bool add_by_units(OpLowering& op, const Product& p) {
  constexpr std::int64_t kWorthwhile = 16;
  const MatrixUnits& units = op.units();
  if (p.type_b == kFloat32Storage || (p.type_a != p.type_b && !p.narrows_a)) return false;
  const bool scaled = p.type_b == kBfloat16Storage ? !units.bfloat16.there() : p.large_a;
  const MatrixUnits::Shape shape = p.type_b == kBfloat16Storage && !scaled ? units.bfloat16 : units.float16;
  const std::int64_t own_rows = p.rows_of_expert();
  if (!shape.there() || own_rows < kWorthwhile || p.columns < kWorthwhile || p.depth < 1) return false;
  // Reading operands twice has to pay.
  constexpr std::int64_t kWorthScaling = 64;
  if (scaled && std::min({own_rows, p.columns, p.depth_of_expert()}) < kWorthScaling) return false;
  const std::array<Largest, 2> largest = scaled ? largest_of(op, p) : std::array<Largest, 2>{};
  const MatrixUnits::Tiling tiling = units.tiling(shape, own_rows, p.columns, p.experts);
  const std::uint32_t rows = tiling.rows(shape);  // of a workgroup
  const std::uint32_t columns = tiling.columns(shape);
  const std::uint32_t invocations = tiling.parts_m * tiling.parts_n * units.subgroup_size;
  // Eights of an invocation, of a tile with `extent` rows or columns; 0 where there are none.
  const auto reads = [invocations](bool eights, std::uint32_t extent) {
    return eights ? static_cast<std::uint32_t>(parts_of(extent * MatrixUnits::kDepth / 8, invocations)) : 0U;
  };
  add_tiles(op, Shader::kMatMulCooperative, p,
            {shape.m, shape.n, shape.k, tiling.tiles_m, tiling.tiles_n,
             reads(in_eights(p, in_fours_a(p), !p.transposed_a), rows),
             reads(in_eights(p, in_fours_b(p), p.transposed_b), columns), invocations, p.columns % 4 == 0 ? 4U : 1U,
             tiling.parts_m, tiling.parts_n, flag_of(scaled), static_cast<std::uint32_t>(p.grouped)},
            rows, columns, largest);
  return true;
}

bool add_few(OpLowering& op, const Product& p) {
  constexpr std::int64_t kFew = 8;
  constexpr std::int64_t kColumns = 16;
  if (p.rows > kFew || p.rows == 0 || p.columns == 0 || p.transposed_a || p.accumulate) return false;
  if (p.listed != Product::Listed::kNone || p.grouped != Product::Grouped::kNone) return false;
  if (p.depth % 4 != 0 || p.stride_a % 4 != 0 || p.stride_b % 4 != 0) return false;
  if (!p.transposed_b && (p.columns % 4 != 0 || (op.panel() && p.rows == kFew))) return false;  // those are the panel's
  Dispatch& dispatch =
      op.add(Shader::kMatMulFew,
             {p.type_a, p.type_b, p.type_out, p.type_bias, p.type_addend, 0, flag_of(p.transposed_b),
              flag_of(p.has_bias), flag_of(p.has_addend), flag_of(p.adds()), 0, static_cast<std::uint32_t>(p.rows)},
             {p.a, p.b, p.out, p.has_bias ? p.bias : p.a, p.has_addend ? p.addend : p.a, p.a},
             {p.rows, p.columns, p.depth, p.stride_a, p.stride_b, p.columns}, parts_of(p.columns, kColumns));
  dispatch.push.factors[0] = p.alpha;
  dispatch.flops = flops_of(p.rows, p.columns, p.depth);
  return true;
}

void add_by_tiles(OpLowering& op, const Product& p) {
  const bool grouped = p.grouped != Product::Grouped::kNone;
  const bool wide = p.type_a == kFloat32Storage || p.type_b == kFloat32Storage;
  Tiles tiles = tiles_of(p.rows_of_expert(), p.columns, wide);
  tiles.fours_a = in_fours_a(p);
  tiles.fours_b = in_fours_b(p);
  tiles.fours_out = p.columns % 4 == 0;
  Constants more;
  for (const std::uint32_t constant : tiles.constants()) more.push_back(constant);
  if (grouped) more.push_back(static_cast<std::uint32_t>(p.grouped));
  add_tiles(op, grouped ? Shader::kMatMulGrouped : Shader::kMatMul, p, more, tiles.rows(), tiles.columns(), {});
}

}  // namespace rondo::devices::vulkan
