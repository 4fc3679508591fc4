// Mixture of experts: where tokens go, what comes back, products of each expert's rows, and biases.
#include <algorithm>
#include <bit>
#include <vector>

#include "lowering.h"
#include "product.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::int64_t kTokenThreads = 64;   // of the kernels on tokens
constexpr std::int64_t kStepsOfGroup = 256;  // steps of a workgroup that goes along elements
constexpr std::int64_t kMostEights = 8;      // of experts for a workgroup of route_rows_eights.comp

/// `plain`, a kernel of route.glsl, or `eights`, that for processors that pose as cards.
void add_route(OpLowering& op, Shader plain, Shader eights, std::int64_t choices,
               std::initializer_list<std::uint32_t> slots) {
  const std::int64_t tokens = rows_of(op.in(0));
  const std::int64_t experts = columns_of(op.in(0));
  const bool in_eights = op.panel() && experts >= kEight;
  const auto wanted = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(experts)));
  const std::int64_t threads = in_eights ? kEight : kTokenThreads;
  const std::int64_t lanes = std::min(wanted, threads);
  const auto& route = op.attributes<RouteAttributes>();
  Dispatch& dispatch =
      op.add(in_eights ? eights : plain,
             {storage_of(op.in(0)), static_cast<std::uint32_t>(lanes), flag_of(route.normalised),
              static_cast<std::uint32_t>(parts_of(experts, lanes)), flag_of(route.sigmoid), flag_of(route.has_bias),
              static_cast<std::uint32_t>(route.groups), static_cast<std::uint32_t>(route.chosen_groups)},
             slots, {tokens, experts, choices}, parts_of(tokens, threads / lanes));
  dispatch.push.factors[0] = route.factor;
  dispatch.push.factors[1] = route.added;
}

/// Where the rows of each expert are.
void add_rows_of_experts(OpLowering& op, std::int64_t experts, std::int64_t choices) {
  const bool in_eights = op.panel();
  const std::int64_t eights = in_eights ? std::min(parts_of(experts, kEight), kMostEights) : 1;
  op.add(in_eights ? Shader::kRouteRowsEights : Shader::kRouteRows, {static_cast<std::uint32_t>(eights)},
         {op.read(1), op.write(1), op.write(2), op.write(3)}, {experts, choices},
         in_eights ? parts_of(experts, kEight * eights) : experts);
}

/// The products of the experts whose matrices, of so many elements of `dtype`, are in these tensors.
void add_grouped(OpLowering& op, Product p, std::span<const TensorId> tensors, std::int64_t matrix, DType dtype) {
  if (p.rows == 0 || p.columns == 0) return;
  p.alpha = op.attributes<GroupAttributes>().alpha;
  p.experts = static_cast<std::int64_t>(experts_of(op.op()));
  std::vector<float> places;
  for (std::size_t e = 0; e < experts_of(op.op()); ++e) {
    const ExpertPlace place = expert_place(op.op(), e, matrix);
    const Bytes pairs = static_cast<Bytes>(place.first) * size_of(dtype) / 2;
    places.push_back(std::bit_cast<float>(OpLowering::slot(tensors[place.tensor])));
    places.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pairs)));
  }
  p.tensors = op.constants(places);
  if (!add_by_units(op, p)) add_by_tiles(op, p);
}

}  // namespace

Dispatch& add_spread(OpLowering& op, Shader shader, const Constants& more, std::initializer_list<std::uint32_t> slots,
                     const TensorDesc& along, std::int64_t width, std::int64_t last) {
  const std::uint32_t each = each_of(op);
  Constants constants = {storage_of(along), spread_step(width), each};
  constants.insert(constants.end(), more.begin(), more.end());
  return op.add(shader, std::move(constants), slots, {along.elements(), width, last},
                parts_of(along.elements(), kStepsOfGroup * each * spread_step(width)));
}

void lower_route(OpLowering& op) {
  const std::int64_t choices = columns_of(op.out(0));
  const std::int64_t experts = columns_of(op.in(0));
  const std::uint32_t bias = op.read(op.reads() - 1);  // or one that is listed
  add_route(op, Shader::kRoute, Shader::kRouteEights, choices,
            {op.read(0), op.read(1), op.write(0), op.write(1), op.write(2), bias});
  add_rows_of_experts(op, experts, choices);
}

void lower_route_backward(OpLowering& op) {
  add_route(op, Shader::kRouteBackward, Shader::kRouteBackwardEights, columns_of(op.in(1)),
            {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0)});
}

void lower_share_scale(OpLowering& op) {
  constexpr std::int64_t kThreads = 256;
  const bool backward = op.op().kind == OpKind::kShareScaleBackward;
  const std::int64_t count = op.in(0).elements();
  const std::uint32_t scaled = op.read(backward ? 3 : 0);
  op.add(Shader::kShareScale, {}, {scaled, op.read(1), op.read(2), op.write(0)}, {count}, parts_of(count, kThreads));
  if (op.op().writes.size() == 1) return;
  const std::int64_t experts = op.in(2).elements();
  op.add(Shader::kShareScaleGradient, {}, {scaled, op.read(1), op.read(0), op.write(1)}, {count},
         count > 0 ? experts : 0);
}

