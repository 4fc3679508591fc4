// Every probe is made into a program of one op; the short ones run first, so that the long ones have what is left.
#include "rondo/devices/measure_ops.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>

#include "rondo/base/status.h"
#include "stopwatch.h"

namespace rondo::devices {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kLeastRows = 16;
constexpr int kMostTries = 5;

/// Extents of `tensor` that count tokens: the first, where it is as large as the program's bucket or has one or two
/// entries more. Weights and their gradients have none. `is_spread`: it may be a multiple of the bucket.
void shorten(TensorDesc& tensor, std::int64_t tokens, std::int64_t rows, bool is_spread) {
  if (tensor.role == TensorRole::kWeight || tensor.role == TensorRole::kGradient || tensor.shape.empty()) return;
  if (is_spread && tensor.shape[0] % tokens == 0) {
    tensor.shape[0] = tensor.shape[0] / tokens * rows;
    return;
  }
  const bool counts_more = tensor.role == TensorRole::kBatch || tensor.role == TensorRole::kRows;
  const std::int64_t more = tensor.shape[0] - tokens;
  if (more < 0 || more > (counts_more ? 2 : 0)) return;
  tensor.shape[0] = rows + more;
}

/// It reads where the rows of each expert begin.
bool has_offsets(OpKind kind) {
  return is_grouped_product(kind) || kind == OpKind::kGroupedBias || kind == OpKind::kGroupedBiasGradient;
}

/// Operands have k rows a token, which a token's experts read.
bool is_spread(OpKind kind) {
  return has_offsets(kind) || kind == OpKind::kDispatch || kind == OpKind::kCombine || kind == OpKind::kCombineBackward;
}

/// The place of what says where rows lie: offsets, or of all other such ops `rows`.
std::size_t layout_of(const Op& op) {
  return op.kind == OpKind::kGroupedMatMulWeightGradient || op.kind == OpKind::kCombineBackward ? 2 : 1;
}

/// What the program has made itself and has no tokens: a matrix that was encoded, DoRA's scales, where experts' rows
/// begin.
bool keeps_extents(const Op& op, std::size_t position) {
  switch (op.kind) {
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kColumnScale:
      return position == 1;
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
      return position == 2;
    case OpKind::kColumnScaleBackward:
      return position > 0 && position + 1 < op.reads.size();
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
      return position >= layout_of(op) && position < 2 + expert_tensors_of(op);
    case OpKind::kGroupedMatMulWeightGradient:
    case OpKind::kGroupedBiasGradient:
      return position == layout_of(op);
    case OpKind::kGroupedBias:
      return position >= layout_of(op);
    case OpKind::kAttentionSink:
    case OpKind::kAttentionSinkGradient:
      return position == 2;
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient: {
      const auto& attributes = std::get<VocabularyAttributes>(op.attributes);
      return (position >= 2 && position < 2 + attributes.parts) ||
             (attributes.has_loss_scale && position + 1 == op.reads.size());
    }
    default:
      return false;
  }
}

/// What a microbatch of full sequences looks like.
void fill_batch(const TensorDesc& tensor, std::int64_t tokens, std::int64_t sequence, std::byte* memory) {
  if (static_cast<BatchTensor>(tensor.index) == BatchTensor::kLossScale) {
    constexpr float kScale = 1.0F;
    std::memcpy(memory, &kScale, sizeof(kScale));
    return;
  }
  if (static_cast<BatchTensor>(tensor.index) == BatchTensor::kBlockRows) return;
  std::vector<std::int32_t> values;
  if (static_cast<BatchTensor>(tensor.index) == BatchTensor::kBounds) {
    const std::int64_t count = (tokens + sequence - 1) / sequence;
    values.push_back(static_cast<std::int32_t>(count));
    for (std::int64_t i = 0; i <= count; ++i) {
      values.push_back(static_cast<std::int32_t>(std::min(i * sequence, tokens)));
    }
  } else if (static_cast<BatchTensor>(tensor.index) == BatchTensor::kPositions) {
    for (std::int64_t i = 0; i < tokens; ++i) values.push_back(static_cast<std::int32_t>(i % sequence));
  }
  const std::size_t bytes = std::min<std::size_t>(values.size() * sizeof(std::int32_t), tensor.bytes());
  if (bytes > 0) std::memcpy(memory, values.data(), bytes);
}

/// As if each expert got as many tokens as any other.
void fill_route(const OpList& list, const TensorDesc& tensor, std::byte* memory) {
  const Op& op = list.ops[0];
  if (!is_spread(op.kind) || &tensor != &list.tensors[op.reads[layout_of(op)]]) return;
  std::vector<std::int32_t> values;
  if (has_offsets(op.kind)) {
    const std::int64_t experts = tensor.elements() - 1;
    const std::int64_t rows = list.tensors[op.reads[0]].shape[0];
    for (std::int64_t e = 0; e <= experts; ++e) values.push_back(static_cast<std::int32_t>(rows * e / experts));
  } else {
    const std::int64_t choices = tensor.shape[1];
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(static_cast<std::int32_t>(i % choices * list.tokens + i / choices));
    }
  }
  std::memcpy(memory, values.data(), values.size() * sizeof(std::int32_t));
}

