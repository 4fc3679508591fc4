// The operations that layers are recorded in. This header is the specification of what they compute; the plain-loop
// references in devices/reference say the same in code.
//
// All arithmetic is in fp32 whatever the storage dtype; a result is rounded once, when it is stored. Sums over tokens
// that end in a gradient run in chunks of kTokenChunk tokens, each chunk's sum added in rising order. No result depends
// on the number of threads. Where a matrix [T, N] is named, a tensor of more dimensions, such as [T, H, D], counts as
// [first, product of the others]: there is no reshaping. T: tokens of the bucket, C: hidden size, H: heads, D: head
// size, V: vocabulary, E: experts, k: those that a token goes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rondo/devices/tensor.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices {

inline constexpr std::int64_t kTokenChunk = 512;

enum class OpKind : std::uint8_t {
  // reads: ids [T], table [V, C]                      writes: x [T, C] = scale * row, of padding (id < 0) zeros
  kEmbedding,
  // reads: ids [T], bounds, dy [T, C]                 writes: row ids int32 [T + 1], rows fp32 [T, C]
  // row ids: the number n of distinct ids among the real tokens, then these in rising order; rows[i]: scale times the
  // sum of dy over the tokens with that id, in token order.
  kEmbeddingBackward,
  // reads: x [..., D], [w [D]], [bias [D]]. There is a w unless weight_factor is 0 (D may be x's last two dimensions
  // together then: all heads of a token as one vector), a bias of centred norms alone
  // writes: y [..., D] = c / sqrt(mean(c^2) + epsilon) * (weight_factor * w + weight_offset) (+ bias), of c = x, or of
  // c = x - mean(x) where it is centred (LayerNorm)
  kNorm,
  // reads: x, [w], dy, [addend like x]                writes: dx (+ addend), [dw fp32 [D] +=]
  // The bias's gradient is kBiasGradient's.
  kNormBackward,
  // Rows of a matrix product are a tensor's first dimension, columns all others together: y may be [T, H, D] with
  // N = H D, and fp32 where x and w are bf16 (logits).
  // reads: x [T, K], w [N, K], [bias [N]], [addend [T, N]]   writes: y [T, N] = alpha x w^T + bias + addend
  kMatMul,
  // reads: dy [T, N], w [N, K], [addend [T, K]]       writes: dx [T, K] = alpha dy w + addend
  kMatMulInputGradient,
  // reads: dy [T, N], x [T, K]                        writes: dw fp32 [N, K] += alpha dy^T x
  kMatMulWeightGradient,
  // reads: dy [T, N]                                  writes: db fp32 [N] += sum over tokens
  kBiasGradient,
  // reads: x [T, H, D], positions, bounds             writes: y, halves rotated as transformers' rotate_half
  // Direction -1 is the transpose (the gradient).
  kRope,
  // reads: q [T, H, D], k [T, Hkv, D], v [T, Hkv, D], bounds   writes: o [T, H, D], lse fp32 [T, H]
  // causal within each sequence; padding tokens give o = 0, lse = 0. With a cap a score s is cap * tanh(s / cap).
  kAttention,
  // reads: q, k, v, o, lse, do, bounds                writes: dq, dk, dv
  kAttentionBackward,
  // reads: q, k, v, positions, bounds, key cache [S, Hkv, D], value cache (roles kState)   writes: o, lse fp32 [T, H]
  // one sequence: puts k and v into the caches at `positions`, then attends to cache rows 0 ... position
  kCachedAttention,
  // Behind attention: a sink is one more score of each query, whose value is zero, as if it had been there.
  // reads: o [T, H, D], lse fp32 [T, H], sinks [H]    writes: o / (1 + exp(sink - lse)), log(exp(lse) + exp(sink))
  // kAttentionBackward of what is written and its gradient gives dq, dk and dv of both together.
  kAttentionSink,
  // reads: o [T, H, D] and lse fp32 [T, H] as written, sinks [H], do
  // writes: dsinks fp32 [H] += sum over tokens of -exp(sink - lse) * (do . o)
  kAttentionSinkGradient,
  // Heads of several parts, each of which is one for every head or the same one for all.
  // reads: a [T, Ha, Da], [b [T, Hb, Db]], Ha and Hb being H or 1
  // writes: y [T, H, D]: of each head what a has, then what b has, then zeros; what goes beyond D is left out
  // Where y is [T, D] it is one head, and a part has any shape [T, ...]: its row is one.
  kJoinHeads,
  // reads: dy [T, H, D]                               writes: da [T, Ha, Da], [db [T, Hb, Db]]
  // Where a part is the same for all heads: the sum over these, in rising order. Of what was left out: zeros.
  // Forward it takes rows apart.
  kJoinHeadsBackward,
  // Linear attention by the gated delta rule (arXiv 2412.06464), as Qwen3.5 has it, or by a state space (Mamba 2, arXiv
  // 2405.21060), as Granite 4 has it. Hk: heads of keys, Hv: of values, W: width of the convolution. With a state there
  // is one sequence, before whose first token, unless that is at position 0, come the tokens that left the state
  // behind.
  // reads: x [T, C], w [C, W], [bias [C]], bounds, [positions, state [W - 1, C] (role kState)]
  // writes: y [T, C] = silu(sum over i of w[c, i] * x[t - W + 1 + i, c] + bias[c]), or without `silu` the sum, what
  // lies before a sequence being 0; of padding zeros. The state, if there is one, has the rows of the W - 1 tokens
  // before, and then of the last ones.
  kConvolution,
  // reads: x, w, bounds, dy                           writes: dx, [dw fp32 [C, W] +=]
  // A bias has a gradient where there is no `silu`: kBiasGradient's.
  kConvolutionBackward,
  // reads: a [T, Hv], [b [T, Hv]], rates fp32 [Hv], bias fp32 [Hv]
  // writes: g fp32 [T, Hv] = -exp(rate) * log(1 + exp(a + bias)), beta fp32 [T, Hv] = 1 / (1 + exp(-b))
  // Of a state space there is no b: beta = clamp(log(1 + exp(a + bias)), least_step, most_step), g = -exp(rate) * beta.
  kDecay,
  // reads: a, [b], rates, bias, dg, dbeta             writes: da, [db], [drates fp32 [Hv] +=, dbias fp32 [Hv] +=]
  // A clamped step has no gradient, as in torch.clamp.
  kDecayBackward,
  // reads: q [T, Hk, D], k [T, Hk, D], v [T, Hv, Dv], g, beta, bounds, [positions, state fp32 [Hv, D, Dv] (kState)]
  // writes: o [T, Hv, Dv], without a state: checkpoints fp32 [ceil(T / kDeltaChunk), Hv, D, Dv]
  // Head h reads heads h / (Hv / Hk) of q and k, whose rows are brought to length one, x / sqrt(sum of x^2 + 1e-6), and
  // q divided by sqrt(D). S [D, Dv] is 0 before a sequence. Token by token: S = exp(g) S; d = beta (v - S^T k);
  // S += k d^T; o = S^T q. Of padding o is 0. Checkpoint c is S before token c kDeltaChunk: 0 where this is padding or
  // the first of its sequence. Of a state space rows of q and k stay as they are, and d = beta v.
  kDeltaRule,
  // reads: q, k, v, g, beta, checkpoints, bounds, do  writes: dq, dk, dv, dg fp32 [T, Hv], dbeta fp32 [T, Hv]
  kDeltaRuleBackward,
  // reads: gate [T, F], [up [T, F]]                   writes: y = activation(gate) * up; without up activation(gate)
  // kClampedSwiglu has an up.
  kGatedActivation,
  // reads: gate, [up], dy                             writes: dgate, [dup]
  kGatedActivationBackward,
  // reads: a, [b]                                     writes: a (+ b)
  kAdd,
  // Of generation, behind the head. reads: x          writes: cap * tanh(x / cap)
  kSoftCap,
  // reads: x [T, K], keys [T]                         writes: x * keep / (1 - p), or x less that
  // keep follows from (key, layer, site, channel)
  kDropout,
  // NEFTune (arXiv 2310.05914). reads: x [T, C], keys [T], bounds       writes: x + scale * drawn
  // drawn, in [-1, 1), follows from (key, layer, site, channel) (signed_uniform()); scale = amount / sqrt(L C), L being
  // the tokens of the sequence, 0 for padding. The product and the sum are rounded to fp32, each by itself. The
  // gradient
  // of x is that of the result.
  kNoise,
  // DoRA. reads: w [N, K], a [R, K], b [N, R], m fp32 [N]
  // writes: scale fp32 [N] = m / norm, inverse fp32 [N] = 1 / norm
  // norm[i]: the length of row i of w + alpha b a, which never exists whole; of a row of length 0 both are 0
  kMagnitudeScale,
  // reads: x [T, N], scale fp32 [N] or [1], [bias [N]], [addend [T, N]]   writes: y [T, N] = x * scale + bias + addend
  // One scale is that of all columns, as Gemma 4 has it behind each block. With x [T, H, D] there may be [H] scales,
  // one for each head's columns.
  kColumnScale,
  // reads: x [T, N], scale fp32 [N], [inverse fp32 [N]], dy [T, N]
  // writes: dx [T, N] = dy * scale, dm fp32 [N] += inverse (1 where there is none) * sum over tokens of dy * x
  kColumnScaleBackward,
  // Of scales of heads. reads: x [T, H, D], dy [T, H, D]   writes: dscale fp32 [H] += sum over tokens and columns of
  // dy * x
  kHeadScaleGradient,
  // Cross-entropy over a vocabulary, whole or in parts, each of some rows of w. Full logits never exist: the tokens
  // that have a target, in order, go in chunks of cross_entropy_chunk(attributes.vocabulary). Statistics of a token,
  // fp32 [T, 3]: the largest logit of the parts so far, the sum of exponentials over it, the target's logit once its
  // part has come. Its normaliser, fp32 [T, 2]: the largest logit of all parts, and 1 over the sum of exponentials
  // over it. Tokens without a target have zeros. Gradients are times the loss scale, fp32 [1] (1 without one), and
  // not divided by anything. Parts are taken in rising order for statistics, in falling order for dx, which is
  // rounded to its dtype after each: so the bits do not depend on which of them are parts of one op. With a cap a logit
  // l is cap * tanh(l / cap), in all that follows from it.
  // reads: x [T, C], targets [T], w [N, C], [statistics of the parts before]   writes: statistics, y [T, C] = x
  kVocabularyStatistics,
  // The last parts or all, one w each. reads: x, targets, w..., [statistics of the parts before], [loss scale]
  // writes: loss fp64 [1], [dx, [normalisers where there are parts before], [dw fp32 [N, C] += of each]]
  // loss = sum over targets of -log softmax(x w^T)[target], where x w^T is capped if there is a cap
  kVocabularyLoss,
  // reads: x, targets, w, normalisers, dx of the parts above, [loss scale]
  // writes: dx with this part's, [normalisers once more where there are parts before], [dw fp32 [N, C] +=]
  kVocabularyGradient,
  // reads: x [T, C], bounds                           writes: y [1, C], the last real token's row
  kSelectLast,
  // Mixture of experts: k of E linear layers for each token. What these read and give are k T rows: those of an expert
  // behind one another, expert by expert, within an expert by token. `offsets`, int32 [E + 1], names the first row of
  // each and at its end the number of all: k for each real token. Behind these are the rows of padding.
  // reads: logits [T, E], bounds, [bias fp32 [E]]
  // writes: shares fp32 [T, k], experts int32 [T, k], rows int32 [T, k], offsets
  // The score of an expert is softmax of all logits at its own, or where `sigmoid` 1 / (1 + exp(-logit)).
  // experts: those of the k largest scores (+ bias), of equal ones the first, from the largest on; with groups of E /
  // groups experts those of the chosen_groups groups whose two largest are most together, of equal groups the first.
  // rows: where these have the token. shares: factor * their scores without the bias, where `normalised` over the sum
  // of these k + added. Of padding token t: shares and experts 0, rows k t ... k t + k - 1.
  kRoute,
  // The gradient of the shares, what is chosen being constant.
  // reads: logits [T, E], shares, experts, dshares fp32 [T, k]   writes: dlogits [T, E]
  kRouteBackward,
  // Gemma 4: what a token gets from an expert is times a number of that expert.
  // reads: shares fp32 [T, k], experts int32 [T, k], scale fp32 [E]   writes: y fp32 [T, k] = shares * scale[experts]
  kShareScale,
  // reads: shares, experts, scale, dy fp32 [T, k]
  // writes: dshares fp32 [T, k] = dy * scale[experts], [dscale fp32 [E] += sum of an expert's dy * shares]
  kShareScaleBackward,
  // reads: x [T, C], rows int32 [T, k]                writes: y [k T, C], y[rows[t, j]] = x[t]
  kDispatch,
  // reads: x [k T, C], rows, [shares], [addend [T, C]]   writes: y[t] = alpha * sum over j of (shares[t, j] *)
  // x[rows[t, j]], in rising order of j, + addend
  kCombine,
  // reads: dy [T, C], x [k T, C], rows, shares
  // writes: dx [k T, C], dx[rows[t, j]] = alpha * shares[t, j] * dy[t]; dshares fp32 [T, k] = alpha dy[t] . x[rows]
  kCombineBackward,
  // reads: x [k T, K], offsets, w [N, K] of each expert (or one of all, see GroupAttributes), [addend [k T, N]]
  // writes: y [k T, N] = alpha an expert's rows by its w + addend; of padding zeros
  kGroupedMatMul,
  // reads: dy [k T, N], offsets, w of each, [addend [k T, K]]   writes: dx [k T, K] likewise
  kGroupedMatMulInputGradient,
  // reads: dy [k T, N], x [k T, K], offsets           writes: dw fp32 [N, K] += alpha of each expert, in chunks of its
  // rows
  kGroupedMatMulWeightGradient,
  // reads: x [k T, N], offsets, bias [E, N]           writes: y [k T, N] = x + the expert's row of bias; of padding
  // zeros
  kGroupedBias,
  // reads: dy [k T, N], offsets                       writes: db fp32 [E, N] += sum over an expert's rows, in chunks of
  // these
  kGroupedBiasGradient,
  // reads: w, or x from another layer, encoded        writes: the numbers, of the same shape and dtype (encoding.h)
  kExpand,
  // reads: x [T, C]                                   writes: x encoded for another layer (is_hadamard)
  // C is a multiple of kEncodedBlock.
  kEncode,
  // reads: row ids int32 [T + 1], rows fp32 [T, C] as kEmbeddingBackward writes them   writes: table fp32 [V, C] +=
  // rows; not to its padding row
  kAddRows,
  // reads: x fp32 [N], N a multiple of kUpdateBlock    writes: sums fp64 [N / kUpdateBlock] of the squares of each
  // block, added as sum_of_squares() does (update.h)
  kSumOfSquares,
  // One update of P parameters that lie in whole blocks of kUpdateBlock: N elements together.
  // reads: gradient fp32 [N], factors fp32 [P, kUpdateFactors] (kUpdateFields), keys uint64 [P] (version_key()), owners
  // int32 [N / kUpdateBlock, 2]: of a block the parameter and its place among that parameter's; master, first and
  // second moment fp32 [N] (roles kState), which are changed
  // writes: [published [N], in bf16 or fp16]: the masters, stochastically rounded. All as adamw() has it (update.h).
  kAdamW,
  // The same with moments in codes of 8 bits (moment_codes.h), as adamw_coded() has it.
  // reads: gradient, factors, keys, owners, master as above; of the first moment codes int32 [N / 4], four in one, and
  // scales fp32 [N / kMomentBlock], of the second likewise (all five kState); moment_tables() int32 [kMomentTableWords]
  // writes: [published]
  kAdamW8,
};

