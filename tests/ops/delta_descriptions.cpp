// See delta_descriptions.h.
#include "delta_descriptions.h"

#include "case_sizes.h"

namespace rondo::devices::testing {
namespace {

struct DeltaSizes {
  std::uint32_t tokens;
  std::vector<std::int32_t> sequences;
  std::int64_t channels, width, key_heads, heads, key_size, size;
};

DeltaSizes delta_sizes(Scale scale) {
  if (scale == Scale::kModel) return {512, {200, 312}, 2048, 4, 8, 16, 128, 128};
  return {kOddTokens, kOddSequences, 75, 4, 2, 6, 20, 28};
}

/// Sequences that begin, end and cross where checkpoints are, with padding behind.
DeltaSizes many_tokens() { return {288, {64, 3, 130, 70}, 75, 3, 1, 3, 12, 7}; }

/// More than a chunk of kTokenChunk, with a rest.
DeltaSizes two_chunks() { return {1040, {600, 433}, 21, 4, 1, 1, 1, 1}; }

OpCase convolution_case(DType storage, const DeltaSizes& s, bool silu = true) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape shape = {s.tokens, s.channels};
  const TensorId x = b.input("x", shape), dy = b.input("dy", shape);
  const TensorId w = b.weight("w", {s.channels, s.width});
  const TensorId y = b.output("y", shape), dx = b.output("dx", shape), dx_alone = b.output("dx alone", shape);
  const TensorId dw = b.gradient("dw", {s.channels, s.width});
  b.op(OpKind::kConvolution, {x, w, b.bounds()}, {y}, DeltaAttributes{false, false, silu});
  b.op(OpKind::kConvolutionBackward, {x, w, b.bounds(), dy}, {dx, dw}, DeltaAttributes{false, true, silu});
  b.op(OpKind::kConvolutionBackward, {x, w, b.bounds(), dy}, {dx_alone}, DeltaAttributes{false, false, silu});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}, {x, dx_alone}, {w, dw}};
  b.result().reduction = s.tokens;
  return b.result();
}

/// With a bias, whose gradient is that of a sum over tokens.
OpCase biased_case(DType storage, const DeltaSizes& s) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape shape = {s.tokens, s.channels};
  const TensorId x = b.input("x", shape), dy = b.input("dy", shape);
  const TensorId w = b.weight("w", {s.channels, s.width}), bias = b.weight("bias", {s.channels});
  const TensorId y = b.output("y", shape), activated = b.output("activated", shape);
  const TensorId dx = b.output("dx", shape), dw = b.gradient("dw", {s.channels, s.width});
  b.op(OpKind::kConvolution, {x, w, bias, b.bounds()}, {y}, DeltaAttributes{false, false, false, true});
  b.op(OpKind::kConvolution, {x, w, bias, b.bounds()}, {activated}, DeltaAttributes{false, false, true, true});
  b.op(OpKind::kConvolutionBackward, {x, w, b.bounds(), dy}, {dx, dw}, DeltaAttributes{false, true, false});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}, {w, dw}};
  b.result().reduction = s.tokens;
  return b.result();
}

/// Tokens of one sequence from `position` on, behind them padding.
struct Continued {
  std::uint32_t tokens;
  std::int32_t real;
  std::int32_t position;
  TensorId positions = 0;
  TensorId bounds = 0;
};

/// `real` 1: nothing behind it, as in generation.
Continued continued(Scale scale, std::int32_t position, std::int32_t real) {
  return scale == Scale::kModel || real == 1 ? Continued{1, 1, position} : Continued{kOddTokens, real, position};
}

void add_continued(CaseBuilder& b, Continued& run) {
  std::vector<std::int32_t> positions;
  for (std::uint32_t t = 0; t < run.tokens; ++t) positions.push_back(run.position + static_cast<std::int32_t>(t));
  std::vector<std::int32_t> bounds = {1, 0, run.real};
  bounds.resize(run.tokens + 2);
  run.positions = b.integers("positions", BatchTensor::kPositions, positions);
  run.bounds = b.integers("bounds", BatchTensor::kBounds, bounds);
}

OpCase convolution_on(DType storage, Scale scale, std::int32_t position, std::int32_t real, bool silu = true,
                      bool has_bias = false) {
  const DeltaSizes s = delta_sizes(scale);
  Continued run = continued(scale, position, real);
  CaseBuilder b(storage, run.tokens);
  add_continued(b, run);
  const Shape shape = {run.tokens, s.channels};
  const TensorId x = b.input("x", shape);
  const TensorId w = b.weight("w", {s.channels, s.width});
  const TensorId state = b.state("state", {s.width - 1, s.channels});
  std::vector<TensorId> reads = {x, w, run.bounds, run.positions, state};
  if (has_bias) reads.insert(reads.begin() + 2, b.weight("bias", {s.channels}));
  b.op(OpKind::kConvolution, reads, {b.output("y", shape)}, DeltaAttributes{true, false, silu, has_bias});
  return b.result();
}

/// What a token keeps of the state and gives to it, and what that is made of: a and b, or of a state space a alone.
struct Gates {
  std::vector<TensorId> given;
  TensorId rates, bias, g, beta;

  std::vector<TensorId> reads() const {
    std::vector<TensorId> all = given;
    all.insert(all.end(), {rates, bias});
    return all;
  }
};

Gates add_gates(CaseBuilder& b, std::uint32_t tokens, std::int64_t heads, const DeltaAttributes& attributes) {
  const Shape shape = {tokens, heads};
  std::vector<TensorId> given = {b.input("a", shape)};
  if (attributes.gates() > 1) given.push_back(b.input("b", shape));
  const TensorId rates = b.wide_weight("rates", {heads}), bias = b.wide_weight("bias", {heads});
  const Gates gates{std::move(given), rates, bias, b.saved_wide("g", shape), b.saved_wide("beta", shape)};
  b.op(OpKind::kDecay, gates.reads(), {gates.g, gates.beta}, attributes);
  return gates;
}

/// `attributes`: the recurrence, and of a state space limits of steps or none.
OpCase rule_case(DType storage, const DeltaSizes& s, const DeltaAttributes& attributes) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape of_keys = {s.tokens, s.key_heads, s.key_size};
  const Shape of_values = {s.tokens, s.heads, s.size};
  const Shape of_gates = {s.tokens, s.heads};
  const TensorId q = b.input("q", of_keys), k = b.input("k", of_keys), v = b.input("v", of_values);
  const TensorId d_o = b.input("do", of_values);
  const Gates gates = add_gates(b, s.tokens, s.heads, attributes);
  const TensorId o = b.output("o", of_values);
  const TensorId checkpoints =
      b.saved_wide("checkpoints", {(s.tokens + kDeltaChunk - 1) / kDeltaChunk, s.heads, s.key_size, s.size});
  const TensorId dq = b.output("dq", of_keys), dk = b.output("dk", of_keys), dv = b.output("dv", of_values);
  const TensorId dg = b.saved_wide("dg", of_gates), dbeta = b.saved_wide("dbeta", of_gates);
  std::vector<TensorId> slopes, alone;
  for (const TensorId gate : gates.given) {
    const std::string name = "d" + b.result().list.tensors[gate].name;
    slopes.push_back(b.output(name.c_str(), of_gates));
    alone.push_back(b.output((name + " alone").c_str(), of_gates));
  }
  const TensorId drates = b.gradient("drates", {s.heads}), dbias = b.gradient("dbias", {s.heads});
  b.op(OpKind::kDeltaRule, {q, k, v, gates.g, gates.beta, b.bounds()}, {o, checkpoints}, attributes);
  b.op(OpKind::kDeltaRuleBackward, {q, k, v, gates.g, gates.beta, checkpoints, b.bounds(), d_o},
       {dq, dk, dv, dg, dbeta}, attributes);
  std::vector<TensorId> reads = gates.reads();
  reads.insert(reads.end(), {dg, dbeta});
  std::vector<TensorId> writes = slopes;
  writes.insert(writes.end(), {drates, dbias});
  DeltaAttributes trained = attributes;
  trained.has_weight_gradient = true;
  b.op(OpKind::kDecayBackward, reads, writes, trained);
  b.op(OpKind::kDecayBackward, reads, alone, attributes);
  b.result().projections = {{o, d_o}};
  b.result().gradients = {{q, dq}, {k, dk}, {v, dv}, {gates.rates, drates}, {gates.bias, dbias}};
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    b.result().gradients.emplace_back(gates.given[i], slopes[i]);
    b.result().gradients.emplace_back(gates.given[i], alone[i]);
  }
  b.result().reduction = s.tokens;
  return b.result();
}

OpCase rule_on(DType storage, const DeltaSizes& s, Continued run, DeltaAttributes attributes) {
  CaseBuilder b(storage, run.tokens);
  add_continued(b, run);
  const Shape of_keys = {run.tokens, s.key_heads, s.key_size};
  const Shape of_values = {run.tokens, s.heads, s.size};
  const TensorId q = b.input("q", of_keys), k = b.input("k", of_keys), v = b.input("v", of_values);
  const Gates gates = add_gates(b, run.tokens, s.heads, attributes);
  const TensorId state = b.wide_state("state", {s.heads, s.key_size, s.size});
  attributes.has_state = true;
  b.op(OpKind::kDeltaRule, {q, k, v, gates.g, gates.beta, run.bounds, run.positions, state}, {b.output("o", of_values)},
       attributes);
  b.result().reduction = s.key_size;
  return b.result();
}
OpCase delta_on(DType storage, Scale scale, std::int32_t position, std::int32_t real) {
  return rule_on(storage, delta_sizes(scale), continued(scale, position, real), DeltaAttributes{});
}

DeltaAttributes of_space(float least = 0.0F, float most = 1e30F) {
  DeltaAttributes attributes;
  attributes.recurrence = Recurrence::kStateSpace;
  attributes.least_step = least;
  attributes.most_step = most;
  return attributes;
}

/// What there is of a state space in DeltaSizes: more value heads to a key head, a wider state.
DeltaSizes space_sizes(Scale scale) {
  if (scale == Scale::kModel) return {512, {200, 312}, 2048, 4, 1, 32, 128, 64};
  return {kOddTokens, kOddSequences, 75, 4, 1, 6, 37, 20};
}
OpCase space_on(DType storage, Scale scale, std::int32_t position, std::int32_t real) {
  return rule_on(storage, space_sizes(scale), continued(scale, position, real), of_space());
}

}  // namespace

OpCase convolution(DType storage, Scale scale) { return convolution_case(storage, delta_sizes(scale)); }
OpCase convolution_of_many_tokens(DType storage, Scale /*scale*/) { return convolution_case(storage, two_chunks()); }
OpCase convolution_from_state(DType storage, Scale scale) { return convolution_on(storage, scale, 7, 2); }
OpCase convolution_from_nothing(DType storage, Scale scale) { return convolution_on(storage, scale, 0, 2); }
OpCase convolution_of_one_token(DType storage, Scale scale) { return convolution_on(storage, scale, 7, 1); }
OpCase plain_convolution(DType storage, Scale scale) { return convolution_case(storage, delta_sizes(scale), false); }
OpCase plain_convolution_from_state(DType storage, Scale scale) { return convolution_on(storage, scale, 7, 2, false); }
OpCase biased_convolution(DType storage, Scale scale) { return biased_case(storage, delta_sizes(scale)); }
OpCase biased_convolution_from_state(DType storage, Scale scale) {
  return convolution_on(storage, scale, 7, 2, false, true);
}
OpCase delta_rule(DType storage, Scale scale) { return rule_case(storage, delta_sizes(scale), DeltaAttributes{}); }
OpCase delta_rule_of_many_tokens(DType storage, Scale /*scale*/) {
  return rule_case(storage, many_tokens(), DeltaAttributes{});
}
OpCase delta_rule_from_state(DType storage, Scale scale) { return delta_on(storage, scale, 7, 41); }
OpCase delta_rule_from_nothing(DType storage, Scale scale) { return delta_on(storage, scale, 0, 41); }
OpCase delta_rule_of_one_token(DType storage, Scale scale) { return delta_on(storage, scale, 7, 1); }
OpCase delta_rule_of_first_token(DType storage, Scale scale) { return delta_on(storage, scale, 0, 1); }

