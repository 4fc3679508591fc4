// The table of ops: for each, the shapes that are hard (odd, padded, several sequences) and those of a real model.
#include <algorithm>

#include "case_sizes.h"
#include "delta_descriptions.h"
#include "expert_descriptions.h"
#include "heads_case.h"
#include "noise_case.h"
#include "norm_descriptions.h"
#include "op_case.h"
#include "rondo/devices/update.h"
#include "update_descriptions.h"
#include "vocabulary_descriptions.h"

namespace rondo::devices::testing {
namespace {

OpCase embedding_of(CaseBuilder b, DType storage, const Sizes& s, const std::vector<std::int32_t>& values,
                    std::int64_t most, float scale = 1.0F) {
  const TensorId ids = b.integers("ids", BatchTensor::kIds, values);
  const TensorId table = b.weight("table", {s.vocabulary, s.hidden});
  const TensorId x = b.output("x", {s.tokens, s.hidden});
  const TensorId dx = b.input("dx", {s.tokens, s.hidden});
  const TensorId row_ids = b.output("row ids", {s.tokens + 1}, DType::kInt32, TensorRole::kRows);
  const TensorId rows =
      b.output("rows", {s.tokens, s.hidden}, storage == DType::kFloat64 ? storage : DType::kFloat32, TensorRole::kRows);
  b.op(OpKind::kEmbedding, {ids, table}, {x}, EmbeddingAttributes{scale});
  b.op(OpKind::kEmbeddingBackward, {ids, b.bounds(), dx}, {row_ids, rows}, EmbeddingAttributes{scale});
  b.result().projections = {{x, dx}};
  b.result().gradients = {{table, row_ids}};
  b.result().reduction = most;
  return b.result();
}

OpCase embedding_times(DType storage, Scale scale, float factor) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  std::vector<std::int32_t> values = some_ids(s.tokens, std::min<std::int64_t>(s.vocabulary, 40), false);
  if (scale == Scale::kOdd) std::fill(values.begin() + 43, values.end(), -1);
  return embedding_of(std::move(b), storage, s, values, 4, factor);
}
OpCase embedding(DType storage, Scale scale) { return embedding_times(storage, scale, 1.0F); }
/// By a factor that no dtype has exactly.
OpCase embedding_scaled(DType storage, Scale scale) { return embedding_times(storage, scale, 5.1F); }

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

/// A sum, and a copy of it.
OpCase sums(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId other = b.input("other", {s.tokens, s.hidden});
  const TensorId sum = b.output("sum", {s.tokens, s.hidden});
  b.op(OpKind::kAdd, {x, other}, {sum});
  b.op(OpKind::kAdd, {sum}, {b.output("copy", {s.tokens, s.hidden})});
  return b.result();
}

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
/// Columns that fill no tile.
OpCase matmul_few_fours(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{3, 37, 76} : ProductSizes{8, 1536, 576}, 1.5F, true, true);
}
/// The same where the gradient of the input goes along fours of rows too.
OpCase matmul_few_gradients(DType storage, Scale scale) {
  return matmul(storage, scale == Scale::kOdd ? ProductSizes{5, 44, 76} : ProductSizes{4, 1536, 576}, 1.5F, true, true);
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

/// `rest`: channels of a head that do not turn. `halved`: long sequences turn at half the speed.
OpCase rope_case(DType storage, Scale scale, std::uint32_t dynamic_from, std::int64_t rest = 0, bool halved = false) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  const Shape shape = {s.tokens, s.heads, s.head_dim};
  const TensorId x = b.input("x", shape);
  const TensorId y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape);
  const TensorId dx = b.output("dx", shape);
  RopeAttributes rope;
  for (std::int64_t i = 0; i < (s.head_dim - rest) / 2; ++i) {
    rope.frequencies.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim))));
    if (halved) rope.long_frequencies.push_back(rope.frequencies.back() / 2.0F);
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
/// Positions fill no whole number of steps.
OpCase rope_growing(DType storage, Scale scale) {
  OpCase growing = rope_case(storage, scale, 0);
  for (Op& op : growing.list.ops) {
    auto& rope = std::get<RopeAttributes>(op.attributes);
    rope.growth = 0.3F;
    rope.grows_from = 5;
  }
  return growing;
}
OpCase rope_static(DType storage, Scale scale) { return rope_case(storage, scale, 0); }
OpCase rope_dynamic(DType storage, Scale scale) { return rope_case(storage, scale, 12); }
OpCase rope_partial(DType storage, Scale scale) {
  return rope_case(storage, scale, 12, scale == Scale::kOdd ? 6 : 32, true);
}