const char* name_of(OpKind kind);

/// Linear layers of a group: their offsets have one entry more.
constexpr bool is_grouped_product(OpKind kind) {
  return kind == OpKind::kGroupedMatMul || kind == OpKind::kGroupedMatMulInputGradient ||
         kind == OpKind::kGroupedMatMulWeightGradient;
}

/// Experts that a token may be sent to, and that there may be.
inline constexpr std::int64_t kMostChoices = 16;
inline constexpr std::int64_t kMostExperts = 512;

/// Width of a convolution, and size of a head in the delta rule, that there may be.
inline constexpr std::int64_t kMostConvolution = 8;
inline constexpr std::int64_t kMostDeltaSize = 128;
/// Tokens from one checkpoint of the delta rule's state to the next.
inline constexpr std::int64_t kDeltaChunk = 64;

/// Tokens whose logits exist at one time. Follows from the vocabulary alone: it decides the order of sums.
constexpr std::int64_t cross_entropy_chunk(std::int64_t vocabulary) { return vocabulary <= 65536 ? 512 : 256; }

/// kClampedSwiglu, of GPT-OSS: with g = min(gate, limit) and u = clamp(up, -limit, limit) it is
/// g * sigmoid(alpha * g) * (u + 1); what is clamped has no gradient.
/// kSigmoid: 1 / (1 + exp(-gate)) * up. kRelu: max(gate, 0) * up, whose slope at 0 is 0. kIdentity: gate * up.
enum class ActivationKind : std::uint8_t { kSilu, kGelu, kGeluTanh, kClampedSwiglu, kSigmoid, kRelu, kIdentity };

