// Linear attention by the gated delta rule: the short convolution, the gates, the recurrence and its gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lowering.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::int64_t kDeltaThreads = 64;     // of the kernels on elements
constexpr std::int64_t kConvolvedTokens = 32;  // of an invocation of convolution.comp
// As the delta_*.comp have them.
constexpr std::int64_t kWalkColumns = 16;
constexpr std::int64_t kOwnTokens = 16;
/// A workgroup of a walk has the sequences that begin among so many tokens.
constexpr std::int64_t kWalkTokens = 256;
/// Tokens that the gradient is made of at a time: what it keeps of them does not grow with their number.
constexpr std::int64_t kRangeTokens = 1024;
/// Tokens that a workgroup walks along in a dispatch.
constexpr std::int64_t kMostWalked = 16384;
static_assert(kMostWalked % kWalkTokens == 0 && kRangeTokens % kDeltaChunk == 0 && kWalkTokens % kDeltaChunk == 0 &&
              kDeltaChunk % kOwnTokens == 0);

Dispatch& add_convolution(OpLowering& op, Shader shader, std::int64_t block, bool flag,
                          std::initializer_list<std::uint32_t> slots) {
  const TensorDesc& x = op.in(0);
  const auto& delta = op.attributes<DeltaAttributes>();
  Dispatch& dispatch = op.add(shader, {storage_of(x), flag_of(delta.silu), flag_of(delta.has_bias)}, slots,
                              {rows_of(x), columns_of(x), op.in(1).shape[1], block, flag ? 1 : 0}, x.elements());
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(columns_of(x), kDeltaThreads)),
                     static_cast<std::uint32_t>(parts_of(rows_of(x), block)), 1};
  return dispatch;
}

// Products of a state and a token that kernels make.
constexpr double kWalkProducts = 3;
constexpr double kValueProducts = 3;
constexpr double kKeyProducts = 5;

/// What the delta rule's operands come to.
struct Heads {
  explicit Heads(const OpLowering& op)
      : tokens(op.in(2).shape[0]),
        heads(op.in(2).shape[1]),
        key_heads(op.in(1).shape[1]),
        size(op.in(1).shape[2]),
        width(op.in(2).shape[2]) {}

  /// Of a walk along all of these tokens, a part of `part` of them each.
  std::int64_t groups(std::int64_t count, std::int64_t part) const {
    return parts_of(count, part) * heads * parts_of(width, kWalkColumns);
  }

  const std::int64_t tokens, heads, key_heads, size, width;
};

/// Tokens `first` ... `end` - 1.
struct Range {
  std::int64_t first, end;
  std::int64_t tokens() const { return end - first; }
};

/// A piece of the workspace, and where in it the gradient of a range has what (delta_key_gradient.comp).
struct Kept {
  Kept(OpLowering& op, const Heads& x, std::int64_t tokens) : places(parts_of(tokens, kDeltaChunk) + 1) {
    const auto fours = [](std::int64_t elements) { return 4 * parts_of(elements, 4); };
    slopes = fours(tokens * x.heads * x.width);
    states = 2 * slopes;
    factors = states + fours(places * x.heads * x.size * x.width);
    gates = factors + fours(tokens * x.key_heads * 2);
    slot = op.workspace(gates + (2 * tokens + places) * x.heads);
  }

  const std::int64_t places;  // for gradients of states, used in turn
  std::int64_t slopes = 0, states = 0, factors = 0, gates = 0;
  std::uint32_t slot = 0;
};

void scale_queries(Dispatch& dispatch, const Heads& x) {
  dispatch.push.factors[0] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.size)));
  dispatch.push.factors[1] = static_cast<float>(x.size);
}

/// Of delta_walk.glsl.
Constants constants_of(const OpLowering& op) {
  const bool pairs = op.panel() && op.in(1).shape[2] % 2 == 0;
  return {storage_of(op.in(0)), pairs ? 2U : 1U, flag_of(op.attributes<DeltaAttributes>().is_state_space())};
}

