// Cross-entropy over the vocabulary without full logits.
//
// The tokens that have a target are gathered, in order, into chunks of cross_entropy_chunk(V): which rows meet in a
// chunk follows from the targets alone, and tokens without one cost nothing. A chunk goes through logits, losses with
// softmax - onehot, dx and dw, then the next takes its place. Where tiles must be prepared, a chunk that is not full is
// filled up with zero rows to a multiple of kRowsStep, so that few tile shapes exist.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "kernels/storage.h"
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

constexpr std::int64_t kRowsStep = 128;

class CrossEntropy final : public PreparedOp {
 public:
  static PreparedOr prepare(const Preparation& preparation);
  Bytes scratch_bytes(std::uint32_t members) const override;
  absl::Status run(const RunContext& context) const override;

 private:
  /// Where things lie in scratch.
  struct Scratch {
    Array x;                  // [chunk, C] the gathered rows, in the type that products read
    float* logits = nullptr;  // [chunk, V]
    Array gradient;           // [chunk, V] (softmax - onehot) * scale; over the logits when fp32
    float* dx = nullptr;      // [chunk, C]
    double* losses = nullptr;
    std::int32_t* tokens = nullptr;
    std::int32_t* targets = nullptr;
    std::byte* products = nullptr;
    Bytes size = 0;  // before `products`
  };

  explicit CrossEntropy(const Preparation& preparation)
      : op_(preparation.op),
        attributes_(std::get<CrossEntropyAttributes>(op_.attributes)),
        tokens_(preparation.read(0).shape[0]),
        width_(preparation.read(0).shape[1]),
        vocabulary_(preparation.read(1).shape[0]),
        chunk_(std::min(cross_entropy_chunk(vocabulary_), tokens_)) {}

  bool has_gradient() const { return attributes_.has_input_gradient || attributes_.has_weight_gradient; }
  /// What products read, beside w.
  Storage read_storage() const { return narrow_ ? Storage::kBfloat16 : Storage::kFloat32; }
  TensorId dx_id() const { return op_.writes[1]; }
  TensorId dw_id() const { return op_.writes.back(); }
  Scratch divide(std::byte* scratch) const;
  /// Fills tokens and targets from `token` on, at most a chunk. Returns how many; `token` moves behind the last one.
  absl::StatusOr<std::int64_t> collect(const RunContext& context, const Scratch& scratch, std::int64_t& token) const;
  void gather(const RunContext& context, const Scratch& scratch, std::int64_t rows, std::int64_t filled_up) const;
  void scatter(const RunContext& context, const Scratch& scratch, std::int64_t rows) const;
  absl::Status run_chunk(const RunContext& context, const Scratch& scratch, std::int64_t rows, double& loss) const;

  const Op& op_;
  const CrossEntropyAttributes& attributes_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  const std::int64_t vocabulary_;
  const std::int64_t chunk_;
  bool narrow_ = false;  // products read bf16
  RowProduct logits_;
  RowProduct dx_;
  WeightProduct dw_;
};

PreparedOr CrossEntropy::prepare(const Preparation& preparation) {
  const Storage x = storage_of(preparation.read(0).dtype);
  const Storage w = storage_of(preparation.read(1).dtype);
  std::unique_ptr<CrossEntropy> op(new CrossEntropy(preparation));
  const Engines& engines = preparation.engines;
  op->narrow_ = engines.narrow != nullptr && engines.choose(x, w) == engines.narrow;
  const Storage read = op->read_storage();
  RONDO_ASSIGN_OR_RETURN(op->logits_,
                         RowProduct::plan(engines, {op->chunk_, op->vocabulary_, op->width_, true, read, w, true}));
  if (op->attributes_.has_input_gradient) {
    RONDO_ASSIGN_OR_RETURN(op->dx_,
                           RowProduct::plan(engines, {op->chunk_, op->width_, op->vocabulary_, false, read, w, true}));
  }
  if (op->attributes_.has_weight_gradient) {
    RONDO_ASSIGN_OR_RETURN(op->dw_,
                           WeightProduct::plan(engines, {op->chunk_, op->vocabulary_, op->width_, 1.0F, read, read}));
  }
  for (std::int64_t rows = kRowsStep; rows < op->chunk_; rows += kRowsStep) {
    RONDO_RETURN_IF_ERROR(op->logits_.prepare_rows(rows));
    if (op->attributes_.has_input_gradient) RONDO_RETURN_IF_ERROR(op->dx_.prepare_rows(rows));
    if (op->attributes_.has_weight_gradient) RONDO_RETURN_IF_ERROR(op->dw_.prepare_tokens(rows));
  }
  return op;
}

CrossEntropy::Scratch CrossEntropy::divide(std::byte* scratch) const {
  Scratch parts;
  const auto take = [&](std::int64_t elements, Bytes element_bytes) -> std::byte* {
    const Bytes offset = parts.size;
    parts.size += round_up(static_cast<Bytes>(elements) * element_bytes, 64);
    return scratch == nullptr ? nullptr : scratch + offset;
  };
  parts.x = {take(chunk_ * width_, narrow_ ? 2 : 4), read_storage()};
  parts.logits = reinterpret_cast<float*>(take(chunk_ * vocabulary_, 4));
  parts.gradient = {parts.logits};
  if (narrow_ && has_gradient()) parts.gradient = {take(chunk_ * vocabulary_, 2), Storage::kBfloat16};
  if (attributes_.has_input_gradient) parts.dx = reinterpret_cast<float*>(take(chunk_ * width_, 4));
  parts.losses = reinterpret_cast<double*>(take(chunk_, 8));
  parts.tokens = reinterpret_cast<std::int32_t*>(take(chunk_, 4));
  parts.targets = reinterpret_cast<std::int32_t*>(take(chunk_, 4));
  parts.products = take(0, 1);
  return parts;
}

