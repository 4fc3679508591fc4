// Ops that copy rows: look-up, its gradient by row, the last token's row.
#include <algorithm>
#include <cstring>

#include "kernels/storage.h"
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

class Embedding final : public PreparedOp {
 public:
  Embedding(const Op& op, std::int64_t tokens, std::int64_t vocabulary, std::int64_t width)
      : op_(op), tokens_(tokens), vocabulary_(vocabulary), width_(width) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const auto* ids = context.as<std::int32_t>(op_.reads[0]);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      if (ids[t] >= vocabulary_) {
        return internal_error("token {} has id {}, but the table '{}' has {} rows", t, ids[t],
                              context.list.tensors[op_.reads[1]].name, vocabulary_);
      }
    }
    const ConstArray table = context.array(op_.reads[1]);
    const Array x = context.out(op_.writes[0]);
    const float scale = std::get<EmbeddingAttributes>(op_.attributes).scale;
    const std::int64_t step = task_rows(width_);
    context.pool.parallel_for(divide_up(tokens_, step), [&](std::int64_t task, std::uint32_t) {
      for (std::int64_t t = task * step; t < std::min(tokens_, (task + 1) * step); ++t) {
        const Array row = x.at(t * width_);
        if (ids[t] >= 0) {
          convert_row(table.at(ids[t] * width_), row, width_, scale);
        } else {
          std::memset(row.data, 0, static_cast<std::size_t>(width_ * size_of(row.storage)));
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const Op& op_;
  const std::int64_t tokens_;
  const std::int64_t vocabulary_;
  const std::int64_t width_;
};

/// Sorts the tokens by (id, token): the tokens of an id then stand together in token order, and the distinct ids in
/// rising order.
class EmbeddingBackward final : public PreparedOp {
 public:
  EmbeddingBackward(const Op& op, std::int64_t tokens, std::int64_t width) : op_(op), tokens_(tokens), width_(width) {}

  Bytes scratch_bytes(std::uint32_t) const override {
    return static_cast<Bytes>(tokens_) * sizeof(std::uint64_t) + static_cast<Bytes>(tokens_ + 1) * sizeof(std::int64_t);
  }

  absl::Status run(const RunContext& context) const override {
    const auto* ids = context.as<std::int32_t>(op_.reads[0]);
    const auto* bounds = context.as<std::int32_t>(op_.reads[1]);
    const std::int64_t real = bounds[bounds[0] + 1];
    auto* order = reinterpret_cast<std::uint64_t*>(context.scratch);  // id << 32 | token
    auto* first = reinterpret_cast<std::int64_t*>(order + tokens_);   // of distinct id i, in `order`
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < real; ++t) {
      if (ids[t] < 0) continue;
      order[count++] = static_cast<std::uint64_t>(ids[t]) << 32U | static_cast<std::uint64_t>(t);
    }
    std::sort(order, order + count);
    auto* row_ids = context.as<std::int32_t>(op_.writes[0]);
    std::int64_t rows = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<std::int32_t>(order[i] >> 32U);
      if (rows > 0 && row_ids[rows] == id) continue;
      first[rows++] = i;
      row_ids[rows] = id;
    }
    row_ids[0] = static_cast<std::int32_t>(rows);
    first[rows] = count;
    sum_rows(context, order, first, rows);
    return absl::OkStatus();
  }

 private:
  void sum_rows(const RunContext& context, const std::uint64_t* order, const std::int64_t* first,
                std::int64_t rows) const {
    const ConstArray dy = context.array(op_.reads[2]);
    auto* sums = context.as<float>(op_.writes[1]);
    const float scale = std::get<EmbeddingAttributes>(op_.attributes).scale;
    const std::int64_t step = task_rows(width_);
    context.pool.parallel_for(divide_up(rows, step), [&](std::int64_t task, std::uint32_t) {
      for (std::int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) {
        float* sum = sums + row * width_;
        for (std::int64_t i = first[row]; i < first[row + 1]; ++i) {
          const ConstArray token = dy.at(static_cast<std::int64_t>(order[i] & 0xFFFFFFFFU) * width_);
          if (i == first[row]) {
            convert_row(token, {sum}, width_);
          } else {
            add_row(token, sum, width_);
          }
        }
        if (scale != 1.0F) convert_row({sum}, {sum}, width_, scale);
      }
    });
  }

  const Op& op_;
  const std::int64_t tokens_;
  const std::int64_t width_;
};

class SelectLast final : public PreparedOp {
 public:
  SelectLast(const Op& op, std::int64_t width) : op_(op), width_(width) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const auto* bounds = context.as<std::int32_t>(op_.reads[1]);
    const std::int64_t real = bounds[bounds[0] + 1];
    if (real < 1) return internal_error("a batch without tokens has no last one");
    const ConstArray row = context.array(op_.reads[0]).at((real - 1) * width_);
    std::memcpy(context.at(op_.writes[0]), row.data, static_cast<std::size_t>(width_ * size_of(row.storage)));
    return absl::OkStatus();
  }

 private:
  const Op& op_;
  const std::int64_t width_;
};

}  // namespace

PreparedOr prepare_row_op(const Preparation& preparation) {
  const Op& op = preparation.op;
  switch (op.kind) {
    case OpKind::kEmbedding: {
      const Shape& table = preparation.read(1).shape;
      return std::make_unique<Embedding>(op, rows_of(preparation.read(0)), table[0], table[1]);
    }
    case OpKind::kEmbeddingBackward: {
      const TensorDesc& dy = preparation.read(2);
      return std::make_unique<EmbeddingBackward>(op, rows_of(dy), columns_of(dy));
    }
    default:
      return std::make_unique<SelectLast>(op, columns_of(preparation.read(0)));
  }
}

}  // namespace rondo::devices::cpu
