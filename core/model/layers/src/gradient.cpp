// The gradient of every op, by hand, op by op (reverse mode).
//
// A tensor that feeds several ops collects its gradient in the order in which the backward ops are emitted: each
// further contribution takes the sum so far as its addend where the op has one, else an explicit addition follows.
// Every sum is rounded to the activations' dtype, in this fixed order; a backend may leave that out within a pair of
// products (devices/product_pairs.h).
#include <map>

#include "rondo/model/recorder.h"

namespace rondo::model {

class GradientPass {
 public:
  explicit GradientPass(Recorder& recorder) : recorder_(recorder), graph_(recorder.graph_) {}

  void run(std::optional<TensorId> seed, std::optional<TensorId> input) {
    graph_.forward_ops = graph_.ops.size();
    mark_needed(input);
    if (seed) {
      const TensorDesc y = graph_.tensors[*seed];
      gradient_[*seed] = recorder_.tensor("dy", y.shape, recorder_.dtype_, TensorRole::kInput, 1, y.encoding);
    }
    for (const auto& [tensor, gradient] : recorder_.gradients_) gradient_[tensor] = gradient;
    for (std::size_t i = graph_.forward_ops; i-- > 0;) differentiate(Op(graph_.ops[i]));
    if (input) {
      TensorDesc& dx = graph_.tensors[gradient_.at(*input)];
      dx.role = TensorRole::kOutput;
      dx.index = 0;
    }
  }

 private:
  /// A gradient is needed of what a trained weight or the layer's input (when asked for) flows into.
  void mark_needed(std::optional<TensorId> input) {
    needed_.assign(graph_.tensors.size(), false);
    if (input) needed_[*input] = true;
    copied_.resize(graph_.tensors.size());
    for (TensorId id = 0; id < copied_.size(); ++id) copied_[id] = id;
    for (std::size_t i = 0; i < graph_.forward_ops; ++i) {
      const Op& op = graph_.ops[i];
      if (op.kind == OpKind::kAdd && op.reads.size() == 1) copied_[op.writes[0]] = copied_[op.reads[0]];
      bool any = false;
      for (const TensorId id : op.reads) any = any || needed_[id] || recorder_.trained_[id];
      for (const TensorId id : op.writes) needed_[id] = needed_[id] || any;
    }
  }

  bool needs(TensorId id) const { return needed_[id]; }
  bool trains(TensorId id) const { return recorder_.trained_[id]; }
  /// A copy has its gradient together with what it is a copy of.
  TensorId original(TensorId id) const { return copied_[id]; }
  void set(TensorId of, TensorId gradient) { gradient_[original(of)] = gradient; }
  std::optional<TensorId> known(TensorId id) const {
    const auto found = gradient_.find(original(id));
    return found == gradient_.end() ? std::nullopt : std::optional<TensorId>(found->second);
  }
  TensorId fresh(TensorId of) {
    const TensorDesc desc = graph_.tensors[of];
    return recorder_.tensor("d_" + desc.name, desc.shape, desc.dtype, TensorRole::kScratch);
  }
  /// Adds `contribution` to the gradient of `of` by an op of its own.
  void collect(TensorId of, TensorId contribution) {
    const auto sum_so_far = known(of);
    if (!sum_so_far) return set(of, contribution);
    const TensorId sum = fresh(of);
    Op& op = recorder_.append(OpKind::kAdd);
    op.reads = {*sum_so_far, contribution};
    op.writes = {sum};
    set(of, sum);
  }