/// Products of numbers of eight bits (fp8.h). kHybrid: gradients are E5M2, all else is E4M3.
enum class Fp8Format : std::uint8_t { kNone, kE4m3, kHybrid };

struct NoAttributes {};
/// Of the embedding and its gradient.
struct EmbeddingAttributes {
  float scale = 1.0F;
};
struct NormAttributes {
  float epsilon = 1e-6F;
  bool has_addend = false;           // backward only
  bool has_weight_gradient = false;  // backward only
  float weight_factor = 1.0F;
  float weight_offset = 0.0F;
  bool centred = false;
  bool has_bias = false;  // forward only, of centred ones

  bool has_weight() const { return weight_factor != 0.0F; }
};
struct MatMulAttributes {
  float alpha = 1.0F;
  bool has_bias = false;
  bool has_addend = false;
  Fp8Format fp8 = Fp8Format::kNone;  // kMatMul, kMatMulInputGradient
};
/// Angles: position * frequencies[i] for the pair (i, i + R/2) of a head's first R channels; the others stay as they
/// are. Frequencies may depend on the length of the sequence at hand: past `dynamic_from` tokens they are
/// long_frequencies or, without these, follow transformers' formula with theta and factor. The amplitude, the factor of
/// cosine and sine, may grow with the position: it is what it was before `grows_from` tokens, and from there on times
/// 1 + growth * ln(1 + floor(position / grows_from)). See rope.h.
struct RopeAttributes {
  std::vector<float> frequencies;       // [R / 2], R at most D
  std::vector<float> long_frequencies;  // [R / 2] or empty
  float amplitude = 1.0F;               // yarn's attention factor
  float direction = 1.0F;
  std::uint32_t dynamic_from = 0;  // 0: no sequence is too long for `frequencies`
  double theta = 10000.0;
  double factor = 1.0;
  float growth = 0.0F;           // of the amplitude (Ministral 3's queries)
  std::uint32_t grows_from = 0;  // 0: it does not
};
struct AttentionAttributes {
  float scale = 1.0F;
  std::uint32_t window = 0;  // a query at position i sees keys i - window + 1 ... i; 0: all before it
  float cap = 0.0F;          // of scores, behind the scale; 0: none
};
/// Of kSoftCap.
struct SoftCapAttributes {
  float cap = 1.0F;
};
/// What a state gets of a token: by the delta rule what it did not know, of a state space the token's value.
enum class Recurrence : std::uint8_t { kDeltaRule, kStateSpace };

