// Ops on elements and on rows: additions, activations, norms, rotary embedding, look-up, sums over tokens, and encoded
// weights back to numbers.
#include <algorithm>
#include <bit>

#include "lowering.h"
#include "rondo/base/float16.h"
#include "rondo/devices/encoding.h"
#include "rondo/devices/rope.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::int64_t kElementsOfGroup = 256;   // of elementwise.comp and its like
constexpr std::int64_t kExpandedOfGroup = 2048;  // of expand.comp
constexpr std::int64_t kBlocksOfGroup = 32;      // of hadamard.glsl
constexpr std::int64_t kThreads = 64;            // of the kernels on rows
constexpr std::int64_t kRowsOfEight = 4;         // of norm_eights.comp and its backward
constexpr std::int64_t kRowsHeld = 16;           // of these where they hold rows in registers

enum class Mode : std::uint32_t { kAdd, kGated, kGatedBackward, kDropout, kZero, kCopy, kSoftCap };

/// What column_sums.comp sums.
enum class Term : std::uint32_t { kPlain, kNorm, kScaled, kCentredNorm, kProduct };

/// Elements that kernels read as one word.
std::uint32_t step_of(std::int64_t elements) { return elements % 2 == 0 ? 2 : 1; }

/// Pairs of a row that each of eight invocations holds in registers; 0 where rows are of another width or too wide.
std::uint32_t held_of(std::int64_t width) {
  constexpr std::int64_t kPairsOfEight = 16;
  constexpr std::int64_t kMostHeld = 64;
  const bool held = width % kPairsOfEight == 0 && width / kPairsOfEight <= kMostHeld;
  return held ? static_cast<std::uint32_t>(width / kPairsOfEight) : 0;
}

/// Rows of a workgroup of a norm.
std::int64_t rows_of_group(const OpLowering& op, std::int64_t width) {
  if (!op.panel()) return 1;
  return held_of(width) > 0 ? kRowsHeld : kRowsOfEight;
}

/// gradient += column sums of dy [rows, width], of x r dy or (x - m) r dy with an r and an m a row, or of x dy, perhaps
/// times an r a column. `rows_of_token`: rows of a token.
void add_column_sums(OpLowering& op, std::uint32_t storage, std::uint32_t dy, std::uint32_t x, std::uint32_t r,
                     Term term, std::uint32_t gradient, std::int64_t rows, std::int64_t width,
                     std::int64_t rows_of_token) {
  const std::int64_t block = kBlockTokens * rows_of_token;
  const std::int64_t blocks = parts_of(rows, block);
  const std::uint32_t sums = op.workspace(blocks * width);
  Dispatch& partial = op.add(Shader::kColumnSums, {storage, static_cast<std::uint32_t>(term), step_of(width)},
                             {dy, x, r, sums}, {width, rows, block}, 1);
  partial.groups = {static_cast<std::uint32_t>(parts_of(width, kThreads * step_of(width))),
                    static_cast<std::uint32_t>(blocks), 1};
  lower_block_sums(op, sums, gradient, blocks, width);
}

/// Workgroups for n elements, of which an invocation takes `step` in each of its steps.
std::int64_t groups_of(const OpLowering& op, std::int64_t n, std::uint32_t step) {
  return parts_of(n, kElementsOfGroup * each_of(op) * step);
}

/// elementwise.comp on n elements.
Dispatch& add_elementwise(OpLowering& op, Mode mode, std::uint32_t storage, std::uint32_t activation,
                          std::initializer_list<std::uint32_t> slots, std::initializer_list<std::int64_t> sizes,
                          std::int64_t n, bool alone = false) {
  return op.add(Shader::kElementwise,
                {static_cast<std::uint32_t>(mode), storage, activation, each_of(op), step_of(n), flag_of(alone)}, slots,
                sizes, groups_of(op, n, step_of(n)));
}

/// A kernel of blocks, `of_group` of them a workgroup, from the op's read to its write.
void lower_hadamard(OpLowering& op, Shader shader, const TensorDesc& encoded, const TensorDesc& numbers,
                    std::int64_t of_group) {
  const EncodedLayout layout(encoded.encoding, encoded.elements());
  Dispatch& dispatch =
      op.add(shader, {static_cast<std::uint32_t>(encoded.encoding), storage_of(numbers)}, {op.read(0), op.write(0)},
             {layout.blocks, static_cast<std::int64_t>(layout.scales / 4)}, parts_of(layout.blocks, of_group));
  dispatch.push.factors[0] = hadamard_limit(encoded.encoding);
  dispatch.push.factors[1] = hadamard_share(encoded.encoding);
}

