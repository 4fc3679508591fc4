// Steps of matrix products and of the loss over the vocabulary, which is made of them.
#include "kernels/cross_entropy.h"
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

/// The loss by chunks of cross_entropy_chunk(V) tokens that have a target.
class Entropy {
 public:
  explicit Entropy(Lowering& op)
      : op_(op),
        attributes_(op.attributes<CrossEntropyAttributes>()),
        storage_(Lowering::storage_of(op.in(0))),
        tokens_(op.in(0).shape[0]),
        width_(op.in(0).shape[1]),
        vocabulary_(op.in(1).shape[0]),
        chunk_(std::min(cross_entropy_chunk(vocabulary_), tokens_)),
        has_gradient_(attributes_.has_input_gradient || attributes_.has_weight_gradient) {}

  absl::Status lower() {
    RONDO_RETURN_IF_ERROR(op_.same_dtype(op_.in(0), op_.in(1)));
    take_workspace();
    CrossEntropyParams& p = arguments_.params;
    p.width = width_;
    p.vocabulary = static_cast<std::int32_t>(vocabulary_);
    p.tokens = static_cast<std::int32_t>(tokens_);
    op_.launch(KernelId::k_entropy_places, {1, 1, kMostThreads, kPlacesShared}, arguments_);
    if (attributes_.has_input_gradient) op_.clear(op_.write(1), op_.out(1).bytes());
    for (std::int64_t begin = 0; begin < tokens_; begin += chunk_) {
      p.begin = static_cast<std::int32_t>(begin);
      RONDO_RETURN_IF_ERROR(lower_chunk());
    }
    op_.launch(KernelId::k_entropy_loss, {1, 1, kMostThreads, 0}, arguments_);
    return absl::OkStatus();
  }

 private:
  void take_workspace() {
    const Bytes element = size_of(op_.in(0).dtype);
    const auto rows = static_cast<Bytes>(chunk_);
    places_ = op_.workspace(static_cast<Bytes>(tokens_ + 1) * sizeof(std::int32_t));
    gathered_ = op_.workspace(rows * static_cast<Bytes>(width_) * element);
    logits_ = op_.workspace(rows * static_cast<Bytes>(vocabulary_) * sizeof(float));
    // fp32 gradients lie over the logits; narrower ones would overtake rows that are still to be read.
    gradient_ = storage_ == Storage::kFloat32 ? logits_ : Place{};
    if (has_gradient_ && storage_ != Storage::kFloat32) {
      gradient_ = op_.workspace(rows * static_cast<Bytes>(vocabulary_) * element);
    }
    if (attributes_.has_input_gradient) dgathered_ = op_.workspace(rows * static_cast<Bytes>(width_) * element);
    const Place losses = op_.workspace(static_cast<Bytes>(tokens_) * sizeof(double));
    using P = CrossEntropyParams;
    arguments_.at(&P::x, op_.read(0)).at(&P::targets, op_.read(2)).at(&P::places, places_);
    arguments_.at(&P::gathered, gathered_).at(&P::logits, logits_).at(&P::dgathered, dgathered_);
    arguments_.at(&P::losses, losses).at(&P::loss, op_.write(0)).at(&P::fault, Lowering::fault());
    if (has_gradient_) arguments_.at(&P::gradient, gradient_);
    if (attributes_.has_input_gradient) arguments_.at(&P::dx, op_.write(1));
    if (attributes_.has_loss_scale) arguments_.at(&P::loss_scale, op_.read(3));
  }

  absl::Status lower_chunk() {
    const Grid rows{chunk_, 1, kMostThreads, 0};
    op_.launch(of_storage(KernelId::k_entropy_gather_fp32, storage_), rows, arguments_);
    Lowering::Product logits;
    logits.shape = {chunk_, vocabulary_, width_, false, true, false, false, storage_, Storage::kFloat32};
    logits.a = gathered_;
    logits.b = op_.read(1);
    logits.c = logits_;
    RONDO_RETURN_IF_ERROR(op_.product(logits));
    op_.launch(of_storage(KernelId::k_entropy_softmax_fp32, storage_), rows, arguments_);
    if (attributes_.has_input_gradient) {
      Lowering::Product dx;
      dx.shape = {chunk_, width_, vocabulary_, false, false, false, false, storage_, storage_};
      dx.a = gradient_;
      dx.b = op_.read(1);
      dx.c = dgathered_;
      RONDO_RETURN_IF_ERROR(op_.product(dx));
      op_.launch(of_storage(KernelId::k_entropy_scatter_fp32, storage_), rows, arguments_);
    }
    if (!attributes_.has_weight_gradient) return absl::OkStatus();
    Lowering::Product dw;
    dw.shape = {vocabulary_, width_, chunk_, true, false, false, false, storage_, Storage::kFloat32};
    dw.a = gradient_;
    dw.b = gathered_;
    dw.c = op_.write(op_.op().writes.size() - 1);
    dw.addend = dw.c;
    return op_.product(dw);
  }

  Lowering& op_;
  const CrossEntropyAttributes& attributes_;
  const Storage storage_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  const std::int64_t vocabulary_;
  const std::int64_t chunk_;
  const bool has_gradient_;
  Arguments<CrossEntropyParams> arguments_;
  Place places_;
  Place gathered_;
  Place logits_;
  Place gradient_;
  Place dgathered_;
};

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

absl::Status lower_cross_entropy(Lowering& op) { return Entropy(op).lower(); }

}  // namespace rondo::devices::cuda
