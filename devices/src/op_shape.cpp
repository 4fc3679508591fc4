// The shape of an op, read off its operands.
#include "rondo/devices/op_shape.h"

#include <algorithm>

namespace rondo::devices {
namespace {

std::int64_t columns_of(const TensorDesc& tensor) {
  return tensor.shape.empty() || tensor.shape[0] == 0 ? 0 : tensor.elements() / tensor.shape[0];
}

DType dtype_of(const OpList& list, const Op& op) {
  for (const TensorId id : op.reads) {
    if (is_floating(list.tensors[id].dtype)) return list.tensors[id].dtype;
  }
  return op.writes.empty() ? DType::kFloat32 : list.tensors[op.writes[0]].dtype;
}

/// Several parts of a vocabulary are to be known by the shape of one.
void of_parts(const OpList& list, const Op& op, OpShape& shape) {
  const auto& attributes = std::get<VocabularyAttributes>(op.attributes);
  for (std::uint32_t part = 0; part < attributes.parts; ++part) {
    shape.columns += list.tensors[op.reads[2 + part]].shape[0];
  }
  shape.columns /= attributes.parts;
  const auto others = static_cast<std::uint8_t>(attributes.parts - 1);
  shape.reads = static_cast<std::uint8_t>(shape.reads - others);
  if (attributes.has_weight_gradient) shape.writes = static_cast<std::uint8_t>(shape.writes - others);
}

/// A group of many linear layers is to be told by their number alone.
void of_group(const OpList& list, const Op& op, OpShape& shape) {
  const bool of_weights = op.kind == OpKind::kGroupedMatMulWeightGradient;
  const auto others = static_cast<std::uint8_t>(expert_tensors_of(op) - 1);
  std::uint8_t& operands = of_weights ? shape.writes : shape.reads;
  operands = static_cast<std::uint8_t>(operands - others);
  const std::int64_t left = columns_of(list.tensors[op.reads[0]]);
  const std::int64_t right = columns_of(list.tensors[of_weights ? op.reads[1] : op.writes[0]]);
  const bool forward = op.kind == OpKind::kGroupedMatMul;
  shape.columns = forward ? right : left;
  shape.inner = forward ? left : right;
  shape.heads = static_cast<std::int64_t>(experts_of(op));
}

}  // namespace

OpShape shape_of(const OpList& list, const Op& op, std::uint32_t sequence_length) {
  OpShape shape;
  shape.kind = op.kind;
  shape.dtype = dtype_of(list, op);
  shape.reads = static_cast<std::uint8_t>(op.reads.size());
  shape.writes = static_cast<std::uint8_t>(op.writes.size());
  shape.rows = list.tokens;
  shape.fp8 = is_fp8(op);
  const TensorDesc& first = list.tensors[op.reads[0]];
  const TensorDesc& written = list.tensors[op.writes.empty() ? op.reads[0] : op.writes[0]];
  switch (op.kind) {
    case OpKind::kMatMul:
      shape.columns = columns_of(written);
      shape.inner = columns_of(first);
      break;
    case OpKind::kMatMulInputGradient:
      shape.columns = columns_of(first);
      shape.inner = columns_of(written);
      break;
    case OpKind::kMatMulWeightGradient:
      shape.columns = columns_of(first);
      shape.inner = columns_of(list.tensors[op.reads[1]]);
      break;
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
      of_group(list, op, shape);
      break;
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
    case OpKind::kCachedAttention:
      shape.columns = columns_of(first);
      shape.inner = std::min<std::int64_t>(sequence_length, list.tokens);
      shape.heads = first.shape.size() > 2 ? first.shape[1] : 0;
      break;
    case OpKind::kDeltaRule:
    case OpKind::kDeltaRuleBackward:
      shape.columns = columns_of(list.tensors[op.reads[2]]);
      shape.inner = first.shape[2];
      shape.heads = list.tensors[op.reads[2]].shape[1];
      break;
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      of_parts(list, op, shape);
      shape.inner = columns_of(first);
      break;
    case OpKind::kExpand:
      if (is_hadamard(first.encoding)) {
        shape.columns = columns_of(first);
      } else {
        shape.rows = written.elements();  // no tokens: as many as there are weights
      }
      break;
    case OpKind::kMagnitudeScale:
      shape.rows = written.elements();
      shape.columns = columns_of(first);
      shape.inner = columns_of(list.tensors[op.reads[2]]);
      break;
    case OpKind::kEmbedding:
    case OpKind::kJoinHeads:
      shape.columns = columns_of(written);
      break;
    case OpKind::kSumOfSquares:
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      shape.rows = first.elements();  // no tokens
      shape.columns = 1;
      break;
    default:
      shape.columns = columns_of(first);
      shape.heads = first.shape.size() > 2 ? first.shape[1] : 0;
      break;
  }
  return shape;
}

}  // namespace rondo::devices
