// What OpKind's comments say about the ops of a mixture of experts.
#include "op_checker.h"

namespace rondo::devices {
namespace {

/// [T, k] of `dtype`; k, or 0 with a complaint.
std::int64_t choices_of(Checker& c, const TensorDesc& tensor, std::int64_t tokens, DType dtype) {
  c.rank(tensor, 2);
  c.dtype(tensor, dtype);
  if (!c.good()) return 0;
  const std::int64_t choices = tensor.shape[1];
  c.shape(tensor, {tokens, choices});
  if (choices < 1 || choices > kMostChoices) {
    c.complain(
        fmt::format("tensor '{}' sends a token to {} experts, expected 1 to {}", tensor.name, choices, kMostChoices));
  }
  return c.good() ? choices : 0;
}

void check_number(Checker& c, std::int64_t experts, std::int64_t least) {
  if (experts < least || experts > kMostExperts) {
    c.complain(fmt::format("{} experts, expected {} to {}", experts, least, kMostExperts));
  }
}

/// Logits [T, E] as the first read.
void check_logits(Checker& c) {
  c.rank(c.in(0), 2);
  c.floating(c.in(0));
}

void check_groups(Checker& c, const RouteAttributes& route, std::int64_t experts, std::int64_t choices) {
  if (route.groups < 1 || experts % route.groups != 0 || (route.groups > 1 && experts < 2 * route.groups)) {
    return c.complain(
        fmt::format("{} experts in {} groups, expected as many in each, two at least", experts, route.groups));
  }
  const std::int64_t most = route.groups > 0 ? experts / route.groups * route.chosen_groups : 0;
  if (route.chosen_groups < 1 || route.chosen_groups > route.groups || choices > most) {
    c.complain(fmt::format("{} of {} groups for {} choices, expected groups that have as many experts",
                           route.chosen_groups, route.groups, choices));
  }
}

void check_route(Checker& c) {
  const auto* route = c.attributes<RouteAttributes>();
  if (route == nullptr || !c.counts(route->has_bias ? 3 : 2, 4)) return;
  check_logits(c);
  c.bounds(c.in(1));
  if (!c.good()) return;
  if (route->has_bias) c.wide(c.in(2), {c.in(0).shape[1]});
  const std::int64_t tokens = c.in(0).shape[0];
  const std::int64_t choices = choices_of(c, c.out(0), tokens, DType::kFloat32);
  for (std::size_t i = 1; i < 3; ++i) {
    c.shape(c.out(i), {tokens, choices});
    c.dtype(c.out(i), DType::kInt32);
  }
  check_number(c, c.in(0).shape[1], choices);
  check_groups(c, *route, c.in(0).shape[1], choices);
  c.shape(c.out(3), {c.in(0).shape[1] + 1});
  c.dtype(c.out(3), DType::kInt32);
}

void check_route_backward(Checker& c) {
  if (c.attributes<RouteAttributes>() == nullptr || !c.counts(4, 1)) return;
  check_logits(c);
  if (!c.good()) return;
  const std::int64_t choices = choices_of(c, c.in(1), c.in(0).shape[0], DType::kFloat32);
  check_number(c, c.in(0).shape[1], choices);
  c.shape(c.in(2), c.in(1).shape);
  c.dtype(c.in(2), DType::kInt32);
  c.alike(c.in(3), c.in(1));
  c.alike(c.out(0), c.in(0));
}

/// shares [T, k], experts and a scale of each expert.
void check_share_scale(Checker& c, bool backward) {
  const std::size_t reads = backward ? 4 : 3;
  if (!c.counts(reads, backward && c.writes() == 2 ? 2 : 1)) return;
  c.rank(c.in(0), 2);
  if (!c.good()) return;
  choices_of(c, c.in(0), c.in(0).shape[0], DType::kFloat32);
  c.shape(c.in(1), c.in(0).shape);
  c.dtype(c.in(1), DType::kInt32);
  c.rank(c.in(2), 1);
  if (!c.good()) return;
  check_number(c, c.in(2).shape[0], 1);
  c.wide(c.in(2), c.in(2).shape);
  if (backward) c.alike(c.in(3), c.in(0));
  c.alike(c.out(0), c.in(0));
  if (c.writes() == 2) c.wide(c.out(1), c.in(2).shape);
}

/// `spread` [k T, C] lies as `rows` [T, k] says, from `tokens` [T, C].
void check_spread(Checker& c, const TensorDesc& spread, const TensorDesc& rows, const TensorDesc& tokens) {
  c.floating(tokens);
  const std::int64_t choices = choices_of(c, rows, Checker::rows(tokens), DType::kInt32);
  c.matrix(spread, choices * Checker::rows(tokens), Checker::columns(tokens));
  c.dtype(spread, tokens.dtype);
}

void check_dispatch(Checker& c) {
  if (c.counts(2, 1)) check_spread(c, c.out(0), c.in(1), c.in(0));
}

void check_combine(Checker& c) {
  const auto* combine = c.attributes<CombineAttributes>();
  if (combine == nullptr) return;
  if (!c.counts(2 + (combine->has_shares ? 1U : 0U) + (combine->has_addend ? 1U : 0U), 1)) return;
  check_spread(c, c.in(0), c.in(1), c.out(0));
  if (combine->has_shares) {
    c.wide(c.in(2), c.in(1).shape);
  }
  if (combine->has_addend) c.alike(c.in(c.reads() - 1), c.out(0));
}

void check_combine_backward(Checker& c) {
  if (c.attributes<CombineAttributes>() == nullptr || !c.counts(4, 2)) return;
  check_spread(c, c.in(1), c.in(2), c.in(0));
  c.wide(c.in(3), c.in(2).shape);
  c.alike(c.out(0), c.in(1));
  c.alike(c.out(1), c.in(3));
}

void check_offsets(Checker& c, const TensorDesc& offsets, std::size_t experts) {
  check_number(c, static_cast<std::int64_t>(experts), 1);
  c.shape(offsets, {static_cast<std::int64_t>(experts) + 1});
  c.dtype(offsets, DType::kInt32);
}

/// One tensor where the experts' matrices are one.
bool check_stack(Checker& c, const GroupAttributes& group, std::size_t tensors) {
  if (group.stacked < 0 || (group.stacked > 0 && tensors != 1)) {
    c.complain(fmt::format("{} tensors of {} stacked experts, expected one", tensors, group.stacked));
  }
  return c.good();
}

/// kGroupedMatMul and the gradient of its input: a [k T, A] into y [k T, B].
void check_grouped_product(Checker& c, bool transposed) {
  const auto* group = c.attributes<GroupAttributes>();
  if (group == nullptr) return;
  const std::size_t others = 2 + (group->has_addend ? 1 : 0);
  if (c.reads() <= others) return c.complain("it has no expert");
  const std::size_t tensors = c.reads() - others;
  if (!c.counts(c.reads(), 1) || !check_stack(c, *group, tensors)) return;
  check_offsets(c, c.in(1), experts_of(c.op()));
  c.floating(c.in(0));
  c.rank(c.in(2), group->stacked > 0 ? 3 : 2);
  c.floating(c.in(2));
  if (!c.good()) return;
  for (std::size_t i = 1; i < tensors; ++i) c.alike(c.in(2 + i), c.in(2));
  Shape w = c.in(2).shape;
  if (group->stacked > 0) {
    c.shape(c.in(2), {group->stacked, w[1], w[2]});
    w = {w[1], w[2]};
  }
  const std::int64_t rows = Checker::rows(c.in(0));
  c.matrix(c.in(0), rows, transposed ? w[1] : w[0]);
  c.matrix(c.out(0), rows, transposed ? w[0] : w[1]);
  c.dtype(c.out(0), c.in(0).dtype);
  if (group->has_addend) c.alike(c.in(c.reads() - 1), c.out(0));
}

void check_grouped_weight_gradient(Checker& c) {
  const auto* group = c.attributes<GroupAttributes>();
  if (group == nullptr) return;
  if (!c.counts(3, c.writes()) || !check_stack(c, *group, c.writes())) return;
  if (group->has_addend) return c.complain("a gradient of weights has no addend");
  check_offsets(c, c.in(2), experts_of(c.op()));
  c.floating(c.in(0));
  c.matrix(c.in(1), Checker::rows(c.in(0)), Checker::columns(c.in(1)));
  c.dtype(c.in(1), c.in(0).dtype);
  Shape dw = {Checker::columns(c.in(0)), Checker::columns(c.in(1))};
  if (group->stacked > 0) dw.insert(dw.begin(), group->stacked);
  for (std::size_t i = 0; i < c.writes(); ++i) c.wide(c.out(i), dw);
}

/// [k T, N] of the first read, and the biases of the experts.
void check_grouped_bias(Checker& c, const TensorDesc& bias) {
  c.floating(c.in(0));
  c.rank(bias, 2);
  if (!c.good()) return;
  c.shape(bias, {bias.shape[0], Checker::columns(c.in(0))});
  check_offsets(c, c.in(1), static_cast<std::size_t>(bias.shape[0]));
}

void check_grouped_bias_forward(Checker& c) {
  if (!c.counts(3, 1)) return;
  check_grouped_bias(c, c.in(2));
  c.dtype(c.in(2), c.in(0).dtype);
  c.alike(c.out(0), c.in(0));
}

void check_grouped_bias_gradient(Checker& c) {
  if (!c.counts(2, 1)) return;
  check_grouped_bias(c, c.out(0));
  c.dtype(c.out(0), DType::kFloat32);
}

}  // namespace

void check_experts(Checker& c) {
  switch (c.op().kind) {
    case OpKind::kRoute:
      return check_route(c);
    case OpKind::kRouteBackward:
      return check_route_backward(c);
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
      return check_share_scale(c, c.op().kind == OpKind::kShareScaleBackward);
    case OpKind::kDispatch:
      return check_dispatch(c);
    case OpKind::kCombine:
      return check_combine(c);
    case OpKind::kCombineBackward:
      return check_combine_backward(c);
    case OpKind::kGroupedMatMul:
      return check_grouped_product(c, true);
    case OpKind::kGroupedMatMulInputGradient:
      return check_grouped_product(c, false);
    case OpKind::kGroupedBias:
      return check_grouped_bias_forward(c);
    case OpKind::kGroupedBiasGradient:
      return check_grouped_bias_gradient(c);
    default:
      return check_grouped_weight_gradient(c);
  }
}

}  // namespace rondo::devices