OpCase attention_case(DType storage, Scale scale, std::uint32_t window, float cap = 0.0F) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  add_sequences(b, scale);
  const AttentionTensors t =
      add_attention(b, s.heads, s.kv_heads, s.head_dim, {static_cast<float>(inverse_root(s.head_dim)), window, cap});
  b.result().projections = {{t.o, t.d_o}};
  b.result().gradients = {{t.q, t.dq}, {t.k, t.dk}, {t.v, t.dv}};
  b.result().reduction = s.tokens;
  return b.result();
}
OpCase attention_full(DType storage, Scale scale) { return attention_case(storage, scale, 0); }
OpCase attention_window(DType storage, Scale scale) { return attention_case(storage, scale, 7); }
/// About as large as scores are, so that many lie where it bends.
OpCase attention_cap(DType storage, Scale scale) { return attention_case(storage, scale, 0, 1.3F); }
OpCase attention_cap_window(DType storage, Scale scale) { return attention_case(storage, scale, 7, 1.3F); }
/// The widest heads that all devices have.
OpCase attention_wide(DType storage, Scale scale) {
  const bool model = scale == Scale::kModel;
  const std::int64_t head_dim = model ? 256 : 512;
  CaseBuilder b(storage, model ? 512 : 48);
  b.sequences(model ? std::vector<std::int32_t>{200, 312} : std::vector<std::int32_t>{17, 26});
  const AttentionTensors t =
      add_attention(b, model ? 4 : 2, 1, head_dim, {static_cast<float>(inverse_root(head_dim)), 0});
  b.result().projections = {{t.o, t.d_o}};
  b.result().gradients = {{t.q, t.dq}, {t.k, t.dk}, {t.v, t.dv}};
  b.result().reduction = 512;
  return b.result();
}

/// One more score without a value, and the gradient of both ops together.
OpCase attention_sink_case(DType storage, Scale scale, std::vector<std::int32_t> sequences) {
  const Sizes s = sizes_of(scale);
  const std::uint32_t tokens = sequences.empty() ? s.tokens : 1040;
  CaseBuilder b(storage, tokens);
  if (sequences.empty()) {
    add_sequences(b, scale);
  } else {
    b.sequences(sequences);
  }
  const AttentionAttributes attributes{static_cast<float>(inverse_root(s.head_dim)), 9};
  const Shape of_q = {tokens, s.heads, s.head_dim};
  const Shape of_k = {tokens, s.kv_heads, s.head_dim};
  const TensorId q = b.input("q", of_q), k = b.input("k", of_k), v = b.input("v", of_k);
  const TensorId sinks = b.weight("sinks", {s.heads}), dsinks = b.gradient("dsinks", {s.heads});
  const TensorId attended = b.saved("attended", of_q), lse = b.saved_wide("lse", {tokens, s.heads});
  const TensorId o = b.saved("o", of_q), with_sink = b.saved_wide("lse with sink", {tokens, s.heads});
  const TensorId d_o = b.input("do", of_q);
  const TensorId dq = b.output("dq", of_q), dk = b.output("dk", of_k), dv = b.output("dv", of_k);
  b.op(OpKind::kAttention, {q, k, v, b.bounds()}, {attended, lse}, attributes);
  b.op(OpKind::kAttentionSink, {attended, lse, sinks}, {o, with_sink});
  b.op(OpKind::kAttentionSinkGradient, {o, with_sink, sinks, d_o}, {dsinks});
  b.op(OpKind::kAttentionBackward, {q, k, v, o, with_sink, d_o, b.bounds()}, {dq, dk, dv}, attributes);
  b.result().projections = {{o, d_o}};
  b.result().gradients = {{q, dq}, {k, dk}, {v, dv}, {sinks, dsinks}};
  b.result().reduction = tokens;
  return b.result();
}
OpCase attention_sink(DType storage, Scale scale) { return attention_sink_case(storage, scale, {}); }
/// More than a chunk of kTokenChunk, with a rest.
OpCase attention_sink_chunks(DType storage, Scale scale) { return attention_sink_case(storage, scale, {600, 433}); }