/// Of kConvolution, kDecay and kDeltaRule and their gradients.
struct DeltaAttributes {
  bool has_state = false;                          // forward only
  bool has_weight_gradient = false;                // of kConvolutionBackward and kDecayBackward
  bool silu = true;                                // of kConvolution and its gradient
  bool has_bias = false;                           // of kConvolution
  Recurrence recurrence = Recurrence::kDeltaRule;  // of all but convolutions
  /// Of kDecay and its gradient, of a state space: what a step may be.
  float least_step = 0.0F;
  float most_step = std::numeric_limits<float>::infinity();

  bool is_state_space() const { return recurrence == Recurrence::kStateSpace; }
  /// How many gates kDecay and its gradient read first: a and b, or of a state space a alone.
  std::size_t gates() const { return is_state_space() ? 1 : 2; }
  /// Which of kConvolution's reads is bounds.
  std::size_t bounds() const { return has_bias ? 3 : 2; }
};
struct GatedActivationAttributes {
  ActivationKind activation = ActivationKind::kSilu;
  float alpha = 1.702F;  // both of kClampedSwiglu
  float limit = 7.0F;
};
struct DropoutAttributes {
  float probability = 0.0F;
  std::uint32_t site = 0;
  bool rest = false;  // what dropping takes away: x - dropout(x)
};
struct NoiseAttributes {
  float amount = 0.0F;
  std::uint32_t site = 0;
};
/// Of kMagnitudeScale.
struct MagnitudeAttributes {
  float alpha = 1.0F;
};
/// Of kColumnScale.
struct ColumnScaleAttributes {
  bool has_bias = false;
  bool has_addend = false;
};
/// Of the three kVocabulary ops.
struct VocabularyAttributes {
  std::int64_t vocabulary = 0;  // rows of all parts
  std::int64_t first_row = 0;   // of the first w; above 0: statistics of the parts before are read
  std::uint32_t parts = 1;      // how many w, one after another
  bool has_input_gradient = false;
  bool has_weight_gradient = false;
  bool has_loss_scale = false;
  float cap = 0.0F;  // of logits; 0: none
};

