// Behind matrix_units.h.
#include "matrix_units.h"

#include "lowering.h"

namespace rondo::devices::vulkan {
namespace {

/// Results that workgroups of so many rows and columns compute, those past the product's ends with them.
double computed(std::int64_t rows, std::int64_t columns, std::uint32_t group_rows, std::uint32_t group_columns) {
  return static_cast<double>(parts_of(rows, group_rows) * group_rows) *
         static_cast<double>(parts_of(columns, group_columns) * group_columns);
}

}  // namespace

MatrixUnits::Tiling MatrixUnits::tiling(Shape shape, std::int64_t rows, std::int64_t columns,
                                        std::int64_t products) const {
  const std::uint32_t parts_m = parts(shape.m);
  const std::uint32_t parts_n = parts(shape.n);
  const Tiling small = {parts_m, parts_n, rows <= parts_m * shape.m ? 1U : 2U, columns <= parts_n * shape.n ? 1U : 2U};
  // Each number read is multiplied twice as often as with small ones.
  constexpr std::uint32_t kSide = 128;
  constexpr std::uint32_t kSums = 64;   // of an invocation
  constexpr std::int64_t kEnough = 64;  // workgroups for a card's processors
  constexpr double kMostWaste = 1.2;
  constexpr std::uint32_t kOwnRows = kSide / 2;
  const std::uint32_t own_columns = kSums * subgroup_size / kOwnRows;
  if (!wide() || kOwnRows % shape.m != 0 || own_columns % shape.n != 0 || kSide % own_columns != 0) return small;
  const Tiling large = {kSide / kOwnRows, kSide / own_columns, kOwnRows / shape.m, own_columns / shape.n};
  const bool worthwhile = products * parts_of(rows, kSide) * parts_of(columns, kSide) >= kEnough &&
                          computed(rows, columns, kSide, kSide) <=
                              kMostWaste * computed(rows, columns, small.rows(shape), small.columns(shape));
  return worthwhile && fits(shape, large) ? large : small;
}

}  // namespace rondo::devices::vulkan
