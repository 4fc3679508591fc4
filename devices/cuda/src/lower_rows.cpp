// Steps of the ops that go over elements and rows.
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/hadamard.h"
#include "kernels/join_heads.h"
#include "kernels/magnitude.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "lowering.h"
#include "rondo/base/float16.h"
#include "rondo/devices/encoding.h"

namespace rondo::devices::cuda {
namespace {

Grid over_elements(std::int64_t elements) { return {divide_up(elements, kElementsOfBlock), 1, kMostThreads, 0}; }

/// Of each row, both may be null.
struct RowPlaces {
  Place scales, means;
};

/// Sums over rows by chunks of `chunk` rows, added to `totals` in rising order. `x` and all scales may be null.
void column_sums(Lowering& op, Storage storage, const Place& dy, const Place& x, const RowPlaces& of_rows,
                 const Place& column_scales, std::int64_t rows, std::int64_t columns, std::int64_t chunk,
                 const Place& totals) {
  const std::int64_t chunks = divide_up(rows, chunk);
  const Place partial = op.workspace(static_cast<Bytes>(chunks * columns) * sizeof(float));
  Arguments<ColumnSumsParams> sums;
  sums.params.rows = rows;
  sums.params.columns = columns;
  sums.params.chunk = chunk;
  sums.at(&ColumnSumsParams::dy, dy).at(&ColumnSumsParams::x, x);
  sums.at(&ColumnSumsParams::scales, of_rows.scales).at(&ColumnSumsParams::means, of_rows.means);
  sums.at(&ColumnSumsParams::column_scales, column_scales).at(&ColumnSumsParams::partial, partial);
  op.launch(of_storage(KernelId::k_column_sums_fp32, storage),
            {divide_up(columns, columns_of_block(columns)), chunks, kMostThreads, column_sums_shared(columns)}, sums);
  add_chunks(op, partial, chunks, columns, totals);
}

absl::Status lower_embedding(Lowering& op) {
  Arguments<EmbeddingParams> arguments;
  arguments.params.width = op.in(1).shape[1];
  arguments.params.vocabulary = static_cast<std::int32_t>(op.in(1).shape[0]);
  arguments.params.scale = op.attributes<EmbeddingAttributes>().scale;
  arguments.params.table_storage = Lowering::storage_of(op.in(1));
  arguments.params.x_storage = Lowering::storage_of(op.out(0));
  arguments.at(&EmbeddingParams::ids, op.read(0)).at(&EmbeddingParams::table, op.read(1));
  arguments.at(&EmbeddingParams::x, op.write(0)).at(&EmbeddingParams::fault, op.fault());
  op.launch(KernelId::k_embedding, {op.tokens(), 1, threads_for(arguments.params.width), 0}, arguments);
  return absl::OkStatus();
}

absl::Status lower_embedding_backward(Lowering& op) {
  Arguments<EmbeddingRowsParams> arguments;
  arguments.params.width = op.in(2).shape[1];
  arguments.params.tokens = static_cast<std::int32_t>(op.tokens());
  arguments.params.scale = op.attributes<EmbeddingAttributes>().scale;
  arguments.params.dy_storage = Lowering::storage_of(op.in(2));
  const std::int64_t width = arguments.params.width;
  const Bytes list = static_cast<Bytes>(op.tokens()) * sizeof(std::int32_t);
  const Bytes pieces = static_cast<Bytes>(sums_of_pieces(op.tokens()) * width) * sizeof(float);
  arguments.at(&EmbeddingRowsParams::ids, op.read(0)).at(&EmbeddingRowsParams::bounds, op.read(1));
  arguments.at(&EmbeddingRowsParams::dy, op.read(2));
  arguments.at(&EmbeddingRowsParams::row_ids, op.write(0)).at(&EmbeddingRowsParams::rows, op.write(1));
  arguments.at(&EmbeddingRowsParams::pieces, op.workspace(pieces));
  for (const auto of_places : {&EmbeddingRowsParams::order, &EmbeddingRowsParams::within, &EmbeddingRowsParams::count,
                               &EmbeddingRowsParams::row, &EmbeddingRowsParams::start}) {
    arguments.at(of_places, op.workspace(list));
  }
  op.launch(KernelId::k_embedding_order, {op.tokens(), 1, kMostThreads, 0}, arguments);
  op.launch(KernelId::k_embedding_ranks, {op.tokens(), 1, kMostThreads, 0}, arguments);
  const Grid rows{op.tokens(), 1, threads_for_vectors(width), 0};
  op.launch(KernelId::k_embedding_pieces, rows, arguments);
  op.launch(KernelId::k_embedding_rows, rows, arguments);
  return absl::OkStatus();
}

absl::Status lower_select_last(Lowering& op) {
  Arguments<SelectLastParams> arguments;
  arguments.params.width = op.in(0).shape[1];
  arguments.params.storage = Lowering::storage_of(op.in(0));
  arguments.at(&SelectLastParams::x, op.read(0)).at(&SelectLastParams::bounds, op.read(1));
  arguments.at(&SelectLastParams::y, op.write(0));
  op.launch(KernelId::k_select_last, {1, 1, threads_for(arguments.params.width), 0}, arguments);
  return absl::OkStatus();
}

absl::Status lower_norm_backward(Lowering& op, Arguments<NormParams>& arguments, const NormOperands& operands) {
  const auto& attributes = op.attributes<NormAttributes>();
  const Storage storage = Lowering::storage_of(op.in(0));
  const std::int64_t width = operands.width;
  const std::int64_t rows = operands.rows;
  const Place dy = op.read(operands.gradient);
  const Bytes of_rows = static_cast<Bytes>(rows) * sizeof(float);
  RowPlaces kept;
  if (attributes.has_weight_gradient) kept.scales = op.workspace(of_rows);
  if (attributes.has_weight_gradient && attributes.centred) kept.means = op.workspace(of_rows);
  arguments.at(&NormParams::dy, dy).at(&NormParams::scales, kept.scales).at(&NormParams::means, kept.means);
  if (attributes.has_addend) arguments.at(&NormParams::addend, op.read(operands.addend));
  const KernelId kernel = attributes.centred ? KernelId::k_layer_norm_backward_fp32 : KernelId::k_norm_backward_fp32;
  op.launch(of_storage(kernel, storage), {rows, 1, threads_for_vectors(width), 0}, arguments);
  if (!attributes.has_weight_gradient) return absl::OkStatus();
  // A token has as many rows as it has heads.
  const std::int64_t rows_of_token = rows / std::max<std::int64_t>(op.in(0).shape[0], 1);
  column_sums(op, storage, dy, op.read(0), kept, {}, rows, width, kSumChunk * std::max<std::int64_t>(rows_of_token, 1),
              op.write(1));
  return absl::OkStatus();
}

void scale_columns(Lowering& op, const Place& x, const Place& bias, const Place& addend, const TensorDesc& desc) {
  Arguments<ColumnScaleParams> arguments;
  arguments.params.elements = desc.elements();
  arguments.params.columns = Lowering::columns_of(desc);
  arguments.params.each = arguments.params.columns / std::max<std::int64_t>(op.in(1).elements(), 1);
  arguments.at(&ColumnScaleParams::x, x).at(&ColumnScaleParams::scale, op.read(1));
  arguments.at(&ColumnScaleParams::bias, bias).at(&ColumnScaleParams::addend, addend);
  arguments.at(&ColumnScaleParams::y, op.write(0));
  op.launch(of_storage(KernelId::k_column_scale_fp32, Lowering::storage_of(desc)), over_elements(desc.elements()),
            arguments);
}

absl::Status lower_magnitude_scale(Lowering& op) {
  for (std::size_t i = 1; i < 3; ++i) RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(i)));
  Arguments<MagnitudeParams> arguments;
  arguments.params.width = op.in(0).shape[1];
  arguments.params.rank = op.in(1).shape[0];
  arguments.params.alpha = op.attributes<MagnitudeAttributes>().alpha;
  arguments.at(&MagnitudeParams::w, op.read(0)).at(&MagnitudeParams::a, op.read(1));
  arguments.at(&MagnitudeParams::b, op.read(2)).at(&MagnitudeParams::m, op.read(3));
  arguments.at(&MagnitudeParams::scale, op.write(0)).at(&MagnitudeParams::inverse, op.write(1));
  op.launch(of_storage(KernelId::k_magnitude_fp32, Lowering::storage_of(op.in(0))),
            {op.in(0).shape[0], 1, threads_for(arguments.params.width), 0}, arguments);
  return absl::OkStatus();
}

