// Steps of linear attention: the short convolution, the gates, and the delta rule with its gradient.
#include "kernels/convolution.h"
#include "kernels/decay.h"
#include "kernels/delta_gradient.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

static_assert(kMostTaps == kMostConvolution && kMostRuleSize == kMostDeltaSize && kRuleChunk == kDeltaChunk);
static_assert(kTapChunk == kTokenChunk && kDecayChunk == kTokenChunk);

/// Blocks in the grid's y that share the sequences, whose number is known on the card alone.
constexpr std::int64_t kSlots = 32;
/// Chunks of all heads in a segment of the gradient: enough blocks for a card, and 192 KiB of scratch each at most.
constexpr std::int64_t kSegmentChunks = 256;

Arguments<ConvolutionParams> convolution_arguments(const Lowering& op) {
  using P = ConvolutionParams;
  Arguments<P> arguments;
  arguments.params.channels = Lowering::columns_of(op.in(0));
  arguments.params.tokens = static_cast<std::int32_t>(op.in(0).shape[0]);
  arguments.params.width = static_cast<std::int32_t>(op.in(1).shape[1]);
  arguments.params.activation = op.attributes<DeltaAttributes>().silu ? 0 : kIdentityActivation;
  arguments.at(&P::x, op.read(0)).at(&P::w, op.read(1)).at(&P::y, op.write(0));
  return arguments;
}

void lower_convolution(Lowering& op) {
  using P = ConvolutionParams;
  Arguments<P> arguments = convolution_arguments(op);
  const P& p = arguments.params;
  const bool has_state = op.attributes<DeltaAttributes>().has_state;
  const auto& delta = op.attributes<DeltaAttributes>();
  const std::size_t bounds = delta.bounds();
  arguments.at(&P::bounds, op.read(bounds));
  if (delta.has_bias) arguments.at(&P::bias, op.read(2));
  if (has_state) arguments.at(&P::positions, op.read(bounds + 1)).at(&P::state, op.read(bounds + 2));
  const Storage storage = Lowering::storage_of(op.in(0));
  op.launch(of_storage(KernelId::k_convolution_fp32, storage),
            {divide_up(p.channels, kTapChannels), divide_up(p.tokens, kTapRows), kMostThreads, kConvolutionShared},
            arguments);
  if (!has_state) return;
  op.launch(of_storage(KernelId::k_convolution_state_fp32, storage),
            {divide_up(p.channels, kMostThreads), 1, kMostThreads, 0}, arguments);
}

void lower_convolution_backward(Lowering& op) {
  using P = ConvolutionParams;
  Arguments<P> arguments = convolution_arguments(op);
  const P& p = arguments.params;
  const std::int64_t chunks = divide_up(p.tokens, kTapChunk);
  const std::int64_t weights = p.channels * p.width;
  const bool has_weight_gradient = op.attributes<DeltaAttributes>().has_weight_gradient;
  Place partial;
  if (has_weight_gradient) partial = op.workspace(static_cast<Bytes>(chunks * weights) * sizeof(float));
  arguments.at(&P::bounds, op.read(2)).at(&P::dy, op.read(3)).at(&P::partial, partial);
  op.launch(of_storage(KernelId::k_convolution_backward_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(p.channels, kTapChannels), chunks, kMostThreads, kConvolutionBackwardShared}, arguments);
  if (has_weight_gradient) add_chunks(op, partial, chunks, weights, op.write(1));
}

Arguments<DecayParams> decay_arguments(const Lowering& op) {
  using P = DecayParams;
  const std::size_t gates = op.attributes<DeltaAttributes>().gates();
  Arguments<P> arguments;
  arguments.params.tokens = op.in(0).shape[0];
  arguments.params.heads = op.in(0).shape[1];
  arguments.params.least_step = op.attributes<DeltaAttributes>().least_step;
  arguments.params.most_step = op.attributes<DeltaAttributes>().most_step;
  arguments.at(&P::a, op.read(0)).at(&P::rates, op.read(gates)).at(&P::bias, op.read(gates + 1));
  if (gates > 1) arguments.at(&P::b, op.read(1));
  return arguments;
}

