// Slicing of a recorded graph into programs.
#include "rondo/model/recompute.h"

#include <algorithm>
#include <map>
#include <set>

namespace rondo::model {
namespace {

constexpr std::size_t kNoOp = static_cast<std::size_t>(-1);

/// Cheap beside the memory that its result would take.
bool is_cheap(OpKind kind) {
  return kind == OpKind::kRmsNorm || kind == OpKind::kGatedActivation || kind == OpKind::kAdd ||
         kind == OpKind::kDropout || kind == OpKind::kColumnScale || kind == OpKind::kExpand;
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
      }
    }
    if (keep == Keep::kAll) {
      for (const TensorId id : needed_) {
        if (graph.ops[producer_[id]].kind != OpKind::kExpand) saved_.insert(id);
      }
    }
    if (keep == Keep::kSelective) {
      for (const TensorId id : needed_) save_or_recompute(id);
    }
  }

  const std::set<TensorId>& saved() const { return saved_; }
  const std::set<TensorId>& needed() const { return needed_; }

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

 private:
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
};

/// Copies the ops of `indices` with just the tensors that they use; `role_of(id)` may change a tensor's role.
template <typename RoleOf>
devices::OpList extract(const Graph& graph, const std::vector<std::size_t>& indices, RoleOf role_of) {
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
  return list;
}

void mark_saved(const std::set<TensorId>& saved, TensorId id, TensorDesc& desc) {
  const auto place = saved.find(id);
  if (place == saved.end()) return;
  desc.role = TensorRole::kSaved;
  desc.index = static_cast<std::uint32_t>(std::distance(saved.begin(), place));
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
                 [&](TensorId id, TensorDesc& desc) { mark_saved(slicer.saved(), id, desc); });
}

devices::OpList backward_program(const Graph& graph, Keep keep) {
  const Slicer slicer(graph, keep);
  std::vector<std::size_t> indices = slicer.ops_for(slicer.needed(), slicer.saved());
  const std::size_t recomputed = indices.size();
  for (std::size_t i = graph.forward_ops; i < graph.ops.size(); ++i) indices.push_back(i);
  std::set<TensorId> forward_results;
  for (std::size_t i = 0; i < recomputed; ++i) {
    for (const TensorId id : graph.ops[indices[i]].writes) forward_results.insert(id);
  }
  return extract(graph, indices, [&](TensorId id, TensorDesc& desc) {
    if (forward_results.contains(id)) desc.role = TensorRole::kScratch;
    mark_saved(slicer.saved(), id, desc);
  });
}

devices::OpList whole_program(const Graph& graph) {
  std::vector<std::size_t> indices(graph.ops.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return extract(graph, indices, [](TensorId, TensorDesc&) {});
}

std::vector<devices::TensorDesc> saved_tensors(const Graph& graph, Keep keep) {
  const Slicer slicer(graph, keep);
  std::vector<devices::TensorDesc> saved;
  for (const TensorId id : slicer.saved()) {
    saved.push_back(graph.tensors[id]);
    mark_saved(slicer.saved(), id, saved.back());
  }
  return saved;
}

}  // namespace rondo::model
