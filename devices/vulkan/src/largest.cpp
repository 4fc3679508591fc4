// Behind largest.h.
#include "largest.h"

#include <algorithm>

namespace rondo::devices::vulkan {
namespace {

/// Workgroups for a tensor of so many elements.
std::int64_t groups_for(std::int64_t elements) {
  constexpr std::int64_t kInvocations = 256;
  constexpr std::int64_t kEach = 32;  // elements of an invocation that are worth a workgroup more
  return std::clamp<std::int64_t>(parts_of(elements, kInvocations * kEach), 1, kLargestGroups);
}
/// Whether its rows are whole pieces of 16 bytes.
bool in_pieces(const Searched& tensor) { return tensor.columns % (tensor.type == kFloat32Storage ? 4 : 8) == 0; }

}  // namespace

std::array<Largest, kMostSearched> find_largest(OpLowering& op, std::span<const Searched> tensors) {
  std::int64_t elements = 0;
  std::uint32_t eights = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    elements = std::max(elements, tensors[i].rows * tensors[i].columns);
    eights |= flag_of(in_pieces(tensors[i])) << i;
  }
  const Searched& first = tensors.front();
  const std::int64_t count = groups_for(elements);
  const std::uint32_t slot = op.workspace(static_cast<std::int64_t>(tensors.size()) * kLargestGroups);
  Dispatch& dispatch =
      op.add(Shader::kLargest, {first.type, tensors.back().type, flag_of(first.ends), eights, flag_of(false)},
             {first.slot, first.slot, first.slot, first.slot, slot, first.ends ? first.list : first.slot},
             {0, 0, 0, 0, 0, 0, 0, 0, first.first_listed, first.most_listed}, count);
  std::array<Largest, kMostSearched> found{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    dispatch.push.slots[i] = tensors[i].slot;
    dispatch.push.sizes[i] = static_cast<std::uint32_t>(tensors[i].rows);
    dispatch.push.sizes[kMostSearched + i] = static_cast<std::uint32_t>(tensors[i].columns);
    found[i] = {slot, static_cast<std::int64_t>(i) * kLargestGroups, count};
  }
  dispatch.groups[1] = static_cast<std::uint32_t>(tensors.size());
  return found;
}

Largest find_largest_of_experts(OpLowering& op, const Searched& first, std::int64_t experts, std::uint32_t offsets,
                                std::uint32_t tensors) {
  const std::int64_t count = groups_for(first.rows * first.columns);
  const std::uint32_t slot = op.workspace(experts * kLargestGroups);
  Dispatch& dispatch =
      op.add(Shader::kLargest, {first.type, first.type, flag_of(false), flag_of(in_pieces(first)), flag_of(true)},
             {offsets, offsets, offsets, offsets, slot, offsets, 0, 0, offsets, tensors},
             {first.rows, 0, 0, 0, first.columns}, count);
  dispatch.groups[1] = static_cast<std::uint32_t>(experts);
  return {slot, 0, count};
}

}  // namespace rondo::devices::vulkan
