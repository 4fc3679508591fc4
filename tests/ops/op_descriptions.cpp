// The table of ops: for each, the shapes that are hard (odd, padded, several sequences) and those of a real model.
#include <algorithm>
#include <cmath>

#include "heads_case.h"
#include "op_case.h"
#include "rondo/devices/update.h"
#include "update_descriptions.h"

namespace rondo::devices::testing {
namespace {

constexpr std::uint32_t kOddTokens = 48;
const std::vector<std::int32_t> kOddSequences = {19, 1, 23};  // 43 tokens and 5 of padding

struct Sizes {
  std::uint32_t tokens = kOddTokens;
  std::int64_t hidden = 75;
  std::int64_t inner = 101;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 20;
  std::int64_t vocabulary = 131;
};

Sizes sizes_of(Scale scale) {
  if (scale == Scale::kOdd) return {};
  return {512, 576, 1536, 9, 3, 64, 49152};
}

void add_sequences(CaseBuilder& b, Scale scale) {
  b.sequences(scale == Scale::kOdd ? kOddSequences : std::vector<std::int32_t>{200, 312});
}

std::vector<std::int32_t> some_ids(std::uint32_t tokens, std::int64_t vocabulary, bool with_negative) {
  std::vector<std::int32_t> ids;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const auto id = static_cast<std::int32_t>((t * t * 7 + 3 * t) % static_cast<std::uint32_t>(vocabulary));
    ids.push_back(with_negative && t % 5 == 2 ? -100 : id);  // squares: some ids come several times
  }
  return ids;
}

double inverse_root(std::int64_t n) { return 1.0 / std::sqrt(static_cast<double>(n)); }

OpCase embedding_of(CaseBuilder b, DType storage, const Sizes& s, const std::vector<std::int32_t>& values,
                    std::int64_t most) {
  const TensorId ids = b.integers("ids", BatchTensor::kIds, values);
  const TensorId table = b.weight("table", {s.vocabulary, s.hidden});
  const TensorId x = b.output("x", {s.tokens, s.hidden});
  const TensorId dx = b.input("dx", {s.tokens, s.hidden});
  const TensorId row_ids = b.output("row ids", {s.tokens + 1}, DType::kInt32, TensorRole::kRows);
  const TensorId rows =
      b.output("rows", {s.tokens, s.hidden}, storage == DType::kFloat64 ? storage : DType::kFloat32, TensorRole::kRows);
  b.op(OpKind::kEmbedding, {ids, table}, {x});
  b.op(OpKind::kEmbeddingBackward, {ids, b.bounds(), dx}, {row_ids, rows});
  b.result().projections = {{x, dx}};
  b.result().gradients = {{table, row_ids}};
  b.result().reduction = most;
  return b.result();
}

OpCase embedding(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  std::vector<std::int32_t> values = some_ids(s.tokens, std::min<std::int64_t>(s.vocabulary, 40), false);
  if (scale == Scale::kOdd) std::fill(values.begin() + 43, values.end(), -1);
  return embedding_of(std::move(b), storage, s, values, 4);
}

/// As texts have them: some ids come again and again.
OpCase embedding_of_few(DType storage, Scale scale) {
  Sizes s = sizes_of(scale);
  s.tokens = 400;
  CaseBuilder b(storage, s.tokens);
  b.sequences({150, 230});
  std::vector<std::int32_t> values;
  for (std::int32_t t = 0; t < 400; ++t) {
    const std::int32_t others[] = {7, 7, 7, 3, t % 13 + 8};
    values.push_back(t >= 380 ? -1 : t % 3 != 0 ? 5 : others[t / 3 % 5]);
  }
  return embedding_of(std::move(b), storage, s, values, 254);
}

OpCase norm(DType storage, Scale scale, bool whole) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId w = b.weight("w", {s.hidden});
  const TensorId y = b.output("y", {s.tokens, s.hidden});
  const TensorId dy = b.input("dy", {s.tokens, s.hidden});
  const TensorId dx = b.output("dx", {s.tokens, s.hidden});
  b.op(OpKind::kRmsNorm, {x, w}, {y}, NormAttributes{1e-5F});
  b.result().projections = {{y, dy}};
  b.result().reduction = s.hidden;
  if (!whole) {
    b.op(OpKind::kRmsNormBackward, {x, w, dy}, {dx}, NormAttributes{1e-5F});
    b.result().gradients = {{x, dx}};
    return b.result();
  }
  // The residual stream goes round the norm: z = x + addend of its own, whose gradient is added to dx.
  const TensorId z = b.output("z", {s.tokens, s.hidden});
  const TensorId residual = b.input("dz", {s.tokens, s.hidden});
  const TensorId other = b.input("other", {s.tokens, s.hidden});
  const TensorId dw = b.gradient("dw", {s.hidden});
  b.op(OpKind::kAdd, {x, other}, {z});
  b.op(OpKind::kRmsNormBackward, {x, w, dy, residual}, {dx, dw}, NormAttributes{1e-5F, true, true});
  b.result().projections.push_back({z, residual});
  b.result().gradients = {{x, dx}, {w, dw}};
  return b.result();
}
OpCase norm_plain(DType storage, Scale scale) { return norm(storage, scale, false); }
OpCase norm_whole(DType storage, Scale scale) { return norm(storage, scale, true); }

