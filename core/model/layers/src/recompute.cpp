// Slicing of a recorded graph into programs.
#include "rondo/model/recompute.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace rondo::model {
namespace {

constexpr std::size_t kNoOp = static_cast<std::size_t>(-1);

/// Cheap beside the memory that its result would take.
bool is_cheap(OpKind kind) {
  return kind == OpKind::kNorm || kind == OpKind::kGatedActivation || kind == OpKind::kAdd ||
         kind == OpKind::kDropout || kind == OpKind::kNoise || kind == OpKind::kColumnScale ||
         kind == OpKind::kExpand || kind == OpKind::kDispatch || kind == OpKind::kJoinHeads ||
         kind == OpKind::kJoinHeadsBackward || kind == OpKind::kConvolution || kind == OpKind::kDecay;
}

/// Of what there is anyway: the layer's input, parts of it, or a weight.
bool is_of_given(const Op& op) {
  return op.kind == OpKind::kExpand || op.kind == OpKind::kJoinHeadsBackward ||
         (op.kind == OpKind::kAdd && op.reads.size() == 1);
}

/// Nothing but the sum of a weight's gradient comes of it, and all that it reads is there without it.
bool is_deferrable(OpKind kind) {
  return kind == OpKind::kMatMulWeightGradient || kind == OpKind::kGroupedMatMulWeightGradient ||
         kind == OpKind::kBiasGradient || kind == OpKind::kGroupedBiasGradient;
}

class Slicer {
 public:
  Slicer(const Graph& graph, Keep keep) : graph_(graph), producer_(graph.tensors.size(), kNoOp) {
    for (std::size_t i = 0; i < graph.forward_ops; ++i) {
      for (const TensorId id : graph.ops[i].writes) producer_[id] = i;
    }
    for (std::size_t i = graph.forward_ops; i < graph.ops.size(); ++i) {
      for (const TensorId id : graph.ops[i].reads) {
        if (producer_[id] != kNoOp) needed_.insert(id);
        if (is_deferrable(graph.ops[i].kind) && !is_given(id)) held_.insert(id);
      }
    }
    if (keep == Keep::kAll) {
      for (const TensorId id : needed_) {
        if (!is_of_given(graph.ops[producer_[id]])) saved_.insert(id);
      }
    }
    if (keep == Keep::kSelective) {
      for (const TensorId id : needed_) save_or_recompute(id);
    }
    std::uint32_t saved = 0;
    std::uint32_t held = 0;
    for (const TensorId id : saved_) {
      lasting_[id] = held_.contains(id) ? std::pair(TensorRole::kHeld, held++) : std::pair(TensorRole::kSaved, saved++);
    }
    for (const TensorId id : held_) {
      if (!saved_.contains(id)) lasting_[id] = {TensorRole::kHeld, held++};
    }
  }

  const std::set<TensorId>& saved() const { return saved_; }
  const std::set<TensorId>& needed() const { return needed_; }
  const std::set<TensorId>& held() const { return held_; }

  /// Forward ops, in order, that lead to `wanted`; tensors of `given` need not be computed.
  std::vector<std::size_t> ops_for(const std::set<TensorId>& wanted, const std::set<TensorId>& given) const {
    std::vector<bool> included(graph_.forward_ops, false);
    std::vector<TensorId> open(wanted.begin(), wanted.end());
    while (!open.empty()) {
      const TensorId id = open.back();
      open.pop_back();
      if (given.contains(id) || producer_[id] == kNoOp || included[producer_[id]]) continue;
      included[producer_[id]] = true;
      const Op& op = graph_.ops[producer_[id]];
      open.insert(open.end(), op.reads.begin(), op.reads.end());
    }
    std::vector<std::size_t> ops;
    for (std::size_t i = 0; i < included.size(); ++i) {
      if (included[i]) ops.push_back(i);
    }
    return ops;
  }

  /// Backward ops, in order: those that may wait, or the others.
  std::vector<std::size_t> backward_ops(bool deferrable) const {
    std::vector<std::size_t> ops;
    for (std::size_t i = graph_.forward_ops; i < graph_.ops.size(); ++i) {
      if (is_deferrable(graph_.ops[i].kind) == deferrable) ops.push_back(i);
    }
    return ops;
  }

  /// What outlives its program has a role of its own. `halves`: of a backward.
  void mark(TensorId id, bool halves, TensorDesc& desc) const {
    const auto found = lasting_.find(id);
    if (found == lasting_.end() || !(halves || saved_.contains(id))) return;
    desc.role = found->second.first;
    desc.index = found->second.second;
  }
  std::vector<TensorDesc> saved_tensors() const {
    return marked([this](TensorId id) { return saved_.contains(id); });
  }
  std::vector<TensorDesc> held_tensors() const {
    return marked([this](TensorId id) { return held_.contains(id); });
  }

 private:
  bool is_given(TensorId id) const {
    const TensorRole role = graph_.tensors[id].role;
    return role == TensorRole::kInput || role == TensorRole::kWeight || role == TensorRole::kBatch;
  }