/// `kernel`: of fp32.
void launch_hadamard(Lowering& op, KernelId kernel, const TensorDesc& encoded, const Place& codes,
                     const TensorDesc& numbers, const Place& at) {
  const EncodedLayout layout(encoded.encoding, encoded.elements());
  Arguments<HadamardParams> arguments;
  arguments.params.blocks = layout.blocks;
  arguments.params.limit = hadamard_limit(encoded.encoding);
  arguments.params.share = hadamard_share(encoded.encoding);
  arguments.params.least = kLeastHadamard;
  arguments.params.four_bits = encoded.encoding == Encoding::kHadamard4 ? 1 : 0;
  arguments.at(&HadamardParams::numbers, at).at(&HadamardParams::codes, codes.past(layout.codes));
  arguments.at(&HadamardParams::scales, codes.past(layout.scales));
  op.launch(of_storage(kernel, Lowering::storage_of(numbers)),
            {divide_up(layout.blocks, kHadamardBlocks), 1, kMostThreads, kHadamardShared}, arguments);
}

}  // namespace

absl::Status lower_magnitude(Lowering& op) {
  if (op.op().kind == OpKind::kMagnitudeScale) return lower_magnitude_scale(op);
  const TensorDesc& x = op.in(0);
  if (op.op().kind == OpKind::kColumnScale) {
    const auto& scale = op.attributes<ColumnScaleAttributes>();
    scale_columns(op, op.read(0), scale.has_bias ? op.read(2) : Place{},
                  scale.has_addend ? op.read(op.op().reads.size() - 1) : Place{}, x);
    return absl::OkStatus();
  }
  const std::size_t gradient = op.op().reads.size() - 1;
  const Place inverse = gradient == 3 ? op.read(2) : Place{};
  scale_columns(op, op.read(gradient), {}, {}, x);
  column_sums(op, Lowering::storage_of(x), op.read(gradient), op.read(0), {}, inverse, x.shape[0],
              Lowering::columns_of(x), kSumChunk, op.write(1));
  return absl::OkStatus();
}

