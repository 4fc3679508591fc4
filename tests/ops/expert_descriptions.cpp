// See expert_descriptions.h.
#include "expert_descriptions.h"

#include "case_sizes.h"

namespace rondo::devices::testing {
namespace {

struct ExpertSizes {
  std::uint32_t tokens;
  std::vector<std::int32_t> sequences;
  std::int64_t hidden, inner, experts, choices;
};

ExpertSizes expert_sizes(Scale scale) {
  if (scale == Scale::kModel) return {512, {200, 312}, 576, 384, 32, 4};
  return {kOddTokens, kOddSequences, 75, 53, 7, 3};
}

void add_route_gradient(CaseBuilder& b, const ExpertSizes& s, const Routed& routed, TensorId dshares,
                        const RouteAttributes& attributes) {
  const TensorId dlogits = b.output("dlogits", {s.tokens, s.experts});
  b.op(OpKind::kRouteBackward, {routed.logits, routed.shares, routed.experts, dshares}, {dlogits}, attributes);
  b.result().gradients.emplace_back(routed.logits, dlogits);
}

OpCase route_case(DType storage, const ExpertSizes& s, const RouteAttributes& attributes, double spread) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Routed routed = add_route(b, s.experts, s.choices, attributes, spread);
  const TensorId dshares = b.wide_input("dshares", {s.tokens, s.choices});
  add_route_gradient(b, s, routed, dshares, attributes);
  b.result().projections = {{routed.shares, dshares}};
  b.result().reduction = s.experts;
  return b.result();
}

/// Shares of a router that are times numbers of experts, and the gradients of both.
OpCase share_scale_case(DType storage, const ExpertSizes& s) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape shape = {s.tokens, s.choices};
  const Routed routed = add_route(b, s.experts, s.choices, {true});
  const TensorId scale = b.wide_weight("scale", {s.experts}), dscale = b.gradient("dscale", {s.experts});
  const TensorId y = b.saved_wide("y", shape), dy = b.wide_input("dy", shape);
  const TensorId dshares = b.saved_wide("dshares", shape);
  b.op(OpKind::kShareScale, {routed.shares, routed.experts, scale}, {y});
  b.op(OpKind::kShareScaleBackward, {routed.shares, routed.experts, scale, dy}, {dshares, dscale});
  b.op(OpKind::kShareScaleBackward, {routed.shares, routed.experts, scale, dy}, {b.saved_wide("alone", shape)});
  add_route_gradient(b, s, routed, dshares, {true});
  b.result().projections = {{y, dy}};
  b.result().gradients.emplace_back(scale, dscale);
  b.result().reduction = std::max<std::int64_t>(s.tokens, s.experts);
  return b.result();
}

/// `count` of weights or of their gradients.
template <typename Make>
std::vector<TensorId> several(std::int64_t count, Make make) {
  std::vector<TensorId> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(make());
  return made;
}