void lower_decay(Lowering& op) {
  using P = DecayParams;
  Arguments<P> arguments = decay_arguments(op);
  arguments.at(&P::g, op.write(0)).at(&P::beta, op.write(1));
  op.launch(of_storage(KernelId::k_decay_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(op.in(0).elements(), kMostThreads), 1, kMostThreads, 0}, arguments);
}

void lower_decay_backward(Lowering& op) {
  using P = DecayParams;
  Arguments<P> arguments = decay_arguments(op);
  const std::int64_t heads = arguments.params.heads;
  const std::int64_t chunks = divide_up(arguments.params.tokens, kDecayChunk);
  const std::size_t gates = op.attributes<DeltaAttributes>().gates();
  arguments.at(&P::dg, op.read(gates + 2)).at(&P::dbeta, op.read(gates + 3)).at(&P::da, op.write(0));
  if (gates > 1) arguments.at(&P::db, op.write(1));
  const bool has_weight_gradient = op.attributes<DeltaAttributes>().has_weight_gradient;
  Place rates;
  Place bias;
  if (has_weight_gradient) {
    rates = op.workspace(static_cast<Bytes>(chunks * heads) * sizeof(float));
    bias = op.workspace(static_cast<Bytes>(chunks * heads) * sizeof(float));
  }
  arguments.at(&P::rate_parts, rates).at(&P::bias_parts, bias);
  op.launch(of_storage(KernelId::k_decay_backward_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(heads, kColumnThreads), chunks, kMostThreads, kDecayBackwardShared}, arguments);
  if (!has_weight_gradient) return;
  add_chunks(op, rates, chunks, heads, op.write(gates));
  add_chunks(op, bias, chunks, heads, op.write(gates + 1));
}

/// Of what q, k, v, g and beta are read by.
Arguments<RuleParams> rule_arguments(const Lowering& op) {
  using P = RuleParams;
  Arguments<P> arguments;
  P& p = arguments.params;
  p.tokens = static_cast<std::int32_t>(op.in(0).shape[0]);
  p.key_heads = static_cast<std::int32_t>(op.in(0).shape[1]);
  p.size = static_cast<std::int32_t>(op.in(0).shape[2]);
  p.heads = static_cast<std::int32_t>(op.in(2).shape[1]);
  p.width = static_cast<std::int32_t>(op.in(2).shape[2]);
  p.slots = static_cast<std::int32_t>(std::min<std::int64_t>(p.tokens, kSlots));
  p.state_space = op.attributes<DeltaAttributes>().is_state_space() ? 1 : 0;
  arguments.at(&P::q, op.read(0)).at(&P::k, op.read(1)).at(&P::v, op.read(2));
  arguments.at(&P::g, op.read(3)).at(&P::beta, op.read(4));
  return arguments;
}

/// Blocks that take a head's columns, of all heads.
std::int64_t columns_of_heads(const RuleParams& p) { return std::int64_t{p.heads} * rule_blocks(p.width); }

void lower_rule(Lowering& op) {
  using P = RuleParams;
  Arguments<P> arguments = rule_arguments(op);
  arguments.at(&P::bounds, op.read(5)).at(&P::o, op.write(0));
  if (op.attributes<DeltaAttributes>().has_state) {
    arguments.at(&P::positions, op.read(6)).at(&P::state, op.read(7));
    arguments.params.slots = std::min(arguments.params.slots, 1);
  } else {
    arguments.at(&P::checkpoints, op.write(1));
  }
  op.launch(of_storage(KernelId::k_rule_fp32, Lowering::storage_of(op.in(0))),
            {columns_of_heads(arguments.params), arguments.params.slots, kRuleThreads, kRuleShared}, arguments);
}