void add_chunks(Lowering& op, const Place& partial, std::int64_t chunks, std::int64_t columns, const Place& totals) {
  Arguments<ColumnTotalsParams> arguments;
  arguments.params.chunks = chunks;
  arguments.params.columns = columns;
  arguments.at(&ColumnTotalsParams::partial, partial).at(&ColumnTotalsParams::totals, totals);
  op.launch(KernelId::k_column_totals, {divide_up(columns, kMostThreads), 1, kMostThreads, 0}, arguments);
}

void add_elements(Lowering& op, Storage storage, std::int64_t elements, const Place& a, const Place& b,
                  const Place& y) {
  Arguments<ElementwiseParams> arguments;
  arguments.params.elements = elements;
  arguments.at(&ElementwiseParams::a, a).at(&ElementwiseParams::b, b).at(&ElementwiseParams::y, y);
  op.launch(of_storage(KernelId::k_add_fp32, storage), over_elements(elements), arguments);
}

absl::Status lower_elementwise(Lowering& op) {
  if (op.op().kind == OpKind::kAdd) {
    const Place more = op.op().reads.size() > 1 ? op.read(1) : Place();
    add_elements(op, Lowering::storage_of(op.in(0)), op.in(0).elements(), op.read(0), more, op.write(0));
    return absl::OkStatus();
  }
  Arguments<ElementwiseParams> arguments;
  arguments.params.elements = op.in(0).elements();
  arguments.at(&ElementwiseParams::a, op.read(0)).at(&ElementwiseParams::y, op.write(0));
  if (op.op().kind == OpKind::kSoftCap) {
    arguments.params.alpha = op.attributes<SoftCapAttributes>().cap;
    op.launch(of_storage(KernelId::k_soft_cap_fp32, Lowering::storage_of(op.in(0))),
              over_elements(arguments.params.elements), arguments);
    return absl::OkStatus();
  }
  const bool forward = op.op().kind == OpKind::kGatedActivation;
  const bool alone = op.op().reads.size() == (forward ? 1 : 2);
  if (!alone) arguments.at(&ElementwiseParams::b, op.read(1));
  static_assert(kClampedActivation == static_cast<int>(ActivationKind::kClampedSwiglu));
  static_assert(kSigmoidActivation == static_cast<int>(ActivationKind::kSigmoid));
  static_assert(kReluActivation == static_cast<int>(ActivationKind::kRelu));
  static_assert(kIdentityActivation == static_cast<int>(ActivationKind::kIdentity));
  const auto& gated = op.attributes<GatedActivationAttributes>();
  arguments.params.activation = static_cast<std::int32_t>(gated.activation);
  arguments.params.alpha = gated.alpha;
  arguments.params.limit = gated.limit;
  KernelId kernel = KernelId::k_gated_fp32;
  if (!forward) {
    arguments.at(&ElementwiseParams::c, op.read(alone ? 1 : 2));
    if (!alone) arguments.at(&ElementwiseParams::z, op.write(1));
    kernel = KernelId::k_gated_backward_fp32;
  }
  op.launch(of_storage(kernel, Lowering::storage_of(op.in(0))), over_elements(arguments.params.elements), arguments);
  return absl::OkStatus();
}

