// Linear attention: binds the convolution and the delta rule to their kernels, and computes the gates, of which there
// are few.
#include <algorithm>
#include <cmath>

#include "kernels/delta.h"
#include "vector_op.h"

namespace rondo::devices::cpu {
namespace {

class DeltaOp : public VectorOp {
 public:
  using VectorOp::VectorOp;

 protected:
  bool has_state() const { return attributes<DeltaAttributes>().has_state; }
  bool is_state_space() const { return attributes<DeltaAttributes>().is_state_space(); }
  bool has_weight_gradient() const { return attributes<DeltaAttributes>().has_weight_gradient; }
};

class ConvolutionOp : public DeltaOp {
 public:
  using DeltaOp::DeltaOp;

 protected:
  ConvolutionShape shape() const {
    return {rows_of(read(0)), columns_of(read(0)), read(1).shape[1], attributes<DeltaAttributes>().silu};
  }
};

class Convolution final : public ConvolutionOp {
 public:
  using ConvolutionOp::ConvolutionOp;
  Bytes scratch_bytes(std::uint32_t) const override { return convolution_scratch(shape()); }
  absl::Status run(const RunContext& context) const override {
    const auto& delta = attributes<DeltaAttributes>();
    const std::size_t bounds = delta.bounds();
    convolution(context.pool, storage_, shape(), in(context, 0), in(context, 1),
                delta.has_bias ? in(context, 2) : nullptr, in_as<std::int32_t>(context, bounds),
                has_state() ? in_as<std::int32_t>(context, bounds + 1) : nullptr,
                has_state() ? context.at(op_.reads[bounds + 2]) : nullptr, out(context, 0), context.scratch);
    return absl::OkStatus();
  }
};

class ConvolutionBackward final : public ConvolutionOp {
 public:
  using ConvolutionOp::ConvolutionOp;
  Bytes scratch_bytes(std::uint32_t members) const override { return convolution_backward_scratch(shape(), members); }
  absl::Status run(const RunContext& context) const override {
    convolution_backward(context.pool, storage_, shape(), in(context, 0), in(context, 1),
                         in_as<std::int32_t>(context, 2), in(context, 3), out(context, 0),
                         has_weight_gradient() ? out_floats(context, 1) : nullptr, context.scratch);
    return absl::OkStatus();
  }
};

/// q, k, v, g and beta first.
class RuleOp : public DeltaOp {
 public:
  using DeltaOp::DeltaOp;

 protected:
  DeltaShape shape() const {
    const Shape& q = read(0).shape;
    const Shape& v = read(2).shape;
    return {q[0], q[1], v[1], q[2], v[2], is_state_space()};
  }
  DeltaOperands operands(const RunContext& context, std::size_t bounds) const {
    return {in(context, 0),           in(context, 1),           in(context, 2),
            in_as<float>(context, 3), in_as<float>(context, 4), in_as<std::int32_t>(context, bounds)};
  }
};

class DeltaRule final : public RuleOp {
 public:
  using RuleOp::RuleOp;
  Bytes scratch_bytes(std::uint32_t members) const override { return delta_rule_scratch(shape(), members); }
  absl::Status run(const RunContext& context) const override {
    if (has_state()) {
      delta_rule_from(context.pool, storage_, shape(), operands(context, 5), in_as<std::int32_t>(context, 6),
                      context.as<float>(op_.reads[7]), out(context, 0), context.scratch);
    } else {
      delta_rule(context.pool, storage_, shape(), operands(context, 5), out(context, 0), out_floats(context, 1),
                 context.scratch);
    }
    return absl::OkStatus();
  }
};

class DeltaRuleBackward final : public RuleOp {
 public:
  using RuleOp::RuleOp;
  Bytes scratch_bytes(std::uint32_t members) const override { return delta_rule_backward_scratch(shape(), members); }
  absl::Status run(const RunContext& context) const override {
    const DeltaGradients gradients{out(context, 0), out(context, 1), out(context, 2), out_floats(context, 3),
                                   out_floats(context, 4)};
    delta_rule_backward(context.pool, storage_, shape(), operands(context, 6), in_as<float>(context, 5), in(context, 7),
                        gradients, context.scratch);
    return absl::OkStatus();
  }
};

float gate_sigmoid(float x) {
  const float e = std::exp(-std::abs(x));
  return (x >= 0 ? 1.0F : e) / (1.0F + e);
}
float softplus(float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); }

/// a or b [T, Hv], a row of which is widened into a thread's scratch.
class GateOp : public DeltaOp {
 public:
  explicit GateOp(const Preparation& preparation)
      : DeltaOp(preparation),
        gates_(attributes<DeltaAttributes>().gates()),
        tokens_(rows_of(preparation.read(0))),
        heads_(columns_of(preparation.read(0))) {}

 protected:
  /// Bytes of `count` rows of the thread's own for each of `members`.
  Bytes row_bytes(std::uint32_t members, std::int64_t count) const {
    return static_cast<Bytes>(members * count * heads_) * sizeof(float);
  }
  const float* widened_row(const RunContext& context, std::size_t read, std::int64_t token, float* row) const {
    convert_row(context.array(op_.reads[read]).at(token * heads_), {row}, heads_);
    return row;
  }

  /// A step of a state space.
  float clamped(float step) const {
    const auto& delta = attributes<DeltaAttributes>();
    return std::clamp(step, delta.least_step, delta.most_step);
  }

  const std::size_t gates_;  // a and b, or a alone
  const std::int64_t tokens_;
  const std::int64_t heads_;
};

class Decay final : public GateOp {
 public:
  using GateOp::GateOp;
  Bytes scratch_bytes(std::uint32_t members) const override { return row_bytes(members, 1); }
  absl::Status run(const RunContext& context) const override {
    const auto* rates = in_as<float>(context, gates_);
    const auto* bias = in_as<float>(context, gates_ + 1);
    float* const g = out_floats(context, 0);
    float* const beta = out_floats(context, 1);
    const std::int64_t step = task_rows(heads_ * 16);
    context.pool.parallel_for(divide_up(tokens_, step), [&](std::int64_t task, std::uint32_t member) {
      float* const row = reinterpret_cast<float*>(context.scratch) + member * heads_;
      for (std::int64_t t = task * step; t < std::min(tokens_, (task + 1) * step); ++t) {
        const float* x = widened_row(context, 0, t, row);
        if (is_state_space()) {
          for (std::int64_t h = 0; h < heads_; ++h) {
            beta[t * heads_ + h] = clamped(softplus(x[h] + bias[h]));
            g[t * heads_ + h] = -std::exp(rates[h]) * beta[t * heads_ + h];
          }
          continue;
        }
        for (std::int64_t h = 0; h < heads_; ++h) g[t * heads_ + h] = -std::exp(rates[h]) * softplus(x[h] + bias[h]);
        x = widened_row(context, 1, t, row);
        for (std::int64_t h = 0; h < heads_; ++h) beta[t * heads_ + h] = gate_sigmoid(x[h]);
      }
    });
    return absl::OkStatus();
  }
};

/// Each chunk's sums of drates and dbias by one task, then these in order.
class DecayBackward final : public GateOp {
 public:
  explicit DecayBackward(const Preparation& preparation)
      : GateOp(preparation), chunks_(divide_up(rows_of(preparation.read(0)), kTokenChunk)) {}
  Bytes scratch_bytes(std::uint32_t members) const override {
    return row_bytes(members, 4) + static_cast<Bytes>(2 * chunks_ * heads_) * sizeof(float);
  }
  absl::Status run(const RunContext& context) const override {
    auto* const sums = reinterpret_cast<float*>(context.scratch);
    float* const rows = sums + 2 * chunks_ * heads_;
    context.pool.parallel_for(chunks_, [&](std::int64_t chunk, std::uint32_t member) {
      float* const sum = sums + 2 * chunk * heads_;
      std::fill_n(sum, 2 * heads_, 0.0F);
      for (std::int64_t t = chunk * kTokenChunk; t < std::min(tokens_, (chunk + 1) * kTokenChunk); ++t) {
        token_gradient(context, t, rows + member * 4 * heads_, sum);
      }
    });
    if (!has_weight_gradient()) return absl::OkStatus();
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        out_floats(context, gates_)[h] += sums[2 * chunk * heads_ + h];
        out_floats(context, gates_ + 1)[h] += sums[(2 * chunk + 1) * heads_ + h];
      }
    }
    return absl::OkStatus();
  }

 private:
  /// `sums`: of drates [Hv], behind them of dbias.
  void token_gradient(const RunContext& context, std::int64_t token, float* rows, float* sums) const {
    if (is_state_space()) return step_gradient(context, token, rows, sums);
    const float* const a = widened_row(context, 0, token, rows);
    const float* const b = widened_row(context, 1, token, rows + heads_);
    float* const da = rows + 2 * heads_;
    float* const db = rows + 3 * heads_;
    const float* const dg = in_as<float>(context, 4) + token * heads_;
    const float* const dbeta = in_as<float>(context, 5) + token * heads_;
    for (std::int64_t h = 0; h < heads_; ++h) {
      const float x = a[h] + in_as<float>(context, 3)[h];
      const float slope = -std::exp(in_as<float>(context, 2)[h]) * dg[h];
      da[h] = slope * gate_sigmoid(x);
      db[h] = dbeta[h] * gate_sigmoid(b[h]) * gate_sigmoid(-b[h]);
      sums[h] += slope * softplus(x);
      sums[heads_ + h] += da[h];
    }
    convert_row({da}, context.out(op_.writes[0]).at(token * heads_), heads_);
    convert_row({db}, context.out(op_.writes[1]).at(token * heads_), heads_);
  }

  /// The same of a state space.
  void step_gradient(const RunContext& context, std::int64_t token, float* rows, float* sums) const {
    const float* const a = widened_row(context, 0, token, rows);
    float* const da = rows + heads_;
    const float* const dg = in_as<float>(context, 3) + token * heads_;
    const float* const dbeta = in_as<float>(context, 4) + token * heads_;
    for (std::int64_t h = 0; h < heads_; ++h) {
      const float x = a[h] + in_as<float>(context, 2)[h];
      const float rate = -std::exp(in_as<float>(context, 1)[h]);
      const float step = softplus(x);
      da[h] = clamped(step) == step ? (dbeta[h] + dg[h] * rate) * gate_sigmoid(x) : 0.0F;
      sums[h] += dg[h] * rate * clamped(step);
      sums[heads_ + h] += da[h];
    }
    convert_row({da}, context.out(op_.writes[0]).at(token * heads_), heads_);
  }

  const std::int64_t chunks_;
};

}  // namespace

PreparedOr prepare_delta_op(const Preparation& preparation) {
  switch (preparation.op.kind) {
    case OpKind::kConvolution:
      return std::make_unique<Convolution>(preparation);
    case OpKind::kConvolutionBackward:
      return std::make_unique<ConvolutionBackward>(preparation);
    case OpKind::kDecay:
      return std::make_unique<Decay>(preparation);
    case OpKind::kDecayBackward:
      return std::make_unique<DecayBackward>(preparation);
    case OpKind::kDeltaRule:
      return std::make_unique<DeltaRule>(preparation);
    default:
      return std::make_unique<DeltaRuleBackward>(preparation);
  }
}

}  // namespace rondo::devices::cpu