std::vector<TensorId> joined(std::vector<TensorId> first, const std::vector<TensorId>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

/// Tokens go to experts of two linear layers in parallel, whose sum goes through a third one and back.
OpCase experts_case(DType storage, const ExpertSizes& s, std::int64_t rows_of_one) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const std::int64_t rows = s.tokens * s.choices;
  const auto weights = [&](const char* name, std::int64_t out, std::int64_t in) {
    return several(s.experts, [&] { return b.weight(name, {out, in}, inverse_root(in)); });
  };
  const auto gradients = [&](const char* name, std::int64_t out, std::int64_t in) {
    return several(s.experts, [&] { return b.gradient(name, {out, in}); });
  };
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId residual = b.input("residual", {s.tokens, s.hidden});
  const Routed routed = add_route(b, s.experts, s.choices, {true});
  const TensorId sent = b.saved("sent", {rows, s.hidden});
  b.op(OpKind::kDispatch, {x, routed.rows}, {sent});
  const std::vector<TensorId> one = weights("one", s.inner, s.hidden);
  const std::vector<TensorId> other = weights("other", s.inner, s.hidden);
  const std::vector<TensorId> down = weights("down", s.hidden, s.inner);
  const TensorId of_one = b.saved("of one", {rows, s.inner});
  const TensorId of_other = b.saved("of other", {rows, s.inner});
  const TensorId inner = b.saved("inner", {rows, s.inner});
  const TensorId outer = b.saved("outer", {rows, s.hidden});
  const TensorId y = b.output("y", {s.tokens, s.hidden});
  b.op(OpKind::kGroupedMatMul, joined({sent, routed.offsets}, one), {of_one}, GroupAttributes{});
  b.op(OpKind::kGroupedMatMul, joined({sent, routed.offsets}, other), {of_other}, GroupAttributes{});
  b.op(OpKind::kAdd, {of_one, of_other}, {inner});
  b.op(OpKind::kGroupedMatMul, joined({inner, routed.offsets}, down), {outer}, GroupAttributes{});
  b.op(OpKind::kCombine, {outer, routed.rows, routed.shares, residual}, {y}, CombineAttributes{0.75F, true, true});

  const TensorId dy = b.input("dy", {s.tokens, s.hidden});
  const TensorId d_outer = b.saved("d outer", {rows, s.hidden});
  const TensorId d_shares = b.saved_wide("d shares", {s.tokens, s.choices});
  const TensorId d_inner = b.saved("d inner", {rows, s.inner});
  const TensorId d_part = b.saved("d part", {rows, s.hidden});
  const TensorId d_sent = b.saved("d sent", {rows, s.hidden});
  const TensorId dx = b.output("dx", {s.tokens, s.hidden});
  b.op(OpKind::kCombineBackward, {dy, outer, routed.rows, routed.shares}, {d_outer, d_shares},
       CombineAttributes{0.75F, true, true});
  const std::vector<TensorId> d_down = gradients("d down", s.hidden, s.inner);
  const std::vector<TensorId> d_one = gradients("d one", s.inner, s.hidden);
  b.op(OpKind::kGroupedMatMulWeightGradient, {d_outer, inner, routed.offsets}, d_down, GroupAttributes{});
  b.op(OpKind::kGroupedMatMulInputGradient, joined({d_outer, routed.offsets}, down), {d_inner}, GroupAttributes{});
  b.op(OpKind::kGroupedMatMulWeightGradient, {d_inner, sent, routed.offsets}, d_one, GroupAttributes{});
  b.op(OpKind::kGroupedMatMulInputGradient, joined({d_inner, routed.offsets}, other), {d_part}, GroupAttributes{});
  std::vector<TensorId> reads = joined({d_inner, routed.offsets}, one);
  reads.push_back(d_part);
  b.op(OpKind::kGroupedMatMulInputGradient, reads, {d_sent}, GroupAttributes{true});
  b.op(OpKind::kCombine, {d_sent, routed.rows}, {dx}, CombineAttributes{});
  add_route_gradient(b, s, routed, d_shares, {true});

  OpCase& result = b.result();
  result.projections = {{y, dy}};
  result.gradients.emplace_back(x, dx);
  result.gradients.emplace_back(one[0], d_one[0]);
  result.gradients.emplace_back(down.back(), d_down.back());
  result.reduction = std::max({s.hidden, s.inner, rows_of_one});
  return result;
}

OpCase biases_case(DType storage, const ExpertSizes& s) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape rows = {s.tokens * s.choices, s.inner};
  const Routed routed = add_route(b, s.experts, s.choices, {true});
  const TensorId x = b.input("x", rows), y = b.output("y", rows), dy = b.input("dy", rows);
  const TensorId bias = b.weight("bias", {s.experts, s.inner});
  const TensorId db = b.gradient("db", {s.experts, s.inner});
  b.op(OpKind::kGroupedBias, {x, routed.offsets, bias}, {y});
  b.op(OpKind::kGroupedBiasGradient, {dy, routed.offsets}, {db});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{bias, db}};
  b.result().reduction = rows[0];
  return b.result();
}

}  // namespace

Routed add_route(CaseBuilder& b, std::int64_t experts, std::int64_t choices, const RouteAttributes& attributes,
                 double spread) {
  const std::int64_t tokens = b.tokens();
  const std::int64_t count = tokens * choices;
  // Before they are written each expert has as many as any other, and tokens lie apart.
  std::vector<std::int32_t> chosen;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> offsets;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i % choices * tokens + i / choices;
    rows.push_back(static_cast<std::int32_t>(row));
    chosen.push_back(static_cast<std::int32_t>(row * experts / count));
  }
  for (std::int64_t e = 0; e <= experts; ++e) offsets.push_back(static_cast<std::int32_t>(count * e / experts));
  Routed routed{};
  routed.logits = b.input("logits", {tokens, experts}, spread);
  routed.shares = b.saved_wide("shares", {tokens, choices});
  routed.experts = b.saved_integers("experts", {tokens, choices}, std::move(chosen));
  routed.rows = b.saved_integers("rows", {tokens, choices}, std::move(rows));
  routed.offsets = b.saved_integers("offsets", {experts + 1}, std::move(offsets));
  std::vector<TensorId> reads = {routed.logits, b.bounds()};
  if (attributes.has_bias) reads.push_back(b.wide_input("bias", {experts}));
  b.op(OpKind::kRoute, reads, {routed.shares, routed.experts, routed.rows, routed.offsets}, attributes);
  return routed;
}