  void differentiate(const Op& op) {
    const auto dy = known(op.writes[0]);
    if (!dy) return;  // of the loss gradients came with the forward
    switch (op.kind) {
      case OpKind::kEmbedding:
        return embedding(op, *dy);
      case OpKind::kNorm:
        return norm(op, *dy);
      case OpKind::kMatMul:
        return matmul(op, *dy);
      case OpKind::kRope:
        return rope(op, *dy);
      case OpKind::kAttention:
        return attention(op, *dy);
      case OpKind::kAttentionSink:
        return attention_sink(op, *dy);
      case OpKind::kJoinHeads:
        return join_heads(op, *dy);
      case OpKind::kJoinHeadsBackward:
        return parted(op);
      case OpKind::kConvolution:
        return convolution(op, *dy);
      case OpKind::kDecay:
        return decay(op, *dy);
      case OpKind::kDeltaRule:
        return delta_rule(op, *dy);
      case OpKind::kGatedActivation:
        return gated_activation(op, *dy);
      case OpKind::kDropout:
        return dropout(op, *dy);
      case OpKind::kNoise:
        if (needs(op.reads[0])) collect(op.reads[0], *dy);
        return;
      case OpKind::kColumnScale:
        return column_scale(op, *dy);
      case OpKind::kRoute:
        return route(op, *dy);
      case OpKind::kShareScale:
        return share_scale(op, *dy);
      case OpKind::kDispatch:
        return dispatch(op, *dy);
      case OpKind::kGroupedMatMul:
        return grouped_matmul(op, *dy);
      case OpKind::kGroupedBias:
        return grouped_bias(op, *dy);
      case OpKind::kCombine:
        return combine(op, *dy);
      case OpKind::kExpand:
        if (needs(op.reads[0])) collect(op.reads[0], recorder_.encoded(*dy, graph_.tensors[op.reads[0]].encoding));
        return;
      case OpKind::kEncode:
        return collect(op.reads[0], recorder_.expanded(*dy));
      case OpKind::kAdd:
        for (const TensorId id : op.reads) {
          if (needs(id) && op.reads.size() > 1) collect(id, *dy);
        }
        return;
      default:
        return;  // ops of generation have no gradient, and DoRA's norm is taken for constant
    }
  }

  void embedding(const Op& op, TensorId dy) {
    if (!trains(op.reads[1])) return;
    const Shape shape = graph_.tensors[op.writes[0]].shape;
    const TensorId ids = recorder_.tensor("row_ids", {shape[0] + 1}, DType::kInt32, TensorRole::kRows, 0);
    const TensorId rows = recorder_.tensor("rows", shape, DType::kFloat32, TensorRole::kRows, 1);
    const TensorId bounds = recorder_.batch(devices::BatchTensor::kBounds);
    Op& back = recorder_.append(OpKind::kEmbeddingBackward, op.attributes);
    back.reads = {op.reads[0], bounds, dy};
    back.writes = {ids, rows};
  }

  void norm(const Op& op, TensorId dy) {
    const TensorId x = op.reads[0];
    auto attributes = std::get<devices::NormAttributes>(op.attributes);
    if (attributes.has_bias && trains(op.reads.back())) {
      const TensorId db = recorder_.gradient_of_weight(op.reads.back());
      Op& back = recorder_.append(OpKind::kBiasGradient);
      back.reads = {dy};
      back.writes = {db};
    }
    attributes.has_bias = false;
    attributes.has_weight_gradient = attributes.has_weight() && trains(op.reads[1]);
    if (!needs(x) && !attributes.has_weight_gradient) return;
    const auto addend = known(x);
    attributes.has_addend = addend.has_value();
    const TensorId dx = fresh(x);
    std::optional<TensorId> dw;
    if (attributes.has_weight_gradient) dw = recorder_.gradient_of_weight(op.reads[1]);
    Op& back = recorder_.append(OpKind::kNormBackward, attributes);
    back.reads = {x};
    if (attributes.has_weight()) back.reads.push_back(op.reads[1]);
    back.reads.push_back(dy);
    if (addend) back.reads.push_back(*addend);
    back.writes = {dx};
    if (dw) back.writes.push_back(*dw);
    if (needs(x)) set(x, dx);
  }

  void matmul(const Op& op, TensorId dy) {
    const auto& attributes = std::get<devices::MatMulAttributes>(op.attributes);
    const TensorId x = op.reads[0];
    const TensorId w = op.reads[1];
    std::size_t next = 2;
    if (attributes.has_bias && trains(op.reads[next])) {
      const TensorId db = recorder_.gradient_of_weight(op.reads[next]);
      Op& back = recorder_.append(OpKind::kBiasGradient);
      back.reads = {dy};
      back.writes = {db};
    }
    if (attributes.has_bias) ++next;
    if (attributes.has_addend && needs(op.reads[next])) collect(op.reads[next], dy);
    if (trains(w)) {
      const TensorId dw = recorder_.gradient_of_weight(w);
      Op& back =
          recorder_.append(OpKind::kMatMulWeightGradient, devices::MatMulAttributes{attributes.alpha, false, false});
      back.reads = {dy, x};
      back.writes = {dw};
    }
    if (!needs(x)) return;
    const auto addend = known(x);
    const TensorId numbers = recorder_.expanded(w);
    const TensorId dx = fresh(x);
    Op& back = recorder_.append(OpKind::kMatMulInputGradient,
                                devices::MatMulAttributes{attributes.alpha, false, addend.has_value(), attributes.fp8});
    back.reads = {dy, numbers};
    if (addend) back.reads.push_back(*addend);
    back.writes = {dx};
    set(x, dx);
  }

