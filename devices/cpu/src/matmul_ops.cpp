// The ops that are one matrix product.
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

bool is_bfloat16(const TensorDesc& tensor) { return tensor.dtype == DType::kBfloat16; }

class MatMul final : public PreparedOp {
 public:
  MatMul(const Op& op, const MatMulAttributes& attributes, const RowProduct& product, std::int64_t rows)
      : op_(op), attributes_(attributes), product_(product), rows_(rows) {}

  Bytes scratch_bytes(std::uint32_t members) const override { return product_.scratch_bytes(members); }

  absl::Status run(const RunContext& context) const override {
    Finish finish;
    finish.alpha = attributes_.alpha;
    if (attributes_.has_bias) finish.bias = context.array(op_.reads[2]);
    if (attributes_.has_addend) finish.addend = context.array(op_.reads.back());
    finish.out = context.out(op_.writes[0]);
    return product_.run(context.pool, rows_, context.array(op_.reads[0]), context.array(op_.reads[1]), finish,
                        context.scratch);
  }

 private:
  const Op& op_;
  const MatMulAttributes& attributes_;
  const RowProduct product_;
  const std::int64_t rows_;
};

class MatMulWeightGradient final : public PreparedOp {
 public:
  MatMulWeightGradient(const Op& op, const WeightProduct& product, std::int64_t tokens)
      : op_(op), product_(product), tokens_(tokens) {}

  Bytes scratch_bytes(std::uint32_t members) const override { return product_.scratch_bytes(members); }

  absl::Status run(const RunContext& context) const override {
    return product_.run(context.pool, tokens_, context.array(op_.reads[0]), context.array(op_.reads[1]),
                        context.as<float>(op_.writes[0]), context.scratch);
  }

 private:
  const Op& op_;
  const WeightProduct product_;
  const std::int64_t tokens_;
};

}  // namespace

PreparedOr prepare_matmul(const Preparation& preparation) {
  const auto& attributes = std::get<MatMulAttributes>(preparation.op.attributes);
  const TensorDesc& a = preparation.read(0);
  const TensorDesc& w = preparation.read(1);
  ProductShape shape;
  shape.rows = rows_of(a);
  shape.b_transposed = preparation.op.kind == OpKind::kMatMul;
  shape.columns = shape.b_transposed ? w.shape[0] : w.shape[1];
  shape.inner = shape.b_transposed ? w.shape[1] : w.shape[0];
  shape.a_bfloat16 = is_bfloat16(a);
  shape.b_bfloat16 = is_bfloat16(w);
  shape.trivial_finish =
      !is_bfloat16(preparation.write(0)) && attributes.alpha == 1.0F && !attributes.has_bias && !attributes.has_addend;
  RONDO_ASSIGN_OR_RETURN(const RowProduct product, RowProduct::plan(preparation.engines, shape));
  return std::make_unique<MatMul>(preparation.op, attributes, product, shape.rows);
}

PreparedOr prepare_matmul_weight_gradient(const Preparation& preparation) {
  WeightProduct::Shape shape;
  shape.tokens = rows_of(preparation.read(0));
  shape.rows = columns_of(preparation.read(0));
  shape.columns = columns_of(preparation.read(1));
  shape.alpha = std::get<MatMulAttributes>(preparation.op.attributes).alpha;
  shape.a_bfloat16 = is_bfloat16(preparation.read(0));
  shape.b_bfloat16 = is_bfloat16(preparation.read(1));
  RONDO_ASSIGN_OR_RETURN(const WeightProduct product, WeightProduct::plan(preparation.engines, shape));
  return std::make_unique<MatMulWeightGradient>(preparation.op, product, shape.tokens);
}

}  // namespace rondo::devices::cpu
