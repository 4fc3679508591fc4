// What one tile of a matrix product is: its extents and how its operands lie.
#pragma once

#include <cstdint>
#include <tuple>

namespace rondo::devices::cpu {

/// C [rows, columns] fp32 = alpha A B, or += when `accumulate`. A is stored [rows, inner], or [inner, rows] when
/// a_transposed; B is stored [inner, columns]; all with leading dimensions. In bf16 A is stored [rows, inner], B in
/// pairs (pairs.h), without a leading dimension, and C's rows lie together.
struct TileShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool a_transposed = false;
  bool accumulate = false;
  float alpha = 1.0F;

  friend bool operator==(const TileShape&, const TileShape&) = default;
  /// An order for maps.
  friend bool operator<(const TileShape& one, const TileShape& other) {
    const auto key = [](const TileShape& s) {
      return std::tie(s.rows, s.columns, s.inner, s.lda, s.ldb, s.ldc, s.a_transposed, s.accumulate, s.alpha);
    };
    return key(one) < key(other);
  }
};

}  // namespace rondo::devices::cpu
