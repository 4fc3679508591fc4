// The ops of an optimizer: update.h's arithmetic, block by block.
#include "prepared_op.h"
#include "rondo/base/status.h"
#include "rondo/devices/moment_tables.h"
#include "rondo/devices/update.h"

namespace rondo::devices::cpu {
namespace {

class UpdateOp : public PreparedOp {
 public:
  explicit UpdateOp(const Preparation& preparation) : op_(preparation.op), list_(preparation.list) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

 protected:
  std::int64_t blocks() const {
    return list_.tensors[op_.reads[0]].elements() / static_cast<std::int64_t>(kUpdateBlock);
  }

  const Op& op_;
  const OpList& list_;
};

class AddRows final : public UpdateOp {
 public:
  using UpdateOp::UpdateOp;
  absl::Status run(const RunContext& context) const override {
    const auto* ids = context.as<std::int32_t>(op_.reads[0]);
    const auto* rows = context.as<float>(op_.reads[1]);
    auto* table = context.as<float>(op_.writes[0]);
    const std::int64_t most = rows_of(list_.tensors[op_.reads[1]]);
    const std::int64_t height = rows_of(list_.tensors[op_.writes[0]]);
    const auto width = static_cast<std::size_t>(columns_of(list_.tensors[op_.reads[1]]));
    if (ids[0] < 0 || ids[0] > most) return internal_error("{} rows are to be added, of {}", ids[0], most);
    for (std::int64_t i = 1; i <= ids[0]; ++i) {
      if (ids[i] < 0 || ids[i] >= height) return internal_error("row {} is added to a table of {}", ids[i], height);
    }
    add_rows(context.pool, ids, rows, width, std::get<AddRowsAttributes>(op_.attributes).padding_row, table);
    return absl::OkStatus();
  }
};

class SumOfSquares final : public UpdateOp {
 public:
  using UpdateOp::UpdateOp;
  absl::Status run(const RunContext& context) const override {
    const auto* x = context.as<float>(op_.reads[0]);
    auto* sums = context.as<double>(op_.writes[0]);
    context.pool.parallel_for(blocks(), [&](std::int64_t block, std::uint32_t) {
      sums[block] = sum_of_squares(x + static_cast<std::size_t>(block) * kUpdateBlock, kUpdateBlock);
    });
    return absl::OkStatus();
  }
};

/// kAdamW and kAdamW8.
class AdamW final : public UpdateOp {
 public:
  using UpdateOp::UpdateOp;
  absl::Status run(const RunContext& context) const override {
    const auto* gradient = context.as<float>(op_.reads[0]);
    const auto* factors = context.as<float>(op_.reads[1]);
    const auto* keys = context.as<std::uint64_t>(op_.reads[2]);
    const auto* owners = context.as<std::int32_t>(op_.reads[3]);
    auto* master = context.as<float>(op_.reads[4]);
    auto* published = op_.writes.empty() ? nullptr : context.as<std::uint16_t>(op_.writes[0]);
    const std::int64_t parameters = list_.tensors[op_.reads[2]].elements();
    for (std::int64_t block = 0; block < blocks(); ++block) {
      const std::int32_t owner = owners[2 * block];
      if (owner < 0 || owner >= parameters) return internal_error("block {} is of parameter {}", block, owner);
    }
    context.pool.parallel_for(blocks(), [&](std::int64_t task, std::uint32_t) {
      const auto block = static_cast<std::size_t>(task);
      const std::size_t begin = block * kUpdateBlock;
      const auto parameter = static_cast<std::size_t>(owners[2 * block]);
      UpdateArrays arrays;
      arrays.master = master + begin;
      arrays.gradient = gradient + begin;
      if (published != nullptr) {
        arrays.published = published + begin;
        arrays.narrow = narrow_of(list_.tensors[op_.writes[0]].dtype);
      }
      const StepFactors of_parameter = unpack(factors + parameter * kUpdateFactors);
      const std::uint32_t key = rounding_key(keys[parameter], static_cast<std::size_t>(owners[2 * block + 1]));
      if (op_.kind == OpKind::kAdamW8) {
        adamw_coded(arrays, coded(context, begin), kUpdateBlock, of_parameter, key);
      } else {
        arrays.first = context.as<float>(op_.reads[5]) + begin;
        arrays.second = context.as<float>(op_.reads[6]) + begin;
        adamw(arrays, kUpdateBlock, of_parameter, key);
      }
    });
    return absl::OkStatus();
  }

 private:
  /// From an element on.
  CodedMoments coded(const RunContext& context, std::size_t begin) const {
    CodedMoments moments;
    for (const std::size_t i : {0U, 1U}) {
      moments.codes[i] = context.as<std::uint8_t>(op_.reads[5 + 2 * i]) + begin;
      moments.scales[i] = context.as<float>(op_.reads[6 + 2 * i]) + begin / kMomentBlock;
    }
    return moments;
  }
};

}  // namespace

PreparedOr prepare_update_op(const Preparation& preparation) {
  switch (preparation.op.kind) {
    case OpKind::kAddRows:
      return std::make_unique<AddRows>(preparation);
    case OpKind::kSumOfSquares:
      return std::make_unique<SumOfSquares>(preparation);
    default:
      return std::make_unique<AdamW>(preparation);
  }
}

}  // namespace rondo::devices::cpu
