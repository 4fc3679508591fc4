// How products go by the tiles of shaders/products/matmul_tiles.glsl.
#pragma once

#include <array>
#include <cstdint>

namespace rondo::devices::vulkan {

struct Tiles {
  std::uint32_t rows_each = 8;  // rows and columns of an invocation: tiles are eight times that
  std::uint32_t columns_each = 8;
  std::uint32_t depth = 16;  // of a turn
  // Whether fours of elements lie together.
  bool fours_a = false;
  bool fours_b = false;
  bool fours_out = false;

  std::int64_t rows() const { return 8 * std::int64_t{rows_each}; }
  std::int64_t columns() const { return 8 * std::int64_t{columns_each}; }
  /// Of the kernel, from its constant 11 on. Four elements are read and written at once where that many lie together,
  /// and the tile has some for everybody.
  std::array<std::uint32_t, 6> constants() const {
    const auto step = [this](bool fours, std::uint32_t each) { return fours && each * depth >= 32 ? 4U : 1U; };
    return {rows_each,
            columns_each,
            step(fours_a, rows_each),
            step(fours_b, columns_each),
            fours_out && columns_each >= 4 ? 4U : 1U,
            depth};
  }
};

/// For results of so many rows and columns. `wide`: of fp32, of which a turn takes less.
inline Tiles tiles_of(std::int64_t rows, std::int64_t columns, bool wide) {
  const auto each_of = [](std::int64_t extent) {
    if (extent <= 8) return 1U;
    if (extent <= 16) return 2U;
    return extent <= 32 ? 4U : 8U;
  };
  return {.rows_each = each_of(rows), .columns_each = each_of(columns), .depth = wide ? 8U : 16U};
}

}  // namespace rondo::devices::vulkan
