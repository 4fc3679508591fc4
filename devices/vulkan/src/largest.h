// Largest numbers of tensors, which say how bf16 is scaled for matrix units that multiply fp16 alone; see
// shaders/scaled.glsl.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lowering.h"

namespace rondo::devices::vulkan {

/// What was found of a tensor: `count` numbers in a slot, from number `first` on; 0: nothing so far.
struct Largest {
  std::uint32_t slot = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A tensor [rows, columns], or that a list of tokens ends, see kernel targets.comp.
struct Searched {
  std::uint32_t slot = 0;
  std::uint32_t type = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool ends = false;
  std::uint32_t list = 0;
  std::int64_t first_listed = 0, most_listed = 0;
};

/// Numbers of a tensor at most, as in shaders/scaled.glsl: each workgroup of what asks reads all of them.
inline constexpr std::int64_t kLargestGroups = 128;
/// Most tensors at once.
inline constexpr std::size_t kMostSearched = 4;

/// In one dispatch. REQUIRES: one to kMostSearched tensors; those behind the first are of one type, and no list ends
/// them.
std::array<Largest, kMostSearched> find_largest(OpLowering& op, std::span<const Searched> tensors);

/// Of each expert that has rows, in a tensor like `first`. What is found of one lies kLargestGroups numbers behind that
/// of the one before it. `offsets`, `tensors`: slots, see shaders/products/experts.glsl.
Largest find_largest_of_experts(OpLowering& op, const Searched& first, std::int64_t experts, std::uint32_t offsets,
                                std::uint32_t tensors);

}  // namespace rondo::devices::vulkan