/// Of kRoute and its gradient.
struct RouteAttributes {
  bool normalised = false;
  bool sigmoid = false;
  bool has_bias = false;           // not read by the gradient
  float factor = 1.0F;             // of the shares
  float added = 0.0F;              // to the sum of scores that `normalised` ones are divided by
  std::int32_t groups = 1;         // of experts, at least two in each
  std::int32_t chosen_groups = 1;  // of these, with at least k experts together

  /// Else the logits say which are the largest.
  bool compares_scores() const { return has_bias || groups > 1; }
};
/// Of kCombine; of its gradient alpha alone.
struct CombineAttributes {
  float alpha = 1.0F;
  bool has_shares = false;
  bool has_addend = false;
};
/// Of grouped products.
struct GroupAttributes {
  bool has_addend = false;
  float alpha = 1.0F;
  std::int64_t stacked = 0;  // experts whose w, or dw, is one tensor [E, N, K]; 0: each has its own
};

/// Of kAddRows.
struct AddRowsAttributes {
  std::int64_t padding_row = -1;  // none
};

using OpAttributes =
    std::variant<NoAttributes, EmbeddingAttributes, NormAttributes, MatMulAttributes, RopeAttributes,
                 AttentionAttributes, DeltaAttributes, GatedActivationAttributes, DropoutAttributes,
                 MagnitudeAttributes, ColumnScaleAttributes, VocabularyAttributes, RouteAttributes, CombineAttributes,
                 GroupAttributes, AddRowsAttributes, SoftCapAttributes, NoiseAttributes>;

