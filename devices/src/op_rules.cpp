// What OpKind's comments say about counts, shapes and dtypes, one rule an op.
//
// An error is a recorder's mistake, so messages name the op by its place and kind and the tensor by its name.
#include "op_rules.h"

#include <cmath>
#include <limits>

#include "op_checker.h"

namespace rondo::devices {
namespace {

void check_embedding(Checker& c) {
  if (c.attributes<EmbeddingAttributes>() == nullptr || !c.counts(2, 1)) return;
  c.tokens_of(c.in(0), DType::kInt32);
  c.rank(c.in(1), 2);
  c.floating(c.in(1));
  if (!c.good()) return;
  c.shape(c.out(0), {c.in(0).shape[0], c.in(1).shape[1]});
  c.floating(c.out(0));
}

void check_embedding_backward(Checker& c) {
  if (c.attributes<EmbeddingAttributes>() == nullptr || !c.counts(3, 2)) return;
  c.tokens_of(c.in(0), DType::kInt32);
  c.bounds(c.in(1));
  c.rank(c.in(2), 2);
  c.floating(c.in(2));
  if (!c.good()) return;
  c.shape(c.in(2), {c.in(0).shape[0], c.in(2).shape[1]});
  c.shape(c.out(0), {c.in(0).shape[0] + 1});
  c.dtype(c.out(0), DType::kInt32);
  c.wide(c.out(1), c.in(2).shape);
}

/// A norm's x and weight: of one number for each place in x's last dimension, or in its last two together.
void check_norm_operands(Checker& c, const NormAttributes& norm) {
  const Shape& x = c.in(0).shape;
  if (x.empty()) return c.complain(fmt::format("tensor '{}' has no dimension", c.in(0).name));
  c.floating(c.in(0));
  if (!norm.has_weight()) return;
  c.floating(c.in(1));
  const bool joint = x.size() > 2 && c.in(1).shape == Shape{x[x.size() - 2] * x.back()};
  if (!joint) c.shape(c.in(1), {x.back()});
}

void check_norm(Checker& c) {
  const auto* norm = c.attributes<NormAttributes>();
  const std::size_t weights = norm != nullptr && norm->has_weight() ? 1 : 0;
  if (norm != nullptr && norm->has_bias && !norm->centred) return c.complain("a norm that is not centred has no bias");
  if (norm == nullptr || !c.counts(1 + weights + (norm->has_bias ? 1 : 0), 1)) return;
  check_norm_operands(c, *norm);
  if (!c.good()) return;
  if (norm->has_bias) {
    c.floating(c.in(1 + weights));
    c.shape(c.in(1 + weights), norm->has_weight() ? c.in(1).shape : Shape{c.in(0).shape.back()});
  }
  c.alike(c.out(0), c.in(0));
}

void check_norm_backward(Checker& c) {
  const auto* norm = c.attributes<NormAttributes>();
  if (norm == nullptr) return;
  if (norm->has_bias) return c.complain("a norm's gradient has no bias");
  if (norm->has_weight_gradient && !norm->has_weight())
    return c.complain("a norm without a weight has no gradient of it");
  const std::size_t gradient = norm->has_weight() ? 2 : 1;
  if (!c.counts(gradient + (norm->has_addend ? 2 : 1), norm->has_weight_gradient ? 2 : 1)) return;
  check_norm_operands(c, *norm);
  if (!c.good()) return;
  c.alike(c.in(gradient), c.in(0));
  if (norm->has_addend) c.alike(c.in(gradient + 1), c.in(0));
  c.alike(c.out(0), c.in(0));
  if (!norm->has_weight_gradient) return;
  c.wide(c.out(1), c.in(1).shape);
}

/// kMatMul and kMatMulInputGradient: a [T, A] times w, into y [T, B].
void check_product(Checker& c, bool transposed) {
  const auto* matmul = c.attributes<MatMulAttributes>();
  if (matmul == nullptr) return;
  const bool bias = matmul->has_bias;
  if (bias && !transposed) return c.complain("an input gradient has no bias");
  if (!c.counts(2 + (bias ? 1U : 0U) + (matmul->has_addend ? 1U : 0U), 1)) return;
  for (std::size_t i = 0; i < c.reads(); ++i) c.floating(c.in(i));
  c.floating(c.out(0));
  c.rank(c.in(1), 2);
  if (!c.good()) return;
  const Shape& w = c.in(1).shape;
  const std::int64_t rows = Checker::rows(c.in(0));
  const std::int64_t inner = transposed ? w[1] : w[0];
  const std::int64_t outer = transposed ? w[0] : w[1];
  c.matrix(c.in(0), rows, inner);
  c.matrix(c.out(0), rows, outer);
  if (bias) c.shape(c.in(2), {outer});
  if (matmul->has_addend) c.matrix(c.in(c.reads() - 1), rows, outer);
}

void check_weight_gradient(Checker& c) {
  const auto* matmul = c.attributes<MatMulAttributes>();
  if (matmul == nullptr || !c.counts(2, 1)) return;
  if (matmul->fp8 != Fp8Format::kNone) return c.complain("a weight gradient is not summed in fp8");
  c.floating(c.in(0));
  c.floating(c.in(1));
  c.matrix(c.in(1), Checker::rows(c.in(0)), Checker::columns(c.in(1)));
  c.wide(c.out(0), {Checker::columns(c.in(0)), Checker::columns(c.in(1))});
}

void check_bias_gradient(Checker& c) {
  if (!c.counts(1, 1)) return;
  c.floating(c.in(0));
  c.wide(c.out(0), {Checker::columns(c.in(0))});
}

void check_rope(Checker& c) {
  const auto* rope = c.attributes<RopeAttributes>();
  if (rope == nullptr || !c.counts(3, 1)) return;
  c.rank(c.in(0), 3);
  c.floating(c.in(0));
  c.tokens_of(c.in(1), DType::kInt32);
  c.bounds(c.in(2));
  c.alike(c.out(0), c.in(0));
  if (!c.good()) return;
  const auto pairs = static_cast<std::int64_t>(rope->frequencies.size());
  if (pairs == 0 || 2 * pairs > c.in(0).shape[2]) {
    c.complain(
        fmt::format("{} frequencies for heads of size {}, expected half of it at most", pairs, c.in(0).shape[2]));
  }
  const std::size_t long_pairs = rope->long_frequencies.size();
  if (long_pairs != 0 && long_pairs != rope->frequencies.size()) {
    c.complain(fmt::format("{} frequencies, and {} for long sequences", pairs, long_pairs));
  }
}

/// q, k and v at the reads 0, 1 and 2.
void check_heads(Checker& c) {
  for (std::size_t i = 0; i < 3; ++i) {
    c.rank(c.in(i), 3);
    c.floating(c.in(i));
    c.dtype(c.in(i), c.in(0).dtype);
  }
  if (!c.good()) return;
  const Shape& q = c.in(0).shape;
  const std::int64_t kv_heads = c.in(1).shape[1];
  c.shape(c.in(1), {q[0], kv_heads, q[2]});
  c.shape(c.in(2), {q[0], kv_heads, q[2]});
  if (kv_heads <= 0 || q[1] % kv_heads != 0) {
    c.complain(fmt::format("{} query heads do not share out over {} key heads", q[1], kv_heads));
  }
}

/// The logarithm of the sum of exponentials for each head of the first read.
void check_normaliser(Checker& c, const TensorDesc& tensor) { c.wide(tensor, {c.in(0).shape[0], c.in(0).shape[1]}); }

/// `least`: 0 where there need not be one.
void check_cap(Checker& c, float cap, float least) {
  if (!(cap >= least) || !std::isfinite(cap)) c.complain(fmt::format("its cap is {}", cap));
}

/// What all three have; false with a complaint.
bool check_attended(Checker& c, std::size_t reads, std::size_t writes) {
  const auto* attributes = c.attributes<AttentionAttributes>();
  if (attributes == nullptr || !c.counts(reads, writes)) return false;
  check_heads(c);
  check_cap(c, attributes->cap, 0);
  return c.good();
}

void check_attention(Checker& c) {
  if (!check_attended(c, 4, 2)) return;
  c.bounds(c.in(3));
  c.alike(c.out(0), c.in(0));
  check_normaliser(c, c.out(1));
}

void check_attention_backward(Checker& c) {
  if (!check_attended(c, 7, 3)) return;
  c.alike(c.in(3), c.in(0));
  check_normaliser(c, c.in(4));
  c.alike(c.in(5), c.in(0));
  c.bounds(c.in(6));
  for (std::size_t i = 0; i < 3; ++i) c.alike(c.out(i), c.in(i));
}

void check_cached_attention(Checker& c) {
  if (!check_attended(c, 7, 2)) return;
  c.tokens_of(c.in(3), DType::kInt32);
  c.bounds(c.in(4));
  for (std::size_t i = 5; i < 7; ++i) {
    c.rank(c.in(i), 3);
    c.dtype(c.in(i), c.in(1).dtype);
    if (!c.good()) return;
    c.shape(c.in(i), {c.in(5).shape[0], c.in(1).shape[1], c.in(1).shape[2]});
    c.state(c.in(i));
  }
  c.alike(c.out(0), c.in(0));
  check_normaliser(c, c.out(1));
}

/// o, its normaliser and a sink for each head.
void check_sinks(Checker& c) {
  c.rank(c.in(0), 3);
  c.floating(c.in(0));
  if (!c.good()) return;
  check_normaliser(c, c.in(1));
  c.shape(c.in(2), {c.in(0).shape[1]});
  c.dtype(c.in(2), c.in(0).dtype);
}

void check_attention_sink(Checker& c) {
  if (!c.counts(3, 2)) return;
  check_sinks(c);
  c.alike(c.out(0), c.in(0));
  c.alike(c.out(1), c.in(1));
}

void check_attention_sink_gradient(Checker& c) {
  if (!c.counts(4, 1)) return;
  check_sinks(c);
  c.alike(c.in(3), c.in(0));
  c.wide(c.out(0), c.in(2).shape);
}

/// One or two parts of heads [T, H, D]: of as many heads, or of one for all. Of rows [T, D]: rows.
void check_joined(Checker& c, bool forward) {
  const std::size_t parts = forward ? c.reads() : c.writes();
  if (parts != 2 && !c.counts(1, 1)) return;
  if (parts == 2 && !c.counts(forward ? 2 : 1, forward ? 1 : 2)) return;
  const TensorDesc& whole = forward ? c.out(0) : c.in(0);
  const bool rows = whole.shape.size() == 2;
  if (!rows) c.rank(whole, 3);
  c.floating(whole);
  for (std::size_t i = 0; i < parts && c.good(); ++i) {
    const TensorDesc& part = forward ? c.in(i) : c.out(i);
    c.dtype(part, whole.dtype);
    if (rows) {
      c.matrix(part, Checker::rows(whole), Checker::columns(part));
      continue;
    }
    c.rank(part, 3);
    if (!c.good()) return;
    c.shape(part, {whole.shape[0], part.shape[1] == 1 ? 1 : whole.shape[1], part.shape[2]});
  }
}

/// All reads and writes have the shape and dtype of the first read.
void check_elementwise(Checker& c, std::size_t reads, std::size_t writes) {
  if (!c.counts(reads, writes)) return;
  c.floating(c.in(0));
  for (std::size_t i = 1; i < reads; ++i) c.alike(c.in(i), c.in(0));
  for (std::size_t i = 0; i < writes; ++i) c.alike(c.out(i), c.in(0));
}

void check_add(Checker& c) { check_elementwise(c, c.reads() == 1 ? 1 : 2, 1); }

/// `fewest`: reads where there is no up. What gates may be in other heads than what is gated.
void check_gated_activation(Checker& c, std::size_t fewest) {
  const auto* gated = c.attributes<GatedActivationAttributes>();
  if (gated == nullptr) return;
  const bool alone = c.reads() == fewest && gated->activation != ActivationKind::kClampedSwiglu;
  if (!c.counts(alone ? fewest : fewest + 1, alone ? 1 : fewest)) return;
  const auto check = [&](const TensorDesc& tensor) {
    c.matrix(tensor, Checker::rows(c.in(0)), Checker::columns(c.in(0)));
    c.dtype(tensor, c.in(0).dtype);
  };
  c.floating(c.in(0));
  for (std::size_t i = 1; i < c.reads(); ++i) check(c.in(i));
  for (std::size_t i = 0; i < c.writes(); ++i) check(c.out(i));
}

void check_dropout(Checker& c) {
  const auto* dropout = c.attributes<DropoutAttributes>();
  if (dropout == nullptr || !c.counts(2, 1)) return;
  if (!(dropout->probability >= 0 && dropout->probability < 1)) {
    c.complain(fmt::format("probability {}, expected at least 0 and less than 1", dropout->probability));
  }
  c.floating(c.in(0));
  c.matrix(c.in(0), Checker::rows(c.in(1)), Checker::columns(c.in(0)));
  c.tokens_of(c.in(1), DType::kUInt64);
  c.alike(c.out(0), c.in(0));
}

void check_noise(Checker& c) {
  const auto* noise = c.attributes<NoiseAttributes>();
  if (noise == nullptr || !c.counts(3, 1)) return;
  if (!(noise->amount >= 0)) c.complain(fmt::format("amount {}, expected at least 0", noise->amount));
  c.floating(c.in(0));
  c.matrix(c.in(0), Checker::rows(c.in(1)), Checker::columns(c.in(0)));
  c.tokens_of(c.in(1), DType::kUInt64);
  c.bounds(c.in(2));
  c.alike(c.out(0), c.in(0));
}

/// fp32, one number a column.
void check_scale(Checker& c, const TensorDesc& tensor, std::int64_t columns) { c.wide(tensor, {columns}); }

void check_magnitude_scale(Checker& c) {
  if (c.attributes<MagnitudeAttributes>() == nullptr || !c.counts(4, 2)) return;
  for (std::size_t i = 0; i < 3; ++i) {
    c.floating(c.in(i));
    c.rank(c.in(i), 2);
  }
  if (!c.good()) return;
  const std::int64_t rows = c.in(0).shape[0];
  const std::int64_t rank = c.in(1).shape[0];
  c.shape(c.in(1), {rank, c.in(0).shape[1]});
  c.shape(c.in(2), {rows, rank});
  check_scale(c, c.in(3), rows);
  for (std::size_t i = 0; i < 2; ++i) check_scale(c, c.out(i), rows);
}

void check_column_scale(Checker& c) {
  const auto* scale = c.attributes<ColumnScaleAttributes>();
  if (scale == nullptr) return;
  if (!c.counts(2 + (scale->has_bias ? 1U : 0U) + (scale->has_addend ? 1U : 0U), 1)) return;
  c.floating(c.in(0));
  const std::int64_t rows = Checker::rows(c.in(0));
  const std::int64_t columns = Checker::columns(c.in(0));
  const bool one = c.in(1).shape == Shape{1};
  const Shape& x = c.in(0).shape;
  const bool by_head = x.size() == 3 && c.in(1).shape == Shape{x[1]};
  check_scale(c, c.in(1), one ? 1 : by_head ? x[1] : columns);
  if (scale->has_bias) {
    c.shape(c.in(2), {columns});
    c.dtype(c.in(2), c.in(0).dtype);
  }
  if (scale->has_addend) {
    c.matrix(c.in(c.reads() - 1), rows, columns);
    c.dtype(c.in(c.reads() - 1), c.in(0).dtype);
  }
  c.matrix(c.out(0), rows, columns);
  c.dtype(c.out(0), c.in(0).dtype);
}

void check_column_scale_backward(Checker& c) {
  const std::size_t gradient = c.reads() == 3 ? 2 : 3;
  if (!c.counts(gradient + 1, 2)) return;
  c.floating(c.in(0));
  const std::int64_t columns = Checker::columns(c.in(0));
  for (std::size_t i = 1; i < gradient; ++i) check_scale(c, c.in(i), columns);
  c.matrix(c.in(gradient), Checker::rows(c.in(0)), columns);
  c.dtype(c.in(gradient), c.in(0).dtype);
  c.alike(c.out(0), c.in(0));
  c.wide(c.out(1), {columns});
}

/// The kVocabulary ops: x, targets, the parts' w and a loss scale, behind `others`.
const VocabularyAttributes* check_vocabulary(Checker& c, std::size_t others, std::size_t writes, bool gradients) {
  const auto* vocabulary = c.attributes<VocabularyAttributes>();
  if (vocabulary == nullptr) return nullptr;
  if (gradients) writes += vocabulary->has_weight_gradient ? vocabulary->parts : 0;
  const bool scaled = gradients && vocabulary->has_loss_scale;
  if (vocabulary->parts == 0) c.complain("it has no part of the vocabulary");
  if (vocabulary->has_weight_gradient && !vocabulary->has_input_gradient) c.complain("it gives dw without dx");
  check_cap(c, vocabulary->cap, 0);
  if (!c.good() || !c.counts(2 + vocabulary->parts + others + (scaled ? 1U : 0U), writes)) return nullptr;
  c.rank(c.in(0), 2);
  c.floating(c.in(0));
  c.tokens_of(c.in(1), DType::kInt32);
  if (scaled) {
    c.wide(c.in(c.reads() - 1), {1});
  }
  if (!c.good()) return nullptr;
  std::int64_t end = vocabulary->first_row;
  for (std::size_t part = 0; part < vocabulary->parts; ++part) {
    const TensorDesc& w = c.in(2 + part);
    c.rank(w, 2);
    c.floating(w);
    if (!c.good()) return nullptr;
    c.shape(w, {w.shape[0], c.in(0).shape[1]});
    end += w.shape[0];
    if (!vocabulary->has_weight_gradient) continue;
    const TensorDesc& dw = c.out(writes - vocabulary->parts + part);
    c.shape(dw, w.shape);
    c.dtype(dw, DType::kFloat32);
  }
  const bool last = c.op().kind == OpKind::kVocabularyLoss;
  if (last ? end != vocabulary->vocabulary : end > vocabulary->vocabulary) {
    c.complain(fmt::format("its parts end at row {} of {}", end, vocabulary->vocabulary));
  }
  return c.good() ? vocabulary : nullptr;
}

void check_statistics(Checker& c, const TensorDesc& tensor) { c.wide(tensor, {c.in(0).shape[0], 3}); }

void check_normalisers(Checker& c, const TensorDesc& tensor) { c.wide(tensor, {c.in(0).shape[0], 2}); }

bool has_parts_before(const Checker& c) {
  const auto* vocabulary = std::get_if<VocabularyAttributes>(&c.op().attributes);
  return vocabulary != nullptr && vocabulary->first_row > 0;
}

void check_vocabulary_statistics(Checker& c) {
  const bool before = has_parts_before(c);
  const auto* vocabulary = check_vocabulary(c, before ? 1 : 0, 2, false);
  if (vocabulary == nullptr) return;
  if (vocabulary->parts != 1 || vocabulary->has_input_gradient) c.complain("it gives the statistics of one part");
  if (before) check_statistics(c, c.in(3));
  check_statistics(c, c.out(0));
  c.alike(c.out(1), c.in(0));
}

void check_vocabulary_loss(Checker& c) {
  const bool before = has_parts_before(c);
  const auto* given = std::get_if<VocabularyAttributes>(&c.op().attributes);
  const bool gradient = given != nullptr && given->has_input_gradient;
  const std::size_t writes = 1 + (gradient ? 1U : 0U) + (gradient && before ? 1U : 0U);
  const auto* vocabulary = check_vocabulary(c, before ? 1 : 0, writes, true);
  if (vocabulary == nullptr) return;
  if (before) check_statistics(c, c.in(2 + vocabulary->parts));
  c.shape(c.out(0), {1});
  c.dtype(c.out(0), DType::kFloat64);
  if (gradient) c.alike(c.out(1), c.in(0));
  if (gradient && before) check_normalisers(c, c.out(2));
}

void check_vocabulary_gradient(Checker& c) {
  const bool before = has_parts_before(c);
  const auto* vocabulary = check_vocabulary(c, 2, before ? 2 : 1, true);
  if (vocabulary == nullptr) return;
  if (vocabulary->parts != 1 || !vocabulary->has_input_gradient) c.complain("it gives the gradient of one part");
  check_normalisers(c, c.in(3));
  c.alike(c.in(4), c.in(0));
  c.alike(c.out(0), c.in(0));
  if (before) check_normalisers(c, c.out(1));
}

void check_soft_cap(Checker& c) {
  const auto* attributes = c.attributes<SoftCapAttributes>();
  if (attributes == nullptr || !c.counts(1, 1)) return;
  c.floating(c.in(0));
  c.alike(c.out(0), c.in(0));
  check_cap(c, attributes->cap, std::numeric_limits<float>::min());
}

void check_select_last(Checker& c) {
  if (!c.counts(2, 1)) return;
  c.rank(c.in(0), 2);
  c.floating(c.in(0));
  c.bounds(c.in(1));
  if (!c.good()) return;
  c.shape(c.out(0), {1, c.in(0).shape[1]});
  c.dtype(c.out(0), c.in(0).dtype);
}

/// [T, C] in whole blocks a row.
void check_blocks(Checker& c, const TensorDesc& tensor) {
  c.rank(tensor, 2);
  if (c.good() && tensor.shape[1] % kEncodedBlock != 0) {
    c.complain(
        fmt::format("rows of tensor '{}' are {} long, no multiple of {}", tensor.name, tensor.shape[1], kEncodedBlock));
  }
}

void check_expand(Checker& c) {
  if (!c.counts(1, 1)) return;
  const TensorRole role = is_hadamard(c.in(0).encoding) ? TensorRole::kInput : TensorRole::kWeight;
  if (c.in(0).encoding == Encoding::kPlain || c.in(0).role != role) {
    c.complain(fmt::format("tensor '{}' is no encoded weight or input", c.in(0).name));
  }
  c.floating(c.in(0));
  c.alike(c.out(0), c.in(0));
  if (role == TensorRole::kInput) check_blocks(c, c.in(0));
}

void check_encode(Checker& c) {
  if (!c.counts(1, 1)) return;
  if (!is_hadamard(c.out(0).encoding) || c.out(0).role != TensorRole::kOutput) {
    c.complain(fmt::format("tensor '{}' is no encoded output", c.out(0).name));
  }
  c.floating(c.in(0));
  c.alike(c.out(0), c.in(0));
  check_blocks(c, c.in(0));
}

/// Encoded tensors are read by nothing but kExpand, and written by nothing but kEncode.
void check_encodings(Checker& c) {
  for (std::size_t i = 0; i < c.reads() && c.op().kind != OpKind::kExpand; ++i) {
    if (c.in(i).encoding != Encoding::kPlain) {
      c.complain(
          fmt::format("tensor '{}' is encoded as {}, expected numbers", c.in(i).name, name_of(c.in(i).encoding)));
    }
  }
  for (std::size_t i = 0; i < c.writes() && c.op().kind != OpKind::kEncode; ++i) {
    if (c.out(i).encoding != Encoding::kPlain) c.complain(fmt::format("tensor '{}' is encoded", c.out(i).name));
  }
}

void check(Checker& c) {
  switch (c.op().kind) {
    case OpKind::kEmbedding:
      return check_embedding(c);
    case OpKind::kEmbeddingBackward:
      return check_embedding_backward(c);
    case OpKind::kNorm:
      return check_norm(c);
    case OpKind::kNormBackward:
      return check_norm_backward(c);
    case OpKind::kMatMul:
      return check_product(c, true);
    case OpKind::kMatMulInputGradient:
      return check_product(c, false);
    case OpKind::kMatMulWeightGradient:
      return check_weight_gradient(c);
    case OpKind::kBiasGradient:
      return check_bias_gradient(c);
    case OpKind::kRope:
      return check_rope(c);
    case OpKind::kAttention:
      return check_attention(c);
    case OpKind::kAttentionBackward:
      return check_attention_backward(c);
    case OpKind::kCachedAttention:
      return check_cached_attention(c);
    case OpKind::kAttentionSink:
      return check_attention_sink(c);
    case OpKind::kAttentionSinkGradient:
      return check_attention_sink_gradient(c);
    case OpKind::kJoinHeads:
      return check_joined(c, true);
    case OpKind::kJoinHeadsBackward:
      return check_joined(c, false);
    case OpKind::kConvolution:
    case OpKind::kConvolutionBackward:
    case OpKind::kDecay:
    case OpKind::kDecayBackward:
    case OpKind::kDeltaRule:
    case OpKind::kDeltaRuleBackward:
    case OpKind::kHeadScaleGradient:
      return check_delta(c);
    case OpKind::kGatedActivation:
      return check_gated_activation(c, 1);
    case OpKind::kGatedActivationBackward:
      return check_gated_activation(c, 2);
    case OpKind::kAdd:
      return check_add(c);
    case OpKind::kSoftCap:
      return check_soft_cap(c);
    case OpKind::kDropout:
      return check_dropout(c);
    case OpKind::kNoise:
      return check_noise(c);
    case OpKind::kMagnitudeScale:
      return check_magnitude_scale(c);
    case OpKind::kColumnScale:
      return check_column_scale(c);
    case OpKind::kColumnScaleBackward:
      return check_column_scale_backward(c);
    case OpKind::kVocabularyStatistics:
      return check_vocabulary_statistics(c);
    case OpKind::kVocabularyLoss:
      return check_vocabulary_loss(c);
    case OpKind::kVocabularyGradient:
      return check_vocabulary_gradient(c);
    case OpKind::kSelectLast:
      return check_select_last(c);
    case OpKind::kRoute:
    case OpKind::kRouteBackward:
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kCombineBackward:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
    case OpKind::kGroupedBias:
    case OpKind::kGroupedBiasGradient:
      return check_experts(c);
    case OpKind::kExpand:
      return check_expand(c);
    case OpKind::kEncode:
      return check_encode(c);
    case OpKind::kAddRows:
    case OpKind::kSumOfSquares:
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return check_update(c);
  }
}

}  // namespace

absl::Status check_op(const OpList& list, std::size_t place) {
  Checker c(list, place);
  check(c);
  check_encodings(c);
  return c.status();
}

}  // namespace rondo::devices
