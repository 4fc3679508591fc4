// Sinks of attention: one more score in each head's softmax, after the fact.
#include <algorithm>
#include <cmath>

#include "head_sums.h"
#include "kernels/storage.h"
#include "prepared_op.h"

namespace rondo::devices::cpu {
namespace {

/// Of a query and head.
struct Shared {
  float kept;   // what the keys have of the whole softmax
  float whole;  // the logarithm of the sum of all exponentials
};

Shared share(float lse, float sink) {
  const float rest = std::exp(-std::abs(lse - sink));
  const float larger = 1.0F / (1.0F + rest);
  return {lse >= sink ? larger : rest * larger, std::max(lse, sink) + std::log1p(rest)};
}

/// The third read of both ops, widened.
float sink_of(const RunContext& context, const Op& op, std::int64_t head) {
  float sink = 0;
  convert_row(context.array(op.reads[2]).at(head), {&sink}, 1);
  return sink;
}

class AttentionSink final : public PreparedOp {
 public:
  explicit AttentionSink(const Preparation& preparation) : op_(preparation.op), shape_(preparation.read(0).shape) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const std::int64_t heads = shape_[1];
    const std::int64_t width = shape_[2];
    const ConstArray o = context.array(op_.reads[0]);
    const auto* lse = context.as<float>(op_.reads[1]);
    const Array y = context.out(op_.writes[0]);
    auto* whole = context.as<float>(op_.writes[1]);
    const std::int64_t step = task_rows(heads * width);
    context.pool.parallel_for(divide_up(shape_[0], step), [&](std::int64_t task, std::uint32_t) {
      for (std::int64_t i = task * step * heads; i < std::min(shape_[0], (task + 1) * step) * heads; ++i) {
        const Shared shared = share(lse[i], sink_of(context, op_, i % heads));
        whole[i] = shared.whole;
        convert_row(o.at(i * width), y.at(i * width), width, shared.kept);
      }
    });
    return absl::OkStatus();
  }

 private:
  const Op& op_;
  const Shape shape_;
};

class AttentionSinkGradient final : public HeadSums {
 public:
  using HeadSums::HeadSums;

 private:
  float sum_of(const RunContext& context, std::int64_t head, std::int64_t first, std::int64_t end) const override {
    const ConstArray o = context.array(op().reads[0]);
    const auto* lse = context.as<float>(op().reads[1]);
    const ConstArray d_o = context.array(op().reads[3]);
    const float sink = sink_of(context, op(), head);
    float sum = 0;
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t i = row(t, head);
      sum -= std::exp(sink - lse[i]) * dot_of_rows(d_o.at(i * width()), o.at(i * width()), width());
    }
    return sum;
  }
};

}  // namespace

PreparedOr prepare_sink_op(const Preparation& preparation) {
  if (preparation.op.kind == OpKind::kAttentionSink) return std::make_unique<AttentionSink>(preparation);
  return std::make_unique<AttentionSinkGradient>(preparation);
}

}  // namespace rondo::devices::cpu
