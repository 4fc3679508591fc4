// Behind order.h.
#include "order.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rondo/devices/product_pairs.h"
#include "rondo/devices/touch.h"

namespace rondo::devices::vulkan {
namespace {

/// In bytes of the arena; behind them a place for what each role and index is bound to.
std::vector<Touch> touches_of(const OpList& list, const ArenaLayout& layout, const Op& op) {
  std::vector<Touch> touches;
  for_touched(list, op, [&](TensorId id, bool writes) {
    const TensorDesc& tensor = list.tensors[id];
    const bool boundary = tensor.role == TensorRole::kInput || tensor.role == TensorRole::kOutput;
    if (tensor.role == TensorRole::kScratch) {
      touches.push_back({layout.offsets[id], tensor.bytes(), writes});
    } else if (boundary) {
      touches.push_back({layout.size, 1, writes});
    } else {
      touches.push_back({layout.size + ((static_cast<Bytes>(tensor.role) + 1) << 32U | tensor.index), 1, writes});
    }
  });
  return touches;
}

}  // namespace

std::vector<Dispatch> by_levels(const OpList& list, const ArenaLayout& layout, std::vector<Dispatch> dispatches,
                                bool backwards) {
  std::vector<std::vector<Touch>> touches;
  for (const Op& op : list.ops) touches.push_back(touches_of(list, layout, op));
  // Pairs are lowered in the second's place, nothing in the first's.
  for (const ProductPair& pair : product_pairs(list)) {
    std::ranges::copy_if(std::exchange(touches[pair.first], {}), std::back_inserter(touches[pair.second]),
                         [](const Touch& touch) { return !touch.writes; });
  }
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