OpCase cached_case(DType storage, Scale scale, std::uint32_t window, float cap = 0.0F, std::int64_t head_dim = 0) {
  Sizes s = sizes_of(scale);
  if (head_dim > 0) s.head_dim = head_dim;
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
  const TensorId lse = b.saved_wide("lse", {tokens, s.heads});
  b.op(OpKind::kCachedAttention, {q, k, v, places, sequences, keys, values}, {o, lse},
       AttentionAttributes{static_cast<float>(inverse_root(s.head_dim)), window, cap});
  b.result().reduction = capacity;
  return b.result();
}
OpCase cached_full(DType storage, Scale scale) { return cached_case(storage, scale, 0); }
OpCase cached_window(DType storage, Scale scale) { return cached_case(storage, scale, 6); }
OpCase cached_cap(DType storage, Scale scale) { return cached_case(storage, scale, 6, 1.3F); }
OpCase cached_wide(DType storage, Scale scale) { return cached_case(storage, scale, 0, 0.0F, 150); }

/// Far beyond the cap, too.
OpCase soft_cap_case(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden}, 40.0), y = b.output("y", {s.tokens, s.hidden});
  b.op(OpKind::kSoftCap, {x}, {y}, SoftCapAttributes{30.0F});
  return b.result();
}

OpCase gated_case(DType storage, Scale scale, const GatedActivationAttributes& attributes) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.inner};
  const TensorId gate = b.input("gate", shape, 3.0), up = b.input("up", shape);
  const TensorId y = b.output("y", shape), dy = b.input("dy", shape);
  const TensorId dgate = b.output("dgate", shape), dup = b.output("dup", shape);
  b.op(OpKind::kGatedActivation, {gate, up}, {y}, attributes);
  b.op(OpKind::kGatedActivationBackward, {gate, up, dy}, {dgate, dup}, attributes);
  b.result().projections = {{y, dy}};
  b.result().gradients = {{gate, dgate}, {up, dup}};
  return b.result();
}
OpCase activated_alone(DType storage, Scale scale, ActivationKind activation) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.inner};
  const TensorId gate = b.input("gate", shape, 3.0);
  const TensorId y = b.output("y", shape), dy = b.input("dy", shape);
  const TensorId dgate = b.output("dgate", shape);
  b.op(OpKind::kGatedActivation, {gate}, {y}, GatedActivationAttributes{activation});
  b.op(OpKind::kGatedActivationBackward, {gate, dy}, {dgate}, GatedActivationAttributes{activation});
  b.result().projections = {{y, dy}};
  b.result().gradients = {{gate, dgate}};
  return b.result();
}
OpCase alone_gelu(DType storage, Scale scale) { return activated_alone(storage, scale, ActivationKind::kGelu); }
OpCase alone_gelu_tanh(DType storage, Scale scale) {
  return activated_alone(storage, scale, ActivationKind::kGeluTanh);
}
OpCase gated_silu(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kSilu}); }
OpCase gated_gelu(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kGelu}); }
OpCase gated_gelu_tanh(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kGeluTanh}); }
OpCase gated_clamped(DType storage, Scale scale) {
  return gated_case(storage, scale, {ActivationKind::kClampedSwiglu, 1.5F, 1.25F});
}

OpCase gated_sigmoid(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kSigmoid}); }
OpCase gated_relu(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kRelu}); }
OpCase gated_identity(DType storage, Scale scale) { return gated_case(storage, scale, {ActivationKind::kIdentity}); }

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

/// By one number, which nothing trains, there and back.
OpCase scaled_whole(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.inner};
  const TensorId factor = b.wide_input("factor", {1});
  const TensorId x = b.input("x", shape), y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape), dx = b.output("dx", shape);
  b.op(OpKind::kColumnScale, {x, factor}, {y}, ColumnScaleAttributes{});
  b.op(OpKind::kColumnScale, {dy, factor}, {dx}, ColumnScaleAttributes{});
  b.result().projections = {{y, dy}};
  b.result().gradients.push_back({x, dx});
  b.result().reduction = 1;
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
OpCase expand_mxfp4(DType storage, Scale scale) { return expand_case(storage, scale, Encoding::kMxfp4); }

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

}  // namespace

