// From kinds of ops to their steps, and products to whoever makes them.
#include "lower.h"

#include <cstddef>
#include <limits>

#include "kernels/product.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

absl::Status lower_op(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kAdd:
    case OpKind::kSoftCap:
    case OpKind::kGatedActivation:
    case OpKind::kGatedActivationBackward:
      return lower_elementwise(op);
    case OpKind::kDropout:
      return lower_dropout(op);
    case OpKind::kNoise:
      return lower_noise(op);
    case OpKind::kMagnitudeScale:
    case OpKind::kColumnScale:
    case OpKind::kColumnScaleBackward:
      return lower_magnitude(op);
    case OpKind::kNorm:
    case OpKind::kNormBackward:
      return lower_norm(op);
    case OpKind::kRope:
      return lower_rope(op);
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingBackward:
    case OpKind::kSelectLast:
    case OpKind::kJoinHeads:
    case OpKind::kJoinHeadsBackward:
    case OpKind::kBiasGradient:
      return lower_rows(op);
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kMatMulWeightGradient:
      return lower_product(op);
    case OpKind::kConvolution:
    case OpKind::kConvolutionBackward:
    case OpKind::kDecay:
    case OpKind::kDecayBackward:
    case OpKind::kDeltaRule:
    case OpKind::kDeltaRuleBackward:
      return lower_delta(op);
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
    case OpKind::kCachedAttention:
    case OpKind::kAttentionSink:
    case OpKind::kAttentionSinkGradient:
    case OpKind::kHeadScaleGradient:
      return lower_attention(op);
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return lower_vocabulary(op);
    case OpKind::kRoute:
    case OpKind::kRouteBackward:
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kCombineBackward:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
    case OpKind::kGroupedBias:
    case OpKind::kGroupedBiasGradient:
      return lower_experts(op);
    case OpKind::kExpand:
      return lower_expand(op);
    case OpKind::kEncode:
      return lower_encode(op);
    case OpKind::kAddRows:
    case OpKind::kSumOfSquares:
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return lower_update(op);
  }
  return unimplemented("op '{}' is not there", name_of(op.op().kind));
}

/// Calls fn(place) with all places of a step.
template <typename AnyStep, typename Function>
void for_places(AnyStep& step, Function fn) {
  if (auto* launch = std::get_if<LaunchStep>(&step)) {
    for (auto& patch : launch->patches) fn(patch.place);
  } else if (auto* clear = std::get_if<ClearStep>(&step)) {
    fn(clear->to);
  } else if (auto* product = std::get_if<ProductStep>(&step)) {
    for (auto* place : {&product->a, &product->b, &product->bias, &product->addend, &product->row_scales,
                        &product->column_scales, &product->c, &product->workspace}) {
      fn(*place);
    }
  }
}

/// Collects roots: tensors without their offsets, one for all scratch and one for all of the workspace.
class Roots {
 public:
  Roots(const OpList& list, std::vector<Place>& roots) : list_(list), roots_(roots) {}

  void add(Place place) {
    place.offset = 0;
    const bool there = std::ranges::any_of(
        roots_, [&](const Place& root) { return root == place || (is_scratch(root) && is_scratch(place)); });
    if (!there && place.kind != Place::Kind::kNull) roots_.push_back(place);
  }

 private:
  bool is_scratch(const Place& place) const {
    return place.kind == Place::Kind::kTensor && list_.tensors[place.tensor].role == TensorRole::kScratch;
  }

  const OpList& list_;
  std::vector<Place>& roots_;
};

/// Ops that run beside each other must not share workspace, so each takes its part behind that of the op before it,
/// and from the front again where that would take more than `kRoom` or what the largest needs.
void place_workspace(Steps& steps) {
  constexpr Bytes kRoom = 64_MiB;
  Bytes largest = 0;
  Bytes all = 0;
  for (const OpSteps& op : steps.ops) {
    largest = std::max(largest, op.workspace_end);
    all += op.workspace_end;
  }
  steps.workspace = std::max(largest, std::min(all, kRoom));
  Bytes at = 0;
  for (OpSteps& op : steps.ops) {
    const Bytes size = op.workspace_end;
    if (at + size > steps.workspace) at = 0;
    op.workspace_begin = at;
    op.workspace_end = at + size;
    for (std::size_t i = op.begin; i < op.end; ++i) {
      for_places(steps.steps[i], [at](Place& place) {
        if (place.kind == Place::Kind::kWorkspace) place.offset += at;
      });
    }
    at += size;
  }
}

/// By tensor: the first and the last step that touch it.
struct StepRange {
  std::size_t first = 0;
  std::size_t last = 0;
};
std::vector<std::optional<StepRange>> step_ranges(const OpList& list, const Steps& steps) {
  std::vector<std::optional<StepRange>> ranges(list.tensors.size());
  for (std::size_t i = 0; i < steps.steps.size(); ++i) {
    for_places(steps.steps[i], [&](const Place& place) {
      if (place.kind != Place::Kind::kTensor) return;
      std::optional<StepRange>& range = ranges[place.tensor];
      range = {range ? range->first : i, i};
    });
  }
  return ranges;
}

