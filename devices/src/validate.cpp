// Checks a recorded OpList: every op against its rule, and the order of reads and writes.
#include <algorithm>
#include <utility>
#include <vector>

#include "op_rules.h"
#include "rondo/base/status.h"
#include "rondo/devices/op.h"

namespace rondo::devices {
namespace {

/// Roles whose contents come from outside.
bool bound_with_contents(TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
    case TensorRole::kInput:
    case TensorRole::kBatch:
    case TensorRole::kState:
    case TensorRole::kSaved:
    case TensorRole::kHeld:
      return true;
    default:
      return false;
  }
}

bool may_be_written(TensorRole role) {
  return role != TensorRole::kWeight && role != TensorRole::kInput && role != TensorRole::kBatch &&
         role != TensorRole::kState;
}

struct Traffic {
  std::vector<bool> read;
  std::vector<bool> written;
};

absl::Status check_order(const OpList& list, std::size_t place, Traffic& traffic) {
  const Op& op = list.ops[place];
  for (const TensorId id : op.reads) {
    const TensorDesc& tensor = list.tensors[id];
    if (!traffic.written[id] && !bound_with_contents(tensor.role)) {
      return internal_error("op {} ({}) reads tensor '{}' before anything wrote it", place, name_of(op.kind),
                            tensor.name);
    }
    traffic.read[id] = true;
  }
  for (const TensorId id : op.writes) {
    const TensorDesc& tensor = list.tensors[id];
    if (!may_be_written(tensor.role)) {
      return internal_error("op {} ({}) writes tensor '{}', which is given from outside", place, name_of(op.kind),
                            tensor.name);
    }
    if (tensor.role != TensorRole::kGradient && (traffic.written[id] || traffic.read[id])) {
      return internal_error("op {} ({}) writes tensor '{}', which was written or read before", place, name_of(op.kind),
                            tensor.name);
    }
    traffic.written[id] = true;
  }
  return absl::OkStatus();
}

/// Reads that are fp32 whatever the others are.
bool always_wide(const Op& op, std::size_t place) {
  switch (op.kind) {
    case OpKind::kAttentionBackward:
      return place == 4;  // lse
    case OpKind::kMagnitudeScale:
      return place == 3;
    case OpKind::kColumnScale:
      return place == 1;
    case OpKind::kRouteBackward:
      return place == 1 || place == 3;
    case OpKind::kCombine:
      return place == 2 && std::get<CombineAttributes>(op.attributes).has_shares;
    case OpKind::kCombineBackward:
      return place == 3;
    case OpKind::kColumnScaleBackward:
      return place > 0 && place + 1 < op.reads.size();
    case OpKind::kRoute:
      return place == 2;
    case OpKind::kAttentionSink:
    case OpKind::kAttentionSinkGradient:
      return place == 1;
    case OpKind::kDecay:
    case OpKind::kDecayBackward:
      return place >= (std::get<DeltaAttributes>(op.attributes).gates());
    case OpKind::kDeltaRule:
      return place >= 3;
    case OpKind::kDeltaRuleBackward:
      return place >= 3 && place < 7;
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return place >= 2 + std::get<VocabularyAttributes>(op.attributes).parts;  // what is not, is checked to be x's
    default:
      return false;
  }
}

}  // namespace

absl::Status validate(const OpList& list) {
  Traffic traffic{std::vector<bool>(list.tensors.size(), false), std::vector<bool>(list.tensors.size(), false)};
  for (std::size_t place = 0; place < list.ops.size(); ++place) {
    const Op& op = list.ops[place];
    const auto known = [&list](TensorId id) { return id < list.tensors.size(); };
    if (!std::all_of(op.reads.begin(), op.reads.end(), known) ||
        !std::all_of(op.writes.begin(), op.writes.end(), known)) {
      return internal_error("op {} ({}) names a tensor that the list of {} does not have", place, name_of(op.kind),
                            list.tensors.size());
    }
    RONDO_RETURN_IF_ERROR(check_op(list, place));
    RONDO_RETURN_IF_ERROR(check_order(list, place, traffic));
  }
  return absl::OkStatus();
}

absl::Status check_storage(const OpList& list, const Op& op, bool mixes, std::string_view backend) {
  const TensorDesc& first = list.tensors[op.reads[0]];
  if (mixes || !is_floating(first.dtype)) return absl::OkStatus();
  for (std::size_t i = 1; i < op.reads.size(); ++i) {
    const TensorDesc& tensor = list.tensors[op.reads[i]];
    if (always_wide(op, i) || !is_floating(tensor.dtype) || tensor.dtype == first.dtype) continue;
    return unimplemented("op {} reads '{}' in {} and '{}' in {}; on {} it takes one dtype only", name_of(op.kind),
                         first.name, name_of(first.dtype), tensor.name, name_of(tensor.dtype), backend);
  }
  return absl::OkStatus();
}

bool is_fp8(const Op& op) {
  const auto* product = std::get_if<MatMulAttributes>(&op.attributes);
  return product != nullptr && product->fp8 != Fp8Format::kNone;
}

bool is_left_e5m2(const Op& op) {
  const auto* product = std::get_if<MatMulAttributes>(&op.attributes);
  return op.kind == OpKind::kMatMulInputGradient && product != nullptr && product->fp8 == Fp8Format::kHybrid;
}

absl::Status refuse_fp8(const OpList& list) {
  for (const Op& op : list.ops) {
    if (!is_fp8(op)) continue;
    return unimplemented("op {}: '{}' is to be multiplied in fp8, which this backend does not", name_of(op.kind),
                         list.tensors[op.reads[1]].name);
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices
