// What OpKind's comments say about the ops of linear attention.
#include "op_checker.h"

namespace rondo::devices {
namespace {

/// positions and a state at the reads from `place` on.
void check_state(Checker& c, std::size_t place, const Shape& shape, DType dtype) {
  c.tokens_of(c.in(place), DType::kInt32);
  c.shape(c.in(place + 1), shape);
  c.dtype(c.in(place + 1), dtype);
  c.state(c.in(place + 1));
}

/// x [T, C], w [C, W] and at the place that is named bounds; W, or 0 with a complaint.
std::int64_t check_convolved(Checker& c, std::size_t bounds) {
  c.floating(c.in(0));
  c.rank(c.in(1), 2);
  c.dtype(c.in(1), c.in(0).dtype);
  c.bounds(c.in(bounds));
  if (!c.good()) return 0;
  const std::int64_t width = c.in(1).shape[1];
  c.shape(c.in(1), {Checker::columns(c.in(0)), width});
  if (width < 1 || width > kMostConvolution) {
    c.complain(fmt::format("a convolution of {} tokens, expected 1 to {}", width, kMostConvolution));
  }
  return c.good() ? width : 0;
}

void check_convolution(Checker& c) {
  const auto* delta = c.attributes<DeltaAttributes>();
  if (delta == nullptr) return;
  const std::size_t bounds = delta->bounds();
  if (!c.counts(bounds + (delta->has_state ? 3 : 1), 1)) return;
  const std::int64_t width = check_convolved(c, bounds);
  if (width == 0) return;
  if (delta->has_bias) {
    c.shape(c.in(2), {Checker::columns(c.in(0))});
    c.dtype(c.in(2), c.in(0).dtype);
  }
  c.alike(c.out(0), c.in(0));
  if (delta->has_state) check_state(c, bounds + 1, {width - 1, Checker::columns(c.in(0))}, c.in(0).dtype);
}

void check_convolution_backward(Checker& c) {
  const auto* delta = c.attributes<DeltaAttributes>();
  if (delta == nullptr || !c.counts(4, delta->has_weight_gradient ? 2 : 1)) return;
  if (check_convolved(c, 2) == 0) return;
  c.alike(c.in(3), c.in(0));
  c.alike(c.out(0), c.in(0));
  if (!delta->has_weight_gradient) return;
  c.wide(c.out(1), c.in(1).shape);
}

/// a, b, rates and bias.
void check_decayed(Checker& c, const DeltaAttributes& delta) {
  const std::size_t gates = delta.gates();
  c.rank(c.in(0), 2);
  c.floating(c.in(0));
  if (gates > 1) c.alike(c.in(1), c.in(0));
  if (!c.good()) return;
  for (std::size_t i = gates; i < gates + 2; ++i) c.wide(c.in(i), {c.in(0).shape[1]});
  if (delta.is_state_space() && !(delta.least_step >= 0 && delta.least_step <= delta.most_step)) {
    c.complain(fmt::format("steps of {} to {}", delta.least_step, delta.most_step));
  }
}

void check_decay(Checker& c) {
  const auto* delta = c.attributes<DeltaAttributes>();
  if (delta == nullptr || !c.counts(delta->gates() + 2, 2)) return;
  check_decayed(c, *delta);
  for (std::size_t i = 0; i < 2; ++i) c.wide(c.out(i), c.in(0).shape);
}

void check_decay_backward(Checker& c) {
  const auto* delta = c.attributes<DeltaAttributes>();
  if (delta == nullptr) return;
  const std::size_t gates = delta->gates();
  if (!c.counts(gates + 4, gates + (delta->has_weight_gradient ? 2 : 0))) return;
  check_decayed(c, *delta);
  for (std::size_t i = gates + 2; i < gates + 4; ++i) c.wide(c.in(i), c.in(0).shape);
  for (std::size_t i = 0; i < gates; ++i) c.alike(c.out(i), c.in(0));
  for (std::size_t i = gates; i < c.writes(); ++i) c.wide(c.out(i), c.in(gates).shape);
}

/// q, k, v, g and beta.
void check_operands(Checker& c) {
  for (std::size_t i = 0; i < 3; ++i) {
    c.rank(c.in(i), 3);
    c.floating(c.in(i));
    c.dtype(c.in(i), c.in(0).dtype);
  }
  c.alike(c.in(1), c.in(0));
  if (!c.good()) return;
  const Shape& k = c.in(1).shape;
  const Shape& v = c.in(2).shape;
  c.shape(c.in(2), {k[0], v[1], v[2]});
  for (std::size_t i = 3; i < 5; ++i) c.wide(c.in(i), {v[0], v[1]});
  if (k[1] <= 0 || v[1] % k[1] != 0) {
    c.complain(fmt::format("{} value heads do not share out over {} key heads", v[1], k[1]));
  }
  if (k[2] < 1 || v[2] < 1 || k[2] > kMostDeltaSize || v[2] > kMostDeltaSize) {
    c.complain(fmt::format("heads of size {} and {}, expected 1 to {}", k[2], v[2], kMostDeltaSize));
  }
}

Shape checkpoints_of(const Checker& c) {
  const Shape& v = c.in(2).shape;
  return {(v[0] + kDeltaChunk - 1) / kDeltaChunk, v[1], c.in(0).shape[2], v[2]};
}

void check_delta_rule(Checker& c) {
  const auto* delta = c.attributes<DeltaAttributes>();
  if (delta == nullptr || !c.counts(delta->has_state ? 8 : 6, delta->has_state ? 1 : 2)) return;
  check_operands(c);
  c.bounds(c.in(5));
  c.alike(c.out(0), c.in(2));
  if (!c.good()) return;
  if (delta->has_state)
    return check_state(c, 6, {c.in(2).shape[1], c.in(0).shape[2], c.in(2).shape[2]}, DType::kFloat32);
  c.wide(c.out(1), checkpoints_of(c));
}

void check_delta_rule_backward(Checker& c) {
  if (c.attributes<DeltaAttributes>() == nullptr || !c.counts(8, 5)) return;
  check_operands(c);
  if (!c.good()) return;
  c.wide(c.in(5), checkpoints_of(c));
  c.bounds(c.in(6));
  c.alike(c.in(7), c.in(2));
  for (std::size_t i = 0; i < 3; ++i) c.alike(c.out(i), c.in(i));
  for (std::size_t i = 3; i < 5; ++i) c.alike(c.out(i), c.in(3));
}

void check_head_scale_gradient(Checker& c) {
  if (!c.counts(2, 1)) return;
  c.floating(c.in(0));
  c.rank(c.in(0), 3);
  c.alike(c.in(1), c.in(0));
  if (c.good()) c.wide(c.out(0), {c.in(0).shape[1]});
}

}  // namespace

void check_delta(Checker& c) {
  switch (c.op().kind) {
    case OpKind::kConvolution:
      return check_convolution(c);
    case OpKind::kConvolutionBackward:
      return check_convolution_backward(c);
    case OpKind::kDecay:
      return check_decay(c);
    case OpKind::kDecayBackward:
      return check_decay_backward(c);
    case OpKind::kDeltaRule:
      return check_delta_rule(c);
    case OpKind::kHeadScaleGradient:
      return check_head_scale_gradient(c);
    default:
      return check_delta_rule_backward(c);
  }
}

}  // namespace rondo::devices