OpCase state_space(DType storage, Scale scale) { return rule_case(storage, space_sizes(scale), of_space()); }
OpCase state_space_of_many_tokens(DType storage, Scale /*scale*/) {
  return rule_case(storage, many_tokens(), of_space());
}
/// Of several heads of keys, and steps of which some are too small and some too large.
OpCase state_space_of_limited_steps(DType storage, Scale scale) {
  return rule_case(storage, delta_sizes(scale), of_space(0.25F, 1.5F));
}
OpCase state_space_from_state(DType storage, Scale scale) { return space_on(storage, scale, 7, 41); }
OpCase state_space_from_nothing(DType storage, Scale scale) { return space_on(storage, scale, 0, 41); }
/// A token at a time.
OpCase state_space_of_single_tokens(DType storage, Scale scale) { return space_on(storage, scale, 7, 3); }
OpCase state_space_of_one_token(DType storage, Scale scale) { return space_on(storage, scale, 7, 1); }
/// y = x times its head's scale + what else there is.
OpCase head_scale(DType storage, Scale scale) {
  const DeltaSizes s = space_sizes(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.heads, s.size};
  const TensorId x = b.input("x", shape), other = b.input("other", shape), dy = b.input("dy", shape);
  const TensorId factors = b.wide_weight("scale", {s.heads});
  const TensorId y = b.output("y", shape), dx = b.output("dx", shape);
  const TensorId d_factors = b.gradient("dscale", {s.heads});
  b.op(OpKind::kColumnScale, {x, factors, other}, {y}, ColumnScaleAttributes{false, true});
  b.op(OpKind::kColumnScale, {dy, factors}, {dx}, ColumnScaleAttributes{});
  b.op(OpKind::kHeadScaleGradient, {x, dy}, {d_factors});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}, {other, dy}, {factors, d_factors}};
  b.result().reduction = s.tokens * s.size;
  return b.result();
}
/// By a weight for each column, as behind a norm by groups.
OpCase channel_scale(DType storage, Scale scale) {
  const DeltaSizes s = space_sizes(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, 2, s.heads * s.size / 2};
  const TensorId x = b.input("x", shape), dy = b.input("dy", shape);
  const TensorId factors = b.wide_weight("scale", {s.heads * s.size});
  const TensorId y = b.output("y", shape), dx = b.output("dx", shape);
  const TensorId d_factors = b.gradient("dscale", {s.heads * s.size});
  b.op(OpKind::kColumnScale, {x, factors}, {y}, ColumnScaleAttributes{});
  b.op(OpKind::kColumnScaleBackward, {x, factors, dy}, {dx, d_factors});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}, {factors, d_factors}};
  b.result().reduction = s.tokens;
  return b.result();
}
/// What gates is in groups of the heads that it gates.
OpCase gated_by_groups(DType storage, Scale scale) {
  const DeltaSizes s = space_sizes(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape groups = {s.tokens, 2, s.heads * s.size / 2};
  const Shape heads = {s.tokens, s.heads, s.size};
  const TensorId gate = b.input("gate", groups), up = b.input("up", heads), dy = b.input("dy", groups);
  const TensorId y = b.output("y", groups), dgate = b.output("dgate", groups), dup = b.output("dup", heads);
  b.op(OpKind::kGatedActivation, {gate, up}, {y}, GatedActivationAttributes{ActivationKind::kSilu});
  b.op(OpKind::kGatedActivationBackward, {gate, up, dy}, {dgate, dup},
       GatedActivationAttributes{ActivationKind::kSilu});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{gate, dgate}, {up, dup}};
  return b.result();
}

}  // namespace rondo::devices::testing
