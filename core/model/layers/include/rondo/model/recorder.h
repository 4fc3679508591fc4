// Records the operations of a layer into a graph: forward ops as the architecture writes them, then their gradients, op
// by op.
//
// A Graph knows nothing of programs: recompute.h cuts forward and backward programs out of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/devices/op.h"

namespace rondo::model {

using devices::DType;
using devices::Op;
using devices::OpKind;
using devices::Shape;
using devices::TensorDesc;
using devices::TensorId;
using devices::TensorRole;

/// Forward ops first (`forward_ops` of them), then backward ops.
struct Graph {
  std::vector<TensorDesc> tensors;
  std::vector<Op> ops;
  std::size_t forward_ops = 0;
  std::uint32_t tokens = 0;
};

/// y = c / sqrt(mean(c^2) + epsilon) * (weight_factor * weight + weight_offset) (+ bias), c = x or x - mean(x).
struct NormSpec {
  double epsilon;
  double weight_factor;
  double weight_offset;
  bool centred = false;
};

class Recorder {
 public:
  /// `tokens`: the bucket; `dtype`: of activations and weights on the device.
  Recorder(std::uint32_t tokens, DType dtype);

  std::int64_t tokens() const { return graph_.tokens; }
  DType dtype() const { return dtype_; }

  TensorId tensor(std::string name, Shape shape, DType dtype, TensorRole role, std::uint32_t index = 0,
                  devices::Encoding encoding = devices::Encoding::kPlain);
  /// Weight `index` of the layer; asked twice, it is the same tensor. `trained`: the gradient pass adds to its
  /// gradient. An encoded weight is for matmul() and magnitude_scale() alone.
  TensorId weight(std::uint32_t index, const std::string& name, const Shape& shape, bool trained,
                  devices::Encoding encoding = devices::Encoding::kPlain);
  TensorId batch(devices::BatchTensor which);
  /// x itself where it is not encoded, or its numbers by an op of its own. x may be the result of such an op.
  TensorId expanded(TensorId x);
  std::vector<TensorId> expanded(const std::vector<TensorId>& all);
  /// x itself for kPlain, or its codes. Rounding has no gradient: that of x is what comes for the codes, expanded.
  TensorId encoded(TensorId x, devices::Encoding encoding);

  /// Rows of the table, times `scale`.
  TensorId embedding(TensorId table, double scale);
  /// Without a weight it is as if weight_factor were 0.
  TensorId norm(TensorId x, std::optional<TensorId> weight, std::optional<TensorId> bias, const NormSpec& norm,
                const std::string& name);
  /// a (+ b). Without b it is a copy, whose gradient is one with that of a: for what a layer is given and gradients of
  /// weights read, since these may wait for long after it is gone (recompute.h).
  TensorId add(TensorId a, std::optional<TensorId> b, const std::string& name);
  /// y [T, ...shape] = alpha x w^T (+ bias) (+ addend). An encoded w is expanded anew for each product, so that no more
  /// than one is held expanded at a time. `fp8`: see MatMulAttributes; its input gradient is multiplied so too.
  TensorId matmul(TensorId x, TensorId w, std::optional<TensorId> bias, std::optional<TensorId> addend, double alpha,
                  Shape shape, const std::string& name, devices::Fp8Format fp8 = devices::Fp8Format::kNone);
  TensorId rope(TensorId x, const devices::RopeAttributes& attributes, const std::string& name);
  /// Of each query and head the sum of values, and the logarithm of what they were divided by.
  struct Attended {
    TensorId o;    // [T, H, D]
    TensorId lse;  // fp32 [T, H]
  };
  Attended attention(TensorId q, TensorId k, TensorId v, const devices::AttentionAttributes& attributes);
  Attended cached_attention(TensorId q, TensorId k, TensorId v, std::int64_t capacity,
                            const devices::AttentionAttributes& attributes);
  /// As if each query had seen one more key of score sinks [H] and value 0.
  Attended attention_sink(const Attended& attended, TensorId sinks);
  /// y [T, heads, width]: of each head what a [T, heads or 1, ...] has, then what b has, then zeros; what goes beyond
  /// `width` is left out.
  TensorId join_heads(TensorId a, std::optional<TensorId> b, std::int64_t heads, std::int64_t width,
                      const std::string& name);
  /// y [rows, width]: of each row what a [rows, ...] has, then what b has, then zeros; what goes beyond `width` is left
  /// out.
  TensorId joined(TensorId a, std::optional<TensorId> b, std::int64_t width, const std::string& name);
  /// Rows taken apart again: each is `first` and `second`, [rows, ...], one after the other. Where a gradient is asked
  /// for, there must be one of both.
  std::pair<TensorId, TensorId> parted(TensorId whole, const Shape& first, const Shape& second,
                                       const std::string& first_name, const std::string& second_name);
  /// BatchTensor::kBlockRows.
  TensorId block_rows(std::int64_t width);
  /// A convolution along the sequence, x [T, ...] by w [C, W] (+ bias [C]), and behind it silu, if asked for. `state`:
  /// which of the layer's. `decodes`: from a state and to it, here and below.
  TensorId convolution(TensorId x, TensorId w, std::optional<TensorId> bias, std::uint32_t state, bool decodes,
                       bool silu = true);
  struct Decayed {
    TensorId g;     // fp32 [T, Hv]
    TensorId beta;  // likewise
  };
  Decayed decay(TensorId a, TensorId b, TensorId rates, TensorId bias);
  /// Of a state space: beta are steps between `least` and `most`.
  Decayed steps(TensorId a, TensorId rates, TensorId bias, double least, double most);
  /// o [T, Hv, Dv]. `state`: which of the layer's.
  TensorId delta_rule(TensorId q, TensorId k, TensorId v, const Decayed& gates, bool decodes,
                      devices::Recurrence recurrence = devices::Recurrence::kDeltaRule, std::uint32_t state = 0);
  /// activation(gate) (* up)
  TensorId gated_activation(TensorId gate, std::optional<TensorId> up,
                            const devices::GatedActivationAttributes& attributes);
  TensorId soft_cap(TensorId x, double cap, const std::string& name);
  /// `rest`: what dropping takes away.
  TensorId dropout(TensorId x, double probability, std::uint32_t site, const std::string& name, bool rest = false);
  /// Of a model's input: see OpKind::kNoise.
  TensorId noise(TensorId x, double amount, const std::string& name);
  /// DoRA: m (fp32) over the lengths of the rows of w + alpha b a. An encoded w is expanded for it.
  TensorId magnitude_scale(TensorId m, TensorId w, TensorId a, TensorId b, double alpha, const std::string& name);
  /// y = x * scale (+ bias) (+ addend), `scale` from magnitude_scale(), or a weight: [1], [H] of x [T, H, D], or [H D].
  TensorId column_scale(TensorId x, TensorId scale, std::optional<TensorId> bias, std::optional<TensorId> addend,
                        const std::string& name);
  TensorId select_last(TensorId x);