  void rope(const Op& op, TensorId dy) {
    auto attributes = std::get<devices::RopeAttributes>(op.attributes);
    attributes.direction = -attributes.direction;
    const TensorId dx = fresh(op.reads[0]);
    Op& back = recorder_.append(OpKind::kRope, std::move(attributes));
    back.reads = {dy, op.reads[1], op.reads[2]};
    back.writes = {dx};
    collect(op.reads[0], dx);
  }

  void attention(const Op& op, TensorId d_o) {
    const TensorId dq = fresh(op.reads[0]);
    const TensorId dk = fresh(op.reads[1]);
    const TensorId dv = fresh(op.reads[2]);
    const auto sunk = sunk_.find(op.writes[0]);
    const auto [o, lse] = sunk == sunk_.end() ? std::pair(op.writes[0], op.writes[1]) : sunk->second;
    Op& back = recorder_.append(OpKind::kAttentionBackward, op.attributes);
    back.reads = {op.reads[0], op.reads[1], op.reads[2], o, lse, d_o, op.reads[3]};
    back.writes = {dq, dk, dv};
    collect(op.reads[0], dq);
    collect(op.reads[1], dk);
    collect(op.reads[2], dv);
  }

  /// Attention's gradient is that of both together.
  void attention_sink(const Op& op, TensorId d_o) {
    const TensorId sinks = op.reads[2];
    if (trains(sinks)) {
      const TensorId d_sinks = recorder_.gradient_of_weight(sinks);
      Op& back = recorder_.append(OpKind::kAttentionSinkGradient);
      back.reads = {op.writes[0], op.writes[1], sinks, d_o};
      back.writes = {d_sinks};
    }
    sunk_[op.reads[0]] = {op.writes[0], op.writes[1]};
    set(op.reads[0], d_o);
  }

  void join_heads(const Op& op, TensorId dy) {
    std::vector<TensorId> parts;
    for (const TensorId part : op.reads) parts.push_back(fresh(part));
    Op& back = recorder_.append(OpKind::kJoinHeadsBackward);
    back.reads = {dy};
    back.writes.assign(parts.begin(), parts.end());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (needs(op.reads[i])) collect(op.reads[i], parts[i]);
    }
  }

  void parted(const Op& op) {
    const TensorId whole = op.reads[0];
    if (!needs(whole)) return;
    const TensorId dx = fresh(whole);
    Op& back = recorder_.append(OpKind::kJoinHeads);
    for (const TensorId part : op.writes) back.reads.push_back(known(part).value());
    back.writes = {dx};
    collect(whole, dx);
  }

  void convolution(const Op& op, TensorId dy) {
    const TensorId x = op.reads[0];
    const TensorId w = op.reads[1];
    if (!needs(x) && !trains(w)) return;
    const TensorId dx = fresh(x);
    std::optional<TensorId> dw;
    if (trains(w)) dw = recorder_.gradient_of_weight(w);
    const auto attributes = std::get<devices::DeltaAttributes>(op.attributes);
    if (attributes.has_bias && trains(op.reads[2])) {
      const TensorId db = recorder_.gradient_of_weight(op.reads[2]);
      Op& bias = recorder_.append(OpKind::kBiasGradient);
      bias.reads = {dy};
      bias.writes = {db};
    }
    Op& back = recorder_.append(OpKind::kConvolutionBackward,
                                devices::DeltaAttributes{false, dw.has_value(), attributes.silu});
    back.reads = {x, w, op.reads[attributes.bounds()], dy};
    back.writes = {dx};
    if (dw) back.writes.push_back(*dw);
    if (needs(x)) collect(x, dx);
  }

