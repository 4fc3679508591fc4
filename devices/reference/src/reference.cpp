// From kinds of ops to their loops.
#include "rondo/devices/reference/reference.h"

#include "rondo/base/status.h"
#include "values.h"

namespace rondo::devices {
namespace {

absl::Status check(const OpList& list, const ArenaLayout& layout, const Bindings& bindings) {
  if (layout.size > 0 && (bindings.scratch.host() == nullptr || bindings.scratch.size < layout.size)) {
    return internal_error("scratch of {} bytes bound, the list needs {}", bindings.scratch.size, layout.size);
  }
  if (bindings.tensors.size() < list.tensors.size()) {
    return internal_error("{} tensors bound, the list has {}", bindings.tensors.size(), list.tensors.size());
  }
  for (std::size_t id = 0; id < list.tensors.size(); ++id) {
    const TensorDesc& tensor = list.tensors[id];
    if (tensor.role == TensorRole::kScratch) continue;
    const BufferView& view = bindings.tensors[id];
    if (view.host() == nullptr || view.size < tensor.bytes()) {
      return internal_error("tensor '{}' is bound to {} bytes, it needs {} that the host can address", tensor.name,
                            view.size, tensor.bytes());
    }
  }
  return absl::OkStatus();
}

void run(const reference::Call& call) {
  switch (call.op.kind) {
    case OpKind::kEmbedding:
      return reference::embedding(call);
    case OpKind::kEmbeddingBackward:
      return reference::embedding_backward(call);
    case OpKind::kNorm:
      return reference::norm(call);
    case OpKind::kNormBackward:
      return reference::norm_backward(call);
    case OpKind::kMatMul:
      return reference::matmul(call);
    case OpKind::kMatMulInputGradient:
      return reference::matmul_input_gradient(call);
    case OpKind::kMatMulWeightGradient:
      return reference::matmul_weight_gradient(call);
    case OpKind::kBiasGradient:
      return reference::bias_gradient(call);
    case OpKind::kRope:
      return reference::rope(call);
    case OpKind::kAttention:
      return reference::attention(call);
    case OpKind::kAttentionBackward:
      return reference::attention_backward(call);
    case OpKind::kCachedAttention:
      return reference::cached_attention(call);
    case OpKind::kAttentionSink:
      return reference::attention_sink(call);
    case OpKind::kAttentionSinkGradient:
      return reference::attention_sink_gradient(call);
    case OpKind::kJoinHeads:
      return reference::join_heads(call);
    case OpKind::kJoinHeadsBackward:
      return reference::join_heads_backward(call);
    case OpKind::kConvolution:
      return reference::convolution(call);
    case OpKind::kConvolutionBackward:
      return reference::convolution_backward(call);
    case OpKind::kDecay:
      return reference::decay(call);
    case OpKind::kDecayBackward:
      return reference::decay_backward(call);
    case OpKind::kDeltaRule:
      return reference::delta_rule(call);
    case OpKind::kDeltaRuleBackward:
      return reference::delta_rule_backward(call);
    case OpKind::kGatedActivation:
      return reference::gated_activation(call);
    case OpKind::kGatedActivationBackward:
      return reference::gated_activation_backward(call);
    case OpKind::kAdd:
      return reference::add(call);
    case OpKind::kSoftCap:
      return reference::soft_cap(call);
    case OpKind::kDropout:
      return reference::dropout(call);
    case OpKind::kNoise:
      return reference::noise(call);
    case OpKind::kMagnitudeScale:
      return reference::magnitude_scale(call);
    case OpKind::kColumnScale:
      return reference::column_scale(call);
    case OpKind::kColumnScaleBackward:
      return reference::column_scale_backward(call);
    case OpKind::kHeadScaleGradient:
      return reference::head_scale_gradient(call);
    case OpKind::kVocabularyStatistics:
      return reference::vocabulary_statistics(call);
    case OpKind::kVocabularyLoss:
      return reference::vocabulary_loss(call);
    case OpKind::kVocabularyGradient:
      return reference::vocabulary_gradient(call);
    case OpKind::kSelectLast:
      return reference::select_last(call);
    case OpKind::kRoute:
      return reference::route(call);
    case OpKind::kRouteBackward:
      return reference::route_backward(call);
    case OpKind::kShareScale:
      return reference::share_scale(call);
    case OpKind::kShareScaleBackward:
      return reference::share_scale_backward(call);
    case OpKind::kDispatch:
      return reference::dispatch(call);
    case OpKind::kCombine:
      return reference::combine(call);
    case OpKind::kCombineBackward:
      return reference::combine_backward(call);
    case OpKind::kGroupedMatMul:
      return reference::grouped_matmul(call);
    case OpKind::kGroupedMatMulInputGradient:
      return reference::grouped_matmul_input_gradient(call);
    case OpKind::kGroupedMatMulWeightGradient:
      return reference::grouped_matmul_weight_gradient(call);
    case OpKind::kGroupedBias:
      return reference::grouped_bias(call);
    case OpKind::kGroupedBiasGradient:
      return reference::grouped_bias_gradient(call);
    case OpKind::kExpand:
      return reference::expand(call);
    case OpKind::kEncode:
      return reference::encode(call);
    case OpKind::kAddRows:
      return reference::add_rows(call);
    case OpKind::kSumOfSquares:
      return reference::sum_of_squares(call);
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return reference::adamw(call);
  }
}

}  // namespace

absl::Status run_reference(const OpList& list, const Bindings& bindings) {
  const ArenaLayout layout = plan_arena(list);
  RONDO_RETURN_IF_ERROR(check(list, layout, bindings));
  for (const Op& op : list.ops) run({list, op, bindings, layout});
  return absl::OkStatus();
}

}  // namespace rondo::devices