struct ProductSizes {
  std::uint32_t tokens;
  std::int64_t outputs, inputs;
};

OpCase matmul(DType storage, const ProductSizes& s, float alpha, bool bias, bool addend) {
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.inputs});
  const TensorId w = b.weight("w", {s.outputs, s.inputs}, inverse_root(s.inputs));
  const TensorId y = b.output("y", {s.tokens, s.outputs});
  const TensorId dy = b.input("dy", {s.tokens, s.outputs});
  const TensorId dx = b.output("dx", {s.tokens, s.inputs});
  const TensorId dw = b.gradient("dw", {s.outputs, s.inputs});
  std::vector<TensorId> reads = {x, w};
  std::vector<TensorId> backward_reads = {dy, w};
  MatMulAttributes forward{alpha, bias, addend};
  MatMulAttributes backward{alpha, false, addend};
  OpCase& result = b.result();
  result.projections = {{y, dy}};
  if (bias) {
    const TensorId v = b.weight("bias", {s.outputs});
    const TensorId dv = b.gradient("dbias", {s.outputs});
    reads.push_back(v);
    b.op(OpKind::kBiasGradient, {dy}, {dv});
    result.gradients.push_back({v, dv});
  }
  if (addend) {  // the residual stream forward, and the gradient that comes round the product backward
    const TensorId residual = b.input("residual", {s.tokens, s.outputs});
    const TensorId z = b.output("z", {s.tokens, s.inputs});
    const TensorId other = b.input("other", {s.tokens, s.inputs});
    const TensorId dz = b.input("dz", {s.tokens, s.inputs});
    reads.push_back(residual);
    backward_reads.push_back(dz);
    b.op(OpKind::kAdd, {x, other}, {z});
    result.projections.push_back({z, dz});
    result.gradients.push_back({residual, dy});
  }
  b.op(OpKind::kMatMul, reads, {y}, forward);
  b.op(OpKind::kMatMulInputGradient, backward_reads, {dx}, backward);
  b.op(OpKind::kMatMulWeightGradient, {dy, x}, {dw}, MatMulAttributes{alpha});
  result.gradients.push_back({x, dx});
  result.gradients.push_back({w, dw});
  result.reduction = std::max({s.inputs, s.outputs, static_cast<std::int64_t>(s.tokens)});
  return result;
}

OpCase matmul_plain(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{48, 101, 75} : ProductSizes{512, 576, 576}, 1, false,
                false);
}
OpCase matmul_whole(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{48, 101, 75} : ProductSizes{512, 1536, 576}, 0.75F, true,
                true);
}
OpCase matmul_few_rows(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{7, 37, 75} : ProductSizes{1, 1536, 576}, 1.5F, true, true);
}
OpCase matmul_low_rank_in(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{48, 8, 75} : ProductSizes{512, 16, 576}, 1, false, false);
}
OpCase matmul_low_rank_out(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{48, 101, 8} : ProductSizes{512, 576, 16}, 2, false, true);
}
/// More than one chunk of tokens, several tiles each way.
OpCase matmul_chunks(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{1280, 219, 150} : ProductSizes{2048, 576, 1536}, 1, false,
                false);
}
/// Rows and columns in fours that fill no tile, an inner extent that ends amid one, one more chunk that is short.
OpCase matmul_fours(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{524, 84, 44} : ProductSizes{512, 576, 1536}, 0.5, true,
                true);
}