OpCase grouped_case(DType storage, const GroupedCase& grouped) {
  std::vector<std::int32_t> begins = {0};
  for (const std::int32_t rows : grouped.rows) begins.push_back(begins.back() + rows);
  const std::int64_t rows = begins.back() + grouped.padding;
  const auto experts = static_cast<std::int64_t>(grouped.rows.size());
  CaseBuilder b(storage, static_cast<std::uint32_t>(rows));
  const TensorId offsets = b.saved_integers("offsets", {experts + 1}, begins);
  const TensorId x = b.input("x", {rows, grouped.in}), dy = b.input("dy", {rows, grouped.out});
  const TensorId more = b.input("more", {rows, grouped.in}), residual = b.input("residual", {rows, grouped.out});
  Shape shape = {grouped.out, grouped.in};
  if (grouped.stacked) shape.insert(shape.begin(), experts);
  const std::int64_t tensors = grouped.stacked ? 1 : experts;
  const std::vector<TensorId> w = several(tensors, [&] { return b.weight("w", shape, inverse_root(grouped.in)); });
  const std::vector<TensorId> dw = several(tensors, [&] { return b.gradient("dw", shape); });
  const TensorId y = b.output("y", {rows, grouped.out}), dx = b.output("dx", {rows, grouped.in});
  const TensorId plain = b.output("plain", {rows, grouped.out});
  const std::int64_t stacked = grouped.stacked ? experts : 0;
  const GroupAttributes alone{false, grouped.alpha, stacked}, added{true, grouped.alpha, stacked};
  b.op(OpKind::kGroupedMatMul, joined({x, offsets}, w), {plain}, alone);
  b.op(OpKind::kGroupedMatMul, joined(joined({x, offsets}, w), {residual}), {y}, added);
  b.op(OpKind::kGroupedMatMulInputGradient, joined(joined({dy, offsets}, w), {more}), {dx}, added);
  b.op(OpKind::kGroupedMatMulWeightGradient, {dy, x, offsets}, dw, alone);
  b.result().reduction = std::max({rows, grouped.in, grouped.out});
  return b.result();
}

OpCase route_plain(DType storage, Scale scale) { return route_case(storage, expert_sizes(scale), {}, 1.0); }
OpCase route_normalised(DType storage, Scale scale) { return route_case(storage, expert_sizes(scale), {true}, 1.0); }
OpCase route_by_sigmoid(DType storage, Scale scale) {
  return route_case(storage, expert_sizes(scale), {false, true}, 3.0);
}
/// As the expert that all tokens share has it.
OpCase route_to_one(DType storage, Scale scale) {
  ExpertSizes s = expert_sizes(scale);
  s.experts = s.choices = 1;
  return route_case(storage, s, {false, true}, 3.0);
}
OpCase route_by_bias(DType storage, Scale scale) {
  return route_case(storage, expert_sizes(scale), {.normalised = true, .has_bias = true}, 1.0);
}
OpCase route_by_bias_of_sigmoids(DType storage, Scale scale) {
  return route_case(storage, expert_sizes(scale),
                    {.normalised = true, .sigmoid = true, .has_bias = true, .factor = 2.5F}, 2.0);
}
OpCase route_in_groups(DType storage, Scale scale) {
  ExpertSizes s = expert_sizes(scale);
  s.experts = scale == Scale::kModel ? 160 : 12;
  return route_case(storage, s, {.factor = 0.75F, .groups = 4, .chosen_groups = 2}, 1.0);
}
OpCase route_in_groups_of_sigmoids(DType storage, Scale scale) {
  ExpertSizes s = expert_sizes(scale);
  s.experts = scale == Scale::kModel ? 256 : 15;
  const std::int32_t groups = scale == Scale::kModel ? 8 : 5;
  return route_case(
      storage, s,
      {.normalised = true, .sigmoid = true, .has_bias = true, .factor = 1.5F, .groups = groups, .chosen_groups = 3},
      2.0);
}
OpCase route_among_most(DType storage, Scale scale) {
  ExpertSizes s = expert_sizes(scale);
  s.experts = kMostExperts;
  s.choices = kMostChoices;
  return route_case(storage, s, {}, 1.0);
}
/// The first ones are chosen.
OpCase route_of_equal_logits(DType storage, Scale scale) { return route_case(storage, expert_sizes(scale), {}, 0.0); }

