// Steps of a mixture of experts.
#include "kernels/experts.h"
#include "kernels/grouped.h"
#include "kernels/grouped_bias.h"
#include "kernels/grouped_matrix.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

static_assert(kMostExperts <= kMostThreads * kExpertsOfThread && kMostChoices <= kWarp);
static_assert(kGroupChunk == kTokenChunk);

/// `choices`: of each token.
Arguments<RouteParams> route_of(const Lowering& op, std::int64_t choices) {
  const auto& route = op.attributes<RouteAttributes>();
  Arguments<RouteParams> arguments;
  RouteParams& p = arguments.params;
  p.count = static_cast<std::int32_t>(op.in(0).shape[1]);
  p.choices = static_cast<std::int32_t>(choices);
  p.normalised = route.normalised ? 1 : 0;
  p.sigmoid = route.sigmoid ? 1 : 0;
  p.groups = route.groups;
  p.chosen_groups = route.chosen_groups;
  p.factor = route.factor;
  p.added = route.added;
  return arguments;
}

void lower_route(Lowering& op) {
  using P = RouteParams;
  const std::int64_t experts = op.in(0).shape[1];
  Arguments<P> arguments = route_of(op, op.out(0).shape[1]);
  if (op.attributes<RouteAttributes>().has_bias) arguments.at(&P::bias, op.read(2));
  arguments.at(&P::logits, op.read(0)).at(&P::bounds, op.read(1));
  arguments.at(&P::shares, op.write(0)).at(&P::experts, op.write(1));
  arguments.at(&P::rows, op.write(2)).at(&P::offsets, op.write(3));
  op.launch(of_storage(KernelId::k_route_choices_fp32, Lowering::storage_of(op.in(0))),
            {op.in(0).shape[0], 1, threads_for(experts), static_cast<int>(experts) * 4}, arguments);
  op.launch(KernelId::k_route_rows, {experts, 1, kMostThreads, kRouteShared}, arguments);
}

void lower_route_backward(Lowering& op) {
  using P = RouteParams;
  Arguments<P> arguments = route_of(op, op.in(1).shape[1]);
  arguments.at(&P::logits, op.read(0)).at(&P::shares, op.read(1)).at(&P::experts, op.read(2));
  arguments.at(&P::dshares, op.read(3)).at(&P::dlogits, op.write(0));
  op.launch(of_storage(KernelId::k_route_backward_fp32, Lowering::storage_of(op.in(0))),
            {op.in(0).shape[0], 1, threads_for(op.in(0).shape[1]), 0}, arguments);
}

void lower_share_scale(Lowering& op) {
  using P = ShareScaleParams;
  const bool backward = op.op().kind == OpKind::kShareScaleBackward;
  Arguments<P> arguments;
  arguments.params.elements = op.in(0).elements();
  arguments.at(&P::x, op.read(backward ? 3 : 0)).at(&P::experts, op.read(1)).at(&P::scale, op.read(2));
  arguments.at(&P::shares, op.read(0)).at(&P::y, op.write(0));
  op.launch(KernelId::k_share_scale, {divide_up(arguments.params.elements, kMostThreads), 1, kMostThreads, 0},
            arguments);
  if (op.op().writes.size() == 1) return;
  arguments.at(&P::y, op.write(1));
  op.launch(KernelId::k_share_scale_sums, {op.in(2).shape[0], 1, kMostThreads, 0}, arguments);
}

/// Whose `rows` [T, k] are read number `rows`.
Arguments<SpreadParams> spread(const Lowering& op, std::size_t rows) {
  Arguments<SpreadParams> arguments;
  arguments.params.width = Lowering::columns_of(op.out(0));
  arguments.params.choices = static_cast<std::int32_t>(op.in(rows).shape[1]);
  arguments.at(&SpreadParams::rows, op.read(rows)).at(&SpreadParams::y, op.write(0));
  return arguments;
}

/// `kernel`: of fp32.
void launch_spread(Lowering& op, KernelId kernel, std::int64_t blocks, const Arguments<SpreadParams>& arguments) {
  op.launch(of_storage(kernel, Lowering::storage_of(op.out(0))),
            {blocks, 1, threads_for_vectors(arguments.params.width), 0}, arguments);
}

void lower_dispatch(Lowering& op) {
  Arguments<SpreadParams> arguments = spread(op, 1);
  arguments.at(&SpreadParams::x, op.read(0));
  launch_spread(op, KernelId::k_dispatch_fp32, op.in(0).shape[0], arguments);
}