/// Less than a tile along every inner extent, in fours that make up no eights.
OpCase matmul_short(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{28, 20, 12} : ProductSizes{512, 576, 4}, 1, false, true);
}

OpCase rope_case(DType storage, Scale scale, std::uint32_t dynamic_from) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  const Shape shape = {s.tokens, s.heads, s.head_dim};
  const TensorId x = b.input("x", shape);
  const TensorId y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape);
  const TensorId dx = b.output("dx", shape);
  RopeAttributes rope;
  for (std::int64_t i = 0; i < s.head_dim / 2; ++i) {
    rope.frequencies.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim))));
  }
  rope.amplitude = 1.25F;
  rope.dynamic_from = dynamic_from;
  rope.factor = 2.0;
  b.op(OpKind::kRope, {x, b.positions(), b.bounds()}, {y}, rope);
  rope.direction = -1.0F;
  b.op(OpKind::kRope, {dy, b.positions(), b.bounds()}, {dx}, rope);
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}};
  b.result().reduction = 2;
  return b.result();
}
OpCase rope_static(DType storage, Scale scale) { return rope_case(storage, scale, 0); }
OpCase rope_dynamic(DType storage, Scale scale) { return rope_case(storage, scale, 12); }

OpCase attention_case(DType storage, Scale scale, std::uint32_t window) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  const AttentionTensors t =
      add_attention(b, s.heads, s.kv_heads, s.head_dim, {static_cast<float>(inverse_root(s.head_dim)), window});
  b.result().projections = {{t.o, t.d_o}};
  b.result().gradients = {{t.q, t.dq}, {t.k, t.dk}, {t.v, t.dv}};
  b.result().reduction = s.tokens;
  return b.result();
}
OpCase attention_full(DType storage, Scale scale) { return attention_case(storage, scale, 0); }
OpCase attention_window(DType storage, Scale scale) { return attention_case(storage, scale, 7); }

OpCase cached_case(DType storage, Scale scale, std::uint32_t window) {
  const Sizes s = sizes_of(scale);
  const std::uint32_t tokens = scale == Scale::kOdd ? 5 : 1;
  const std::int64_t capacity = scale == Scale::kOdd ? 29 : 512;
  CaseBuilder b(storage, tokens);
  // The last of five tokens is padding; the first real one stands at position 13.
  std::vector<std::int32_t> bounds = {1, 0, static_cast<std::int32_t>(scale == Scale::kOdd ? tokens - 1 : tokens)};
  bounds.resize(tokens + 2);
  std::vector<std::int32_t> positions;
  for (std::uint32_t t = 0; t < tokens; ++t) positions.push_back(static_cast<std::int32_t>(capacity - 16 + t));
  const Shape heads = {tokens, s.heads, s.head_dim};
  const Shape kv_heads = {tokens, s.kv_heads, s.head_dim};
  const TensorId q = b.input("q", heads), k = b.input("k", kv_heads), v = b.input("v", kv_heads);
  const TensorId places = b.integers("positions", BatchTensor::kPositions, positions);
  const TensorId sequences = b.integers("bounds", BatchTensor::kBounds, bounds);
  const TensorId keys = b.state("key cache", {capacity, s.kv_heads, s.head_dim});
  const TensorId values = b.state("value cache", {capacity, s.kv_heads, s.head_dim});
  const TensorId o = b.output("o", heads);
  b.op(OpKind::kCachedAttention, {q, k, v, places, sequences, keys, values}, {o},
       AttentionAttributes{static_cast<float>(inverse_root(s.head_dim)), window});
  b.result().reduction = capacity;
  return b.result();
}
OpCase cached_full(DType storage, Scale scale) { return cached_case(storage, scale, 0); }
OpCase cached_window(DType storage, Scale scale) { return cached_case(storage, scale, 6); }

