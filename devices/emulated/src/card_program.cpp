// Behind card_program.h: an op takes max(FLOPs / speed, bytes / memory bandwidth).
#include "card_program.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "rondo/base/status.h"

namespace rondo::devices::emulated {
namespace {

bool depends_on_sequences(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kAttentionBackward || kind == OpKind::kCachedAttention;
}

/// The dtype whose speed an op runs at: that of the first floating-point tensor it names.
DType compute_dtype(const OpList& list, const Op& op) {
  for (const TensorId id : op.reads) {
    if (is_floating(list.tensors[id].dtype)) return list.tensors[id].dtype;
  }
  return DType::kFloat32;
}

std::uint32_t usual_length(const OpList& list) {
  return list.sequence_length > 0 ? std::min(list.sequence_length, list.tokens) : list.tokens;
}

/// Bound int32 values that the host can see, else null.
const std::int32_t* visible(const Bindings& bindings, TensorId id) {
  if (id >= bindings.tensors.size()) return nullptr;
  return reinterpret_cast<const std::int32_t*>(bindings.tensors[id].host());
}

/// The read that holds the bounds: behind the positions of cached attention, last of the others.
TensorId bounds_of(const Op& op) { return op.kind == OpKind::kCachedAttention ? op.reads[4] : op.reads.back(); }

}  // namespace

CardProgram::CardProgram(const OpList& list, const ArenaLayout& layout, const DeviceProfile& profile,
                         std::unique_ptr<Program> inner)
    : inner_(std::move(inner)),
      own_(inner_ == nullptr ? std::make_unique<const OpList>(list) : nullptr),
      list_(inner_ == nullptr ? *own_ : inner_->ops()),
      scratch_bytes_(layout.size),
      profile_(profile) {
  std::vector<bool> named(list_.tensors.size(), false);
  for (std::size_t i = 0; i < list_.ops.size(); ++i) {
    const Op& op = list_.ops[i];
    if (depends_on_sequences(op.kind)) {
      attention_.push_back(i);
    } else {
      fixed_seconds_ += op_seconds(cost_of(list_, op, usual_length(list_)), op);
    }
    for (const TensorId id : op.reads) named[id] = true;
    for (const TensorId id : op.writes) named[id] = true;
  }
  for (TensorId id = 0; id < named.size(); ++id) {
    if (named[id] && list_.tensors[id].role != TensorRole::kScratch) bound_.push_back(id);
  }
}

double CardProgram::op_seconds(const OpCost& cost, const Op& op) const {
  return profile_.seconds(cost, compute_dtype(list_, op), is_fp8(op));
}

double CardProgram::attention_seconds(const Op& op, const Bindings& bindings) const {
  const std::int32_t* bounds = visible(bindings, bounds_of(op));
  const std::int32_t sequences = bounds == nullptr ? 0 : bounds[0];
  if (sequences <= 0 || static_cast<std::uint32_t>(sequences) > list_.tokens) {
    return op_seconds(cost_of(list_, op, usual_length(list_)), op);
  }
  if (op.kind == OpKind::kCachedAttention) {
    const std::int32_t* positions = visible(bindings, op.reads[3]);
    const std::int32_t tokens = bounds[sequences + 1];
    if (positions == nullptr || tokens <= 0) return op_seconds(cost_of(list_, op, usual_length(list_)), op);
    return op_seconds(cost_of(list_, op, static_cast<std::uint32_t>(positions[tokens - 1]) + 1), op);
  }
  // cost_of() counts every token of the bucket as one of a sequence of that length: take each sequence's share.
  OpCost cost{0, cost_of(list_, op, 1).bytes};
  for (std::int32_t i = 0; i < sequences; ++i) {
    const std::int32_t length = bounds[i + 2] - bounds[i + 1];
    if (length <= 0) continue;
    cost.flops += cost_of(list_, op, static_cast<std::uint32_t>(length)).flops * length / list_.tokens;
  }
  return op_seconds(cost, op);
}

double CardProgram::seconds(const Bindings& bindings) const {
  double total = fixed_seconds_;
  for (const std::size_t place : attention_) total += attention_seconds(list_.ops[place], bindings);
  return total;
}

absl::Status CardProgram::check(const Bindings& bindings, const void* owner) const {
  for (const TensorId id : bound_) {
    const TensorDesc& tensor = list_.tensors[id];
    const bool bound = id < bindings.tensors.size() &&
                       (is_own(bindings.tensors[id], owner) ||
                        (tensor.role == TensorRole::kWeight && is_in_place(bindings.tensors[id], owner)));
    if (!bound) {
      return internal_error("tensor '{}' is not bound to memory of this card", tensor.name);
    }
    if (bindings.tensors[id].size < tensor.bytes()) {
      return internal_error("tensor '{}' of {} bytes is bound to {} bytes", tensor.name, tensor.bytes(),
                            bindings.tensors[id].size);
    }
  }
  if (scratch_bytes_ > 0 && (!is_own(bindings.scratch, owner) || bindings.scratch.size < scratch_bytes_)) {
    return internal_error("scratch of {} bytes is bound to {} bytes, or not to this card's", scratch_bytes_,
                          bindings.scratch.size);
  }
  return absl::OkStatus();
}

TensorId CardProgram::first_written() const {
  for (const Op& op : list_.ops) {
    for (const TensorId id : op.writes) {
      if (list_.tensors[id].role != TensorRole::kScratch) return id;
    }
  }
  return 0;
}

bool is_in_place(const BufferView& view, const void* owner) {
  return view.memory != nullptr && view.memory->tied(owner) != nullptr;
}

bool is_own(const BufferView& view, const void* owner) {
  const auto* memory = dynamic_cast<const CardMemory*>(view.memory);
  return memory != nullptr && memory->owner() == owner && view.offset <= memory->size() &&
         view.size <= memory->size() - view.offset;
}

}  // namespace rondo::devices::emulated
