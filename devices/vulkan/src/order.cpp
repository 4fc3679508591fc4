// Behind order.h.
#include "order.h"

#include <algorithm>

namespace rondo::devices::vulkan {
namespace {

/// Memory that an op reads or writes: bytes of the arena, or a place that stands for what a tensor is bound to, by its
/// role and index.
struct Touch {
  bool in_arena = false;
  Bytes begin = 0;
  Bytes end = 0;
  bool writes = false;
};

bool meet(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && a.in_arena == b.in_arena && a.begin < b.end && b.begin < a.end;
}

bool meet(const std::vector<Touch>& a, const std::vector<Touch>& b) {
  return std::ranges::any_of(a, [&b](const Touch& one) {
    return std::ranges::any_of(b, [&one](const Touch& other) { return meet(one, other); });
  });
}

std::vector<Touch> touches_of(const OpList& list, const ArenaLayout& layout, const Op& op) {
  std::vector<Touch> touches;
  const auto add = [&](TensorId id, bool writes) {
    const TensorDesc& tensor = list.tensors[id];
    switch (tensor.role) {
      case TensorRole::kScratch:
        touches.push_back({true, layout.offsets[id], layout.offsets[id] + tensor.bytes(), writes});
        return;
      case TensorRole::kInput:
      case TensorRole::kOutput:
        touches.push_back({false, 0, 1, writes});
        return;
      default: {
        const Bytes place = (static_cast<Bytes>(tensor.role) + 1) << 32U | tensor.index;
        // Attention to a cache writes it, though it counts as read.
        touches.push_back({false, place, place + 1, writes || tensor.role == TensorRole::kState});
      }
    }
  };
  for (const TensorId id : op.reads) add(id, false);
  for (const TensorId id : op.writes) add(id, true);
  return touches;
}

}  // namespace

std::vector<Dispatch> by_levels(const OpList& list, const ArenaLayout& layout, std::vector<Dispatch> dispatches,
                                bool backwards) {
  std::vector<std::vector<Touch>> touches;
  for (const Op& op : list.ops) touches.push_back(touches_of(list, layout, op));
  const auto apart = [&](std::size_t before, std::size_t behind) {
    const Dispatch& a = dispatches[before];
    const Dispatch& b = dispatches[behind];
    if (a.op == b.op) return !(b.beside && before + 1 == behind);
    return (a.shares && b.shares) || meet(touches[a.op], touches[b.op]);
  };
  for (std::size_t i = 0; i < dispatches.size(); ++i) {
    Dispatch& own = dispatches[i];
    own.level = 0;
    for (std::size_t j = 0; j < i; ++j) {
      if (dispatches[j].level >= own.level && apart(j, i)) own.level = dispatches[j].level + 1;
    }
  }
  if (backwards) std::ranges::reverse(dispatches);
  std::ranges::stable_sort(dispatches, {}, &Dispatch::level);
  return dispatches;
}

}  // namespace rondo::devices::vulkan