bool is_delta_rule(OpKind kind) { return kind == OpKind::kDeltaRule || kind == OpKind::kDeltaRuleBackward; }

/// Gates of the delta rule: with random ones its state would grow beyond all numbers.
void fill_gates(const OpList& list, const TensorDesc& tensor, std::byte* memory) {
  const Op& op = list.ops[0];
  if (!is_delta_rule(op.kind)) return;
  const bool is_decay = &tensor == &list.tensors[op.reads[3]];
  if (!is_decay && &tensor != &list.tensors[op.reads[4]]) return;
  const std::vector<float> values(static_cast<std::size_t>(tensor.elements()), is_decay ? -0.1F : 0.5F);
  std::memcpy(memory, values.data(), values.size() * sizeof(float));
}

double roofline(const OpCost& cost, const DeviceProfile& expected, const OpShape& shape) {
  return std::max(expected.seconds(cost, shape.dtype, shape.fp8), 1e-9);
}

OpCost cost_alone(const OpList& list) { return cost_of(list, list.ops[0], list.sequence_length); }

/// Rows on which it takes `share` seconds at most, as far as can be told.
OpList fitting(const OpProbe& probe, const DeviceProfile& expected, double share) {
  std::uint32_t rows = probe.list->tokens;
  OpList list = alone(probe, rows);
  while (rows > kLeastRows && roofline(cost_alone(list), expected, probe.shape()) > share) {
    rows = std::max(kLeastRows, rows / 2);
    list = alone(probe, rows);
  }
  return list;
}

/// Seconds; nothing when it cannot be run. `watch`: made on the first call, and again when a run has failed.
std::optional<double> time_of(Device& device, std::optional<Stopwatch>& watch, const OpList& list, Bytes apart,
                              const Tries& tries) {
  Bytes bytes = 0;
  for (const TensorDesc& tensor : list.tensors) bytes += tensor.bytes();
  if (bytes > device.caps().memory_bytes / 4) return std::nullopt;
  if (!watch.has_value()) {
    absl::StatusOr<Stopwatch> made = Stopwatch::make(device);
    if (!made.ok()) return std::nullopt;
    watch.emplace(*std::move(made));
  }
  const auto fill = [&](const TensorDesc& tensor, std::byte* memory) {
    if (tensor.role != TensorRole::kBatch) {
      fill_gates(list, tensor, memory);
      return fill_route(list, tensor, memory);
    }
    fill_batch(tensor, list.tokens, list.sequence_length, memory);
  };
  auto times = watch->time_program(list, tries, fill, apart);
  if (!times.ok()) {
    watch.reset();
    return std::nullopt;
  }
  const auto middle = times->begin() + static_cast<std::ptrdiff_t>(times->size() / 2);
  std::nth_element(times->begin(), middle, times->end());
  return *middle;
}

}  // namespace