/// A norm's kernel, forward or backward, with what both are compiled for and `more`.
void add_norm(OpLowering& op, Shader shader, const NormOperands& operands, Constants more,
              std::initializer_list<std::uint32_t> slots) {
  const auto& norm = op.attributes<NormAttributes>();
  const std::int64_t width = operands.width;
  const std::int64_t rows = operands.rows;
  const std::size_t weights = operands.weight != 0 ? operands.weight : operands.bias;
  Constants constants = {storage_of(op.in(0)),
                         storage_of(op.in(weights)),
                         step_of(width),
                         std::bit_cast<std::uint32_t>(norm.weight_factor),
                         std::bit_cast<std::uint32_t>(norm.weight_offset),
                         flag_of(norm.centred)};
  constants.insert(constants.end(), more.begin(), more.end());
  constants.push_back(held_of(width));
  Dispatch& dispatch =
      op.add(shader, std::move(constants), slots, {width, rows}, parts_of(rows, rows_of_group(op, width)));
  dispatch.push.factors[0] = norm.epsilon;
}

}  // namespace

void lower_zero(OpLowering& op, std::uint32_t slot, const TensorDesc& tensor) {
  const std::int64_t n = tensor.elements();
  add_elementwise(op, Mode::kZero, storage_of(tensor), 0, {slot}, {n}, n);
}

void lower_copy(OpLowering& op, std::uint32_t from, std::uint32_t to, const TensorDesc& tensor) {
  const std::int64_t n = tensor.elements();
  add_elementwise(op, Mode::kCopy, storage_of(tensor), 0, {from, to}, {n}, n);
}

void lower_elementwise(OpLowering& op) {
  const std::int64_t n = op.in(0).elements();
  const std::uint32_t storage = storage_of(op.in(0));
  switch (op.op().kind) {
    case OpKind::kAdd:
      if (op.op().reads.size() == 1) {
        add_elementwise(op, Mode::kCopy, storage, 0, {op.read(0), op.write(0)}, {n}, n);
      } else {
        add_elementwise(op, Mode::kAdd, storage, 0, {op.read(0), op.read(1), op.write(0)}, {n}, n);
      }
      return;
    case OpKind::kSoftCap:
      add_elementwise(op, Mode::kSoftCap, storage, 0, {op.read(0), op.write(0)}, {n}, n).push.factors[0] =
          op.attributes<SoftCapAttributes>().cap;
      return;
    case OpKind::kDropout: {
      const auto& dropout = op.attributes<DropoutAttributes>();
      Dispatch& dispatch = add_elementwise(op, Mode::kDropout, storage, 0, {op.read(0), op.read(1), op.write(0)},
                                           {n, columns_of(op.in(0)), dropout.site, dropout.rest ? 1 : 0}, n);
      dispatch.push.factors[0] = dropout.probability;
      const double kept = 1.0 / (1.0 - static_cast<double>(dropout.probability));
      dispatch.push.factors[1] = static_cast<float>(dropout.rest ? 1.0 - kept : kept);
      return;
    }
    case OpKind::kNoise: {
      const auto& noise = op.attributes<NoiseAttributes>();
      const std::int64_t width = columns_of(op.in(0));
      const std::uint32_t step = step_of(width);
      const std::uint32_t each = several_of_row(width / step);  // a token's scale costs what many elements do
      op.add(Shader::kNoise, {storage, each, step}, {op.read(0), op.read(1), op.read(2), op.write(0)},
             {n, width, noise.site}, parts_of(n, kElementsOfGroup * each * step))
          .push.factors[0] = noise.amount;
      return;
    }
    case OpKind::kGatedActivation:
    case OpKind::kGatedActivationBackward: {
      const auto& attributes = op.attributes<GatedActivationAttributes>();
      const auto activation = static_cast<std::uint32_t>(attributes.activation);
      const bool forward = op.op().kind == OpKind::kGatedActivation;
      const bool alone = op.reads() == (forward ? 1 : 2);
      const std::uint32_t up = op.read(alone ? 0 : 1);
      Dispatch& dispatch =
          forward ? add_elementwise(op, Mode::kGated, storage, activation, {op.read(0), up, op.write(0)}, {n}, n, alone)
                  : add_elementwise(op, Mode::kGatedBackward, storage, activation,
                                    {op.read(0), up, op.read(alone ? 1 : 2), op.write(0), op.write(alone ? 0 : 1)}, {n},
                                    n, alone);
      dispatch.push.factors[0] = attributes.alpha;
      dispatch.push.factors[1] = attributes.limit;
      return;
    }
    default:
      return;
  }
}

