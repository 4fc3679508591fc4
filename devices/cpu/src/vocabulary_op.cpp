// Cross-entropy over a vocabulary, whole or in parts: statistics, loss and gradients, see OpKind.
//
// The tokens that have a target are gathered, in order, into chunks of cross_entropy_chunk(V), whose logits exist at
// one time: which rows meet in a chunk follows from the targets alone, and tokens without one cost nothing. A chunk
// goes through the parts in rising order for its statistics and in falling order for its gradients; every product,
// statistic and rounding is that of a part, so that it makes no difference which parts an op has. Where tiles must be
// prepared, a chunk that is not full is filled up with zero rows to a multiple of kRowsStep, so that few tile shapes
// exist.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "kernels/storage.h"
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

constexpr std::int64_t kRowsStep = 128;

class Vocabulary final : public PreparedOp {
 public:
  static PreparedOr prepare(const Preparation& preparation);
  Bytes scratch_bytes(std::uint32_t members) const override;
  absl::Status run(const RunContext& context) const override;

 private:
  struct Part {
    TensorId w = 0;
    TensorId dw = 0;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    std::int64_t logits_before = 0;  // columns of the parts before it in the op
    RowProduct logits;
    RowProduct dx;
    WeightProduct gradient;
  };
  /// Where things lie in scratch.
  struct Scratch {
    Array x;                       // [chunk, C] the gathered rows, in the type that products read
    float* logits = nullptr;       // [chunk, N] a part, one after another
    Array gradient;                // [chunk, N] of the widest part; over its logits when fp32
    float* dx = nullptr;           // [chunk, C] of one part
    float* statistics = nullptr;   // [chunk, 3]
    float* normalisers = nullptr;  // [chunk, 2]
    double* losses = nullptr;
    std::int32_t* tokens = nullptr;
    std::int32_t* targets = nullptr;
    std::int32_t* places = nullptr;  // of the targets within a part
    std::byte* products = nullptr;
    Bytes size = 0;  // before `products`
  };
  /// Tokens of a chunk, and rows of the products that they are filled up to.
  struct Chunk {
    std::int64_t rows = 0;
    std::int64_t filled_up = 0;
  };

  explicit Vocabulary(const Preparation& preparation)
      : op_(preparation.op),
        attributes_(std::get<VocabularyAttributes>(op_.attributes)),
        tokens_(preparation.read(0).shape[0]),
        width_(preparation.read(0).shape[1]),
        chunk_(std::min(cross_entropy_chunk(attributes_.vocabulary), tokens_)) {}

