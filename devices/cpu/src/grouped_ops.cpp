// Products of each expert's rows by that expert's weights, one expert after the other, each on all threads.
#include <algorithm>
#include <cstring>

#include "kernels/storage.h"
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

/// Rows that a product is planned for; weights are brought into order once for so many.
constexpr std::int64_t kMostRows = 2048;

class GroupedMatMul final : public PreparedOp {
 public:
  GroupedMatMul(const Op& op, const RowProduct& product, const ProductShape& shape, std::int64_t all_rows,
                bool few_tokens)
      : op_(op), product_(product), shape_(shape), all_rows_(all_rows), few_(few_tokens && shape.b_transposed) {}

  Bytes scratch_bytes(std::uint32_t members) const override {
    return std::max<Bytes>(product_.scratch_bytes(members), few_rows_scratch(kFewRows, shape_.inner));
  }

  absl::Status run(const RunContext& context) const override {
    const auto* offsets = context.as<std::int32_t>(op_.reads[1]);
    const std::size_t experts = experts_of(op_);
    for (std::size_t e = 0; e < experts; ++e) {
      const ExpertPlace place = expert_place(op_, e, shape_.inner * shape_.columns);
      const ConstArray w = context.array(op_.reads[2 + place.tensor]).at(place.first);
      for (std::int64_t row = offsets[e]; row < offsets[e + 1]; row += shape_.rows) {
        RONDO_RETURN_IF_ERROR(multiply(context, row, std::min<std::int64_t>(shape_.rows, offsets[e + 1] - row), w));
      }
    }
    const Array padding = context.out(op_.writes[0]).at(offsets[experts] * shape_.columns);
    std::memset(padding.data, 0,
                static_cast<std::size_t>((all_rows_ - offsets[experts]) * shape_.columns * size_of(padding.storage)));
    return absl::OkStatus();
  }

 private:
  absl::Status multiply(const RunContext& context, std::int64_t row, std::int64_t rows, ConstArray w) const {
    const ConstArray a = context.array(op_.reads[0]).at(row * shape_.inner);
    const auto& group = std::get<GroupAttributes>(op_.attributes);
    Finish finish;
    finish.alpha = group.alpha;
    if (group.has_addend) {
      finish.addend = context.array(op_.reads.back()).at(row * shape_.columns);
    }
    finish.out = context.out(op_.writes[0]).at(row * shape_.columns);
    if (few_) {
      few_rows_product(context.pool, a, w, finish, rows, shape_.columns, shape_.inner, context.scratch);
      return absl::OkStatus();
    }
    return product_.run(context.pool, rows, {.a = a, .b = w}, finish, context.scratch);
  }

  const Op& op_;
  const RowProduct product_;
  const ProductShape shape_;
  const std::int64_t all_rows_;
  const bool few_;  // as RowProduct::few_rows(): no expert has more rows than there are tokens
};

class GroupedWeightGradient final : public PreparedOp {
 public:
  GroupedWeightGradient(const Op& op, const WeightProduct& product, const WeightShape& shape)
      : op_(op), product_(product), shape_(shape) {}

  Bytes scratch_bytes(std::uint32_t members) const override { return product_.scratch_bytes(members); }

  absl::Status run(const RunContext& context) const override {
    const auto* offsets = context.as<std::int32_t>(op_.reads[2]);
    for (std::size_t e = 0; e < experts_of(op_); ++e) {
      const ExpertPlace place = expert_place(op_, e, shape_.rows * shape_.columns);
      float* dw = context.as<float>(op_.writes[place.tensor]) + place.first;
      for (std::int64_t row = offsets[e]; row < offsets[e + 1]; row += shape_.tokens) {
        RONDO_RETURN_IF_ERROR(product_.run(context.pool, std::min<std::int64_t>(shape_.tokens, offsets[e + 1] - row),
                                           context.array(op_.reads[0]).at(row * shape_.rows),
                                           context.array(op_.reads[1]).at(row * shape_.columns), dw, context.scratch));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Op& op_;
  const WeightProduct product_;
  const WeightShape shape_;
};

PreparedOr prepare_rows(const Preparation& preparation) {
  const TensorDesc& a = preparation.read(0);
  const TensorDesc& w = preparation.read(2);
  ProductShape shape;
  shape.rows = std::min(rows_of(a), kMostRows);
  shape.b_transposed = preparation.op.kind == OpKind::kGroupedMatMul;
  shape.columns = columns_of(preparation.write(0));
  shape.inner = columns_of(a);
  shape.a_storage = storage_of(a.dtype);
  shape.b_storage = storage_of(w.dtype);
  const auto& group = std::get<GroupAttributes>(preparation.op.attributes);
  shape.trivial_finish = preparation.write(0).dtype == DType::kFloat32 && group.alpha == 1.0F && !group.has_addend;
  shape.usual_rows = divide_up(rows_of(a), static_cast<std::int64_t>(experts_of(preparation.op)));
  RONDO_ASSIGN_OR_RETURN(const RowProduct product, RowProduct::plan(preparation.engines, shape));
  return std::make_unique<GroupedMatMul>(preparation.op, product, shape, rows_of(a),
                                         preparation.list.tokens <= kFewRows);
}

PreparedOr prepare_weights(const Preparation& preparation) {
  WeightShape shape;
  shape.tokens = std::min(rows_of(preparation.read(0)), kTokenChunk);
  shape.rows = columns_of(preparation.read(0));
  shape.columns = columns_of(preparation.read(1));
  shape.a_storage = storage_of(preparation.read(0).dtype);
  shape.b_storage = storage_of(preparation.read(1).dtype);
  shape.alpha = std::get<GroupAttributes>(preparation.op.attributes).alpha;
  RONDO_ASSIGN_OR_RETURN(const WeightProduct product, WeightProduct::plan(preparation.engines, shape));
  RONDO_RETURN_IF_ERROR(product.prepare_any_tokens());
  return std::make_unique<GroupedWeightGradient>(preparation.op, product, shape);
}

}  // namespace

PreparedOr prepare_grouped_product(const Preparation& preparation) {
  return preparation.op.kind == OpKind::kGroupedMatMulWeightGradient ? prepare_weights(preparation)
                                                                     : prepare_rows(preparation);
}

}  // namespace rondo::devices::cpu
