// See product_pairs.h.
#include "rondo/devices/product_pairs.h"

namespace rondo::devices {
namespace {

const MatMulAttributes* product_attributes(const Op& op) {
  const bool is_product = op.kind == OpKind::kMatMul || op.kind == OpKind::kMatMulInputGradient;
  return is_product ? &std::get<MatMulAttributes>(op.attributes) : nullptr;
}

/// The extent that a product sums over: w is stored [out, in].
std::int64_t inner_extent(const OpList& list, const Op& op) {
  const TensorDesc& w = list.tensors[op.reads[1]];
  return op.kind == OpKind::kMatMul ? w.shape[1] : w.shape[0];
}

/// By tensor: the op that wrote it, and how many ops read it.
struct Use {
  std::optional<std::size_t> writer;
  std::size_t readers = 0;
};

std::vector<Use> uses_of(const OpList& list) {
  std::vector<Use> uses(list.tensors.size());
  for (std::size_t i = 0; i < list.ops.size(); ++i) {
    for (const TensorId id : list.ops[i].reads) {
      if (id < uses.size()) ++uses[id].readers;  // validate() names those that are not
    }
    for (const TensorId id : list.ops[i].writes) {
      if (id < uses.size()) uses[id].writer = i;
    }
  }
  return uses;
}

}  // namespace

std::vector<ProductPair> product_pairs(const OpList& list) {
  const std::vector<Use> uses = uses_of(list);
  std::vector<bool> taken(list.ops.size(), false);
  std::vector<ProductPair> pairs;
  for (std::size_t i = 0; i < list.ops.size(); ++i) {
    const MatMulAttributes* second = product_attributes(list.ops[i]);
    if (second == nullptr || !second->has_addend) continue;
    const TensorId sum = list.ops[i].reads.back();
    if (sum >= uses.size() || list.tensors[sum].role != TensorRole::kScratch) continue;
    const Use& use = uses[sum];
    if (use.readers != 1 || !use.writer || *use.writer >= i || taken[*use.writer]) continue;
    const Op& writer = list.ops[*use.writer];
    const MatMulAttributes* first = product_attributes(writer);
    if (first == nullptr) continue;
    ProductPair pair{*use.writer, i, inner_extent(list, writer) < inner_extent(list, list.ops[i])};
    const Op& narrow = list.ops[pair.narrow()];
    const Op& wide = list.ops[pair.wide()];
    if (inner_extent(list, narrow) > kNarrowInner || product_attributes(narrow)->has_bias) continue;
    if (product_attributes(wide)->alpha != 1.0F) continue;
    taken[pair.first] = taken[pair.second] = true;
    pairs.push_back(pair);
  }
  return pairs;
}

std::vector<std::optional<ProductPair>> pairs_by_op(const OpList& list,
                                                    const std::function<bool(const ProductPair&)>& takes) {
  std::vector<std::optional<ProductPair>> by_op(list.ops.size());
  for (const ProductPair& pair : product_pairs(list)) {
    if (takes == nullptr || takes(pair)) by_op[pair.first] = by_op[pair.second] = pair;
  }
  return by_op;
}

}  // namespace rondo::devices
