// Gradients that have one number a head.
#pragma once

#include <algorithm>

#include "kernels/storage.h"
#include "prepared_op.h"

namespace rondo::devices::cpu {

/// Adds to the op's first result each head's sum over the tokens of the first operand [T, H, D]: by chunks of
/// kTokenChunk, then these in order.
class HeadSums : public PreparedOp {
 public:
  explicit HeadSums(const Preparation& preparation)
      : op_(preparation.op),
        shape_(preparation.read(0).shape),
        chunks_(divide_up(preparation.read(0).shape[0], kTokenChunk)) {}
  Bytes scratch_bytes(std::uint32_t) const final { return static_cast<Bytes>(shape_[1] * chunks_) * sizeof(float); }

  absl::Status run(const RunContext& context) const final {
    auto* const sums = reinterpret_cast<float*>(context.scratch);
    context.pool.parallel_for(shape_[1] * chunks_, [&](std::int64_t task, std::uint32_t) {
      const std::int64_t first = task % chunks_ * kTokenChunk;
      sums[task] = sum_of(context, task / chunks_, first, std::min(shape_[0], first + kTokenChunk));
    });
    auto* const gradient = context.as<float>(op_.writes[0]);
    for (std::int64_t task = 0; task < shape_[1] * chunks_; ++task) gradient[task / chunks_] += sums[task];
    return absl::OkStatus();
  }

 protected:
  const Op& op() const { return op_; }
  std::int64_t width() const { return shape_[2]; }
  /// Where a token's row of a head begins, in rows of heads.
  std::int64_t row(std::int64_t token, std::int64_t head) const { return token * shape_[1] + head; }

 private:
  /// Of tokens `first` ... `end` - 1. Threads: any.
  virtual float sum_of(const RunContext& context, std::int64_t head, std::int64_t first, std::int64_t end) const = 0;

  const Op& op_;
  const Shape shape_;
  const std::int64_t chunks_;
};

}  // namespace rondo::devices::cpu