/// Of `products` a token of the range. A walk's workgroups have whole sequences, of `parts` parts all may be one's.
void count_products(Dispatch& dispatch, const Heads& x, const Range& range, double products, std::int64_t parts = 1) {
  dispatch.flops = 2 * products * static_cast<double>(range.tokens() * x.heads) * static_cast<double>(x.size * x.width);
  dispatch.uneven = {1, static_cast<double>(parts)};
}

enum class Walk : std::int64_t { kForward, kContinued, kErrors };

Dispatch& add_walk(OpLowering& op, const Heads& x, Walk walk, const Range& range, std::int64_t part,
                   std::initializer_list<std::uint32_t> slots) {
  Dispatch& dispatch = op.add(
      op.panel() ? Shader::kDeltaRuleEights : Shader::kDeltaRule, constants_of(op), slots,
      {x.tokens, x.heads, x.key_heads, x.size, x.width, range.first, range.end, part, static_cast<std::int64_t>(walk)},
      x.groups(range.tokens(), part));
  scale_queries(dispatch, x);
  count_products(dispatch, x, range, kWalkProducts, walk == Walk::kErrors ? 1 : parts_of(range.tokens(), part));
  return dispatch;
}

/// One token on from a state.
void add_step(OpLowering& op, const Heads& x) {
  constexpr std::int64_t kStepsAcross = 16;  // of a workgroup
  constexpr double kStepProducts = 4;
  const std::uint32_t step = spread_step(x.width);
  Dispatch& dispatch = op.add(
      Shader::kDeltaStep, {storage_of(op.in(0)), step, flag_of(op.attributes<DeltaAttributes>().is_state_space())},
      {op.read(0), op.read(1), op.read(2), op.read(3), op.read(4), op.read(5), op.write(0), op.read(7), op.read(6)},
      {x.heads, x.key_heads, x.size, x.width}, x.heads * parts_of(x.width, kStepsAcross * step));
  scale_queries(dispatch, x);
  count_products(dispatch, x, {0, 1}, kStepProducts);
}

/// The gradient of a range, behind those of the ranges behind it.
void add_gradient(OpLowering& op, const Heads& x, const Kept& kept, const Range& range) {
  Dispatch& values =
      op.add(op.panel() ? Shader::kDeltaValueGradientEights : Shader::kDeltaValueGradient, constants_of(op),
             {op.read(0), op.read(1), op.read(7), op.read(3), op.read(4), op.read(6), op.write(2), kept.slot},
             {x.tokens, x.heads, x.key_heads, x.size, x.width, range.first, range.end, kWalkTokens, kept.places,
              kept.slopes, kept.states, kept.factors},
             x.groups(range.tokens(), kWalkTokens));
  scale_queries(values, x);
  count_products(values, x, range, kValueProducts, parts_of(range.tokens(), kWalkTokens));
  add_walk(op, x, Walk::kErrors, range, kDeltaChunk,
           {op.read(0), op.read(1), op.read(2), op.read(3), op.read(4), op.read(6), kept.slot, op.read(5)})
      .beside = true;
  Dispatch& keys = op.add(Shader::kDeltaKeyGradient, constants_of(op),
                          {op.read(0), op.read(1), op.read(3), op.read(4), op.read(5), op.read(6), op.read(7),
                           kept.slot, op.write(0), op.write(1), op.write(4)},
                          {x.tokens, x.heads, x.key_heads, x.size, x.width, range.first, range.end, 0, kept.places,
                           kept.slopes, kept.states, kept.factors, kept.gates},
                          1);
  scale_queries(keys, x);
  count_products(keys, x, range, kKeyProducts);
  keys.groups = {static_cast<std::uint32_t>(parts_of(range.tokens(), kOwnTokens)),
                 static_cast<std::uint32_t>(x.key_heads), 1};
  op.add(Shader::kDeltaGateGradient, {}, {op.read(3), op.read(6), kept.slot, op.write(3)},
         {x.tokens, x.heads, range.first, range.end, kept.gates}, parts_of(range.tokens() * x.heads, kDeltaThreads));
}