void lower_norm(OpLowering& op) {
  const NormOperands operands = op.norm_operands();
  add_norm(op, op.panel() ? Shader::kNormEights : Shader::kNorm, operands, {flag_of(operands.bias != 0)},
           {op.read(0), op.read(operands.weight), op.write(0), op.read(operands.bias)});
}

void lower_norm_backward(OpLowering& op) {
  const auto& norm = op.attributes<NormAttributes>();
  const NormOperands operands = op.norm_operands();
  const std::int64_t rows = operands.rows;
  const std::uint32_t storage = storage_of(op.in(0));
  const std::uint32_t dy = op.read(operands.gradient);
  const std::uint32_t kept = norm.has_weight_gradient ? op.workspace(norm.centred ? 2 * rows : rows) : op.write(0);
  add_norm(op, op.panel() ? Shader::kNormBackwardEights : Shader::kNormBackward, operands,
           {flag_of(norm.has_addend), flag_of(norm.has_weight_gradient)},
           {op.read(0), op.read(operands.weight), dy, op.write(0), op.read(operands.addend), kept});
  if (!norm.has_weight_gradient || rows == 0) return;
  add_column_sums(op, storage, dy, op.read(0), kept, norm.centred ? Term::kCentredNorm : Term::kNorm, op.write(1), rows,
                  operands.width, std::max<std::int64_t>(rows / rows_of(op.in(0)), 1));
}

void lower_block_sums(OpLowering& op, std::uint32_t sums, std::uint32_t gradient, std::int64_t blocks,
                      std::int64_t width) {
  op.add(Shader::kColumnTotal, {}, {sums, gradient}, {width, blocks, kTokenChunk / kBlockTokens},
         parts_of(width, kThreads));
}

void lower_token_sums(OpLowering& op, std::uint32_t storage, std::uint32_t from, std::uint32_t gradient,
                      std::int64_t tokens, std::int64_t width) {
  if (tokens == 0) return;
  add_column_sums(op, storage, from, from, from, Term::kPlain, gradient, tokens, width, 1);
}

void lower_bias_gradient(OpLowering& op) {
  const TensorDesc& dy = op.in(0);
  lower_token_sums(op, storage_of(dy), op.read(0), op.write(0), rows_of(dy), columns_of(dy));
}

void lower_rope(OpLowering& op) {
  const auto& rope = op.attributes<RopeAttributes>();
  const TensorDesc& x = op.in(0);
  const auto half = static_cast<std::int64_t>(rope.frequencies.size());
  const std::int64_t width = x.shape[2];
  const std::int64_t step = width % 2 == 0 ? step_of(half) : 1;
  // Past dynamic_from all lengths have one row, or each has its own.
  std::int64_t last_row = 0;
  if (rope.dynamic_from > 0 && x.shape[0] > rope.dynamic_from) {
    last_row = rope.long_frequencies.empty() ? x.shape[0] - rope.dynamic_from : 1;
  }
  std::vector<float> frequencies;
  for (std::int64_t row = 0; row <= last_row; ++row) {
    for (std::int64_t pair = 0; pair < half; ++pair) {
      frequencies.push_back(rope_frequency(rope, rope.dynamic_from + row, pair));
    }
  }
  Dispatch& dispatch = op.add(Shader::kRope, {storage_of(x), static_cast<std::uint32_t>(step)},
                              {op.read(0), op.read(1), op.read(2), op.write(0), op.constants(frequencies)},
                              {x.shape[0], x.shape[1], half, rope.dynamic_from, width, last_row, rope.grows_from,
                               std::bit_cast<std::uint32_t>(rope.growth)},
                              parts_of(x.shape[0] * ((width - half) / step), kThreads));
  dispatch.push.factors[0] = rope.amplitude;
  dispatch.push.factors[1] = rope.direction;
}

