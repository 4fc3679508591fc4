// Products that add up to one result, such as a linear layer's and its LoRA adapter's.
//
// A backend may compute both when the second comes, and neither round nor store what lies between; plan_arena keeps the
// first one's operands alive until then.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "rondo/devices/op.h"

namespace rondo::devices {

/// Indices into OpList::ops. The addend of `second` is what `first` wrote, and no other op reads it. The wide product
/// is unscaled.
struct ProductPair {
  std::size_t first = 0;
  std::size_t second = 0;
  bool narrow_first = false;  // which of the two has the shorter inner extent, at most kNarrowInner, and no bias

  std::size_t narrow() const { return narrow_first ? first : second; }
  std::size_t wide() const { return narrow_first ? second : first; }
};

/// Longest inner extent of the narrow product of a pair: that of adapters of high rank.
inline constexpr std::int64_t kNarrowInner = 256;

/// In rising order of `second`. An op is in one pair at most.
std::vector<ProductPair> product_pairs(const OpList& list);
/// By op of the list: the pair that it is in, none where `takes` refuses that.
std::vector<std::optional<ProductPair>> pairs_by_op(const OpList& list,
                                                    const std::function<bool(const ProductPair&)>& takes = nullptr);

}  // namespace rondo::devices