Bytes CrossEntropy::scratch_bytes(std::uint32_t members) const {
  Bytes products = logits_.scratch_bytes(members);
  if (attributes_.has_input_gradient) products = std::max(products, dx_.scratch_bytes(members));
  if (attributes_.has_weight_gradient) products = std::max(products, dw_.scratch_bytes(members));
  return divide(nullptr).size + products;
}

absl::StatusOr<std::int64_t> CrossEntropy::collect(const RunContext& context, const Scratch& scratch,
                                                   std::int64_t& token) const {
  const auto* targets = context.as<std::int32_t>(op_.reads[2]);
  std::int64_t rows = 0;
  for (; token < tokens_ && rows < chunk_; ++token) {
    const std::int32_t target = targets[token];
    if (target >= vocabulary_) {
      return internal_error("token {} has target {}, but the vocabulary has {} rows", token, target, vocabulary_);
    }
    if (target >= 0) {
      scratch.tokens[rows] = static_cast<std::int32_t>(token);
      scratch.targets[rows++] = target;
    } else if (attributes_.has_input_gradient) {
      const Array row = context.out(dx_id()).at(token * width_);
      std::memset(row.data, 0, static_cast<std::size_t>(width_ * size_of(row.storage)));
    }
  }
  return rows;
}

void CrossEntropy::gather(const RunContext& context, const Scratch& scratch, std::int64_t rows,
                          std::int64_t filled_up) const {
  const ConstArray x = context.array(op_.reads[0]);
  const std::int64_t step = task_rows(width_);
  context.pool.parallel_for(divide_up(rows, step), [&](std::int64_t task, std::uint32_t) {
    for (std::int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) {
      convert_row(x.at(scratch.tokens[row] * width_), scratch.x.at(row * width_), width_);
    }
  });
  std::memset(scratch.x.at(rows * width_).data, 0,
              static_cast<std::size_t>((filled_up - rows) * width_) * (narrow_ ? 2 : 4));
  std::fill(scratch.targets + rows, scratch.targets + filled_up, -1);
}

void CrossEntropy::scatter(const RunContext& context, const Scratch& scratch, std::int64_t rows) const {
  const Array dx = context.out(dx_id());
  const std::int64_t step = task_rows(width_);
  context.pool.parallel_for(divide_up(rows, step), [&](std::int64_t task, std::uint32_t) {
    for (std::int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) {
      convert_row({scratch.dx + row * width_}, dx.at(scratch.tokens[row] * width_), width_);
    }
  });
}

absl::Status CrossEntropy::run_chunk(const RunContext& context, const Scratch& scratch, std::int64_t rows,
                                     double& loss) const {
  const std::int64_t filled_up =
      narrow_ ? std::min<std::int64_t>(chunk_, divide_up(rows, kRowsStep) * kRowsStep) : rows;
  gather(context, scratch, rows, filled_up);
  const ConstArray x = {scratch.x.data, scratch.x.storage};
  const ConstArray w = context.array(op_.reads[1]);
  Finish to_logits;
  to_logits.out = {scratch.logits};
  RONDO_RETURN_IF_ERROR(logits_.run(context.pool, filled_up, {.a = x, .b = w}, to_logits, scratch.products));
  const float scale = attributes_.has_loss_scale ? *context.as<float>(op_.reads[3]) : 1.0F;
  softmax_cross_entropy(context.pool, read_storage(), scratch.logits, scratch.targets, scratch.losses,
                        has_gradient() ? scratch.gradient.data : nullptr, filled_up, vocabulary_, scale);
  for (std::int64_t row = 0; row < rows; ++row) loss += scratch.losses[row];
  const ConstArray gradient = {scratch.gradient.data, scratch.gradient.storage};
  if (attributes_.has_input_gradient) {
    Finish to_dx;
    to_dx.out = {scratch.dx};
    RONDO_RETURN_IF_ERROR(dx_.run(context.pool, filled_up, {.a = gradient, .b = w}, to_dx, scratch.products));
    scatter(context, scratch, rows);
  }
  if (!attributes_.has_weight_gradient) return absl::OkStatus();
  return dw_.run(context.pool, filled_up, gradient, x, context.as<float>(dw_id()), scratch.products);
}

absl::Status CrossEntropy::run(const RunContext& context) const {
  const Scratch scratch = divide(context.scratch);
  double loss = 0;
  for (std::int64_t token = 0; token < tokens_;) {
    RONDO_ASSIGN_OR_RETURN(const std::int64_t rows, collect(context, scratch, token));
    if (rows > 0) RONDO_RETURN_IF_ERROR(run_chunk(context, scratch, rows, loss));
  }
  *context.as<double>(op_.writes[0]) = loss;
  return absl::OkStatus();
}

}  // namespace

PreparedOr prepare_cross_entropy(const Preparation& preparation) { return CrossEntropy::prepare(preparation); }

}  // namespace rondo::devices::cpu