void lower_embedding(OpLowering& op) {
  const std::int64_t n = op.out(0).elements();
  const std::int64_t width = columns_of(op.in(1));
  const std::uint32_t step = step_of(width);
  const std::uint32_t each = each_of_row(op, width / step);
  Dispatch& dispatch = op.add(Shader::kEmbedding, {storage_of(op.in(1)), storage_of(op.out(0)), each, step},
                              {op.read(0), op.read(1), op.write(0)}, {n, width, rows_of(op.in(1))},
                              parts_of(n, kElementsOfGroup * each * step));
  dispatch.push.factors[0] = op.attributes<EmbeddingAttributes>().scale;
}

void lower_embedding_backward(OpLowering& op) {
  const std::int64_t tokens = rows_of(op.in(2));
  const std::uint32_t next = op.workspace(tokens);
  const std::uint32_t first_ids = op.workspace(tokens);
  const std::uint32_t rank = op.workspace(tokens);
  const bool eights = op.panel();
  const std::int64_t groups = parts_of(tokens, eights ? kEight : kThreads);
  op.add(eights ? Shader::kEmbeddingChainEights : Shader::kEmbeddingChain, {},
         {op.read(0), op.read(1), next, first_ids}, {tokens}, groups);
  op.add(eights ? Shader::kEmbeddingRankEights : Shader::kEmbeddingRank, {}, {first_ids, rank, op.write(0)}, {tokens},
         groups);
  const std::int64_t width = columns_of(op.in(2));
  const std::uint32_t step = step_of(width);
  const std::uint32_t each = each_of_row(op, width / step);
  Dispatch& sums =
      op.add(Shader::kEmbeddingRows, {storage_of(op.in(2)), each, step}, {rank, next, op.read(2), op.write(1)},
             {tokens, width}, parts_of(tokens * width, kThreads * each * step));
  sums.push.factors[0] = op.attributes<EmbeddingAttributes>().scale;
}

void lower_magnitude_scale(OpLowering& op) {
  const TensorDesc& w = op.in(0);
  Dispatch& dispatch = op.add(Shader::kMagnitude, {storage_of(w), step_of(w.shape[1])},
                              {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1)},
                              {w.shape[1], w.shape[0], op.in(1).shape[0]}, w.shape[0]);
  dispatch.push.factors[0] = op.attributes<MagnitudeAttributes>().alpha;
}

namespace {

void add_column_scale(OpLowering& op, const TensorDesc& x, bool has_bias, bool has_addend,
                      std::initializer_list<std::uint32_t> slots) {
  const std::int64_t several = columns_of(x) / std::max<std::int64_t>(op.in(1).elements(), 1);  // columns of a scale
  const std::uint32_t step = step_of(several == 1 ? columns_of(x) : several);
  op.add(Shader::kColumnScale,
         {storage_of(x), has_bias ? 1U : 0U, has_addend ? 1U : 0U, each_of(op), step, several == 1 ? 0U : 1U}, slots,
         {x.elements(), columns_of(x), several}, groups_of(op, x.elements(), step));
}

}  // namespace

void lower_column_scale(OpLowering& op) {
  const auto& scale = op.attributes<ColumnScaleAttributes>();
  add_column_scale(op, op.in(0), scale.has_bias, scale.has_addend,
                   {op.read(0), op.read(1), op.read(scale.has_bias ? 2 : 0),
                    op.read(scale.has_addend ? op.reads() - 1 : 0), op.write(0)});
}

void lower_column_scale_backward(OpLowering& op) {
  const std::size_t gradient = op.reads() - 1;
  const bool has_inverse = gradient == 3;
  const TensorDesc& dy = op.in(gradient);
  if (dy.elements() == 0) return;
  add_column_scale(op, dy, false, false, {op.read(gradient), op.read(1), op.read(0), op.read(0), op.write(0)});
  add_column_sums(op, storage_of(dy), op.read(gradient), op.read(0), op.read(has_inverse ? 2 : 1),
                  has_inverse ? Term::kScaled : Term::kProduct, op.write(1), rows_of(dy), columns_of(dy), 1);
}