OpCase share_scale(DType storage, Scale scale) { return share_scale_case(storage, expert_sizes(scale)); }

OpCase experts_whole(DType storage, Scale scale) {
  const ExpertSizes s = expert_sizes(scale);
  return experts_case(storage, s, s.tokens);
}
/// Of some experts one or none.
OpCase experts_of_few_rows(DType storage, Scale scale) {
  ExpertSizes s = expert_sizes(scale);
  s.experts = 40;
  s.choices = 2;
  return experts_case(storage, s, s.tokens);
}
/// More than a chunk of kTokenChunk, with a rest.
OpCase experts_of_many_rows(DType storage, Scale /*scale*/) {
  return experts_case(storage, {1280, {700, 570}, 72, 40, 2, 1}, 1280);
}

/// y = x W^T + alpha (x A^T) B^T, of each expert's W, A and B, the latter in one tensor each.
OpCase adapted_experts(DType storage, Scale scale) {
  const ExpertSizes s = expert_sizes(scale);
  const std::int64_t rank = scale == Scale::kModel ? 16 : 5;
  const std::int64_t rows = s.tokens * s.choices;
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const TensorId offsets = add_route(b, s.experts, s.choices, {true}).offsets;
  const TensorId x = b.input("x", {rows, s.hidden}), dy = b.input("dy", {rows, s.inner});
  const std::vector<TensorId> w = several(s.experts, [&] {
    return b.weight("w", {s.inner, s.hidden}, inverse_root(s.hidden));
  });
  const TensorId a_factor = b.weight("a", {s.experts, rank, s.hidden}, inverse_root(s.hidden));
  const TensorId b_factor = b.weight("b", {s.experts, s.inner, rank}, inverse_root(rank));
  const TensorId base = b.saved("base", {rows, s.inner}), low = b.saved("low", {rows, rank});
  const TensorId y = b.output("y", {rows, s.inner});
  const GroupAttributes down{false, 1.0F, s.experts}, up{true, 0.75F, s.experts}, up_alone{false, 0.75F, s.experts};
  b.op(OpKind::kGroupedMatMul, joined({x, offsets}, w), {base}, GroupAttributes{});
  b.op(OpKind::kGroupedMatMul, {x, offsets, a_factor}, {low}, down);
  b.op(OpKind::kGroupedMatMul, {low, offsets, b_factor, base}, {y}, up);
  const TensorId d_low = b.saved("d low", {rows, rank}), d_base = b.saved("d base", {rows, s.hidden});
  const TensorId dx = b.output("dx", {rows, s.hidden});
  const TensorId d_a = b.gradient("d a", {s.experts, rank, s.hidden});
  const TensorId d_b = b.gradient("d b", {s.experts, s.inner, rank});
  b.op(OpKind::kGroupedMatMulWeightGradient, {dy, low, offsets}, {d_b}, up_alone);
  b.op(OpKind::kGroupedMatMulInputGradient, {dy, offsets, b_factor}, {d_low}, up_alone);
  b.op(OpKind::kGroupedMatMulWeightGradient, {d_low, x, offsets}, {d_a}, down);
  b.op(OpKind::kGroupedMatMulInputGradient, joined({dy, offsets}, w), {d_base}, GroupAttributes{});
  b.op(OpKind::kGroupedMatMulInputGradient, {d_low, offsets, a_factor, d_base}, {dx},
       GroupAttributes{true, 1.0F, s.experts});
  OpCase& result = b.result();
  result.projections = {{y, dy}};
  result.gradients = {{x, dx}, {a_factor, d_a}, {b_factor, d_b}};
  result.reduction = std::max({s.hidden, s.inner, static_cast<std::int64_t>(s.tokens)});
  return result;
}
OpCase stacked_experts(DType storage, Scale /*scale*/) {
  return grouped_case(storage, {{0, 200, 0, 57, 1, 0, 522}, 31, 72, 40, 0.625F, true});
}
/// More than a launch of a card has addresses for.
OpCase most_stacked_experts(DType storage, Scale /*scale*/) {
  GroupedCase grouped{std::vector<std::int32_t>(kMostExperts, 1), 3, 24, 16, 1.5F, true};
  grouped.rows[7] = 0;
  grouped.rows[400] = 9;
  return grouped_case(storage, grouped);
}

OpCase expert_biases(DType storage, Scale scale) { return biases_case(storage, expert_sizes(scale)); }
OpCase expert_biases_of_many_rows(DType storage, Scale /*scale*/) {
  return biases_case(storage, {1280, {700, 570}, 72, 40, 2, 1});
}

}  // namespace rondo::devices::testing
