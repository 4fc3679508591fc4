// Behind largest.h.
#include "largest.h"

#include <algorithm>

namespace rondo::devices::vulkan {

std::array<Largest, kMostSearched> find_largest(OpLowering& op, std::span<const Searched> tensors) {
  constexpr std::int64_t kInvocations = 256;
  constexpr std::int64_t kEach = 32;  // elements of an invocation that are worth a workgroup more
  // Workgroups, as in shaders/scaled.glsl: each workgroup of what asks reads the numbers of all.
  constexpr std::int64_t kMost = 128;
  std::int64_t elements = 0;
  std::uint32_t eights = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    elements = std::max(elements, tensors[i].rows * tensors[i].columns);
    const bool whole = tensors[i].columns % (tensors[i].type == kFloat32Storage ? 4 : 8) == 0;
    eights |= (whole ? 1U : 0U) << i;
  }
  const Searched& first = tensors.front();
  const std::int64_t count = std::clamp<std::int64_t>(parts_of(elements, kInvocations * kEach), 1, kMost);
  const std::uint32_t slot = op.workspace(static_cast<std::int64_t>(tensors.size()) * kMost);
  Dispatch& dispatch =
      op.add(Shader::kLargest, {first.type, tensors.back().type, first.ends ? 1U : 0U, eights},
             {first.slot, first.slot, first.slot, first.slot, slot, first.ends ? first.list : first.slot},
             {0, 0, 0, 0, 0, 0, 0, 0, first.first_listed, first.most_listed}, count);
  std::array<Largest, kMostSearched> found{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    dispatch.push.slots[i] = tensors[i].slot;
    dispatch.push.sizes[i] = static_cast<std::uint32_t>(tensors[i].rows);
    dispatch.push.sizes[kMostSearched + i] = static_cast<std::uint32_t>(tensors[i].columns);
    found[i] = {slot, static_cast<std::int64_t>(i) * kMost, count};
  }
  dispatch.groups[1] = static_cast<std::uint32_t>(tensors.size());
  return found;
}

}  // namespace rondo::devices::vulkan
