// Behind lowering.h: checks, and one function a kind of op.
#include "lowering.h"

#include <algorithm>
#include <limits>

#include "panel_size.h"
#include "rondo/base/status.h"
#include "rondo/devices/product_pairs.h"
#include "submissions.h"

namespace rondo::devices::vulkan {
namespace {

/// Least of what cards allow in a dimension of a grid. Parts know what two of them have by 16 bits each, see
/// Push::grid.
constexpr std::int64_t kMostGroups = 65535;
/// Kernels count elements in 32 bits, and GPUs take indices for signed.
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kWidestHead = 512;

/// Kernels that have a storage for each operand; others take one for all.
bool mixes_storage(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
    case OpKind::kNorm:
    case OpKind::kNormBackward:
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kMatMulWeightGradient:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return true;
    default:
      return false;
  }
}

void lower(OpLowering& op) {
  switch (op.op().kind) {
    case OpKind::kEmbedding:
      return lower_embedding(op);
    case OpKind::kEmbeddingBackward:
      return lower_embedding_backward(op);
    case OpKind::kNorm:
      return lower_norm(op);
    case OpKind::kNormBackward:
      return lower_norm_backward(op);
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
      return lower_matmul(op);
    case OpKind::kMatMulWeightGradient:
      return lower_weight_gradient(op);
    case OpKind::kBiasGradient:
      return lower_bias_gradient(op);
    case OpKind::kRope:
      return lower_rope(op);
    case OpKind::kAttention:
      return lower_attention(op);
    case OpKind::kAttentionBackward:
      return lower_attention_backward(op);
    case OpKind::kCachedAttention:
      return lower_cached_attention(op);
    case OpKind::kConvolution:
      return lower_convolution(op);
    case OpKind::kConvolutionBackward:
      return lower_convolution_backward(op);
    case OpKind::kDecay:
      return lower_decay(op);
    case OpKind::kDecayBackward:
      return lower_decay_backward(op);
    case OpKind::kDeltaRule:
      return lower_delta_rule(op);
    case OpKind::kDeltaRuleBackward:
      return lower_delta_rule_backward(op);
    case OpKind::kAttentionSink:
      return lower_attention_sink(op);
    case OpKind::kAttentionSinkGradient:
      return lower_attention_sink_gradient(op);
    case OpKind::kJoinHeads:
      return lower_join_heads(op);
    case OpKind::kJoinHeadsBackward:
      return lower_join_heads_backward(op);
    case OpKind::kGatedActivation:
    case OpKind::kGatedActivationBackward:
    case OpKind::kAdd:
    case OpKind::kDropout:
    case OpKind::kNoise:
    case OpKind::kSoftCap:
      return lower_elementwise(op);
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return lower_vocabulary(op);
    case OpKind::kRoute:
      return lower_route(op);
    case OpKind::kRouteBackward:
      return lower_route_backward(op);
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
      return lower_share_scale(op);
    case OpKind::kDispatch:
      return lower_dispatch(op);
    case OpKind::kCombine:
      return lower_combine(op);
    case OpKind::kCombineBackward:
      return lower_combine_backward(op);
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
      return lower_grouped_matmul(op);
    case OpKind::kGroupedMatMulWeightGradient:
      return lower_grouped_weight_gradient(op);
    case OpKind::kGroupedBias:
      return lower_grouped_bias(op);
    case OpKind::kGroupedBiasGradient:
      return lower_grouped_bias_gradient(op);
    case OpKind::kSelectLast:
      return lower_select_last(op);
    case OpKind::kExpand:
      return lower_expand(op);
    case OpKind::kEncode:
      return lower_encode(op);
    case OpKind::kMagnitudeScale:
      return lower_magnitude_scale(op);
    case OpKind::kColumnScale:
      return lower_column_scale(op);
    case OpKind::kColumnScaleBackward:
      return lower_column_scale_backward(op);
    case OpKind::kHeadScaleGradient:
      return lower_head_scale_gradient(op);
    case OpKind::kAddRows:
    case OpKind::kSumOfSquares:
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return lower_update(op);
  }
}

absl::Status check_size(const Op& op, const TensorDesc& tensor) {
  if (tensor.elements() <= kMostElements) return absl::OkStatus();
  return unimplemented("op {} has '{}' of {} elements; vulkan devices take {} at most", name_of(op.kind), tensor.name,
                       tensor.elements(), kMostElements);
}

bool attends(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kAttentionBackward || kind == OpKind::kCachedAttention;
}

}  // namespace

std::uint32_t storage_of(const TensorDesc& tensor) {
  if (tensor.dtype == DType::kBfloat16) return kBfloat16Storage;
  return tensor.dtype == DType::kFloat16 ? kFloat16Storage : kFloat32Storage;
}