OpCase gated_case(DType storage, Scale scale, ActivationKind activation) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.inner};
  const TensorId gate = b.input("gate", shape, 3.0), up = b.input("up", shape);
  const TensorId y = b.output("y", shape), dy = b.input("dy", shape);
  const TensorId dgate = b.output("dgate", shape), dup = b.output("dup", shape);
  b.op(OpKind::kGatedActivation, {gate, up}, {y}, GatedActivationAttributes{activation});
  b.op(OpKind::kGatedActivationBackward, {gate, up, dy}, {dgate, dup}, GatedActivationAttributes{activation});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{gate, dgate}, {up, dup}};
  return b.result();
}
OpCase gated_silu(DType storage, Scale scale) { return gated_case(storage, scale, ActivationKind::kSilu); }
OpCase gated_gelu(DType storage, Scale scale) { return gated_case(storage, scale, ActivationKind::kGelu); }
OpCase gated_gelu_tanh(DType storage, Scale scale) { return gated_case(storage, scale, ActivationKind::kGeluTanh); }

OpCase dropout_case_of(DType storage, Scale scale, bool rest) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.hidden};
  const TensorId keys = b.keys();
  const TensorId x = b.input("x", shape), y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape), dx = b.output("dx", shape);
  b.op(OpKind::kDropout, {x, keys}, {y}, DropoutAttributes{0.3F, 5, rest});
  b.op(OpKind::kDropout, {dy, keys}, {dx}, DropoutAttributes{0.3F, 5, rest});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{x, dx}};
  return b.result();
}
OpCase dropout_case(DType storage, Scale scale) { return dropout_case_of(storage, scale, false); }
OpCase dropout_rest(DType storage, Scale scale) { return dropout_case_of(storage, scale, true); }

/// m and w of `rows` outputs, a and b of `rank`, and a product's columns scaled by what follows from them. The norm has
/// no gradient, so that finite differences see m, x, bias and addend alone.
OpCase magnitude(DType storage, Scale scale, bool bias, bool addend) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const std::int64_t rank = scale == Scale::kOdd ? 5 : 16;
  const Shape shape = {s.tokens, s.inner};
  const TensorId w = b.weight("w", {s.inner, s.hidden}, inverse_root(s.hidden));
  const TensorId low = b.weight("a", {rank, s.hidden}, inverse_root(s.hidden));
  const TensorId high = b.weight("b", {s.inner, rank}, inverse_root(rank));
  const TensorId factor = b.saved_wide("scale", {s.inner}), inverse = b.saved_wide("inverse", {s.inner});
  const TensorId m = b.weight("m", {s.inner});
  if (storage != DType::kFloat64) b.result().list.tensors[m].dtype = DType::kFloat32;
  b.op(OpKind::kMagnitudeScale, {w, low, high, m}, {factor, inverse}, MagnitudeAttributes{0.75F});
  const TensorId x = b.input("x", shape), y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape), dx = b.output("dx", shape), dm = b.gradient("dm", {s.inner});
  std::vector<TensorId> reads = {x, factor};
  OpCase& result = b.result();
  if (bias) {
    const TensorId v = b.weight("bias", {s.inner}), dv = b.gradient("dbias", {s.inner});
    reads.push_back(v);
    b.op(OpKind::kBiasGradient, {dy}, {dv});
    result.gradients.push_back({v, dv});
  }
  if (addend) {
    reads.push_back(b.input("residual", shape));
    result.gradients.push_back({reads.back(), dy});
  }
  b.op(OpKind::kColumnScale, reads, {y}, ColumnScaleAttributes{bias, addend});
  b.op(OpKind::kColumnScaleBackward, {x, factor, inverse, dy}, {dx, dm});
  result.projections = {{y, dy}};
  result.gradients.push_back({m, dm});
  result.gradients.push_back({x, dx});
  result.reduction = std::max(s.hidden, static_cast<std::int64_t>(s.tokens));
  return result;
}
OpCase magnitude_plain(DType storage, Scale scale) { return magnitude(storage, scale, false, false); }
OpCase magnitude_whole(DType storage, Scale scale) { return magnitude(storage, scale, true, true); }

