// Where scratch tensors lie in a program's arena: first fit, largest first, over their lifetimes.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "rondo/devices/op.h"
#include "rondo/devices/product_pairs.h"

namespace rondo::devices {
namespace {

constexpr Bytes kTensorAlignment = 64;

/// A scratch tensor is alive from the first op that names it to the last, both included: an op's outputs therefore
/// never overlap its inputs. What the first product of a pair reads stays alive until the second.
struct Lifetime {
  TensorId tensor = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  Bytes bytes = 0;
  bool used = false;

  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> scratch_lifetimes(const OpList& list) {
  std::vector<Lifetime> all(list.tensors.size());
  const auto touch = [&all](TensorId id, std::size_t op) {
    if (id >= all.size()) return;  // validate() names it
    Lifetime& life = all[id];
    if (!life.used) life.first = op;
    life.last = std::max(life.last, op);
    life.used = true;
  };
  for (std::size_t i = 0; i < list.ops.size(); ++i) {
    for (const TensorId id : list.ops[i].reads) touch(id, i);
    for (const TensorId id : list.ops[i].writes) touch(id, i);
  }
  for (const ProductPair& pair : product_pairs(list)) {
    for (const TensorId id : list.ops[pair.first].reads) touch(id, pair.second);
  }
  std::vector<Lifetime> scratch;
  for (TensorId id = 0; id < all.size(); ++id) {
    if (list.tensors[id].role != TensorRole::kScratch || !all[id].used) continue;
    all[id].tensor = id;
    all[id].bytes = round_up(list.tensors[id].bytes(), kTensorAlignment);
    scratch.push_back(all[id]);
  }
  return scratch;
}

}  // namespace

ArenaLayout plan_arena(const OpList& list) {
  std::vector<Lifetime> scratch = scratch_lifetimes(list);
  std::stable_sort(scratch.begin(), scratch.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; });
  ArenaLayout layout;
  layout.offsets.assign(list.tensors.size(), 0);
  std::vector<const Lifetime*> placed;  // by rising offset
  for (const Lifetime& life : scratch) {
    Bytes offset = 0;
    for (const Lifetime* other : placed) {
      const Bytes begin = layout.offsets[other->tensor];
      if (!life.meets(*other) || begin + other->bytes <= offset) continue;
      if (offset + life.bytes <= begin) break;
      offset = begin + other->bytes;
    }
    layout.offsets[life.tensor] = offset;
    layout.size = std::max(layout.size, offset + life.bytes);
    const auto place = std::upper_bound(placed.begin(), placed.end(), offset, [&](Bytes at, const Lifetime* other) {
      return at < layout.offsets[other->tensor];
    });
    placed.insert(place, &life);
  }
  return layout;
}

}  // namespace rondo::devices