struct OpList;

struct Op {
  OpKind kind = OpKind::kAdd;
  OpAttributes attributes;
  absl::InlinedVector<TensorId, 8> reads;  // in the order of OpKind's comment, absent ones left out
  absl::InlinedVector<TensorId, 4> writes;
};

/// Of kJoinHeads and its gradient: heads and channels of each, of the whole or of one of its parts.
struct HeadsOfPart {
  std::int64_t heads = 1;
  std::int64_t width = 0;
};
inline HeadsOfPart heads_of_part(const Shape& whole, const Shape& part) {
  if (whole.size() > 2) return {part[1], part[2]};
  HeadsOfPart row{1, 1};
  for (std::size_t i = 1; i < part.size(); ++i) row.width *= part[i];
  return row;
}

/// Experts of a grouped product, and tensors that their matrices are in.
inline std::size_t expert_tensors_of(const Op& op) {
  if (op.kind == OpKind::kGroupedMatMulWeightGradient) return op.writes.size();
  return op.reads.size() - 2 - (std::get<GroupAttributes>(op.attributes).has_addend ? 1 : 0);
}
inline std::size_t experts_of(const Op& op) {
  const std::int64_t stacked = std::get<GroupAttributes>(op.attributes).stacked;
  return stacked > 0 ? static_cast<std::size_t>(stacked) : expert_tensors_of(op);
}
/// Where an expert's matrix lies: number of the operand among the op's matrices, and elements before it there.
struct ExpertPlace {
  std::size_t tensor = 0;
  std::int64_t first = 0;
};
/// `matrix`: the elements of one.
inline ExpertPlace expert_place(const Op& op, std::size_t expert, std::int64_t matrix) {
  if (std::get<GroupAttributes>(op.attributes).stacked == 0) return {expert, 0};
  return {0, static_cast<std::int64_t>(expert) * matrix};
}

