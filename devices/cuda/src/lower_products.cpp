// Steps of matrix products.
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

/// dw += alpha dy^T x, by chunks of kTokenChunk tokens in rising order.
absl::Status lower_weight_gradient(Lowering& op) {
  RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(1)));
  const std::int64_t tokens = op.in(0).shape[0];
  const Bytes element = size_of(op.in(0).dtype);
  Lowering::Product product;
  product.shape.rows = Lowering::columns_of(op.in(0));
  product.shape.columns = Lowering::columns_of(op.in(1));
  product.shape.a_transposed = true;
  product.shape.operands = Lowering::storage_of(op.in(0));
  product.alpha = op.attributes<MatMulAttributes>().alpha;
  product.addend = op.write(0);
  product.c = op.write(0);
  for (std::int64_t first = 0; first < tokens; first += kTokenChunk) {
    product.shape.inner = std::min(kTokenChunk, tokens - first);
    product.a = op.read(0).past(static_cast<Bytes>(first * product.shape.rows) * element);
    product.b = op.read(1).past(static_cast<Bytes>(first * product.shape.columns) * element);
    RONDO_RETURN_IF_ERROR(op.product(product));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status lower_product(Lowering& op) {
  if (op.op().kind == OpKind::kMatMulWeightGradient) return lower_weight_gradient(op);
  RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(1)));
  const auto& attributes = op.attributes<MatMulAttributes>();
  const bool forward = op.op().kind == OpKind::kMatMul;
  const Shape& w = op.in(1).shape;
  Lowering::Product product;
  product.shape.rows = op.in(0).shape[0];
  product.shape.columns = forward ? w[0] : w[1];
  product.shape.inner = forward ? w[1] : w[0];
  product.shape.b_transposed = forward;
  product.shape.operands = Lowering::storage_of(op.in(0));
  product.shape.result = Lowering::storage_of(op.out(0));
  product.alpha = attributes.alpha;
  product.a = op.read(0);
  product.b = op.read(1);
  product.c = op.write(0);
  if (attributes.has_bias) {
    product.bias = op.read(2);
    product.bias_storage = Lowering::storage_of(op.in(2));
  }
  if (attributes.has_addend) {
    product.addend = op.read(op.op().reads.size() - 1);
    product.addend_storage = Lowering::storage_of(op.in(op.op().reads.size() - 1));
  }
  return op.product(product);
}

}  // namespace rondo::devices::cuda