const std::vector<OpDescription>& op_descriptions() {
  static const std::vector<OpDescription> descriptions = {
      {"Embedding", embedding, true},
      {"EmbeddingOfFew", embedding_of_few, true},
      {"EmbeddingScaled", embedding_scaled, true},
      {"Norm", norm_plain, true},
      {"Norm_AddendAndWeightGradient", norm_whole, true},
      {"Norm_WeightOffset", norm_with_offset, true},
      {"Norm_AllHeads", norm_of_heads, true},
      {"Norm_WithoutWeight", norm_without_weight, true},
      {"Norm_Centred", layer_norm_plain, true},
      {"Norm_CentredWithBias", layer_norm, true},
      {"Norm_CentredOneRow", layer_norm_of_a_row, true},
      {"Norm_CentredSeveralChunks", layer_norm_of_chunks, false},
      {"Norm_CentredWithoutBias", layer_norm_without_bias, true},
      {"Norm_CentredWithoutWeight", layer_norm_without_weight, true},
      {"Add", sums, false},  // linear
      {"MatMul", matmul_plain, true},
      {"MatMul_AlphaBiasAddend", matmul_whole, true},
      {"MatMul_FewRows", matmul_few_rows, true},
      {"MatMul_FewFours", matmul_few_fours, true},
      {"MatMul_FewGradients", matmul_few_gradients, true},
      {"MatMul_LowRankIn", matmul_low_rank_in, true},
      {"MatMul_LowRankOut", matmul_low_rank_out, true},
      {"MatMul_SeveralChunks", matmul_chunks, false},  // its gradient in fp64 is the plain one's, only slower
      {"MatMul_Fours", matmul_fours, false},
      {"MatMul_Short", matmul_short, true},
      {"Rope", rope_static, true},
      {"Rope_Dynamic", rope_dynamic, true},
      {"Rope_PartialAndLong", rope_partial, true},
      {"Rope_Growing", rope_growing, true},
      {"Attention", attention_full, true},
      {"Attention_Window", attention_window, true},
      {"Attention_Sink", attention_sink, true},
      {"JoinHeads", heads_of_two_parts, true},
      {"JoinHeads_Eights", heads_of_eights, true},
      {"JoinHeads_FilledUp", heads_filled_up, true},
      {"JoinHeads_Cut", heads_cut, true},
      {"JoinHeads_PartsCut", heads_of_parts_cut, true},
      {"JoinHeads_Rows", rows_of_two_parts, true},
      {"JoinHeads_RowsFilledUp", rows_filled_up, true},
      {"Attention_SinkSeveralChunks", attention_sink_chunks, false},  // its gradient in fp64 is the plain one's
      {"Attention_Cap", attention_cap, true},
      {"Attention_CapWindow", attention_cap_window, true},
      {"Attention_Wide", attention_wide, false},  // its gradient is that of the others
      {"CachedAttention", cached_full, false},    // generation only
      {"CachedAttention_Window", cached_window, false},
      {"CachedAttention_Cap", cached_cap, false},
      {"CachedAttention_Wide", cached_wide, false},
      {"SoftCap", soft_cap_case, false},  // likewise
      {"Convolution", convolution, true},
      {"Convolution_SeveralChunks", convolution_of_many_tokens, false},  // likewise
      {"Convolution_State", convolution_from_state, false},              // generation only
      {"Convolution_NewState", convolution_from_nothing, false},
      {"Convolution_OneToken", convolution_of_one_token, false},
      {"Convolution_Plain", plain_convolution, true},
      {"Convolution_PlainState", plain_convolution_from_state, false},
      {"Convolution_Bias", biased_convolution, true},
      {"Convolution_BiasState", biased_convolution_from_state, false},
      {"DeltaRule", delta_rule, true},
      {"DeltaRule_SeveralCheckpoints", delta_rule_of_many_tokens, true},
      {"DeltaRule_State", delta_rule_from_state, false},
      {"DeltaRule_NewState", delta_rule_from_nothing, false},
      {"DeltaRule_OneToken", delta_rule_of_one_token, false},
      {"DeltaRule_FirstToken", delta_rule_of_first_token, false},
      {"StateSpace", state_space, true},
      {"StateSpace_SeveralCheckpoints", state_space_of_many_tokens, true},
      {"StateSpace_LimitedSteps", state_space_of_limited_steps, true},
      {"StateSpace_State", state_space_from_state, false},
      {"StateSpace_NewState", state_space_from_nothing, false},
      {"StateSpace_SingleTokens", state_space_of_single_tokens, false},
      {"StateSpace_OneToken", state_space_of_one_token, false},
      {"HeadScale", head_scale, true},
      {"ChannelScale", channel_scale, true},
      {"GatedActivation_ByGroups", gated_by_groups, true},
      {"GatedActivation_Silu", gated_silu, true},
      {"GatedActivation_Gelu", gated_gelu, true},
      {"GatedActivation_GeluTanh", gated_gelu_tanh, true},
      {"GatedActivation_Relu", gated_relu, true},
      {"GatedActivation_Identity", gated_identity, true},
      {"GatedActivation_Clamped", gated_clamped, true},
      {"GatedActivation_AloneGelu", alone_gelu, true},
      {"GatedActivation_AloneGeluTanh", alone_gelu_tanh, true},
      {"GatedActivation_Sigmoid", gated_sigmoid, true},
      {"Dropout", dropout_case, true},
      {"Dropout_Rest", dropout_rest, true},
      {"Noise", noise_case, false},
      {"Magnitude", magnitude_plain, true},
      {"Magnitude_BiasAddend", magnitude_whole, true},
      {"ColumnScale_One", scaled_whole, true},
      {"CrossEntropy", entropy_whole, true},
      {"CrossEntropy_FrozenHead", entropy_frozen_head, true},
      {"CrossEntropy_LossOnly", entropy_loss, false},
      {"CrossEntropy_SeveralChunks", entropy_chunks, false},
      {"CrossEntropy_Scaled", entropy_scaled, false},
      {"CrossEntropy_Cap", entropy_cap, true},
      {"Vocabulary", vocabulary_whole, true},
      {"Vocabulary_FrozenHead", vocabulary_frozen, true},
      {"Vocabulary_SeveralChunks", vocabulary_chunks, false},  // likewise
      {"Vocabulary_Scaled", vocabulary_scaled, false},
      {"Vocabulary_Cap", vocabulary_cap, true},
      {"Vocabulary_Each", vocabulary_each, true},
      {"Vocabulary_AtOnce", vocabulary_at_once, true},
      {"SelectLast", select_last_case, false},
      {"Route", route_plain, true},
      {"Route_Normalised", route_normalised, true},
      {"Route_Sigmoid", route_by_sigmoid, true},
      {"Route_ToOne", route_to_one, true},
      {"Route_Bias", route_by_bias, true},
      {"Route_BiasOfSigmoids", route_by_bias_of_sigmoids, true},
      {"Route_Groups", route_in_groups, true},
      {"Route_GroupsOfSigmoids", route_in_groups_of_sigmoids, true},
      {"Route_Most", route_among_most, false},              // its gradient in fp64 is the plain one's
      {"Route_EqualLogits", route_of_equal_logits, false},  // which ones are chosen hangs on the least step
      {"Experts", experts_whole, true},
      {"Experts_FewRows", experts_of_few_rows, true},
      {"Experts_SeveralChunks", experts_of_many_rows, false},  // likewise
      {"Experts_Adapted", adapted_experts, true},
      {"Experts_Stacked", stacked_experts, false},
      {"Experts_MostStacked", most_stacked_experts, false},
      {"Experts_ShareScale", share_scale, true},
      {"Experts_Bias", expert_biases, true},
      {"Experts_BiasSeveralChunks", expert_biases_of_many_rows, false},  // likewise
      {"Expand_Int8", expand_int8, false},                               // of frozen weights: nothing flows back
      {"Expand_Nf4", expand_nf4, false},
      {"Expand_Mxfp4", expand_mxfp4, false},
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