  bool has_parts_before() const { return attributes_.first_row > 0; }
  bool gives_gradients() const { return attributes_.has_input_gradient; }
  /// What products read, beside w.
  Storage read_storage() const { return narrow_ ? Storage::kBfloat16 : Storage::kFloat32; }
  bool gives_statistics() const { return op_.kind == OpKind::kVocabularyStatistics; }
  bool gives_loss() const { return op_.kind == OpKind::kVocabularyLoss; }
  TensorId dx_id() const { return op_.writes[gives_loss() ? 1 : 0]; }
  absl::Status plan_parts(const Preparation& preparation);
  absl::Status prepare_rows(std::int64_t rows) const;
  Scratch divide(std::byte* scratch) const;
  absl::StatusOr<std::int64_t> collect(const RunContext& context, const Scratch& scratch, std::int64_t& token) const;
  void skip(const RunContext& context, std::int64_t token) const;
  void gather(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const;
  PartLogits logits_of(const Scratch& scratch, const Part& part, std::int64_t rows) const;
  PartGradient gradient_of(const RunContext& context, const Scratch& scratch, const Part& part,
                           const Chunk& chunk) const;
  absl::Status run_forward(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const;
  absl::Status run_backward(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const;
  absl::Status run_chunk(const RunContext& context, const Scratch& scratch, std::int64_t rows, double& loss) const;

  const Op& op_;
  const VocabularyAttributes& attributes_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  const std::int64_t chunk_;
  bool narrow_ = false;  // products read bf16
  std::vector<Part> parts_;
  std::int64_t all_rows_ = 0;
  std::int64_t most_rows_ = 0;
};

PreparedOr Vocabulary::prepare(const Preparation& preparation) {
  std::unique_ptr<Vocabulary> op(new Vocabulary(preparation));
  RONDO_RETURN_IF_ERROR(op->plan_parts(preparation));
  for (std::int64_t rows = kRowsStep; rows < op->chunk_; rows += kRowsStep) {
    RONDO_RETURN_IF_ERROR(op->prepare_rows(rows));
  }
  return op;
}

absl::Status Vocabulary::plan_parts(const Preparation& preparation) {
  const Engines& engines = preparation.engines;
  const Storage w = storage_of(preparation.read(2).dtype);
  narrow_ = engines.narrow != nullptr && engines.choose(storage_of(preparation.read(0).dtype), w) == engines.narrow;
  const Storage read = read_storage();
  for (std::uint32_t i = 0; i < attributes_.parts; ++i) {
    Part part;
    part.w = op_.reads[2 + i];
    if (attributes_.has_weight_gradient) part.dw = op_.writes[op_.writes.size() - attributes_.parts + i];
    part.first_row = attributes_.first_row + all_rows_;
    part.rows = preparation.read(2 + i).shape[0];
    part.logits_before = all_rows_;
    all_rows_ += part.rows;
    most_rows_ = std::max(most_rows_, part.rows);
    RONDO_ASSIGN_OR_RETURN(part.logits, RowProduct::plan(engines, {chunk_, part.rows, width_, true, read, w, true}));
    if (gives_gradients()) {
      RONDO_ASSIGN_OR_RETURN(part.dx, RowProduct::plan(engines, {chunk_, width_, part.rows, false, read, w, true}));
    }
    if (attributes_.has_weight_gradient) {
      RONDO_ASSIGN_OR_RETURN(part.gradient,
                             WeightProduct::plan(engines, {chunk_, part.rows, width_, 1.0F, read, read}));
    }
    parts_.push_back(part);
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::prepare_rows(std::int64_t rows) const {
  for (const Part& part : parts_) {
    RONDO_RETURN_IF_ERROR(part.logits.prepare_rows(rows));
    if (gives_gradients()) RONDO_RETURN_IF_ERROR(part.dx.prepare_rows(rows));
    if (attributes_.has_weight_gradient) RONDO_RETURN_IF_ERROR(part.gradient.prepare_tokens(rows));
  }
  return absl::OkStatus();
}

Vocabulary::Scratch Vocabulary::divide(std::byte* scratch) const {
  Scratch parts;
  const auto take = [&](std::int64_t elements, Bytes element_bytes) -> std::byte* {
    const Bytes offset = parts.size;
    parts.size += round_up(static_cast<Bytes>(elements) * element_bytes, 64);
    return scratch == nullptr ? nullptr : scratch + offset;
  };
  const auto floats = [&](std::int64_t elements) { return reinterpret_cast<float*>(take(elements, 4)); };
  const auto integers = [&](std::int64_t elements) { return reinterpret_cast<std::int32_t*>(take(elements, 4)); };
  parts.x = {take(chunk_ * width_, narrow_ ? 2 : 4), read_storage()};
  parts.logits = floats(chunk_ * all_rows_);
  if (narrow_ && gives_gradients()) parts.gradient = {take(chunk_ * most_rows_, 2), Storage::kBfloat16};
  if (gives_gradients()) parts.dx = floats(chunk_ * width_);
  parts.statistics = floats(chunk_ * 3);
  parts.normalisers = floats(chunk_ * 2);
  parts.losses = reinterpret_cast<double*>(take(chunk_, 8));
  parts.tokens = integers(chunk_);
  parts.targets = integers(chunk_);
  parts.places = integers(chunk_);
  parts.products = take(0, 1);
  return parts;
}

Bytes Vocabulary::scratch_bytes(std::uint32_t members) const {
  Bytes products = 0;
  for (const Part& part : parts_) {
    products = std::max(products, part.logits.scratch_bytes(members));
    if (gives_gradients()) products = std::max(products, part.dx.scratch_bytes(members));
    if (attributes_.has_weight_gradient) products = std::max(products, part.gradient.scratch_bytes(members));
  }
  return divide(nullptr).size + products;
}

/// Fills tokens and targets from `token` on, at most a chunk. Returns how many; `token` moves behind the last one.
absl::StatusOr<std::int64_t> Vocabulary::collect(const RunContext& context, const Scratch& scratch,
                                                 std::int64_t& token) const {
  const auto* targets = context.as<std::int32_t>(op_.reads[1]);
  std::int64_t rows = 0;
  for (; token < tokens_ && rows < chunk_; ++token) {
    const std::int32_t target = targets[token];
    if (target >= attributes_.vocabulary) {
      return internal_error("token {} has target {}, but the vocabulary has {} rows", token, target,
                            attributes_.vocabulary);
    }
    if (target >= 0) {
      scratch.tokens[rows] = static_cast<std::int32_t>(token);
      scratch.targets[rows++] = target;
    } else {
      skip(context, token);
    }
  }
  return rows;
}

/// What a token without a target gives.
void Vocabulary::skip(const RunContext& context, std::int64_t token) const {
  if (gives_statistics()) std::memset(context.as<float>(op_.writes[0]) + token * 3, 0, 3 * sizeof(float));
  if (!gives_gradients()) return;
  if (gives_loss() && has_parts_before()) {
    std::memset(context.as<float>(op_.writes[2]) + token * 2, 0, 2 * sizeof(float));
  }
  const Array row = context.out(dx_id()).at(token * width_);
  const std::size_t bytes = static_cast<std::size_t>(width_ * size_of(row.storage));
  if (gives_loss()) {
    std::memset(row.data, 0, bytes);
  } else {
    std::memcpy(row.data, context.array(op_.reads[4]).at(token * width_).data, bytes);
  }
}

void Vocabulary::gather(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const {
  const ConstArray x = context.array(op_.reads[0]);
  const std::int64_t step = task_rows(width_);
  context.pool.parallel_for(divide_up(chunk.rows, step), [&](std::int64_t task, std::uint32_t) {
    for (std::int64_t row = task * step; row < std::min(chunk.rows, (task + 1) * step); ++row) {
      convert_row(x.at(scratch.tokens[row] * width_), scratch.x.at(row * width_), width_);
    }
  });
  std::memset(scratch.x.at(chunk.rows * width_).data, 0,
              static_cast<std::size_t>((chunk.filled_up - chunk.rows) * width_) * (narrow_ ? 2 : 4));
  const bool before = op_.kind != OpKind::kVocabularyGradient && has_parts_before();
  const float* given = before ? context.as<float>(op_.reads[2 + attributes_.parts]) : nullptr;
  const float none[3] = {-std::numeric_limits<float>::infinity(), 0, 0};
  for (std::int64_t row = 0; row < chunk.rows; ++row) {
    std::memcpy(scratch.statistics + row * 3, given == nullptr ? none : given + scratch.tokens[row] * 3, sizeof(none));
  }
}

/// Places the targets within the part as well.
PartLogits Vocabulary::logits_of(const Scratch& scratch, const Part& part, std::int64_t rows) const {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t place = scratch.targets[row] - part.first_row;
    scratch.places[row] = place >= 0 && place < part.rows ? static_cast<std::int32_t>(place) : -1;
  }
  return {scratch.logits + chunk_ * part.logits_before, scratch.places, rows, part.rows, attributes_.cap};
}

PartGradient Vocabulary::gradient_of(const RunContext& context, const Scratch& scratch, const Part& part,
                                     const Chunk& chunk) const {
  if (!gives_gradients()) return {};
  PartGradient gradient;
  gradient.to = narrow_ ? static_cast<void*>(scratch.gradient.data) : scratch.logits + chunk_ * part.logits_before;
  gradient.storage = read_storage();
  if (attributes_.has_loss_scale) gradient.scale = *context.as<float>(op_.reads.back());
  gradient.filled_up = chunk.filled_up;
  return gradient;
}

absl::Status Vocabulary::run_forward(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const {
  const ConstArray x = {scratch.x.data, scratch.x.storage};
  for (const Part& part : parts_) {
    Finish to_logits;
    to_logits.out = {scratch.logits + chunk_ * part.logits_before};
    RONDO_RETURN_IF_ERROR(part.logits.run(context.pool, chunk.filled_up, {.a = x, .b = context.array(part.w)},
                                          to_logits, scratch.products));
    if (attributes_.cap > 0.0F) {
      float* logits = scratch.logits + chunk_ * part.logits_before;
      soft_cap(context.pool, Storage::kFloat32, attributes_.cap, logits, logits, chunk.rows * part.rows);
    }
    if (op_.kind == OpKind::kVocabularyGradient) continue;
    const PartLogits logits = logits_of(scratch, part, chunk.rows);
    if (gives_loss() && &part == &parts_.back()) {
      vocabulary_loss(context.pool, logits, scratch.statistics, scratch.losses, scratch.normalisers,
                      gradient_of(context, scratch, part, chunk));
    } else {
      vocabulary_statistics(context.pool, logits, scratch.statistics);
    }
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::run_backward(const RunContext& context, const Scratch& scratch, const Chunk& chunk) const {
  const ConstArray x = {scratch.x.data, scratch.x.storage};
  const Array out = context.out(dx_id());
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    // Of the last part of all it is there already, and of dx there is nothing so far.
    const bool last = gives_loss() && part == parts_.rbegin();
    const PartGradient gradient = gradient_of(context, scratch, *part, chunk);
    if (!last) {
      vocabulary_gradient(context.pool, logits_of(scratch, *part, chunk.rows), scratch.normalisers, gradient);
    }
    const ConstArray p = {static_cast<const std::byte*>(gradient.to), gradient.storage};
    Finish to_dx;
    to_dx.out = {scratch.dx};
    RONDO_RETURN_IF_ERROR(
        part->dx.run(context.pool, chunk.filled_up, {.a = p, .b = context.array(part->w)}, to_dx, scratch.products));
    const ConstArray so_far = gives_loss() ? ConstArray{out.data, out.storage} : context.array(op_.reads[4]);
    const std::int64_t step = task_rows(width_);
    context.pool.parallel_for(divide_up(chunk.rows, step), [&](std::int64_t task, std::uint32_t) {
      for (std::int64_t row = task * step; row < std::min(chunk.rows, (task + 1) * step); ++row) {
        const std::int64_t place = scratch.tokens[row] * width_;
        float* sum = scratch.dx + row * width_;
        if (!last) add_row(so_far.at(place), sum, width_);
        convert_row({sum}, out.at(place), width_);
      }
    });
    if (!attributes_.has_weight_gradient) continue;
    RONDO_RETURN_IF_ERROR(
        part->gradient.run(context.pool, chunk.filled_up, p, x, context.as<float>(part->dw), scratch.products));
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::run_chunk(const RunContext& context, const Scratch& scratch, std::int64_t rows,
                                   double& loss) const {
  const std::int64_t step = divide_up(rows, kRowsStep) * kRowsStep;
  const Chunk chunk{rows, narrow_ ? std::min(chunk_, step) : rows};
  gather(context, scratch, chunk);
  for (std::int64_t row = 0; row < rows && op_.kind == OpKind::kVocabularyGradient; ++row) {
    std::memcpy(scratch.normalisers + row * 2, context.as<float>(op_.reads[3]) + scratch.tokens[row] * 2,
                2 * sizeof(float));
  }
  RONDO_RETURN_IF_ERROR(run_forward(context, scratch, chunk));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* statistics = scratch.statistics + row * 3;
    const std::int64_t token = scratch.tokens[row];
    if (gives_statistics()) {
      std::memcpy(context.as<float>(op_.writes[0]) + token * 3, statistics, 3 * sizeof(float));
    } else if (gives_loss()) {
      loss += scratch.losses[row];
      if (!gives_gradients() || !has_parts_before()) continue;
      std::memcpy(context.as<float>(op_.writes[2]) + token * 2, scratch.normalisers + row * 2, 2 * sizeof(float));
    }
  }
  return gives_gradients() ? run_backward(context, scratch, chunk) : absl::OkStatus();
}

absl::Status Vocabulary::run(const RunContext& context) const {
  const Scratch scratch = divide(context.scratch);
  double loss = 0;
  for (std::int64_t token = 0; token < tokens_;) {
    RONDO_ASSIGN_OR_RETURN(const std::int64_t rows, collect(context, scratch, token));
    if (rows > 0) RONDO_RETURN_IF_ERROR(run_chunk(context, scratch, rows, loss));
  }
  if (gives_loss()) *context.as<double>(op_.writes[0]) = loss;
  const auto pass_on = [&](TensorId from, TensorId to) {
    std::memcpy(context.at(to), context.at(from), context.list.tensors[from].bytes());
  };
  if (gives_statistics()) pass_on(op_.reads[0], op_.writes[1]);
  if (op_.kind == OpKind::kVocabularyGradient && has_parts_before()) pass_on(op_.reads[3], op_.writes[1]);
  return absl::OkStatus();
}

}  // namespace

PreparedOr prepare_vocabulary(const Preparation& preparation) { return Vocabulary::prepare(preparation); }

}  // namespace rondo::devices::cpu
