// Names of ops and dtypes, what an op costs, and the buckets of token counts.
#include "rondo/devices/op.h"

#include <algorithm>

namespace rondo::devices {
namespace {

double bytes_of(const OpList& list, TensorId id) { return static_cast<double>(list.tensors[id].bytes()); }
double elements_of(const OpList& list, TensorId id) { return static_cast<double>(list.tensors[id].elements()); }
double extent(const OpList& list, TensorId id, std::size_t dimension) {
  return static_cast<double>(list.tensors[id].shape[dimension]);
}

/// Of a matrix; more than two dimensions count as [first, product of the others].
double columns_of(const OpList& list, TensorId id) { return elements_of(list, id) / extent(list, id, 0); }

std::uint32_t window_of(const Op& op) {
  const auto* attributes = std::get_if<AttentionAttributes>(&op.attributes);
  return attributes == nullptr ? 0 : attributes->window;
}

/// Query-key pairs a token that a causal matrix product over a sequence of `length` needs: half the length, and with a
/// window the part of the triangle within it.
double pairs_per_token(double length, std::uint32_t window) {
  if (window == 0 || window >= length) return length / 2;
  const double width = window;
  return width - width * width / (2 * length);
}

/// FLOPs of the attention ops. q [T, H, D] is read 0; one product costs 2 D a pair and head.
double attention_flops(const OpList& list, const Op& op, double sequence_length) {
  const TensorId q = op.reads[0];
  const double tokens = extent(list, q, 0);
  const double product = 2 * tokens * extent(list, q, 1) * extent(list, q, 2);  // times pairs a token
  switch (op.kind) {
    case OpKind::kAttention:
      return 2 * product * pairs_per_token(sequence_length, window_of(op));
    case OpKind::kAttentionBackward:
      // The scores anew, dv, dp, dq and dk.
      return 5 * product * pairs_per_token(sequence_length, window_of(op));
    default: {  // kCachedAttention: every query sees the cache up to itself
      double keys = std::max(sequence_length, tokens) - (tokens - 1) / 2;
      if (window_of(op) > 0) keys = std::min(keys, static_cast<double>(window_of(op)));
      return 2 * product * keys;
    }
  }
}

/// S^T k, k d^T and S^T q; for the gradient the first two anew, and the gradients of S, q, k (three) and v. Of a state
/// space there is no S^T k and nothing that follows from it.
double delta_flops(const OpList& list, const Op& op) {
  const bool forward = op.kind == OpKind::kDeltaRule;
  const bool state_space = std::get<DeltaAttributes>(op.attributes).is_state_space();
  const double products = state_space ? (forward ? 2 : 5) : (forward ? 3 : 8);
  return products * 2 * elements_of(list, op.reads[2]) * extent(list, op.reads[0], 2);
}

double flops_of(const OpList& list, const Op& op, double sequence_length) {
  switch (op.kind) {
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:  // 2 m n k: the elements written, times those summed over
      return 2 * elements_of(list, op.writes[0]) * columns_of(list, op.reads[0]);
    case OpKind::kMatMulWeightGradient:
    case OpKind::kGroupedMatMulWeightGradient:  // each row is in the sum of one expert
      return 2 * elements_of(list, op.writes[0]) * extent(list, op.reads[0], 0);
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
    case OpKind::kCachedAttention:
      return attention_flops(list, op, sequence_length);
    case OpKind::kDeltaRule:
    case OpKind::kDeltaRuleBackward:
      return delta_flops(list, op);
    case OpKind::kMagnitudeScale:  // b a and the squares of its sum with w
      return 2 * elements_of(list, op.reads[0]) * (extent(list, op.reads[1], 0) + 1);
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient: {
      const auto& attributes = std::get<VocabularyAttributes>(op.attributes);
      // The logits, and each gradient that is asked for.
      double rows = 0;
      for (std::uint32_t part = 0; part < attributes.parts; ++part) rows += extent(list, op.reads[2 + part], 0);
      const double products = 1 + (attributes.has_input_gradient ? 1 : 0) + (attributes.has_weight_gradient ? 1 : 0);
      return 2 * elements_of(list, op.reads[0]) * rows * products;
    }
    default:
      return 0;
  }
}

/// Bytes that an op must read of one of its reads.
double read_bytes(const OpList& list, const Op& op, std::size_t position, double sequence_length) {
  const TensorId id = op.reads[position];
  if (op.kind == OpKind::kEmbedding && position == 1) {
    return std::min(bytes_of(list, id), bytes_of(list, op.writes[0]));  // the looked-up rows
  }
  if (op.kind == OpKind::kCachedAttention && list.tensors[id].role == TensorRole::kState) {
    const double rows = extent(list, id, 0);
    return rows > 0 ? bytes_of(list, id) * std::min(1.0, sequence_length / rows) : 0;
  }
  if (op.kind == OpKind::kSelectLast && position == 0) return bytes_of(list, op.writes[0]);
  return bytes_of(list, id);
}

}  // namespace

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBfloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kFloat64:
      return "fp64";
    case DType::kInt32:
      return "int32";
    case DType::kUInt64:
      return "uint64";
  }
  return "unknown";
}