OpList alone(const OpProbe& probe, std::uint32_t rows) {
  const OpList& program = *probe.list;
  OpList list;
  list.tokens = std::min(rows, program.tokens);
  list.sequence_length = std::clamp<std::uint32_t>(probe.sequence_length, 1, list.tokens);
  Op op = program.ops[probe.op];
  const bool of_weights = op.kind == OpKind::kExpand && !is_hadamard(program.tensors[op.reads[0]].encoding);
  const bool has_tokens = !of_weights && op.kind != OpKind::kMagnitudeScale;
  std::map<TensorId, TensorId> places;  // an operand may be read twice
  const auto take = [&](TensorId id, bool is_written, bool keeps_size) {
    const auto [place, fresh] = places.emplace(id, static_cast<TensorId>(list.tensors.size()));
    if (!fresh) return place->second;
    TensorDesc tensor = program.tensors[id];
    if (has_tokens && !keeps_size) shorten(tensor, program.tokens, list.tokens, is_spread(op.kind));
    const bool is_checkpoint = is_delta_rule(op.kind) && tensor.shape.size() == 4;
    if (is_checkpoint) tensor.shape[0] = (list.tokens + kDeltaChunk - 1) / kDeltaChunk;
    const bool from_outside = tensor.role == TensorRole::kWeight || tensor.role == TensorRole::kBatch;
    if (!is_written && !from_outside) tensor.role = TensorRole::kInput;
    const bool lasts = tensor.role == TensorRole::kSaved || tensor.role == TensorRole::kHeld;
    if (is_written && (tensor.role == TensorRole::kScratch || lasts)) tensor.role = TensorRole::kOutput;
    list.tensors.push_back(std::move(tensor));
    return place->second;
  };
  for (std::size_t i = 0; i < op.reads.size(); ++i) op.reads[i] = take(op.reads[i], false, keeps_extents(op, i));
  for (std::size_t i = 0; i < op.writes.size(); ++i) {
    op.writes[i] = take(op.writes[i], true, op.kind == OpKind::kRoute && i == 3);
  }
  list.ops = {std::move(op)};
  return list;
}

std::vector<MeasuredOp> measure_ops(Device& device, std::vector<OpProbe> probes, const DeviceProfile& expected,
                                    double seconds) {
  const auto whole = [&](const OpProbe& probe) {
    return roofline(cost_alone(alone(probe, probe.list->tokens)), expected, probe.shape());
  };
  std::ranges::stable_sort(probes, {}, whole);
  std::vector<MeasuredOp> measured;
  std::optional<Stopwatch> watch;
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const OpProbe& probe = probes[i];
    const double compiling = watch.has_value() ? watch->first_use_seconds() : 0;
    const double left = seconds + compiling - std::chrono::duration<double>(Clock::now() - begin).count();
    const double share = std::max(left, 0.0) / static_cast<double>(probes.size() - i);
    OpList list = fitting(probe, expected, share);
    OpCost cost = cost_alone(list);
    if (work_of(cost) <= 0) continue;
    double estimate = roofline(cost, expected, probe.shape());
    std::optional<double> taken;
    if (estimate <= left) taken = time_of(device, watch, list, probe.apart, {kMostTries, share, estimate});
    if (!taken.has_value()) {  // what fewer rows would take says less than what all would
      list = alone(probe, probe.list->tokens);
      cost = cost_alone(list);
      estimate = roofline(cost, expected, probe.shape());
    }
    MeasuredOp op{probe.shape(), work_of(cost) / taken.value_or(estimate)};
    measured.push_back(op);
    const OpShape shape = shape_of(list, list.ops[0], list.sequence_length);
    if (shape == op.shape || shape.inner != op.shape.inner) continue;
    op.shape = shape;
    measured.push_back(op);
  }
  return measured;
}

}  // namespace rondo::devices
