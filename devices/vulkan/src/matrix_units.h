// What a card's matrix units can multiply, as products are lowered for them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rondo::devices::vulkan {

/// Products of cooperative matrices by the subgroups of a workgroup, sums in fp32.
struct MatrixUnits {
  static constexpr std::uint32_t kDepth = 32;  // inner elements of a turn of matmul_cooperative.comp
  /// Subgroups along a side of a workgroup, each with a tile of `size` rows or columns, so that they have 32 together.
  static constexpr std::uint32_t parts(std::uint32_t size) { return size < 32 ? 32 / size : 1; }

  enum class Api : std::uint8_t { kNone, kKhr, kNv };  // VK_KHR_cooperative_matrix, VK_NV_cooperative_matrix
  /// A [m, k] times B [k, n].
  struct Shape {
    std::uint32_t m = 0;
    std::uint32_t n = 0;
    std::uint32_t k = 0;
    bool there() const { return m != 0; }
  };

  /// How a workgroup shares out a product: parts_m x parts_n subgroups, tiles_m x tiles_n matrices of the shape each.
  struct Tiling {
    std::uint32_t parts_m = 1, parts_n = 1, tiles_m = 1, tiles_n = 1;
    std::uint32_t rows(Shape shape) const { return parts_m * tiles_m * shape.m; }
    std::uint32_t columns(Shape shape) const { return parts_n * tiles_n * shape.n; }
    /// Of shared memory, in matmul_cooperative.comp: both operands' rows, and in their place results.
    std::uint32_t shared_bytes(Shape shape) const {
      constexpr std::uint32_t kRow = 2 * kDepth + 16;
      return std::max((rows(shape) + columns(shape)) * kRow, 4 * parts_m * shape.m * columns(shape));
    }
  };

  Api api = Api::kNone;
  Shape float16;   // of operands of that type; the card may lack one of the two
  Shape bfloat16;  // VK_KHR_shader_bfloat16
  std::uint32_t subgroup_size = 0;
  // What a workgroup may have.
  std::uint32_t shared_bytes = 0;
  std::uint32_t invocations = 0;

  bool there() const { return api != Api::kNone; }
  /// Cards with wide subgroups have the registers for many sums of an invocation, or for much that is under way.
  bool wide() const { return subgroup_size >= 32; }
  bool fits(Shape shape, Tiling tiling) const {
    return tiling.shared_bytes(shape) <= shared_bytes && tiling.parts_m * tiling.parts_n * subgroup_size <= invocations;
  }
  /// Of so many products [rows, columns]. Sums do not depend on it.
  Tiling tiling(Shape shape, std::int64_t rows, std::int64_t columns, std::int64_t products = 1) const;
};

}  // namespace rondo::devices::vulkan
