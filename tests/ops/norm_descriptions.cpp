#include "norm_descriptions.h"

#include "case_sizes.h"

namespace rondo::devices::testing {
namespace {

/// `heads`: 0 for a norm over a token's row, else for one over all its heads together. `whole`: with an addend in the
/// backward op, and with gradients of weight and bias where there are these.
OpCase norm_of_sizes(DType storage, const Sizes& s, bool whole, std::int64_t heads, const NormAttributes& attributes) {
  CaseBuilder b(storage, s.tokens);
  const Shape shape = heads == 0 ? Shape{s.tokens, s.hidden} : Shape{s.tokens, heads, s.head_dim};
  const std::int64_t width = heads == 0 ? s.hidden : heads * s.head_dim;
  const TensorId x = b.input("x", shape);
  std::vector<TensorId> reads = {x};
  if (attributes.has_weight()) reads.push_back(b.weight("w", {width}));
  std::vector<TensorId> backward_reads = reads;
  if (attributes.has_bias) reads.push_back(b.weight("bias", {width}));
  const TensorId y = b.output("y", shape);
  const TensorId dy = b.input("dy", shape);
  const TensorId dx = b.output("dx", shape);
  backward_reads.push_back(dy);
  b.op(OpKind::kNorm, reads, {y}, attributes);
  b.result().projections = {{y, dy}};
  b.result().reduction = width;
  b.result().gradients = {{x, dx}};
  NormAttributes backward = attributes;
  backward.has_bias = false;
  if (!whole) {
    b.op(OpKind::kNormBackward, backward_reads, {dx}, backward);
    return b.result();
  }
  // The residual stream goes round the norm: z = x + addend of its own, whose gradient is added to dx.
  const TensorId z = b.output("z", shape);
  const TensorId residual = b.input("dz", shape);
  const TensorId other = b.input("other", shape);
  b.op(OpKind::kAdd, {x, other}, {z});
  backward.has_addend = true;
  backward.has_weight_gradient = attributes.has_weight();
  backward_reads.push_back(residual);
  std::vector<TensorId> writes = {dx};
  if (attributes.has_weight()) {
    writes.push_back(b.gradient("dw", {width}));
    b.result().gradients.emplace_back(reads[1], writes[1]);
  }
  b.op(OpKind::kNormBackward, backward_reads, writes, backward);
  if (attributes.has_bias) {
    const TensorId db = b.gradient("db", {width});
    b.op(OpKind::kBiasGradient, {dy}, {db});
    b.result().gradients.emplace_back(reads.back(), db);
  }
  b.result().projections.push_back({z, residual});
  return b.result();
}
OpCase norm(DType storage, Scale scale, bool whole, std::int64_t heads, const NormAttributes& attributes) {
  return norm_of_sizes(storage, sizes_of(scale), whole, heads, attributes);
}

/// Of so many rows: gradients of weight and bias are sums of one, or of several chunks.
OpCase layer_norm_of(DType storage, Scale scale, std::uint32_t tokens) {
  Sizes s = sizes_of(scale);
  s.tokens = tokens;
  return norm_of_sizes(storage, s, true, 0, {.epsilon = 1e-5F, .centred = true, .has_bias = true});
}

}  // namespace

OpCase norm_plain(DType storage, Scale scale) { return norm(storage, scale, false, 0, {1e-5F}); }
OpCase norm_whole(DType storage, Scale scale) { return norm(storage, scale, true, 0, {1e-5F}); }
/// The weight is scaled and added to one.
OpCase norm_with_offset(DType storage, Scale scale) {
  return norm(storage, scale, true, 0, {.epsilon = 1e-5F, .weight_factor = 0.625F, .weight_offset = 1.0F});
}
OpCase norm_of_heads(DType storage, Scale scale) { return norm(storage, scale, true, sizes_of(scale).heads, {1e-5F}); }
OpCase norm_without_weight(DType storage, Scale scale) {
  return norm(storage, scale, true, 0, {.epsilon = 1e-5F, .weight_factor = 0.0F, .weight_offset = 0.75F});
}
OpCase layer_norm(DType storage, Scale scale) {
  return norm(storage, scale, true, 0, {.epsilon = 1e-5F, .centred = true, .has_bias = true});
}
OpCase layer_norm_without_bias(DType storage, Scale scale) {
  return norm(storage, scale, true, 0, {.epsilon = 1e-5F, .weight_factor = 0.625F, .centred = true});
}
OpCase layer_norm_without_weight(DType storage, Scale scale) {
  return norm(storage, scale, true, 0,
              {.epsilon = 1e-5F, .weight_factor = 0.0F, .weight_offset = 0.75F, .centred = true});
}
OpCase layer_norm_of_a_row(DType storage, Scale scale) { return layer_norm_of(storage, scale, 1); }
OpCase layer_norm_of_chunks(DType storage, Scale scale) { return layer_norm_of(storage, scale, 2 * kTokenChunk + 77); }
OpCase layer_norm_plain(DType storage, Scale scale) {
  return norm(storage, scale, false, 0, {.epsilon = 1e-5F, .centred = true});
}

}  // namespace rondo::devices::testing
