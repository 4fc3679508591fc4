// Heads put together from parts, and the parts' gradients; the gradient of scales of heads.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "head_sums.h"
#include "kernels/storage.h"
#include "prepared_op.h"

namespace rondo::devices::cpu {
namespace {

/// Channels of a head that come from one part.
struct HeadPart {
  TensorId id;
  std::int64_t heads;  // those of the whole, or 1
  std::int64_t width;
  std::int64_t first;  // channel of the whole
  std::int64_t kept;   // of its channels those that the whole has
};

std::vector<HeadPart> parts_of(const OpList& list, std::span<const TensorId> ids, TensorId whole) {
  std::vector<HeadPart> parts;
  const Shape& all = list.tensors[whole].shape;
  std::int64_t first = 0;
  for (const TensorId id : ids) {
    const HeadsOfPart part = heads_of_part(all, list.tensors[id].shape);
    parts.push_back({id, part.heads, part.width, first, std::clamp<std::int64_t>(all.back() - first, 0, part.width)});
    first += part.width;
  }
  return parts;
}

/// [T, H, D] of the whole.
Shape heads_of_whole(const Shape& shape) {
  const HeadsOfPart whole = heads_of_part(shape, shape);
  return {shape[0], whole.heads, whole.width};
}

class JoinHeads final : public PreparedOp {
 public:
  explicit JoinHeads(const Preparation& preparation)
      : whole_(preparation.op.writes[0]),
        shape_(heads_of_whole(preparation.write(0).shape)),
        parts_(parts_of(preparation.list, preparation.op.reads, whole_)) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const std::int64_t heads = shape_[1];
    const std::int64_t step = task_rows(heads * shape_[2]);
    context.pool.parallel_for(divide_up(shape_[0], step), [&](std::int64_t task, std::uint32_t) {
      for (std::int64_t row = task * step * heads; row < std::min(shape_[0], (task + 1) * step) * heads; ++row) {
        join(context, row);
      }
    });
    return absl::OkStatus();
  }

 private:
  /// `row`: of a token and head.
  void join(const RunContext& context, std::int64_t row) const {
    const Array y = context.out(whole_).at(row * shape_[2]);
    const std::int64_t size = size_of(y.storage);
    auto* to = static_cast<std::byte*>(y.data);
    std::int64_t filled = 0;
    for (const HeadPart& part : parts_) {
      const ConstArray from = context.array(part.id).at((part.heads == 1 ? row / shape_[1] : row) * part.width);
      std::memcpy(to + part.first * size, from.data, static_cast<std::size_t>(part.kept * size));
      filled += part.kept;
    }
    std::memset(to + filled * size, 0, static_cast<std::size_t>((shape_[2] - filled) * size));
  }

  const TensorId whole_;
  const Shape shape_;
  const std::vector<HeadPart> parts_;
};

class JoinHeadsBackward final : public PreparedOp {
 public:
  explicit JoinHeadsBackward(const Preparation& preparation)
      : whole_(preparation.op.reads[0]),
        shape_(heads_of_whole(preparation.read(0).shape)),
        parts_(parts_of(preparation.list, preparation.op.writes, whole_)) {}

  /// A row of sums for each member.
  Bytes scratch_bytes(std::uint32_t members) const override {
    return static_cast<Bytes>(members) * static_cast<Bytes>(shape_[2]) * sizeof(float);
  }

  absl::Status run(const RunContext& context) const override {
    const std::int64_t step = task_rows(shape_[1] * shape_[2]);
    context.pool.parallel_for(divide_up(shape_[0], step), [&](std::int64_t task, std::uint32_t member) {
      float* const sums = reinterpret_cast<float*>(context.scratch) + member * shape_[2];
      for (std::int64_t t = task * step; t < std::min(shape_[0], (task + 1) * step); ++t) {
        for (const HeadPart& part : parts_) part_of_token(context, part, t, sums);
      }
    });
    return absl::OkStatus();
  }

 private:
  void part_of_token(const RunContext& context, const HeadPart& part, std::int64_t token, float* sums) const {
    const std::int64_t shared = shape_[1] / part.heads;
    const ConstArray dy = context.array(whole_).at(token * shape_[1] * shape_[2] + part.first);
    for (std::int64_t head = 0; head < part.heads; ++head) {
      const Array to = context.out(part.id).at((token * part.heads + head) * part.width);
      const std::int64_t size = size_of(to.storage);
      auto* const bytes = static_cast<std::byte*>(to.data);
      if (shared == 1) {
        std::memcpy(bytes, dy.at(head * shape_[2]).data, static_cast<std::size_t>(part.kept * size));
      } else if (part.kept > 0) {
        convert_row(dy, {sums}, part.kept);
        for (std::int64_t other = 1; other < shared; ++other) add_row(dy.at(other * shape_[2]), sums, part.kept);
        convert_row({sums}, to, part.kept);
      }
      std::memset(bytes + part.kept * size, 0, static_cast<std::size_t>((part.width - part.kept) * size));
    }
  }

  const TensorId whole_;
  const Shape shape_;
  const std::vector<HeadPart> parts_;
};

class HeadScaleGradient final : public HeadSums {
 public:
  using HeadSums::HeadSums;

 private:
  float sum_of(const RunContext& context, std::int64_t head, std::int64_t first, std::int64_t end) const override {
    const ConstArray x = context.array(op().reads[0]);
    const ConstArray dy = context.array(op().reads[1]);
    float sum = 0;
    for (std::int64_t t = first; t < end; ++t) {
      sum += dot_of_rows(dy.at(row(t, head) * width()), x.at(row(t, head) * width()), width());
    }
    return sum;
  }
};

}  // namespace

PreparedOr prepare_heads_op(const Preparation& preparation) {
  if (preparation.op.kind == OpKind::kHeadScaleGradient) return std::make_unique<HeadScaleGradient>(preparation);
  if (preparation.op.kind == OpKind::kJoinHeads) return std::make_unique<JoinHeads>(preparation);
  return std::make_unique<JoinHeadsBackward>(preparation);
}

}  // namespace rondo::devices::cpu