OpCase entropy_case(DType storage, Scale scale, bool input_gradient, bool weight_gradient, std::uint32_t tokens,
                    bool scaled = false) {
  Sizes s = sizes_of(scale);
  if (tokens > 0) s.tokens = tokens;
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId w = b.weight("w", {s.vocabulary, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> writes = {b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss)};
  if (input_gradient) {
    writes.push_back(b.output("dx", {s.tokens, s.hidden}));
    b.result().gradients.push_back({x, writes.back()});
  }
  if (weight_gradient) {
    writes.push_back(b.gradient("dw", {s.vocabulary, s.hidden}));
    b.result().gradients.push_back({w, writes.back()});
  }
  std::vector<TensorId> reads = {x, targets, w};
  if (scaled) reads.push_back(b.loss_scale(0.5));
  b.op(OpKind::kVocabularyLoss, reads, writes,
       VocabularyAttributes{s.vocabulary, 0, 1, input_gradient, weight_gradient, scaled});
  b.result().projections = {{writes[0], writes[0]}};  // the loss itself
  b.result().reduction = std::max(s.vocabulary, static_cast<std::int64_t>(s.tokens));
  return b.result();
}
OpCase entropy_whole(DType storage, Scale scale) { return entropy_case(storage, scale, true, true, 0); }
OpCase entropy_frozen_head(DType storage, Scale scale) { return entropy_case(storage, scale, true, false, 0); }
OpCase entropy_loss(DType storage, Scale scale) { return entropy_case(storage, scale, false, false, 0); }
/// More targets than a chunk holds, the last chunk not full.
OpCase entropy_chunks(DType storage, Scale scale) {
  return entropy_case(storage, scale, true, true, scale == Scale::kOdd ? 832 : 2048);
}

/// Its finite differences are those of the loss without the scale, which the others have been held to.
OpCase entropy_scaled(DType storage, Scale scale) { return entropy_case(storage, scale, true, true, 0, true); }
/// A vocabulary in three parts: the first by itself, the last two in one op, and the gradient of the first.
OpCase vocabulary_case(DType storage, Scale scale, bool weight_gradient, std::uint32_t tokens, bool scaled = false) {
  Sizes s = sizes_of(scale);
  if (tokens > 0) s.tokens = tokens;
  CaseBuilder b(storage, s.tokens);
  const std::int64_t rows[3] = {s.vocabulary / 2, s.vocabulary / 4, s.vocabulary - s.vocabulary / 2 - s.vocabulary / 4};
  const Shape shape = {s.tokens, s.hidden};
  const TensorId x = b.input("x", shape);
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> w, dw;
  for (const std::int64_t part : rows) {
    w.push_back(b.weight("w", {part, s.hidden}, 2 * inverse_root(s.hidden)));
    if (!weight_gradient) continue;
    dw.push_back(b.gradient("dw", {part, s.hidden}));
    b.result().gradients.push_back({w.back(), dw.back()});
  }
  const TensorId statistics = b.saved_wide("statistics", {s.tokens, 3}), passed = b.saved("passed", shape);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId above = b.saved("dx of the parts above", shape);
  const TensorId normalisers = b.saved_wide("normalisers", {s.tokens, 2});
  const TensorId dx = b.output("dx", shape);
  VocabularyAttributes attributes{s.vocabulary, 0, 1};
  b.op(OpKind::kVocabularyStatistics, {x, targets, w[0]}, {statistics, passed}, attributes);
  attributes = {s.vocabulary, rows[0], 2, true, weight_gradient, scaled};
  std::vector<TensorId> reads = {passed, targets, w[1], w[2], statistics};
  if (scaled) reads.push_back(b.loss_scale(0.5));
  std::vector<TensorId> writes = {loss, above, normalisers};
  if (weight_gradient) writes.insert(writes.end(), {dw[1], dw[2]});
  b.op(OpKind::kVocabularyLoss, reads, writes, attributes);
  attributes = {s.vocabulary, 0, 1, true, weight_gradient, scaled};
  const TensorId last = reads.back();
  reads = {passed, targets, w[0], normalisers, above};
  if (scaled) reads.push_back(last);
  writes = {dx};
  if (weight_gradient) writes.push_back(dw[0]);
  b.op(OpKind::kVocabularyGradient, reads, writes, attributes);
  b.result().gradients.push_back({x, dx});
  b.result().projections = {{loss, loss}};
  b.result().reduction = std::max(s.vocabulary, static_cast<std::int64_t>(s.tokens));
  return b.result();
}
OpCase vocabulary_whole(DType storage, Scale scale) { return vocabulary_case(storage, scale, true, 0); }
OpCase vocabulary_frozen(DType storage, Scale scale) { return vocabulary_case(storage, scale, false, 0); }
OpCase vocabulary_chunks(DType storage, Scale scale) {
  return vocabulary_case(storage, scale, true, scale == Scale::kOdd ? 832 : 2048);
}
OpCase vocabulary_scaled(DType storage, Scale scale) { return vocabulary_case(storage, scale, true, 0, true); }
/// Each of three parts by itself.
OpCase vocabulary_each(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.hidden};
  const std::int64_t third = s.vocabulary / 3;
  const TensorId x = b.input("x", shape);
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> w, dw, statistics, dx, normalisers;
  for (std::int64_t part = 0; part < 3; ++part) {
    const Shape rows = {part == 2 ? s.vocabulary - 2 * third : third, s.hidden};
    w.push_back(b.weight("w", rows, 2 * inverse_root(s.hidden)));
    dw.push_back(b.gradient("dw", rows));
    dx.push_back(b.output("dx", shape));
    normalisers.push_back(b.saved_wide("normalisers", {s.tokens, 2}));
    statistics.push_back(b.saved_wide("statistics", {s.tokens, 3}));
    b.result().gradients.push_back({w.back(), dw.back()});
  }
  const TensorId passed = b.saved("passed", shape), again = b.saved("passed again", shape);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const auto of = [&](std::int64_t part, bool back) {
    return VocabularyAttributes{s.vocabulary, part * third, 1, back, back};
  };
  b.op(OpKind::kVocabularyStatistics, {x, targets, w[0]}, {statistics[0], passed}, of(0, false));
  b.op(OpKind::kVocabularyStatistics, {passed, targets, w[1], statistics[0]}, {statistics[1], again}, of(1, false));
  b.op(OpKind::kVocabularyLoss, {again, targets, w[2], statistics[1]}, {loss, dx[2], normalisers[2], dw[2]},
       of(2, true));
  b.op(OpKind::kVocabularyGradient, {x, targets, w[1], normalisers[2], dx[2]}, {dx[1], normalisers[1], dw[1]},
       of(1, true));
  b.op(OpKind::kVocabularyGradient, {x, targets, w[0], normalisers[1], dx[1]}, {dx[0], dw[0]}, of(0, true));
  b.result().gradients.push_back({x, dx[0]});
  b.result().projections = {{loss, loss}};
  b.result().reduction = s.vocabulary;
  return b.result();
}
/// All parts at once, and the same without gradients.
OpCase vocabulary_at_once(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  const std::int64_t half = s.vocabulary / 2;
  const TensorId low = b.weight("low", {half, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId high = b.weight("high", {s.vocabulary - half, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId alone = b.output("loss alone", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId dx = b.output("dx", {s.tokens, s.hidden});
  b.op(OpKind::kVocabularyLoss, {x, targets, low, high}, {loss, dx}, VocabularyAttributes{s.vocabulary, 0, 2, true});
  b.op(OpKind::kVocabularyLoss, {x, targets, low, high}, {alone}, VocabularyAttributes{s.vocabulary, 0, 2});
  b.result().gradients = {{x, dx}};
  b.result().projections = {{loss, loss}};
  b.result().reduction = s.vocabulary;
  return b.result();
}

OpCase select_last_case(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  const TensorId x = b.input("x", {s.tokens, s.hidden}), y = b.output("y", {1, s.hidden});
  b.op(OpKind::kSelectLast, {x, b.bounds()}, {y});
  return b.result();
}

/// The last block is short, and the number of codes odd.
OpCase expand_case(DType storage, Scale scale, Encoding encoding) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.inner, s.hidden};
  const TensorId w = b.encoded(b.weight("w", shape, 0.02), encoding), y = b.output("y", shape);
  b.op(OpKind::kExpand, {w}, {y});
  return b.result();
}
OpCase expand_int8(DType storage, Scale scale) { return expand_case(storage, scale, Encoding::kInt8); }
OpCase expand_nf4(DType storage, Scale scale) { return expand_case(storage, scale, Encoding::kNf4); }

/// What passes between layers, into codes (`in`) or out of them: whole blocks only, not a whole number of workgroups.
OpCase boundary_case(DType storage, Scale scale, Encoding encoding, bool in) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, scale == Scale::kOdd ? 192 : s.hidden};
  const TensorId x = b.input("x", shape), y = b.output("y", shape);
  b.encoded(in ? y : x, encoding);
  b.op(in ? OpKind::kEncode : OpKind::kExpand, {x}, {y});
  return b.result();
}
OpCase encode_8(DType storage, Scale scale) { return boundary_case(storage, scale, Encoding::kHadamard8, true); }
OpCase encode_4(DType storage, Scale scale) { return boundary_case(storage, scale, Encoding::kHadamard4, true); }
OpCase decode_8(DType storage, Scale scale) { return boundary_case(storage, scale, Encoding::kHadamard8, false); }
OpCase decode_4(DType storage, Scale scale) { return boundary_case(storage, scale, Encoding::kHadamard4, false); }

/// Fewer rows than there is room for, one of them the padding token's.
OpCase add_rows_case(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  std::vector<std::int32_t> list(s.tokens + 1, 0x55555555);
  list[0] = static_cast<std::int32_t>(s.tokens) - 5;
  for (std::int32_t i = 0; i < list[0]; ++i) list[static_cast<std::size_t>(i) + 1] = 2 * i + 1;
  const TensorId ids = b.integers("row ids", BatchTensor::kIds, list);
  const TensorId rows = b.input("rows", {s.tokens, s.hidden});
  if (storage != DType::kFloat64) b.result().list.tensors[rows].dtype = DType::kFloat32;
  const TensorId table = b.gradient("table", {std::max<std::int64_t>(s.vocabulary, 2 * s.tokens), s.hidden});
  b.op(OpKind::kAddRows, {ids, rows}, {table}, AddRowsAttributes{7});
  return b.result();
}

}  // namespace