  template <typename Wanted>
  std::vector<TensorDesc> marked(Wanted wanted) const {
    std::vector<TensorDesc> found;
    for (const auto& [id, place] : lasting_) {
      if (!wanted(id)) continue;
      found.push_back(graph_.tensors[id]);
      mark(id, true, found.back());
    }
    std::ranges::sort(found, {}, [](const TensorDesc& desc) { return std::pair(desc.role, desc.index); });
    return found;
  }

  void save_or_recompute(TensorId id) {
    if (producer_[id] == kNoOp) return;
    const Op& op = graph_.ops[producer_[id]];
    if (!is_cheap(op.kind)) {
      saved_.insert(id);
      return;
    }
    for (const TensorId read : op.reads) save_or_recompute(read);
  }

  const Graph& graph_;
  std::vector<std::size_t> producer_;  // forward op that writes the tensor
  std::set<TensorId> needed_;          // forward results that backward ops read
  std::set<TensorId> saved_;
  std::set<TensorId> held_;                                           // what deferrable ops read
  std::map<TensorId, std::pair<TensorRole, std::uint32_t>> lasting_;  // what is saved or held: role and index
};

/// Copies the ops of `indices` with just the tensors that they use, and those of `also`; `role_of(id)` may change a
/// tensor's role.
template <typename RoleOf>
devices::OpList extract(const Graph& graph, const std::vector<std::size_t>& indices, RoleOf role_of,
                        const std::set<TensorId>& also = {}) {
  devices::OpList list;
  list.tokens = graph.tokens;
  std::map<TensorId, TensorId> renamed;
  const auto rename = [&](TensorId id) {
    const auto [place, fresh] = renamed.try_emplace(id, static_cast<TensorId>(list.tensors.size()));
    if (fresh) {
      list.tensors.push_back(graph.tensors[id]);
      role_of(id, list.tensors.back());
    }
    return place->second;
  };
  for (const std::size_t i : indices) {
    Op op = graph.ops[i];
    for (TensorId& id : op.reads) id = rename(id);
    for (TensorId& id : op.writes) id = rename(id);
    list.ops.push_back(std::move(op));
  }
  for (const TensorId id : also) rename(id);
  return list;
}

/// Recomputation of what was not saved, then `backward`.
devices::OpList gradients(const Graph& graph, const Slicer& slicer, const std::vector<std::size_t>& backward,
                          bool halves) {
  std::vector<std::size_t> indices = slicer.ops_for(slicer.needed(), slicer.saved());
  std::set<TensorId> forward_results;
  for (const std::size_t i : indices) forward_results.insert(graph.ops[i].writes.begin(), graph.ops[i].writes.end());
  indices.insert(indices.end(), backward.begin(), backward.end());
  const auto role_of = [&](TensorId id, TensorDesc& desc) {
    if (forward_results.contains(id)) desc.role = TensorRole::kScratch;
    slicer.mark(id, halves, desc);
  };
  // What is held lies one after another, read here or not.
  return extract(graph, indices, role_of, halves ? slicer.held() : std::set<TensorId>());
}

}  // namespace

devices::OpList forward_program(const Graph& graph, Keep keep) {
  const Slicer slicer(graph, keep);
  std::set<TensorId> wanted = slicer.saved();
  for (std::size_t i = 0; i < graph.forward_ops; ++i) {
    for (const TensorId id : graph.ops[i].writes) {
      const TensorRole role = graph.tensors[id].role;
      if (role == TensorRole::kOutput || role == TensorRole::kLoss || role == TensorRole::kLogits) wanted.insert(id);
    }
  }
  return extract(graph, slicer.ops_for(wanted, {}),
                 [&](TensorId id, TensorDesc& desc) { slicer.mark(id, false, desc); });
}

devices::OpList backward_program(const Graph& graph, Keep keep) {
  std::vector<std::size_t> all(graph.ops.size() - graph.forward_ops);
  std::iota(all.begin(), all.end(), graph.forward_ops);
  return gradients(graph, Slicer(graph, keep), all, false);
}

devices::OpList input_gradient_program(const Graph& graph, Keep keep) {
  const Slicer slicer(graph, keep);
  return gradients(graph, slicer, slicer.backward_ops(false), true);
}

devices::OpList weight_gradient_program(const Graph& graph, Keep keep) {
  const Slicer slicer(graph, keep);
  return extract(graph, slicer.backward_ops(true), [&](TensorId id, TensorDesc& desc) { slicer.mark(id, true, desc); });
}

devices::OpList whole_program(const Graph& graph) {
  std::vector<std::size_t> indices(graph.ops.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return extract(graph, indices, [](TensorId, TensorDesc&) {});
}

std::vector<devices::TensorDesc> saved_tensors(const Graph& graph, Keep keep) {
  return Slicer(graph, keep).saved_tensors();
}

std::vector<devices::TensorDesc> held_tensors(const Graph& graph, Keep keep) {
  return Slicer(graph, keep).held_tensors();
}

}  // namespace rondo::model