const char* name_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::kPlain:
      return "plain";
    case Encoding::kInt8:
      return "int8";
    case Encoding::kNf4:
      return "nf4";
    case Encoding::kMxfp4:
      return "mxfp4";
    case Encoding::kHadamard8:
      return "hadamard8";
    case Encoding::kHadamard4:
      return "hadamard4";
  }
  return "unknown";
}

NormOperands::NormOperands(const OpList& list, const Op& op) {
  const auto& norm = std::get<NormAttributes>(op.attributes);
  std::size_t next = 1;
  if (norm.has_weight()) weight = next++;
  if (op.kind == OpKind::kNorm && norm.has_bias) bias = next;
  if (op.kind == OpKind::kNormBackward) gradient = next++;
  if (op.kind == OpKind::kNormBackward && norm.has_addend) addend = next;
  const TensorDesc& x = list.tensors[op.reads[0]];
  width = norm.has_weight() ? list.tensors[op.reads[weight]].elements() : x.shape.back();
  rows = width == 0 ? 0 : x.elements() / width;
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
      return "embedding";
    case OpKind::kEmbeddingBackward:
      return "embedding_backward";
    case OpKind::kNorm:
      return "norm";
    case OpKind::kNormBackward:
      return "norm_backward";
    case OpKind::kMatMul:
      return "matmul";
    case OpKind::kMatMulInputGradient:
      return "matmul_input_gradient";
    case OpKind::kMatMulWeightGradient:
      return "matmul_weight_gradient";
    case OpKind::kBiasGradient:
      return "bias_gradient";
    case OpKind::kRope:
      return "rope";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kAttentionBackward:
      return "attention_backward";
    case OpKind::kCachedAttention:
      return "cached_attention";
    case OpKind::kAttentionSink:
      return "attention_sink";
    case OpKind::kAttentionSinkGradient:
      return "attention_sink_gradient";
    case OpKind::kJoinHeads:
      return "join_heads";
    case OpKind::kJoinHeadsBackward:
      return "join_heads_backward";
    case OpKind::kConvolution:
      return "convolution";
    case OpKind::kConvolutionBackward:
      return "convolution_backward";
    case OpKind::kDecay:
      return "decay";
    case OpKind::kDecayBackward:
      return "decay_backward";
    case OpKind::kDeltaRule:
      return "delta_rule";
    case OpKind::kDeltaRuleBackward:
      return "delta_rule_backward";
    case OpKind::kGatedActivation:
      return "gated_activation";
    case OpKind::kGatedActivationBackward:
      return "gated_activation_backward";
    case OpKind::kAdd:
      return "add";
    case OpKind::kSoftCap:
      return "soft_cap";
    case OpKind::kDropout:
      return "dropout";
    case OpKind::kNoise:
      return "noise";
    case OpKind::kMagnitudeScale:
      return "magnitude_scale";
    case OpKind::kColumnScale:
      return "column_scale";
    case OpKind::kColumnScaleBackward:
      return "column_scale_backward";
    case OpKind::kHeadScaleGradient:
      return "head_scale_gradient";
    case OpKind::kVocabularyStatistics:
      return "vocabulary_statistics";
    case OpKind::kVocabularyLoss:
      return "vocabulary_loss";
    case OpKind::kVocabularyGradient:
      return "vocabulary_gradient";
    case OpKind::kSelectLast:
      return "select_last";
    case OpKind::kRoute:
      return "route";
    case OpKind::kRouteBackward:
      return "route_backward";
    case OpKind::kShareScale:
      return "share_scale";
    case OpKind::kShareScaleBackward:
      return "share_scale_backward";
    case OpKind::kDispatch:
      return "dispatch";
    case OpKind::kCombine:
      return "combine";
    case OpKind::kCombineBackward:
      return "combine_backward";
    case OpKind::kGroupedMatMul:
      return "grouped_matmul";
    case OpKind::kGroupedMatMulInputGradient:
      return "grouped_matmul_input_gradient";
    case OpKind::kGroupedMatMulWeightGradient:
      return "grouped_matmul_weight_gradient";
    case OpKind::kGroupedBias:
      return "grouped_bias";
    case OpKind::kGroupedBiasGradient:
      return "grouped_bias_gradient";
    case OpKind::kExpand:
      return "expand";
    case OpKind::kEncode:
      return "encode";
    case OpKind::kAddRows:
      return "add_rows";
    case OpKind::kSumOfSquares:
      return "sum_of_squares";
    case OpKind::kAdamW:
      return "adamw";
    case OpKind::kAdamW8:
      return "adamw_8bit";
  }
  return "unknown";
}