/// `gates`: a and b, or a alone.
Dispatch& add_decay(OpLowering& op, bool backward, std::size_t gates, bool parts,
                    std::initializer_list<std::uint32_t> slots) {
  const TensorDesc& a = op.in(0);
  Dispatch& dispatch = op.add(Shader::kDecay, {storage_of(a), flag_of(backward), flag_of(gates == 1)}, slots,
                              {a.elements(), columns_of(a), parts ? 1 : 0}, parts_of(a.elements(), kDeltaThreads));
  dispatch.push.factors[0] = op.attributes<DeltaAttributes>().least_step;
  dispatch.push.factors[1] = std::min(op.attributes<DeltaAttributes>().most_step, std::numeric_limits<float>::max());
  return dispatch;
}

}  // namespace

void lower_convolution(OpLowering& op) {
  const auto& delta = op.attributes<DeltaAttributes>();
  const std::size_t bounds = delta.bounds();
  add_convolution(op, Shader::kConvolution, kConvolvedTokens, delta.has_state,
                  {op.read(0), op.read(1), op.read(bounds), op.write(0), op.read(bounds + (delta.has_state ? 1 : 0)),
                   op.read(delta.has_state ? bounds + 2 : 0), op.read(delta.has_bias ? 2 : 0)});
}

void lower_convolution_backward(OpLowering& op) {
  const TensorDesc& w = op.in(1);
  const std::int64_t blocks = parts_of(rows_of(op.in(0)), kBlockTokens);
  const bool has_gradient = op.attributes<DeltaAttributes>().has_weight_gradient;
  const std::uint32_t sums = has_gradient ? op.workspace(blocks * w.elements()) : op.write(0);
  add_convolution(op, Shader::kConvolutionBackward, kBlockTokens, has_gradient,
                  {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), sums});
  if (has_gradient && blocks > 0) lower_block_sums(op, sums, op.write(1), blocks, w.elements());
}

void lower_decay(OpLowering& op) {
  const std::size_t gates = op.attributes<DeltaAttributes>().gates();
  add_decay(op, false, gates, false,
            {op.read(0), op.read(gates - 1), op.read(gates), op.read(gates + 1), op.write(0), op.write(1)});
}

void lower_decay_backward(OpLowering& op) {
  const TensorDesc& a = op.in(0);
  const bool has_gradient = op.attributes<DeltaAttributes>().has_weight_gradient;
  const std::uint32_t rates = has_gradient ? op.workspace(a.elements()) : op.write(0);
  const std::uint32_t bias = has_gradient ? op.workspace(a.elements()) : op.write(0);
  const std::size_t gates = op.attributes<DeltaAttributes>().gates();
  add_decay(op, true, gates, has_gradient,
            {op.read(0), op.read(gates - 1), op.read(gates), op.read(gates + 1), op.read(gates + 2), op.read(gates + 3),
             op.write(0), op.write(gates - 1), rates, bias});
  if (!has_gradient) return;
  lower_token_sums(op, kFloat32Storage, rates, op.write(gates), rows_of(a), columns_of(a));
  lower_token_sums(op, kFloat32Storage, bias, op.write(gates + 1), rows_of(a), columns_of(a));
}

void lower_delta_rule(OpLowering& op) {
  const Heads x(op);
  const bool has_state = op.attributes<DeltaAttributes>().has_state;
  if (has_state && x.tokens == 1) return add_step(op, x);
  for (std::int64_t first = 0; first < x.tokens; first += kMostWalked) {
    const Range range{first, std::min(first + kMostWalked, x.tokens)};
    add_walk(op, x, has_state ? Walk::kContinued : Walk::kForward, range, has_state ? range.tokens() : kWalkTokens,
             {op.read(0), op.read(1), op.read(2), op.read(3), op.read(4), op.read(5), op.write(0),
              has_state ? op.read(7) : op.write(1), op.read(has_state ? 6 : 5)});
  }
}

void lower_delta_rule_backward(OpLowering& op) {
  const Heads x(op);
  if (x.tokens == 0) return;
  const Kept kept(op, x, std::min(x.tokens, kRangeTokens));
  for (std::int64_t first = (x.tokens - 1) / kRangeTokens * kRangeTokens; first >= 0; first -= kRangeTokens) {
    add_gradient(op, x, kept, {first, std::min(first + kRangeTokens, x.tokens)});
  }
}

}  // namespace rondo::devices::vulkan