/// The patch of a launch that says what its sum is added to, if `is_sum(place)` holds.
template <typename IsSum>
std::optional<std::size_t> sum_of(const LaunchStep& launch, std::size_t addend, IsSum is_sum) {
  for (std::size_t i = 0; i < launch.patches.size(); ++i) {
    if (launch.patches[i].offset == addend && is_sum(launch.patches[i].place)) return i;
  }
  return std::nullopt;
}

/// Finds the first step of each gradient. Where that is a product whose sum goes there, a run that sets gradients
/// leaves what is there out of it; what else is added to has to be cleared. A group's are set together or not at all,
/// and not where a tensor takes several steps, as one for very many experts does.
void mark_gradients(const OpList& list, Steps& steps) {
  const std::vector<std::optional<StepRange>> ranges = step_ranges(list, steps);
  for (TensorId id = 0; id < list.tensors.size(); ++id) {
    if (list.tensors[id].role != TensorRole::kGradient) continue;
    const auto is_gradient = [id](const Place& place) { return place == Place{Place::Kind::kTensor, id, 0}; };
    bool sets = false;
    Step* step = ranges[id] ? &steps.steps[ranges[id]->first] : nullptr;
    if (auto* product = std::get_if<ProductStep>(step); product != nullptr) {
      sets = product->sets = is_gradient(product->addend) && is_gradient(product->c);
    } else if (auto* launch = std::get_if<LaunchStep>(step); launch != nullptr && is_product(launch->kernel)) {
      launch->sum = sum_of(*launch, offsetof(ProductParams, addend), is_gradient);
      sets = launch->sum.has_value();
    } else if (launch != nullptr && is_grouped_gradient(launch->kernel)) {
      sets = std::ranges::all_of(launch->patches, [&](const Patch& patch) {
        const TensorId of = patch.place.tensor;
        return list.tensors[of].role != TensorRole::kGradient ||
               (ranges[of]->first == ranges[id]->first && ranges[of]->last == ranges[of]->first);
      });
      if (sets) {
        launch->sum = sum_of(*launch, offsetof(GroupedGradientParams, addend), [](const Place&) { return true; });
      }
    }
    if (!sets) steps.unset.push_back({{Place::Kind::kTensor, id, 0}, list.tensors[id].bytes()});
  }
}

/// In bytes: a card has some 200 FLOPs for each that it moves, and a kernel takes at least as long as a few MB.
double weight_of(const OpList& list, const Op& op) {
  constexpr double kFlopsPerByte = 200;
  constexpr double kLeast = 8e6;
  const OpCost cost = cost_of(list, op, list.sequence_length != 0 ? list.sequence_length : list.tokens);
  return std::max(cost.flops / kFlopsPerByte, cost.bytes) + cost.conversion_bytes + kLeast;
}

}  // namespace

absl::Status Lowering::same_dtype(const TensorDesc& a, const TensorDesc& b) const {
  if (a.dtype == b.dtype) return absl::OkStatus();
  return unimplemented("op {} reads '{}' in {} and '{}' in {}; on CUDA it takes one dtype only", name_of(op_->kind),
                       a.name, name_of(a.dtype), b.name, name_of(b.dtype));
}

absl::StatusOr<bool> Lowering::by_library(Product product) {
  ProductShape& shape = product.shape;
  shape.has_bias = product.bias.kind != Place::Kind::kNull;
  shape.has_addend = product.addend.kind != Place::Kind::kNull;
  shape.has_scales = product.row_scales.kind != Place::Kind::kNull;
  // cuBLASLt 13.1 rounds a product of rows that do not all begin at multiples of 16 bytes to two bytes before bias and
  // addend come to it.
  const bool rounds_twice = shape.has_bias && shape.has_addend && shape.result != Storage::kFloat32 &&
                            (shape.columns % 8 != 0 || shape.inner % 8 != 0);
  const bool plain = (!shape.has_bias || product.bias_storage == shape.result) &&
                     (!shape.has_addend || product.addend_storage == shape.result) && !rounds_twice;
  if (options_.engine == nullptr || !plain) return false;
  const absl::StatusOr<std::uint32_t> plan = options_.engine->plan(shape);
  if (plan.status().code() == absl::StatusCode::kNotFound) return false;
  RONDO_RETURN_IF_ERROR(plan.status());
  // Tensors themselves are looked at when they are bound.
  for (const Place* place : {&product.a, &product.b, &product.bias, &product.addend, &product.c}) {
    if (place->offset % kTensorAlignment == 0) continue;
    return internal_error("op {}: a part of '{}' begins at byte {}, no multiple of {}", name_of(op_->kind),
                          list_.tensors[place->tensor].name, place->offset, kTensorAlignment);
  }
  steps_.steps.emplace_back(ProductStep{*plan,
                                        product.alpha,
                                        product.a,
                                        product.b,
                                        product.bias,
                                        product.addend,
                                        product.row_scales,
                                        product.column_scales,
                                        product.c,
                                        {}});
  return true;
}