  void decay(const Op& op, TensorId dg) {
    auto attributes = std::get<devices::DeltaAttributes>(op.attributes);
    const std::size_t gates = attributes.gates();
    std::vector<TensorId> writes;
    for (std::size_t i = 0; i < gates; ++i) writes.push_back(fresh(op.reads[i]));
    attributes.has_weight_gradient = trains(op.reads[gates]);
    for (std::size_t i = gates; i < gates + 2 && attributes.has_weight_gradient; ++i) {
      writes.push_back(recorder_.gradient_of_weight(op.reads[i]));
    }
    const TensorId d_beta = *known(op.writes[1]);
    Op& back = recorder_.append(OpKind::kDecayBackward, attributes);
    back.reads.assign(op.reads.begin(), op.reads.end());
    back.reads.push_back(dg);
    back.reads.push_back(d_beta);
    back.writes.assign(writes.begin(), writes.end());
    for (std::size_t i = 0; i < gates; ++i) {
      if (needs(op.reads[i])) collect(op.reads[i], writes[i]);
    }
  }

  void delta_rule(const Op& op, TensorId d_o) {
    std::vector<TensorId> writes;
    for (std::size_t i = 0; i < 5; ++i) writes.push_back(fresh(op.reads[i]));
    Op& back = recorder_.append(OpKind::kDeltaRuleBackward, op.attributes);
    back.reads.assign(op.reads.begin(), op.reads.begin() + 5);
    for (const TensorId id : {op.writes[1], op.reads[5], d_o}) back.reads.push_back(id);
    back.writes.assign(writes.begin(), writes.end());
    for (std::size_t i = 0; i < 5; ++i) collect(op.reads[i], writes[i]);
  }

  void gated_activation(const Op& op, TensorId dy) {
    std::vector<TensorId> gradients;
    for (const TensorId id : op.reads) gradients.push_back(fresh(id));
    Op& back = recorder_.append(OpKind::kGatedActivationBackward, op.attributes);
    back.reads = op.reads;
    back.reads.push_back(dy);
    back.writes.assign(gradients.begin(), gradients.end());
    for (std::size_t i = 0; i < op.reads.size(); ++i) collect(op.reads[i], gradients[i]);
  }

  void dropout(const Op& op, TensorId dy) {
    if (!needs(op.reads[0])) return;
    const TensorId dx = fresh(op.reads[0]);
    Op& back = recorder_.append(OpKind::kDropout, op.attributes);
    back.reads = {dy, op.reads[1]};
    back.writes = {dx};
    collect(op.reads[0], dx);
  }

  /// The forward op that wrote `id`.
  const Op& writer_of(TensorId id) const {
    std::size_t i = 0;
    while (graph_.ops[i].writes[0] != id) ++i;
    return graph_.ops[i];
  }

  void column_scale(const Op& op, TensorId dy) {
    const auto& attributes = std::get<devices::ColumnScaleAttributes>(op.attributes);
    const TensorId x = op.reads[0];
    const TensorId scale = op.reads[1];
    if (attributes.has_bias && trains(op.reads[2])) {
      const TensorId db = recorder_.gradient_of_weight(op.reads[2]);
      Op& back = recorder_.append(OpKind::kBiasGradient);
      back.reads = {dy};
      back.writes = {db};
    }
    if (attributes.has_addend && needs(op.reads.back())) collect(op.reads.back(), dy);
    const bool given = graph_.tensors[scale].role == TensorRole::kWeight;
    const TensorDesc& rows = graph_.tensors[x];
    const bool of_channels = given && graph_.tensors[scale].elements() * rows.shape[0] == rows.elements();
    const TensorId dx = fresh(x);
    if (of_channels && trains(scale)) {
      const TensorId d_scale = recorder_.gradient_of_weight(scale);
      Op& back = recorder_.append(OpKind::kColumnScaleBackward);
      back.reads = {x, scale, dy};
      back.writes = {dx, d_scale};
      return collect(x, dx);
    }
    if (given && trains(scale)) {  // of heads
      const TensorId d_scale = recorder_.gradient_of_weight(scale);
      Op& back = recorder_.append(OpKind::kHeadScaleGradient);
      back.reads = {x, dy};
      back.writes = {d_scale};
    }
    if (!given && trains(writer_of(scale).reads[3])) {
      const TensorId inverse = writer_of(scale).writes[1];
      const TensorId dm = recorder_.gradient_of_weight(writer_of(scale).reads[3]);
      Op& back = recorder_.append(OpKind::kColumnScaleBackward);
      back.reads = {x, scale, inverse, dy};
      back.writes = {dx, dm};
    } else {
      Op& back = recorder_.append(OpKind::kColumnScale, devices::ColumnScaleAttributes{});
      back.reads = {dy, scale};
      back.writes = {dx};
    }
    collect(x, dx);
  }

