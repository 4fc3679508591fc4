// Cross-entropy over a vocabulary, whole or in parts; the order of things is that of the CPU's vocabulary_op.cpp.
#include "kernels/cross_entropy.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

constexpr std::int64_t kMostLogitsChunk = 2048;  // tokens: products of more gain nothing

class Vocabulary {
 public:
  explicit Vocabulary(Lowering& op)
      : op_(op),
        attributes_(op.attributes<VocabularyAttributes>()),
        storage_(Lowering::storage_of(op.in(0))),
        tokens_(op.in(0).shape[0]),
        width_(op.in(0).shape[1]),
        chunk_(std::min(logits_chunk(attributes_.vocabulary, op.options().logits), tokens_)),
        before_(attributes_.first_row > 0),
        gives_loss_(op.op().kind == OpKind::kVocabularyLoss),
        gives_statistics_(op.op().kind == OpKind::kVocabularyStatistics) {}

  absl::Status lower() {
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      RONDO_RETURN_IF_ERROR(op_.same_dtype(op_.in(0), op_.in(2 + part)));
    }
    take_workspace();
    begin_outputs();
    op_.launch(KernelId::k_entropy_places, {1, 1, kMostThreads, kPlacesShared}, arguments(0, 0));
    for (std::int64_t begin = 0; begin < tokens_; begin += chunk_) RONDO_RETURN_IF_ERROR(lower_chunk(begin));
    if (gives_loss_) op_.launch(KernelId::k_entropy_loss, {1, 1, kMostThreads, 0}, arguments(0, 0));
    return absl::OkStatus();
  }

 private:
  using P = CrossEntropyParams;

  std::int64_t rows_of(std::uint32_t part) const { return op_.in(2 + part).shape[0]; }

  void take_workspace() {
    const Bytes element = size_of(op_.in(0).dtype);
    const auto rows = static_cast<Bytes>(chunk_);
    places_ = op_.workspace(static_cast<Bytes>(tokens_ + 1) * sizeof(std::int32_t));
    gathered_ = op_.workspace(rows * static_cast<Bytes>(width_) * element);
    std::int64_t widest = 0;
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      logits_.push_back(op_.workspace(rows * static_cast<Bytes>(rows_of(part)) * sizeof(float)));
      widest = std::max(widest, rows_of(part));
    }
    losses_ = op_.workspace(static_cast<Bytes>(tokens_) * sizeof(double));
    statistics_ = gives_statistics_ ? op_.write(0) : op_.workspace(static_cast<Bytes>(tokens_) * 3 * sizeof(float));
    normalisers_ = op_.workspace(static_cast<Bytes>(tokens_) * 2 * sizeof(float));
    if (!attributes_.has_input_gradient) return;
    // fp32 gradients lie over the logits; narrower ones would overtake rows that are still to be read.
    if (storage_ != Storage::kFloat32) gradient_ = op_.workspace(rows * static_cast<Bytes>(widest) * element);
    dgathered_ = op_.workspace(rows * static_cast<Bytes>(width_) * element);
    dx_ = op_.write(gives_loss_ ? 1 : 0);
    if (!gives_loss_) {
      normalisers_ = op_.read(3);
    } else if (before_) {
      normalisers_ = op_.write(2);
    }
  }

  /// What tokens without a target have, and what is passed on.
  void begin_outputs() {
    if (gives_statistics_) {
      op_.clear(statistics_, op_.out(0).bytes());
      pass(storage_, op_.read(0), op_.write(1), width_);
    }
    if (!attributes_.has_input_gradient) return;
    if (gives_loss_) {
      op_.clear(dx_, op_.out(1).bytes());
      if (before_) op_.clear(normalisers_, op_.out(2).bytes());
    } else {
      pass(storage_, op_.read(4), dx_, width_);
      if (before_) pass(Storage::kFloat32, normalisers_, op_.write(1), 2);
    }
  }

  void pass(Storage storage, const Place& from, const Place& to, std::int64_t width) {
    Arguments<P> arguments;
    arguments.params.width = width;
    arguments.at(&P::x, from).at(&P::dx, to);
    op_.launch(of_storage(KernelId::k_entropy_pass_fp32, storage), {tokens_, 1, kMostThreads, 0}, arguments);
  }

  Arguments<P> arguments(std::uint32_t part, std::int64_t begin) const {
    Arguments<P> arguments;
    P& p = arguments.params;
    p.width = width_;
    p.vocabulary = static_cast<std::int32_t>(attributes_.vocabulary);
    p.tokens = static_cast<std::int32_t>(tokens_);
    p.begin = static_cast<std::int32_t>(begin);
    p.first_row = static_cast<std::int32_t>(attributes_.first_row);
    for (std::uint32_t i = 0; i < part; ++i) p.first_row += static_cast<std::int32_t>(rows_of(i));
    p.rows = static_cast<std::int32_t>(rows_of(part));
    p.cap = attributes_.cap;
    arguments.at(&P::x, op_.read(0)).at(&P::targets, op_.read(1)).at(&P::places, places_);
    arguments.at(&P::gathered, gathered_).at(&P::logits, logits_[part]);
    arguments.at(&P::dgathered, dgathered_).at(&P::dx, dx_).at(&P::losses, losses_).at(&P::fault, op_.fault());
    arguments.at(&P::statistics, statistics_).at(&P::normalisers, normalisers_);
    if (attributes_.has_input_gradient) arguments.at(&P::gradient, gradient_of(part));
    if (attributes_.has_loss_scale) arguments.at(&P::loss_scale, op_.read(op_.op().reads.size() - 1));
    if (gives_loss_) arguments.at(&P::loss, op_.write(0));
    if (part > 0) arguments.at(&P::before, statistics_);
    const bool given = part == 0 && before_ && (gives_loss_ || gives_statistics_);
    if (given) arguments.at(&P::before, op_.read(2 + attributes_.parts));
    return arguments;
  }

  /// Of all parts of the vocabulary: its gradient comes with the loss, and there is no dx so far.
  bool is_last(std::uint32_t part) const { return gives_loss_ && part + 1 == attributes_.parts; }

  Place gradient_of(std::uint32_t part) const { return storage_ == Storage::kFloat32 ? logits_[part] : gradient_; }

  absl::Status lower_chunk(std::int64_t begin) {
    const Grid rows{chunk_, 1, kMostThreads, 0};
    op_.launch(of_storage(KernelId::k_entropy_gather_fp32, storage_), rows, arguments(0, begin));
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      Lowering::Product logits;
      logits.shape = {chunk_, rows_of(part), width_, false, true, false, false, storage_, Storage::kFloat32};
      logits.a = gathered_;
      logits.b = op_.read(2 + part);
      logits.c = logits_[part];
      RONDO_RETURN_IF_ERROR(op_.product(logits));
      if (is_last(part)) {
        op_.launch(of_storage(KernelId::k_entropy_softmax_fp32, storage_), rows, arguments(part, begin));
      } else if (gives_loss_ || gives_statistics_) {
        op_.launch(KernelId::k_entropy_statistics, rows, arguments(part, begin));
      }
    }
    for (std::uint32_t part = attributes_.parts; attributes_.has_input_gradient && part-- > 0;) {
      if (!is_last(part)) {
        op_.launch(of_storage(KernelId::k_entropy_part_fp32, storage_), rows, arguments(part, begin));
      }
      RONDO_RETURN_IF_ERROR(lower_gradients(part, begin));
    }
    return absl::OkStatus();
  }

  absl::Status lower_gradients(std::uint32_t part, std::int64_t begin) {
    const Grid rows{chunk_, 1, kMostThreads, 0};
    Lowering::Product dx;
    dx.shape = {chunk_, width_, rows_of(part), false, false, false, false, storage_, storage_};
    dx.a = gradient_of(part);
    dx.b = op_.read(2 + part);
    dx.c = dgathered_;
    if (!is_last(part)) {
      // The rows of dx so far are gathered as those of x are.
      Arguments<P> so_far;
      so_far.params = arguments(part, begin).params;
      so_far.at(&P::x, dx_).at(&P::gathered, dgathered_).at(&P::places, places_);
      op_.launch(of_storage(KernelId::k_entropy_gather_fp32, storage_), rows, so_far);
      dx.addend = dgathered_;
      dx.addend_storage = storage_;
    }
    RONDO_RETURN_IF_ERROR(op_.product(dx));
    op_.launch(of_storage(KernelId::k_entropy_scatter_fp32, storage_), rows, arguments(part, begin));
    if (!attributes_.has_weight_gradient) return absl::OkStatus();
    Lowering::Product dw;
    dw.shape = {rows_of(part), width_, chunk_, true, false, false, false, storage_, Storage::kFloat32};
    dw.a = gradient_of(part);
    dw.b = gathered_;
    dw.c = op_.write(op_.op().writes.size() - attributes_.parts + part);
    dw.addend = dw.c;
    return op_.product(dw);
  }

  Lowering& op_;
  const VocabularyAttributes& attributes_;
  const Storage storage_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  const std::int64_t chunk_;
  const bool before_;
  const bool gives_loss_;
  const bool gives_statistics_;
  Place places_;
  Place gathered_;
  std::vector<Place> logits_;  // by part
  Place losses_;
  Place statistics_;
  Place normalisers_;
  Place gradient_;
  Place dgathered_;
  Place dx_;
};

}  // namespace

std::int64_t logits_chunk(std::int64_t vocabulary, Bytes room) {
  const std::int64_t chunk = cross_entropy_chunk(vocabulary);
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * chunk * vocabulary;
  return chunk * std::clamp<std::int64_t>(static_cast<std::int64_t>(room) / bytes, 1, kMostLogitsChunk / chunk);
}

absl::Status lower_vocabulary(Lowering& op) { return Vocabulary(op).lower(); }

}  // namespace rondo::devices::cuda