absl::Status Lowering::check(const Op& op) const {
  RONDO_RETURN_IF_ERROR(check_storage(list_, op, mixes_storage(op.kind), "Vulkan"));
  for (const TensorId id : op.reads) RONDO_RETURN_IF_ERROR(check_size(op, list_.tensors[id]));
  for (const TensorId id : op.writes) RONDO_RETURN_IF_ERROR(check_size(op, list_.tensors[id]));
  const TensorDesc& first = list_.tensors[op.reads[0]];
  if (attends(op.kind) && first.shape[2] > kWidestHead) {
    return unimplemented("op {} has heads of {} channels; vulkan devices take {} at most", name_of(op.kind),
                         first.shape[2], kWidestHead);
  }
  return absl::OkStatus();
}

/// Cards need not take more, and what they do with more is not said.
absl::Status Lowering::check_groups(const Op& op, std::size_t first) const {
  for (std::size_t i = first; i < dispatches_.size(); ++i) {
    for (const std::uint32_t groups : dispatches_[i].groups) {
      if (groups <= kMostGroups) continue;
      return unimplemented(
          "op {} of {} tokens takes {} workgroups in a dimension of its grid; vulkan devices take {} at most: lower "
          "cutoff_len or per_device_train_batch_size",
          name_of(op.kind), list_.tokens, groups, kMostGroups);
    }
  }
  return absl::OkStatus();
}

/// To the dispatches from `first` on, which are those of what costs so much.
void Lowering::share_out(const OpCost& cost, std::size_t first) {
  const std::span<Dispatch> own = std::span(dispatches_).subspan(first);
  const auto count = static_cast<double>(own.size());
  const bool told = std::ranges::any_of(own, [](const Dispatch& dispatch) { return dispatch.flops > 0; });
  for (Dispatch& dispatch : own) {
    if (!told) dispatch.flops = cost.flops / count;
    dispatch.work = dispatch.flops / kFlopsOfWork + cost.bytes / count / kBytesOfWork;
  }
}

absl::Status Lowering::lower_all() {
  const std::vector<std::optional<ProductPair>> pair_of = pairs_by_op(list_);
  for (std::size_t place = 0; place < list_.ops.size(); ++place) {
    const Op& op = list_.ops[place];
    RONDO_RETURN_IF_ERROR(check(op));
    const std::optional<ProductPair>& pair = pair_of[place];
    if (pair && place == pair->first) continue;  // with the second
    const std::size_t first = dispatches_.size();
    OpLowering one(*this, op);
    OpCost cost = cost_of(list_, op, list_.tokens);
    bool shares = false;
    if (pair) {
      OpLowering other(*this, list_.ops[pair->first]);
      lower_product_pair(pair->narrow_first ? other : one, pair->narrow_first ? one : other, pair->narrow_first);
      const OpCost more = cost_of(list_, other.op(), list_.tokens);
      cost.flops += more.flops;
      cost.bytes += more.bytes;
      shares = other.shares();
    } else {
      lower(one);
    }
    shares = shares || one.shares();
    RONDO_RETURN_IF_ERROR(check_groups(op, first));
    share_out(cost, first);
    for (std::size_t i = first; i < dispatches_.size(); ++i) {
      dispatches_[i].op = place;
      dispatches_[i].shares = shares;
    }
  }
  return absl::OkStatus();
}

std::uint32_t OpLowering::workspace(std::int64_t elements) {
  all_.pieces_.push_back(used_);
  used_ += round_up(static_cast<Bytes>(elements) * 4, 256);
  all_.workspace_bytes_ = std::max(all_.workspace_bytes_, used_);
  return kWorkspaceMark + static_cast<std::uint32_t>(all_.pieces_.size() - 1);
}

std::uint32_t OpLowering::constants(std::span<const float> values) {
  all_.constant_places_.push_back(all_.constants_.size());
  all_.constants_.insert(all_.constants_.end(), values.begin(), values.end());
  return kConstantMark + static_cast<std::uint32_t>(all_.constant_places_.size() - 1);
}

void OpLowering::use_panel(std::int64_t texels) {
  panel_ = true;
  all_.panel_bytes_ = std::max(all_.panel_bytes_, static_cast<Bytes>(texels) * kTexelBytes);
}

Dispatch& OpLowering::add(Shader shader, Constants constants, std::initializer_list<std::uint32_t> slots,
                          std::initializer_list<std::int64_t> sizes, std::int64_t count) {
  Dispatch dispatch;
  dispatch.shader = shader;
  dispatch.constants = std::move(constants);
  std::copy(slots.begin(), slots.end(), std::begin(dispatch.push.slots));
  std::transform(sizes.begin(), sizes.end(), std::begin(dispatch.push.sizes),
                 [](std::int64_t size) { return static_cast<std::uint32_t>(size); });
  const std::int64_t across = std::min(std::max<std::int64_t>(count, 1), kMostGroups);
  dispatch.groups = {static_cast<std::uint32_t>(across), static_cast<std::uint32_t>(parts_of(count, across)), 1};
  if (count > 0) {
    all_.dispatches_.push_back(std::move(dispatch));
    return all_.dispatches_.back();
  }
  static thread_local Dispatch nothing;  // nothing to do: what the caller sets goes nowhere
  return nothing;
}

}  // namespace rondo::devices::vulkan