  void route(const Op& op, TensorId d_shares) {
    const TensorId d_logits = fresh(op.reads[0]);
    Op& back = recorder_.append(OpKind::kRouteBackward, op.attributes);
    back.reads = {op.reads[0], op.writes[0], op.writes[1], d_shares};
    back.writes = {d_logits};
    collect(op.reads[0], d_logits);
  }

  void share_scale(const Op& op, TensorId dy) {
    const TensorId dshares = fresh(op.reads[0]);
    std::optional<TensorId> dscale;
    if (trains(op.reads[2])) dscale = recorder_.gradient_of_weight(op.reads[2]);
    Op& back = recorder_.append(OpKind::kShareScaleBackward);
    back.reads = op.reads;
    back.reads.push_back(dy);
    back.writes = {dshares};
    if (dscale) back.writes.push_back(*dscale);
    set(op.reads[0], dshares);
  }

  /// A token's gradient is the sum of those of its rows.
  void dispatch(const Op& op, TensorId dy) {
    const TensorId x = op.reads[0];
    const auto addend = known(x);
    const TensorId dx = fresh(x);
    Op& back = recorder_.append(OpKind::kCombine, devices::CombineAttributes{1.0F, false, addend.has_value()});
    back.reads = {dy, op.reads[1]};
    if (addend) back.reads.push_back(*addend);
    back.writes = {dx};
    set(x, dx);
  }

  void grouped_matmul(const Op& op, TensorId dy) {
    const devices::GroupAttributes group = std::get<devices::GroupAttributes>(op.attributes);
    const TensorId x = op.reads[0];
    const TensorId offsets = op.reads[1];
    const auto tensors = static_cast<std::ptrdiff_t>(devices::expert_tensors_of(op));
    const std::vector<TensorId> w(op.reads.begin() + 2, op.reads.begin() + 2 + tensors);
    if (group.has_addend && needs(op.reads.back())) collect(op.reads.back(), dy);
    if (trains(w[0])) {
      Op& back = recorder_.append(OpKind::kGroupedMatMulWeightGradient,
                                  devices::GroupAttributes{false, group.alpha, group.stacked});
      back.reads = {dy, x, offsets};
      for (const TensorId one : w) back.writes.push_back(recorder_.gradient_of_weight(one));
    }
    if (!needs(x)) return;
    const auto addend = known(x);
    const std::vector<TensorId> numbers = recorder_.expanded(w);
    const TensorId dx = fresh(x);
    Op& back = recorder_.append(OpKind::kGroupedMatMulInputGradient,
                                devices::GroupAttributes{addend.has_value(), group.alpha, group.stacked});
    back.reads = {dy, offsets};
    back.reads.insert(back.reads.end(), numbers.begin(), numbers.end());
    if (addend) back.reads.push_back(*addend);
    back.writes = {dx};
    set(x, dx);
  }

  void grouped_bias(const Op& op, TensorId dy) {
    if (trains(op.reads[2])) {
      const TensorId db = recorder_.gradient_of_weight(op.reads[2]);
      Op& back = recorder_.append(OpKind::kGroupedBiasGradient);
      back.reads = {dy, op.reads[1]};
      back.writes = {db};
    }
    if (needs(op.reads[0])) collect(op.reads[0], dy);
  }

  void combine(const Op& op, TensorId dy) {
    const auto& attributes = std::get<devices::CombineAttributes>(op.attributes);
    if (attributes.has_addend && needs(op.reads.back())) collect(op.reads.back(), dy);
    const TensorId x = op.reads[0];
    const TensorId shares = op.reads[2];
    const TensorId dx = fresh(x);
    const TensorId d_shares = fresh(shares);
    Op& back = recorder_.append(OpKind::kCombineBackward, op.attributes);
    back.reads = {dy, x, op.reads[1], shares};
    back.writes = {dx, d_shares};
    set(x, dx);
    set(shares, d_shares);
  }

  Recorder& recorder_;
  Graph& graph_;
  std::vector<bool> needed_;                                // by forward TensorId
  std::vector<TensorId> copied_;                            // by forward TensorId: what it is a copy of, or itself
  std::map<TensorId, TensorId> gradient_;                   // of a forward tensor: its gradient so far
  std::map<TensorId, std::pair<TensorId, TensorId>> sunk_;  // of attention's o: o and lse behind the sinks
};

void Recorder::backward(std::optional<TensorId> seed, std::optional<TensorId> input) {
  GradientPass(*this).run(seed, input);
}

}  // namespace rondo::model