void lower_combine(Lowering& op) {
  const auto& combine = op.attributes<CombineAttributes>();
  Arguments<SpreadParams> arguments = spread(op, 1);
  arguments.params.alpha = combine.alpha;
  arguments.at(&SpreadParams::x, op.read(0));
  if (combine.has_shares) arguments.at(&SpreadParams::shares, op.read(2));
  if (combine.has_addend) arguments.at(&SpreadParams::addend, op.read(op.op().reads.size() - 1));
  launch_spread(op, KernelId::k_combine_fp32, op.out(0).shape[0], arguments);
}

void lower_combine_backward(Lowering& op) {
  Arguments<SpreadParams> arguments = spread(op, 2);
  arguments.params.alpha = op.attributes<CombineAttributes>().alpha;
  arguments.at(&SpreadParams::dy, op.read(0)).at(&SpreadParams::x, op.read(1)).at(&SpreadParams::shares, op.read(3));
  arguments.at(&SpreadParams::dshares, op.write(1));
  launch_spread(op, KernelId::k_combine_backward_fp32, op.in(2).elements(), arguments);
}

/// Where an expert's matrix of `matrix` elements lies, `operands` being those of all.
Place expert_at(const Op& op, std::size_t expert, std::int64_t matrix, std::span<const TensorId> operands,
                DType dtype) {
  const ExpertPlace place = expert_place(op, expert, matrix);
  return {Place::Kind::kTensor, operands[place.tensor], static_cast<Bytes>(place.first) * size_of(dtype)};
}

/// Whether the matrix units make products of such rows.
bool by_matrix_units(const Lowering& op, std::int64_t columns, std::int64_t inner) {
  return op.options().has_units(op.in(0).dtype) && columns % 8 == 0 && inner % 8 == 0;
}

absl::Status lower_grouped(Lowering& op) {
  using P = GroupedParams;
  RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(2)));
  Arguments<P> arguments;
  P& p = arguments.params;
  const bool forward = op.op().kind == OpKind::kGroupedMatMul;
  const std::size_t experts = experts_of(op.op());
  p.rows = op.in(0).shape[0];
  p.columns = Lowering::columns_of(op.out(0));
  p.inner = Lowering::columns_of(op.in(0));
  p.experts = static_cast<std::int32_t>(experts);
  p.transposed = forward ? 1 : 0;
  arguments.at(&P::a, op.read(0)).at(&P::offsets, op.read(1)).at(&P::c, op.write(0));
  p.alpha = op.attributes<GroupAttributes>().alpha;
  const auto matrices = std::span(op.op().reads).subspan(2, expert_tensors_of(op.op()));
  if (op.attributes<GroupAttributes>().has_addend) arguments.at(&P::addend, op.read(op.op().reads.size() - 1));
  const Storage storage = Lowering::storage_of(op.in(0));
  const bool units = by_matrix_units(op, p.columns, p.inner);
  const int tile = units ? kMatrixTile : kTile;
  const Grid grid{divide_up(p.columns, tile), tiles_of_group(p.rows, p.experts, tile),
                  units ? kMatrixThreads : kTileThreads, units ? kMatrixGroupedShared : kGroupedShared};
  const KernelId by_units = forward ? KernelId::k_matrix_grouped_bf16 : KernelId::k_matrix_grouped_across_bf16;
  const KernelId kernel = units ? of_narrow(by_units, storage) : of_storage(KernelId::k_grouped_fp32, storage);
  for (std::size_t first = 0; first < experts; first += kMostGroup) {
    Arguments<P> part = arguments;
    part.params.first = static_cast<std::int32_t>(first);
    for (std::size_t e = first; e < std::min(experts, first + kMostGroup); ++e) {
      part.at(&P::w, e - first, expert_at(op.op(), e, p.columns * p.inner, matrices, op.in(2).dtype));
    }
    op.launch(kernel, grid, part);
  }
  return absl::OkStatus();
}