  /// Where a mixture of experts sends tokens. k: `choices`.
  struct Routed {
    TensorId shares;   // fp32 [T, k]
    TensorId experts;  // int32 [T, k]
    TensorId rows;     // int32 [T, k]
    TensorId offsets;  // int32 [E + 1]
  };
  /// By logits [T, E].
  /// `bias`: where the attributes say so.
  Routed route(TensorId logits, std::int64_t choices, const devices::RouteAttributes& attributes,
               std::optional<TensorId> bias = std::nullopt);
  /// Shares times their experts' numbers, `scale` [E].
  TensorId share_scale(const Routed& routed, TensorId scale);
  /// x [T, C] as the experts read it, [k T, C].
  TensorId dispatch(TensorId x, const Routed& routed);
  /// y [k T, N], of each expert's rows of x by its w [N, K]. Encoded ones are all expanded for it.
  TensorId grouped_matmul(TensorId x, const Routed& routed, const std::vector<TensorId>& w, const std::string& name);
  /// y [k T, N] = alpha times the same, of w [E, N, K] of all experts (+ addend).
  TensorId stacked_matmul(TensorId x, const Routed& routed, TensorId w, std::optional<TensorId> addend, double alpha,
                          const std::string& name);
  /// y [k T, N] = x + of each expert's rows its row of bias [E, N].
  TensorId grouped_bias(TensorId x, const Routed& routed, TensorId bias, const std::string& name);
  /// y [T, C] = alpha * what the token's experts gave, by shares (+ addend).
  TensorId combine(TensorId x, const Routed& routed, std::optional<TensorId> addend, double alpha);

  std::int64_t columns(TensorId id) const { return graph_.tensors[id].shape.back(); }

  /// The tensor leaves the program under `role`.
  void set_role(TensorId id, TensorRole role, std::uint32_t index) {
    graph_.tensors[id].role = role;
    graph_.tensors[id].index = index;
  }

  void set_dtype(TensorId id, DType dtype) { graph_.tensors[id].dtype = dtype; }

  /// Of the head; x is the normed activation. What comes from another part beside x and its gradient has the roles
  /// kInput 2 and 3, what leaves for one kOutput 0 and 1. In fp16 gradients are times the loss scale: small ones would
  /// be lost below what it can hold.
  void vocabulary_statistics(TensorId x, TensorId w, const devices::VocabularyAttributes& attributes);
  /// Of all parts or the last ones, `w` of each. `attributes` say which gradients follow; that of x leaves for the part
  /// before, or where there is none is known to backward().
  void vocabulary_loss(TensorId x, const std::vector<TensorId>& w, devices::VocabularyAttributes attributes);
  void vocabulary_gradient(TensorId x, TensorId w, devices::VocabularyAttributes attributes);

  /// Ends the forward part and appends the gradient of every op, from the last to the first. `seed`: the tensor whose
  /// gradient is given, none after the loss. `input`: the tensor whose gradient leaves as kOutput 0, none below
  /// the lowest trained layer.
  void backward(std::optional<TensorId> seed, std::optional<TensorId> input);

  /// Without backward() before it all ops are forward ops.
  Graph take() {
    if (graph_.forward_ops == 0) graph_.forward_ops = graph_.ops.size();
    return std::move(graph_);
  }

 private:
  friend class GradientPass;
  Op& append(OpKind kind, devices::OpAttributes attributes = devices::NoAttributes{});
  TensorId activation(std::string name, Shape shape);
  Attended attended_of(TensorId q, const std::string& name);
  TensorId gradient_of_weight(TensorId weight);
  TensorId statistics_before();
  TensorId normalisers(TensorRole role, std::uint32_t index);
  void leave_gradient(TensorId x, TensorId dx, bool to_part);

  Graph graph_;
  DType dtype_;
  std::vector<bool> trained_;                             // by TensorId
  std::map<TensorId, TensorId> encoded_;                  // of an expanded tensor: what it was expanded from
  std::vector<std::pair<TensorId, TensorId>> gradients_;  // known before backward(): from the loss
};

}  // namespace rondo::model
