// A matrix product, or those of experts, as they are lowered: what their kernels are told, and the kernels of every
// card and of matrix units. What processors that pose as cards have besides is in lower_products.cpp.
#pragma once

#include <cstdint>

#include "largest.h"
#include "lowering.h"

namespace rondo::devices::vulkan {

struct Product {
  std::uint32_t a = 0, b = 0, out = 0;  // slots
  std::uint32_t type_a = 0, type_b = 0, type_out = 0;
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t stride_a = 0, stride_b = 0;
  bool transposed_a = false, transposed_b = false;
  float alpha = 1.0F;
  bool narrows_a = false;   // A, fp32, may be rounded to B's type
  bool large_a = false;     // and may be more than fp16 holds
  bool accumulate = false;  // in chunks of kTokenChunk of the depth
  bool onto = false;        // once, and what lies in out is added, too
  bool has_bias = false, has_addend = false;
  std::uint32_t bias = 0, addend = 0;
  std::uint32_t type_bias = 0, type_addend = 0;
  // The rows of an operand that are those of a list of tokens, see targets.comp.
  enum class Listed : std::uint32_t { kNone, kA, kOut, kB } listed = Listed::kNone;
  std::uint32_t list = 0;
  std::int64_t first_listed = 0, most_listed = 0;
  std::int64_t list_tokens = 0;  // of whom some are in the list
  // Products of experts, who have their own rows of A and out, or part of the inner extent; each has a B, or an out, of
  // its own then, see grouped.glsl.
  enum class Grouped : std::uint32_t { kNone, kRows, kDepth } grouped = Grouped::kNone;
  std::int64_t experts = 1;
  std::uint32_t offsets = 0, tensors = 0;  // slots
  // Of operands that several products have, for matrix units that have to scale them.
  Largest* largest_a = nullptr;
  Largest* largest_b = nullptr;

  /// To what lies in out.
  bool adds() const { return accumulate || onto; }
  std::int64_t rows_of_expert() const { return grouped == Grouped::kRows ? parts_of(rows, experts) : rows; }
  std::int64_t depth_of_expert() const { return grouped == Grouped::kDepth ? parts_of(depth, experts) : depth; }
};

/// Of a product of so many rows and columns.
inline double flops_of(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  return 2 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
}

/// Of a few rows. False where the product does not go that way.
bool add_few(OpLowering& op, const Product& p);
/// Of operands of 16 bits, or one that is rounded to them, on cards with units for them. False where the product does
/// not go that way.
bool add_by_units(OpLowering& op, const Product& p);
/// On every card.
void add_by_tiles(OpLowering& op, const Product& p);

}  // namespace rondo::devices::vulkan