void lower_join_heads(OpLowering& op) {
  const TensorDesc& y = op.out(0);
  const bool two = op.reads() > 1;
  const HeadsOfPart all = heads_of_part(y.shape, y.shape);
  const HeadsOfPart a = heads_of_part(y.shape, op.in(0).shape);
  const HeadsOfPart b = two ? heads_of_part(y.shape, op.in(1).shape) : HeadsOfPart{0, 0};
  const std::uint32_t step = step_of(all.width | a.width | b.width);
  const std::uint32_t each = each_of_row(op, all.width / step);
  op.add(Shader::kJoinHeads, {storage_of(y), each, step}, {op.read(0), op.read(two ? 1 : 0), op.write(0)},
         {y.elements(), all.heads, all.width, a.heads, a.width, b.heads, b.width},
         parts_of(y.elements(), kElementsOfGroup * each * step));
}

void lower_join_heads_backward(OpLowering& op) {
  const Shape& whole = op.in(0).shape;
  const HeadsOfPart all = heads_of_part(whole, whole);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < op.writes(); ++i) {
    const TensorDesc& dx = op.out(i);
    const HeadsOfPart part = heads_of_part(whole, dx.shape);
    const std::uint32_t step = step_of(all.width | part.width | first);
    const std::uint32_t each = each_of_row(op, part.width / step);
    const std::int64_t shared_by = all.heads / part.heads;
    op.add(Shader::kHeadPart, {storage_of(dx), each, step, flag_of(shared_by > 1)}, {op.read(0), op.write(i)},
           {dx.elements(), shared_by, all.width, part.width, first},
           parts_of(dx.elements(), kElementsOfGroup * each * step))
        .beside = i > 0;
    first += part.width;
  }
}

void lower_select_last(OpLowering& op) {
  const std::int64_t width = columns_of(op.in(0));
  op.add(Shader::kSelectLast, {storage_of(op.in(0))}, {op.read(0), op.read(1), op.write(0)}, {width},
         parts_of(width, kElementsOfGroup));
}

void lower_encode(OpLowering& op) {
  const bool eights = op.panel();
  lower_hadamard(op, eights ? Shader::kHadamardEncodeEights : Shader::kHadamardEncode, op.out(0), op.in(0),
                 eights ? kEight : kBlocksOfGroup);
}

void lower_expand(OpLowering& op) {
  // As expand.comp and hadamard.glsl have them.
  static_assert(static_cast<int>(Encoding::kInt8) == 1 && static_cast<int>(Encoding::kNf4) == 2);
  static_assert(static_cast<int>(Encoding::kMxfp4) == 3 && static_cast<int>(Encoding::kHadamard8) == 4);
  const TensorDesc& encoded = op.in(0);
  if (is_hadamard(encoded.encoding)) {
    return lower_hadamard(op, Shader::kHadamardExpand, encoded, op.out(0), kBlocksOfGroup);
  }
  const std::int64_t n = encoded.elements();
  const EncodedLayout layout(encoded.encoding, n);
  const auto words = [](Bytes section) { return static_cast<std::int64_t>(section / 4); };
  const Constants kinds = {static_cast<std::uint32_t>(encoded.encoding), storage_of(op.out(0))};
  const std::int64_t groups = parts_of(n, kExpandedOfGroup);
  if (encoded.encoding == Encoding::kInt8) {
    op.add(Shader::kExpand, kinds, {op.read(0), op.write(0), op.read(0)}, {n, words(layout.scales)}, groups);
    return;
  }
  if (encoded.encoding == Encoding::kMxfp4) {
    const std::vector<float> doubled(kMxfp4Doubled.begin(), kMxfp4Doubled.end());
    op.add(Shader::kExpand, kinds, {op.read(0), op.write(0), op.constants(doubled)}, {n, words(layout.scales)}, groups);
    return;
  }
  std::vector<float> values(kNf4Values.begin(), kNf4Values.end());
  values.insert(values.end(), dynamic_map().begin(), dynamic_map().end());
  op.add(Shader::kExpand, kinds, {op.read(0), op.write(0), op.constants(values)},
         {n, words(layout.block_codes), words(layout.block_scales), words(layout.offset)}, groups);
}

}  // namespace rondo::devices::vulkan