absl::Status lower_grouped_gradient(Lowering& op) {
  using P = GroupedGradientParams;
  Arguments<P> arguments;
  P& p = arguments.params;
  p.alpha = op.attributes<GroupAttributes>().alpha;
  const std::size_t experts = experts_of(op.op());
  p.rows = Lowering::columns_of(op.in(0));
  p.columns = Lowering::columns_of(op.in(1));
  arguments.at(&P::dy, op.read(0)).at(&P::x, op.read(1)).at(&P::offsets, op.read(2));
  const Storage storage = Lowering::storage_of(op.in(0));
  const bool units = by_matrix_units(op, p.columns, p.rows);
  const int tile = units ? kMatrixTile : kTile;
  for (std::size_t first = 0; first < experts; first += kMostGroup) {
    const std::size_t count = std::min<std::size_t>(experts - first, kMostGroup);
    Arguments<P> part = arguments;
    part.params.first = static_cast<std::int32_t>(first);
    const auto gradient_of = [&](std::size_t expert) {
      return expert_at(op.op(), expert, p.rows * p.columns, op.op().writes, DType::kFloat32);
    };
    part.at(&P::addend, gradient_of(first));
    for (std::size_t e = 0; e < count; ++e) part.at(&P::dw, e, gradient_of(first + e));
    const Grid grid{divide_up(p.columns, tile) * divide_up(p.rows, tile) * static_cast<std::int64_t>(count), 1,
                    units ? kMatrixThreads : kTileThreads, units ? kMatrixProductShared : kProductShared};
    op.launch(units ? of_narrow(KernelId::k_matrix_grouped_gradient_bf16, storage)
                    : of_storage(KernelId::k_grouped_gradient_fp32, storage),
              grid, part);
  }
  return absl::OkStatus();
}

/// `experts`: the tensor that has a row for each.
Arguments<GroupedBiasParams> bias_arguments(const Lowering& op, const TensorDesc& experts) {
  using P = GroupedBiasParams;
  Arguments<P> arguments;
  arguments.params.rows = op.in(0).shape[0];
  arguments.params.columns = Lowering::columns_of(op.in(0));
  arguments.params.experts = static_cast<std::int32_t>(experts.shape[0]);
  arguments.at(&P::x, op.read(0)).at(&P::offsets, op.read(1));
  return arguments;
}

void lower_grouped_bias(Lowering& op) {
  using P = GroupedBiasParams;
  Arguments<P> arguments = bias_arguments(op, op.in(2));
  const P& p = arguments.params;
  arguments.at(&P::bias, op.read(2)).at(&P::y, op.write(0));
  op.launch(of_storage(KernelId::k_grouped_bias_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(p.columns, columns_of_block(p.columns)), tiles_of_group(p.rows, p.experts, kBiasRows),
             kMostThreads, kGroupRowsShared},
            arguments);
}

void lower_grouped_bias_gradient(Lowering& op) {
  using P = GroupedBiasParams;
  Arguments<P> arguments = bias_arguments(op, op.out(0));
  const P& p = arguments.params;
  const std::int64_t chunks = tiles_of_group(p.rows, p.experts, kGroupChunk);
  arguments.at(&P::partial, op.workspace(static_cast<Bytes>(chunks * p.columns) * sizeof(float)));
  arguments.at(&P::totals, op.write(0));
  op.launch(of_storage(KernelId::k_grouped_bias_sums_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(p.columns, columns_of_block(p.columns)), chunks, kMostThreads, bias_sums_shared(p.columns)},
            arguments);
  op.launch(KernelId::k_grouped_bias_totals, {divide_up(p.columns, kMostThreads), p.experts, kMostThreads, 0},
            arguments);
}

}  // namespace

absl::Status lower_experts(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kRoute:
      lower_route(op);
      return absl::OkStatus();
    case OpKind::kRouteBackward:
      lower_route_backward(op);
      return absl::OkStatus();
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
      lower_share_scale(op);
      return absl::OkStatus();
    case OpKind::kDispatch:
      lower_dispatch(op);
      return absl::OkStatus();
    case OpKind::kCombine:
      lower_combine(op);
      return absl::OkStatus();
    case OpKind::kCombineBackward:
      lower_combine_backward(op);
      return absl::OkStatus();
    case OpKind::kGroupedMatMulWeightGradient:
      return lower_grouped_gradient(op);
    case OpKind::kGroupedBias:
      lower_grouped_bias(op);
      return absl::OkStatus();
    case OpKind::kGroupedBiasGradient:
      lower_grouped_bias_gradient(op);
      return absl::OkStatus();
    default:
      return lower_grouped(op);
  }
}

}  // namespace rondo::devices::cuda