OpCost cost_of(const OpList& list, const Op& op, std::uint32_t sequence_length) {
  OpCost cost;
  cost.flops = flops_of(list, op, sequence_length);
  for (std::size_t i = 0; i < op.reads.size(); ++i) cost.bytes += read_bytes(list, op, i, sequence_length);
  if (op.kind == OpKind::kAddRows) {  // of the table, the rows
    cost.bytes += 2 * bytes_of(list, op.reads[1]);
    return cost;
  }
  if (op.kind == OpKind::kAdamW || op.kind == OpKind::kAdamW8) {  // masters and moments are written, too
    for (const TensorId id : op.reads) {
      if (list.tensors[id].role == TensorRole::kState) cost.bytes += bytes_of(list, id);
    }
  }
  for (const TensorId id : op.writes) {
    // What is added to is read as well.
    const double passes = list.tensors[id].role == TensorRole::kGradient ? 2 : 1;
    cost.bytes += passes * bytes_of(list, id);
  }
  if (is_fp8(op)) {
    // Codes are written and read beside the operand's own numbers; sums of four bytes are written, read, and rounded.
    const auto elements = [&](TensorId id) { return static_cast<double>(list.tensors[id].elements()); };
    cost.conversion_bytes = 2 * (elements(op.reads[0]) + elements(op.reads[1])) + 8 * elements(op.writes[0]);
  }
  return cost;
}

OpCost cost_of(const OpList& list, std::uint32_t sequence_length) {
  OpCost total;
  for (const Op& op : list.ops) {
    const OpCost cost = cost_of(list, op, sequence_length);
    total.flops += cost.flops;
    total.bytes += cost.bytes;
    total.conversion_bytes += cost.conversion_bytes;
  }
  return total;
}

std::uint32_t token_bucket(std::uint32_t tokens) {
  // Each step is at most an eighth of the smallest count that uses it.
  std::uint32_t step = 16;
  if (tokens > 256) step = 32;
  if (tokens > 512) step = 64;
  if (tokens > 1024) step = 128;
  if (tokens > 2048) step = 256;
  return static_cast<std::uint32_t>(round_up(std::max(tokens, 1U), step));
}

}  // namespace rondo::devices