absl::Status lower_dropout(Lowering& op) {
  const auto& attributes = op.attributes<DropoutAttributes>();
  Arguments<DropoutParams> arguments;
  arguments.params.elements = op.in(0).elements();
  arguments.params.columns = Lowering::columns_of(op.in(0));
  arguments.params.probability = attributes.probability;
  const double kept = 1.0 / (1.0 - static_cast<double>(attributes.probability));
  arguments.params.kept = static_cast<float>(attributes.rest ? 1.0 - kept : kept);
  arguments.params.dropped = attributes.rest ? 1.0F : 0.0F;
  arguments.params.site = attributes.site;
  arguments.at(&DropoutParams::x, op.read(0)).at(&DropoutParams::keys, op.read(1));
  arguments.at(&DropoutParams::y, op.write(0)).at(&DropoutParams::layer, Place{Place::Kind::kLayer, 0, 0});
  op.launch(of_storage(KernelId::k_dropout_fp32, Lowering::storage_of(op.in(0))),
            over_elements(arguments.params.elements), arguments);
  return absl::OkStatus();
}

absl::Status lower_noise(Lowering& op) {
  const auto& attributes = op.attributes<NoiseAttributes>();
  Arguments<NoiseParams> arguments;
  arguments.params.elements = op.in(0).elements();
  arguments.params.columns = Lowering::columns_of(op.in(0));
  arguments.params.amount = attributes.amount;
  arguments.params.site = attributes.site;
  arguments.at(&NoiseParams::x, op.read(0)).at(&NoiseParams::keys, op.read(1)).at(&NoiseParams::bounds, op.read(2));
  arguments.at(&NoiseParams::y, op.write(0)).at(&NoiseParams::layer, Place{Place::Kind::kLayer, 0, 0});
  op.launch(of_storage(KernelId::k_noise_fp32, Lowering::storage_of(op.in(0))),
            over_elements(arguments.params.elements), arguments);
  return absl::OkStatus();
}

absl::Status lower_encode(Lowering& op) {
  launch_hadamard(op, KernelId::k_encode_hadamard_fp32, op.out(0), op.write(0), op.in(0), op.read(0));
  return absl::OkStatus();
}