const std::vector<OpDescription>& op_descriptions() {
  static const std::vector<OpDescription> descriptions = {
      {"Embedding", embedding, true},
      {"EmbeddingOfFew", embedding_of_few, true},
      {"RmsNorm", norm_plain, true},
      {"RmsNorm_AddendAndWeightGradient", norm_whole, true},
      {"MatMul", matmul_plain, true},
      {"MatMul_AlphaBiasAddend", matmul_whole, true},
      {"MatMul_FewRows", matmul_few_rows, true},
      {"MatMul_LowRankIn", matmul_low_rank_in, true},
      {"MatMul_LowRankOut", matmul_low_rank_out, true},
      {"MatMul_SeveralChunks", matmul_chunks, false},  // its gradient in fp64 is the plain one's, only slower
      {"MatMul_Fours", matmul_fours, false},
      {"MatMul_Short", matmul_short, true},
      {"Rope", rope_static, true},
      {"Rope_Dynamic", rope_dynamic, true},
      {"Attention", attention_full, true},
      {"Attention_Window", attention_window, true},
      {"CachedAttention", cached_full, false},  // generation only
      {"CachedAttention_Window", cached_window, false},
      {"GatedActivation_Silu", gated_silu, true},
      {"GatedActivation_Gelu", gated_gelu, true},
      {"GatedActivation_GeluTanh", gated_gelu_tanh, true},
      {"Dropout", dropout_case, true},
      {"Dropout_Rest", dropout_rest, true},
      {"Magnitude", magnitude_plain, true},
      {"Magnitude_BiasAddend", magnitude_whole, true},
      {"CrossEntropy", entropy_whole, true},
      {"CrossEntropy_FrozenHead", entropy_frozen_head, true},
      {"CrossEntropy_LossOnly", entropy_loss, false},
      {"CrossEntropy_SeveralChunks", entropy_chunks, false},
      {"CrossEntropy_Scaled", entropy_scaled, false},
      {"Vocabulary", vocabulary_whole, true},
      {"Vocabulary_FrozenHead", vocabulary_frozen, true},
      {"Vocabulary_SeveralChunks", vocabulary_chunks, false},  // likewise
      {"Vocabulary_Scaled", vocabulary_scaled, false},
      {"Vocabulary_Each", vocabulary_each, true},
      {"Vocabulary_AtOnce", vocabulary_at_once, true},
      {"SelectLast", select_last_case, false},
      {"Expand_Int8", expand_int8, false},  // of frozen weights: nothing flows back
      {"Expand_Nf4", expand_nf4, false},
      {"Expand_Hadamard8", decode_8, false},  // rounding has no gradient; models pass it straight through
      {"Expand_Hadamard4", decode_4, false},
      {"Encode_Hadamard8", encode_8, false},
      {"Encode_Hadamard4", encode_4, false},
      {"AddRows", add_rows_case, false},  // what an optimizer does has none
      {"Update", update_case, false},
      {"CodedUpdate", coded_update_case, false},
  };
  return descriptions;
}

}  // namespace rondo::devices::testing