void lower_dispatch(OpLowering& op) {
  add_spread(op, Shader::kExpertDispatch, {}, {op.read(0), op.read(1), op.write(0)}, op.out(0), columns_of(op.out(0)),
             columns_of(op.in(1)));
}

void lower_combine(OpLowering& op) {
  const auto& combine = op.attributes<CombineAttributes>();
  Dispatch& dispatch =
      add_spread(op, Shader::kExpertCombine, {flag_of(combine.has_shares), flag_of(combine.has_addend)},
                 {op.read(0), op.read(1), op.read(combine.has_shares ? 2 : 0),
                  op.read(combine.has_addend ? op.reads() - 1 : 0), op.write(0)},
                 op.out(0), columns_of(op.out(0)), columns_of(op.in(1)));
  dispatch.push.factors[0] = combine.alpha;
}

void lower_combine_backward(OpLowering& op) {
  const std::int64_t width = columns_of(op.in(0));
  const std::int64_t rows = rows_of(op.in(1));
  Dispatch& dispatch = op.add(Shader::kExpertCombineBackward, {storage_of(op.in(0)), spread_step(width)},
                              {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1)},
                              {width, columns_of(op.in(2)), rows}, rows);
  dispatch.push.factors[0] = op.attributes<CombineAttributes>().alpha;
}

void lower_grouped_matmul(OpLowering& op) {
  const bool forward = op.op().kind == OpKind::kGroupedMatMul;
  const TensorDesc& w = op.in(2);
  Product p;
  p.a = op.read(0);
  p.out = op.write(0);
  p.offsets = op.read(1);
  p.type_a = storage_of(op.in(0));
  p.type_b = storage_of(w);
  p.type_out = p.type_addend = storage_of(op.out(0));
  p.grouped = Product::Grouped::kRows;
  p.rows = rows_of(op.in(0));
  p.columns = columns_of(op.out(0));
  p.depth = p.stride_a = columns_of(op.in(0));
  p.stride_b = w.shape.back();
  p.transposed_b = forward;
  p.has_addend = op.attributes<GroupAttributes>().has_addend;
  if (p.has_addend) p.addend = op.read(op.reads() - 1);
  p.b = p.a;  // one that is listed
  add_grouped(op, p, std::span(op.op().reads).subspan(2, expert_tensors_of(op.op())), p.columns * p.depth, w.dtype);
}

void lower_grouped_weight_gradient(OpLowering& op) {
  Product p;
  p.a = op.read(0);
  p.b = op.read(1);
  p.out = p.a;  // one that is listed
  p.offsets = op.read(2);
  p.type_a = storage_of(op.in(0));
  p.type_b = storage_of(op.in(1));
  p.type_out = kFloat32Storage;
  p.rows = p.stride_a = columns_of(op.in(0));
  p.columns = p.stride_b = columns_of(op.in(1));
  p.depth = rows_of(op.in(0));
  p.transposed_a = true;
  p.accumulate = true;
  p.grouped = Product::Grouped::kDepth;
  add_grouped(op, p, op.op().writes, p.rows * p.columns, DType::kFloat32);
}

void lower_grouped_bias(OpLowering& op) {
  const TensorDesc& x = op.in(0);
  const std::int64_t width = columns_of(x);
  const std::uint32_t step = spread_step(width);
  const std::uint32_t each = each_of_row(op, width / step);
  op.add(Shader::kGroupedBias, {storage_of(x), step, each}, {op.read(0), op.read(1), op.read(2), op.write(0)},
         {width, x.elements(), rows_of(op.in(2))}, parts_of(x.elements(), kTokenThreads * each * step));
}

void lower_grouped_bias_gradient(OpLowering& op) {
  // Processors that pose as cards add rows one after the other: what a sum over invocations takes, they take for all.
  const std::int64_t across = op.panel() ? kEight : 16;
  const std::int64_t down = op.panel() ? 1 : 16;
  const std::int64_t width = columns_of(op.out(0));
  const std::uint32_t step = spread_step(width);
  Dispatch& dispatch =
      op.add(Shader::kGroupedBiasGradient,
             {storage_of(op.in(0)), step, static_cast<std::uint32_t>(across), static_cast<std::uint32_t>(down),
              static_cast<std::uint32_t>(across * down)},
             {op.read(0), op.read(1), op.write(0)}, {width, kTokenChunk}, op.in(0).elements() > 0 ? 1 : 0);
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(width, across * step)),
                     static_cast<std::uint32_t>(rows_of(op.out(0))), 1};
}

}  // namespace rondo::devices::vulkan