absl::Status lower_expand(Lowering& op) {
  static_assert(kBlockElements == kEncodedBlock && kBlocksOfScale == kScaleBlock);
  static_assert(kNibbleCodes == kNf4Values.size() && kMxfp4Elements == kMxfp4Block);
  const TensorDesc& encoded = op.in(0);
  if (is_hadamard(encoded.encoding)) {
    launch_hadamard(op, KernelId::k_expand_hadamard_fp32, encoded, op.read(0), op.out(0), op.write(0));
    return absl::OkStatus();
  }
  const std::int64_t elements = encoded.elements();
  const EncodedLayout layout(encoded.encoding, elements);
  const Storage storage = Lowering::storage_of(op.out(0));
  if (encoded.encoding == Encoding::kInt8) {
    Arguments<ExpandInt8Params> arguments;
    arguments.params.elements = elements;
    arguments.at(&ExpandInt8Params::codes, op.read(0).past(layout.codes));
    arguments.at(&ExpandInt8Params::scales, op.read(0).past(layout.scales)).at(&ExpandInt8Params::y, op.write(0));
    op.launch(of_storage(KernelId::k_expand_int8_fp32, storage), over_elements(elements), arguments);
    return absl::OkStatus();
  }
  Grid grid = over_elements(elements);
  grid.shared = kNibbleCodes * static_cast<int>(sizeof(float));
  if (encoded.encoding == Encoding::kMxfp4) {
    using P = ExpandMxfp4Params;
    Arguments<P> arguments;
    arguments.params.elements = elements;
    std::copy(kMxfp4Doubled.begin(), kMxfp4Doubled.end(), arguments.params.doubled);
    arguments.at(&P::codes, op.read(0).past(layout.codes)).at(&P::scales, op.read(0).past(layout.scales));
    arguments.at(&P::y, op.write(0));
    op.launch(of_storage(KernelId::k_expand_mxfp4_fp32, storage), grid, arguments);
    return absl::OkStatus();
  }
  Arguments<ExpandNf4Params> arguments;
  arguments.params.elements = elements;
  std::copy(kNf4Values.begin(), kNf4Values.end(), arguments.params.values);
  const std::array<float, kMapCodes>& map = dynamic_map();
  std::copy(map.begin(), map.end(), arguments.params.map);
  arguments.at(&ExpandNf4Params::codes, op.read(0).past(layout.codes)).at(&ExpandNf4Params::y, op.write(0));
  arguments.at(&ExpandNf4Params::block_codes, op.read(0).past(layout.block_codes));
  arguments.at(&ExpandNf4Params::block_scales, op.read(0).past(layout.block_scales));
  arguments.at(&ExpandNf4Params::offset, op.read(0).past(layout.offset));
  op.launch(of_storage(KernelId::k_expand_nf4_fp32, storage), grid, arguments);
  return absl::OkStatus();
}

absl::Status lower_norm(Lowering& op) {
  Arguments<NormParams> arguments;
  const NormOperands operands = op.norm_operands();
  const std::size_t weights = operands.weight != 0 ? operands.weight : operands.bias;
  arguments.params.width = operands.width;
  const auto& attributes = op.attributes<NormAttributes>();
  arguments.params.epsilon = attributes.epsilon;
  arguments.params.weight_factor = attributes.weight_factor;
  arguments.params.weight_offset = attributes.weight_offset;
  arguments.params.weight_storage = Lowering::storage_of(op.in(weights));
  arguments.at(&NormParams::x, op.read(0)).at(&NormParams::y, op.write(0));
  if (operands.weight != 0) arguments.at(&NormParams::w, op.read(operands.weight));
  if (operands.bias != 0) arguments.at(&NormParams::bias, op.read(operands.bias));
  if (op.op().kind == OpKind::kNormBackward) return lower_norm_backward(op, arguments, operands);
  const KernelId kernel = attributes.centred ? KernelId::k_layer_norm_fp32 : KernelId::k_norm_fp32;
  op.launch(of_storage(kernel, Lowering::storage_of(op.in(0))),
            {operands.rows, 1, threads_for_vectors(operands.width), 0}, arguments);
  return absl::OkStatus();
}

