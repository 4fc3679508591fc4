// The ops that are one matrix product.
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

bool is_wide(const TensorDesc& tensor) { return tensor.dtype == DType::kFloat32; }

const MatMulAttributes& attributes_of(const Op& op) { return std::get<MatMulAttributes>(op.attributes); }

/// Of the product alone, as if its sums were the result.
ProductShape shape_of(const OpList& list, const Op& op) {
  const TensorDesc& a = list.tensors[op.reads[0]];
  const TensorDesc& w = list.tensors[op.reads[1]];
  ProductShape shape;
  shape.rows = rows_of(a);
  shape.b_transposed = op.kind == OpKind::kMatMul;
  shape.columns = shape.b_transposed ? w.shape[0] : w.shape[1];
  shape.inner = shape.b_transposed ? w.shape[1] : w.shape[0];
  shape.a_storage = is_fp8(op) ? Storage::kBfloat16 : storage_of(a.dtype);
  shape.b_storage = is_fp8(op) ? Storage::kBfloat16 : storage_of(w.dtype);
  return shape;
}

/// What becomes of the sums of `op`, whose result `last` writes. `addend_of` has the addend.
Finish finish_of(const RunContext& context, const Op& op, const Op& addend_of, const Op& last) {
  Finish finish;
  finish.alpha = attributes_of(op).alpha;
  if (attributes_of(op).has_bias) finish.bias = context.array(op.reads[2]);
  if (attributes_of(addend_of).has_addend) finish.addend = context.array(addend_of.reads.back());
  finish.out = context.out(last.writes[0]);
  return finish;
}

/// One product, or a wide one with a narrow one at its side.
class MatMul final : public PreparedOp {
 public:
  /// `side` may be null. `addend_of` has the addend: the first of a pair. `last` writes the result.
  MatMul(const RowProduct& product, std::int64_t rows, const Op& op, const Op* side, const Op& addend_of,
         const Op& last)
      : product_(product), rows_(rows), op_(op), side_(side), addend_of_(addend_of), last_(last) {}

  Bytes scratch_bytes(std::uint32_t members) const override { return product_.scratch_bytes(members); }

  absl::Status run(const RunContext& context) const override {
    const Finish finish = finish_of(context, op_, addend_of_, last_);
    ProductOperands operands{.a = context.array(op_.reads[0]), .b = context.array(op_.reads[1])};
    if (side_ != nullptr) {
      operands.side_a = context.array(side_->reads[0]);
      operands.side_b = context.array(side_->reads[1]);
    }
    return product_.run(context.pool, rows_, operands, finish, context.scratch);
  }

 private:
  const RowProduct product_;
  const std::int64_t rows_;
  const Op& op_;
  const Op* side_;
  const Op& addend_of_;
  const Op& last_;
};

/// A product in eight bits: one of what its operands are rounded to.
class EightBitMatMul final : public PreparedOp {
 public:
  EightBitMatMul(const RowProduct& product, const ProductShape& shape, const Op& op)
      : product_(product), shape_(shape), op_(op) {}

  Bytes scratch_bytes(std::uint32_t members) const override {
    return bytes_of(shape_.rows) + bytes_of(shape_.columns) + product_.scratch_bytes(members);
  }

  absl::Status run(const RunContext& context) const override {
    std::byte* const b = context.scratch + bytes_of(shape_.rows);
    const ProductOperands operands{
        .a = round(context, 0, context.scratch, shape_.rows, shape_.inner,
                   is_left_e5m2(op_) ? EightBits::kRowsE5m2 : EightBits::kRowsE4m3),
        .b = shape_.b_transposed ? round(context, 1, b, shape_.columns, shape_.inner, EightBits::kRowsE4m3)
                                 : round(context, 1, b, shape_.inner, shape_.columns, EightBits::kColumnsE4m3)};
    return product_.run(context.pool, shape_.rows, operands, finish_of(context, op_, op_, op_),
                        b + bytes_of(shape_.columns));
  }

 private:
  /// Of an operand of so many rows along the extent that is summed over.
  Bytes bytes_of(std::int64_t rows) const {
    return round_up(static_cast<Bytes>(rows * shape_.inner) * sizeof(std::uint16_t), 64);
  }
  ConstArray round(const RunContext& context, std::size_t operand, std::byte* to, std::int64_t rows,
                   std::int64_t columns, EightBits format) const {
    const ConstArray from = context.array(op_.reads[operand]);
    round_to_eight_bits(context.pool, from.storage, from.data, reinterpret_cast<std::uint16_t*>(to), rows, columns,
                        format);
    return {to, Storage::kBfloat16};
  }

  const RowProduct product_;
  const ProductShape shape_;
  const Op& op_;
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
  const Op& op = preparation.op;
  ProductShape shape = shape_of(preparation.list, op);
  const MatMulAttributes& attributes = attributes_of(op);
  shape.trivial_finish =
      is_wide(preparation.write(0)) && attributes.alpha == 1.0F && !attributes.has_bias && !attributes.has_addend;
  RONDO_ASSIGN_OR_RETURN(const RowProduct product, RowProduct::plan(preparation.engines, shape));
  if (is_fp8(op)) return std::make_unique<EightBitMatMul>(product, shape, op);
  return std::make_unique<MatMul>(product, shape.rows, op, nullptr, op, op);
}

bool can_pair(const OpList& list, const ProductPair& pair, const Engines& engines) {
  if (is_fp8(list.ops[pair.wide()]) || is_fp8(list.ops[pair.narrow()])) return false;
  const ProductShape wide = shape_of(list, list.ops[pair.wide()]);
  const ProductShape narrow = shape_of(list, list.ops[pair.narrow()]);
  return !RowProduct::few_rows(wide) && !RowProduct::few_rows(narrow) &&
         engines.choose(wide.a_storage, wide.b_storage) == engines.choose(narrow.a_storage, narrow.b_storage);
}

PreparedOr prepare_matmul_pair(const OpList& list, const ProductPair& pair, const Engines& engines) {
  const Op& wide = list.ops[pair.wide()];
  const Op& narrow = list.ops[pair.narrow()];
  const Op& first = list.ops[pair.first];
  const Op& last = list.ops[pair.second];
  ProductShape shape = shape_of(list, wide);
  const ProductShape side = shape_of(list, narrow);
  shape.side = {side.inner, side.b_transposed, side.a_storage, side.b_storage, attributes_of(narrow).alpha};
  shape.trivial_finish =
      is_wide(list.tensors[last.writes[0]]) && !attributes_of(wide).has_bias && !attributes_of(first).has_addend;
  RONDO_ASSIGN_OR_RETURN(const RowProduct product, RowProduct::plan(engines, shape));
  return std::make_unique<MatMul>(product, shape.rows, wide, &narrow, first, last);
}

PreparedOr prepare_matmul_weight_gradient(const Preparation& preparation) {
  WeightProduct::Shape shape;
  shape.tokens = rows_of(preparation.read(0));
  shape.rows = columns_of(preparation.read(0));
  shape.columns = columns_of(preparation.read(1));
  shape.alpha = attributes_of(preparation.op).alpha;
  shape.a_storage = storage_of(preparation.read(0).dtype);
  shape.b_storage = storage_of(preparation.read(1).dtype);
  RONDO_ASSIGN_OR_RETURN(const WeightProduct product, WeightProduct::plan(preparation.engines, shape));
  return std::make_unique<MatMulWeightGradient>(preparation.op, product, shape.tokens);
}

}  // namespace rondo::devices::cpu