/// Scratch of a segment, and what is carried from one to the next.
struct RuleScratch {
  RuleScratch(Lowering& op, const RuleParams& p, std::int64_t chunks) {
    const auto numbers = [&](std::int64_t count) { return op.workspace(static_cast<Bytes>(count) * sizeof(float)); };
    const std::int64_t rows = std::min<std::int64_t>(chunks * kRuleChunk, p.tokens) * p.heads;
    const std::int64_t states = std::int64_t{p.heads} * p.size * p.width;
    errors = numbers(rows * p.width);
    pulls = numbers(rows * p.width);
    dq = numbers(rows * p.size);
    dk = numbers(rows * p.size);
    ends = numbers(chunks * states);
    for (Place& carry : carries) carry = numbers(states);
  }

  Place errors, pulls, dq, dk, ends;
  Place carries[2];  // what one segment reads while its first sequence's is written for the one before
};

void lower_segment(Lowering& op, const RuleParams& segment, const RuleScratch& scratch, const Place& carried,
                   const Place& carry) {
  using P = RuleParams;
  Arguments<P> arguments = rule_arguments(op);
  P& p = arguments.params;
  p.first = segment.first;
  p.length = segment.length;
  arguments.at(&P::checkpoints, op.read(5)).at(&P::bounds, op.read(6)).at(&P::d_o, op.read(7));
  arguments.at(&P::errors, scratch.errors).at(&P::pulls, scratch.pulls).at(&P::ends, scratch.ends);
  arguments.at(&P::dq_parts, scratch.dq).at(&P::dk_parts, scratch.dk);
  arguments.at(&P::carried, carried).at(&P::carry, carry);
  arguments.at(&P::dq, op.write(0)).at(&P::dk, op.write(1)).at(&P::dv, op.write(2));
  arguments.at(&P::dg, op.write(3)).at(&P::dbeta, op.write(4));
  const Storage storage = Lowering::storage_of(op.in(0));
  const std::int64_t chunks = divide_up(p.length, kRuleChunk);
  const std::int64_t columns = columns_of_heads(p);
  op.launch(of_storage(KernelId::k_rule_errors_fp32, storage), {columns, chunks, kRuleThreads, kRuleShared}, arguments);
  op.launch(of_storage(KernelId::k_rule_pulls_fp32, storage), {columns, p.slots, kRuleThreads, kRuleShared}, arguments);
  op.launch(of_storage(KernelId::k_rule_gradient_fp32, storage), {p.heads, chunks, kMostThreads, kGradientShared},
            arguments);
  op.launch(of_storage(KernelId::k_rule_units_fp32, storage),
            {divide_up(std::int64_t{p.length} * p.key_heads, kUnitRows), 2, kMostThreads, 0}, arguments);
}

/// From the last segment to the first.
void lower_rule_backward(Lowering& op) {
  RuleParams p = rule_arguments(op).params;
  if (p.tokens == 0) return;
  const std::int64_t all = divide_up(p.tokens, kRuleChunk);
  const std::int64_t chunks = std::clamp<std::int64_t>(kSegmentChunks / p.heads, 1, all);
  const RuleScratch scratch(op, p, chunks);
  for (std::int64_t segment = divide_up(all, chunks) - 1; segment >= 0; --segment) {
    p.first = static_cast<std::int32_t>(segment * chunks * kRuleChunk);
    p.length = static_cast<std::int32_t>(std::min<std::int64_t>(chunks * kRuleChunk, p.tokens - p.first));
    lower_segment(op, p, scratch, scratch.carries[(segment + 1) % 2], scratch.carries[segment % 2]);
  }
}

}  // namespace

absl::Status lower_delta(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kConvolution:
      lower_convolution(op);
      break;
    case OpKind::kConvolutionBackward:
      lower_convolution_backward(op);
      break;
    case OpKind::kDecay:
      lower_decay(op);
      break;
    case OpKind::kDecayBackward:
      lower_decay_backward(op);
      break;
    case OpKind::kDeltaRule:
      lower_rule(op);
      break;
    default:
      lower_rule_backward(op);
      break;
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices::cuda