absl::Status lower_rope(Lowering& op) {
  const auto& attributes = op.attributes<RopeAttributes>();
  Arguments<RopeParams> arguments;
  RopeParams& p = arguments.params;
  if (attributes.frequencies.size() > kMostRopePairs) {
    return unimplemented("op {}: '{}' turns {} channels of a head; on CUDA they are {} at most", name_of(op.op().kind),
                         op.in(0).name, 2 * attributes.frequencies.size(), 2 * kMostRopePairs);
  }
  p.heads = op.in(0).shape[1];
  p.half = static_cast<std::int32_t>(attributes.frequencies.size());
  p.head_dim = static_cast<std::int32_t>(op.in(0).shape[2]);
  p.amplitude = attributes.amplitude;
  p.direction = attributes.direction;
  p.growth = attributes.growth;
  p.grows_from = attributes.grows_from;
  p.dynamic_from = attributes.dynamic_from;
  p.theta = attributes.theta;
  p.factor = attributes.factor;
  p.has_long = !attributes.long_frequencies.empty();
  std::ranges::copy(attributes.frequencies, p.frequencies);
  std::ranges::copy(attributes.long_frequencies, p.long_frequencies);
  arguments.at(&RopeParams::x, op.read(0)).at(&RopeParams::positions, op.read(1));
  arguments.at(&RopeParams::bounds, op.read(2)).at(&RopeParams::y, op.write(0));
  op.launch(
      of_storage(KernelId::k_rope_fp32, Lowering::storage_of(op.in(0))),
      {op.tokens(), 1, threads_for(rope_by_vectors(p) ? p.heads * p.half / kVector : p.heads * p.half), 2 * p.half * 4},
      arguments);
  return absl::OkStatus();
}

namespace {

absl::Status lower_join_heads(Lowering& op) {
  using P = JoinHeadsParams;
  const TensorDesc& y = op.out(0);
  Arguments<P> arguments;
  arguments.params.elements = y.elements();
  const HeadsOfPart all = heads_of_part(y.shape, y.shape);
  const HeadsOfPart a = heads_of_part(y.shape, op.in(0).shape);
  arguments.params.heads = all.heads;
  arguments.params.width = all.width;
  arguments.params.a_heads = a.heads;
  arguments.params.a_width = a.width;
  arguments.at(&P::a, op.read(0)).at(&P::y, op.write(0));
  if (op.op().reads.size() > 1) {
    const HeadsOfPart b = heads_of_part(y.shape, op.in(1).shape);
    arguments.params.b_heads = b.heads;
    arguments.params.b_width = b.width;
    arguments.at(&P::b, op.read(1));
  }
  op.launch(of_storage(KernelId::k_join_heads_fp32, Lowering::storage_of(y)), over_elements(y.elements()), arguments);
  return absl::OkStatus();
}

absl::Status lower_join_heads_backward(Lowering& op) {
  using P = HeadPartParams;
  const Shape& whole = op.in(0).shape;
  const HeadsOfPart all = heads_of_part(whole, whole);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < op.op().writes.size(); ++i) {
    const TensorDesc& dx = op.out(i);
    const HeadsOfPart part = heads_of_part(whole, dx.shape);
    Arguments<P> arguments;
    arguments.params.elements = dx.elements();
    arguments.params.shared = all.heads / part.heads;
    arguments.params.width = all.width;
    arguments.params.x_width = part.width;
    arguments.params.first = first;
    arguments.at(&P::dy, op.read(0)).at(&P::dx, op.write(i));
    op.launch(of_storage(KernelId::k_head_part_fp32, Lowering::storage_of(dx)), over_elements(dx.elements()),
              arguments);
    first += part.width;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status lower_rows(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kEmbedding:
      return lower_embedding(op);
    case OpKind::kEmbeddingBackward:
      return lower_embedding_backward(op);
    case OpKind::kSelectLast:
      return lower_select_last(op);
    case OpKind::kJoinHeads:
      return lower_join_heads(op);
    case OpKind::kJoinHeadsBackward:
      return lower_join_heads_backward(op);
    default:
      column_sums(op, Lowering::storage_of(op.in(0)), op.read(0), {}, {}, {}, op.in(0).shape[0],
                  Lowering::columns_of(op.in(0)), kSumChunk, op.write(0));
      return absl::OkStatus();
  }
}

}  // namespace rondo::devices::cuda