/// Of kNorm and kNormBackward: places among the reads, 0 for what there is none of, and x as a matrix. REQUIRES: what
/// validate() asks for.
struct NormOperands {
  NormOperands(const OpList& list, const Op& op);

  std::size_t weight = 0;
  std::size_t bias = 0;
  std::size_t gradient = 0;  // dy
  std::size_t addend = 0;
  std::int64_t width = 0;
  std::int64_t rows = 0;
};

/// What an op costs. Matrix products count 2mnk (so does b a of kMagnitudeScale), attention causally (forward 2 T H D a
/// token for each of its two products halved by causality, i.e. 2 T H D together), everything else 0; `bytes` is what
/// it must read and write once.
struct OpCost {
  double flops = 0;
  double bytes = 0;
  /// Of a product in eight bits, before and behind it: operands into codes, fp32 sums into the result.
  double conversion_bytes = 0;
};

struct OpList {
  std::vector<TensorDesc> tensors;
  std::vector<Op> ops;
  std::uint32_t tokens = 0;  // T, the bucket
  /// The usual length of a sequence in the bucket, for time where the real bounds cannot be seen; 0: that of the
  /// bucket.
  std::uint32_t sequence_length = 0;
};

/// `sequence_length`: tokens that attention looks back over, for its causal count.
OpCost cost_of(const OpList& list, const Op& op, std::uint32_t sequence_length);
OpCost cost_of(const OpList& list, std::uint32_t sequence_length);

/// Every op reads what is bound or was written before, the shapes and dtypes agree with OpKind's comments, nothing is
/// written twice (gradients excepted). Errors: Internal naming op and tensor: a recorder's mistake.
absl::Status validate(const OpList& list);

/// For backends that have no products of eight bits. Errors: Unimplemented naming the first op that asks for one.
absl::Status refuse_fp8(const OpList& list);
bool is_fp8(const Op& op);
/// Of a product in eight bits: its left operand, a gradient, is E5M2.
bool is_left_e5m2(const Op& op);

/// For backends whose kernels know fp32, bf16 and fp16, and of an op's floating operands one of these, unless it
/// `mixes` them. Errors: Unimplemented naming op and tensors, "on `backend`".
absl::Status check_storage(const OpList& list, const Op& op, bool mixes, std::string_view backend);

/// Offsets of the scratch tensors, so that those alive at the same time do not overlap.
struct ArenaLayout {
  std::vector<Bytes> offsets;  // by TensorId; meaningless for tensors that are not scratch
  Bytes size = 0;
};
ArenaLayout plan_arena(const OpList& list);

/// A bucket that holds `tokens`: multiples of 16 up to 256, of 32 up to 512, of 64 up to 1,024, of 128 up to 2,048, of
/// 256 above. Past 128 tokens it is at most 1/8 larger than needed.
std::uint32_t token_bucket(std::uint32_t tokens);

}  // namespace rondo::devices