absl::Status Lowering::product(Product product) {
  const ProductShape& shape = product.shape;
  if (shape.rows == 0 || shape.columns == 0) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const bool done, by_library(product));
  if (done) return absl::OkStatus();
  Arguments<ProductParams> arguments;
  ProductParams& p = arguments.params;
  p.rows = shape.rows;
  p.columns = shape.columns;
  p.inner = shape.inner;
  p.a_row = shape.a_transposed ? 1 : shape.inner;
  p.a_column = shape.a_transposed ? shape.rows : 1;
  p.b_row = shape.b_transposed ? 1 : shape.columns;
  p.b_column = shape.b_transposed ? shape.inner : 1;
  p.alpha = product.alpha;
  p.bias_storage = product.bias_storage;
  p.addend_storage = product.addend_storage;
  p.c_storage = shape.result;
  arguments.at(&ProductParams::a, product.a)
      .at(&ProductParams::b, product.b)
      .at(&ProductParams::bias, product.bias)
      .at(&ProductParams::addend, product.addend)
      .at(&ProductParams::c, product.c);
  launch(of_storage(KernelId::k_product_fp32, shape.operands),
         {divide_up(shape.columns, kTile), divide_up(shape.rows, kTile), kTileThreads, kProductShared}, arguments);
  return absl::OkStatus();
}

void Lowering::place_product_workspace() {
  Bytes needed = 0;
  const auto need = [&](const Step& step) {
    const auto* product = std::get_if<ProductStep>(&step);
    return product != nullptr ? options_.engine->workspace_bytes(product->plan) : 0;
  };
  for (std::size_t i = begin_; i < steps_.steps.size(); ++i) needed = std::max(needed, need(steps_.steps[i]));
  if (needed == 0) return;
  // They come one after the other: they share.
  const Place shared = workspace(needed);
  for (std::size_t i = begin_; i < steps_.steps.size(); ++i) {
    if (need(steps_.steps[i]) > 0) std::get<ProductStep>(steps_.steps[i]).workspace = shared;
  }
}

absl::Status Lowering::check_grids() const {
  constexpr std::uint32_t kMostAlong = std::numeric_limits<std::int32_t>::max();
  constexpr std::uint32_t kMostAcross = 65535;
  for (std::size_t i = begin_; i < steps_.steps.size(); ++i) {
    const auto* launch = std::get_if<LaunchStep>(&steps_.steps[i]);
    if (launch == nullptr || (launch->grid_x <= kMostAlong && launch->grid_y <= kMostAcross)) continue;
    return unimplemented(
        "op {} of {} tokens takes a grid of {} x {} blocks; CUDA takes {} x {} at most: lower cutoff_len or "
        "per_device_train_batch_size",
        name_of(op_->kind), list_.tokens, launch->grid_x, launch->grid_y, kMostAlong, kMostAcross);
  }
  return absl::OkStatus();
}

void Lowering::end(std::size_t op, std::optional<std::size_t> first) {
  if (begin_ == steps_.steps.size()) return;
  place_product_workspace();
  const double weight = weight_of(list_, list_.ops[op]) + (first ? weight_of(list_, list_.ops[*first]) : 0);
  steps_.ops.push_back({op, first, begin_, steps_.steps.size(), 0, taken_, may_fault_, weight});
  steps_.may_fault = steps_.may_fault || may_fault_;
}

absl::StatusOr<Steps> lower(const OpList& list, const LowerOptions& options) {
  Steps steps;
  const std::vector<std::optional<ProductPair>> pair_of =
      pairs_by_op(list, [&](const ProductPair& pair) { return can_pair(list, pair); });
  for (std::size_t i = 0; i < list.ops.size(); ++i) {
    const std::optional<ProductPair>& pair = pair_of[i];
    if (pair && i == pair->first) continue;  // with the second
    Lowering lowering(list, list.ops[i], options, steps);
    RONDO_RETURN_IF_ERROR(pair ? lower_product_pair(lowering, list.ops[pair->narrow()], list.ops[pair->wide()])
                               : lower_op(lowering));
    RONDO_RETURN_IF_ERROR(lowering.check_grids());
    lowering.end(i, pair ? std::optional(pair->first) : std::nullopt);
  }
  place_workspace(steps);
  if (steps.may_fault) {
    steps.steps.insert(steps.steps.begin(), ClearStep{{Place::Kind::kFault, 0, 0}, sizeof(Fault)});
    for (OpSteps& op : steps.ops) {
      ++op.begin;
      ++op.end;
    }
  }
  mark_gradients(list, steps);
  Roots roots(list, steps.roots);
  for (const Step& step : steps.steps) for_places(step, [&](const Place& place) { roots.add(place); });
  for (const ClearStep& step : steps.unset) roots.add(step.to);
  return steps;
}

}  // namespace rondo::devices::cuda
