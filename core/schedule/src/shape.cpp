#include "rondo/schedule/shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "card_state_layout.h"
#include "rondo/devices/chunk.h"
#include "rondo/devices/op_shape.h"
#include "rondo/devices/update_block.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/batch.h"

namespace rondo::schedule {
namespace {

using model::Keep;
using model::Phase;
using partition::LayerShape;
using partition::PhaseCost;

PhaseCost cost(const devices::OpList& list, std::uint32_t sequence_length) {
  PhaseCost found;
  for (const devices::Op& op : list.ops) {
    const devices::OpCost one = devices::cost_of(list, op, sequence_length);
    found.ops.push_back({one.flops, one.bytes, devices::shape_of(list, op, sequence_length), one.conversion_bytes});
  }
  return found;
}

/// Of a backward in halves.
void describe_halves(const model::Architecture& model, model::LayerIndex index, std::uint32_t tokens,
                     std::uint32_t sequence_length, LayerShape& shape) {
  const devices::OpList weights = model.record(index, Phase::kWeightGradient, Keep::kNothing, tokens);
  shape.weight_gradients = cost(weights, sequence_length);
  for (const auto& desc : model.held(index, Keep::kNothing, tokens)) {
    shape.held_bytes += round_up(desc.bytes(), 64);
  }
  shape.holds_gradient = std::ranges::any_of(
      weights.tensors, [](const auto& desc) { return desc.role == devices::TensorRole::kInput && desc.index == 1; });
}

/// A part of the head in a fused visit: what it adds to the program of all parts from there on. Their costs are sums
/// over their parts, but for the norm that all share.
void describe_joint(const model::Architecture& model, model::LayerIndex index, std::uint32_t tokens,
                    std::uint32_t sequence_length, LayerShape& shape) {
  const Phase phase = model.layers()[index].has_backward ? Phase::kFused : Phase::kEvaluate;
  const devices::OpList joint = model.record(index, phase, Keep::kNothing, tokens);
  const devices::OpList above = model.record(index + 1, phase, Keep::kNothing, tokens);
  for (const devices::Op& op : joint.ops) {
    devices::OpCost one = devices::cost_of(joint, op, sequence_length);
    const devices::OpShape of = devices::shape_of(joint, op, sequence_length);
    if (op.kind == devices::OpKind::kVocabularyLoss) {
      const devices::OpCost rest = devices::cost_of(above, sequence_length);
      one = {one.flops - rest.flops, std::max(one.bytes - rest.bytes, 0.0)};
    }
    shape.fused.ops.push_back({one.flops, one.bytes, of});
  }
}

/// Neighbours that travel together.
class Run {
 public:
  /// Bytes of the transfer that one of `size` ends, for now.
  Bytes add(Bytes size) {
    bytes_ = bytes_ + size <= offload::PackedMemory::kLongest ? bytes_ + size : size;
    return bytes_;
  }

 private:
  Bytes bytes_ = 0;
};

/// Of the largest of a layer's programs.
Bytes arena_bytes(const model::Architecture& model, model::LayerIndex index, std::uint32_t tokens) {
  const model::Layer& layer = model.layers()[index];
  const bool head = layer.kind == model::LayerKind::kHead;
  const bool last = index + 1 == model.layers().size();
  Bytes most = 0;
  const auto take = [&](Phase phase, Keep keep) {
    most = std::max(most, devices::plan_arena(model.record(index, phase, keep, tokens)).size);
  };
  take(last ? Phase::kEvaluate : Phase::kForward, Keep::kNothing);
  if (model.draws(index)) take(Phase::kEvaluate, Keep::kNothing);
  if (head && !last) take(layer.has_backward ? Phase::kFused : Phase::kEvaluate, Keep::kNothing);
  if (!layer.has_backward) return most;
  if (!head) take(Phase::kWeightGradient, Keep::kNothing);
  for (std::size_t k = 0; k < partition::kKeeps; ++k) {
    const auto keep = static_cast<Keep>(k);
    take(last ? Phase::kFused : Phase::kBackward, keep);
    if (head) continue;
    take(Phase::kForward, keep);
    take(Phase::kInputGradient, keep);
  }
  return most;
}

/// What all layers of one program class share.
LayerShape describe_class(const model::Architecture& model, model::LayerIndex index, std::uint32_t tokens,
                          std::uint32_t sequence_length) {
  const model::Layer& layer = model.layers()[index];
  const bool head = layer.kind == model::LayerKind::kHead;
  LayerShape shape;
  shape.has_backward = layer.has_backward;
  const bool last = index + 1 == model.layers().size();
  const devices::OpList forward =
      model.record(index, last ? Phase::kEvaluate : Phase::kForward, Keep::kNothing, tokens);
  shape.forward = cost(forward, sequence_length);
  if (head && !last) describe_joint(model, index, tokens, sequence_length, shape);
  if (!layer.has_backward) return shape;
  for (std::size_t k = 0; k < partition::kKeeps; ++k) {
    const auto keep = static_cast<Keep>(k);
    const devices::OpList backward = model.record(index, last ? Phase::kFused : Phase::kBackward, keep, tokens);
    shape.backward[k] = cost(backward, sequence_length);
    if (head) {
      shape.input_gradient[k] = shape.backward[k];
      continue;
    }
    for (const auto& desc : model.saved(index, keep, tokens)) {
      shape.saved_bytes[k] += round_up(desc.bytes(), 64);
      if (desc.role == devices::TensorRole::kHeld) shape.saved_and_held_bytes[k] += round_up(desc.bytes(), 64);
    }
    shape.input_gradient[k] = cost(model.record(index, Phase::kInputGradient, keep, tokens), sequence_length);
  }
  if (!head) describe_halves(model, index, tokens, sequence_length, shape);
  if (layer.kind == model::LayerKind::kEmbedding) {
    shape.row_gradient_bytes =
        round_up((Bytes{tokens} + 1) * 4, 64) + Bytes{tokens} * model.config().hidden_size * sizeof(float);
  }
  return shape;
}

}  // namespace

/// Bytes a second that one thread copies from where the card has written, as measured on servers.
constexpr double kCopyOfThread = 8e9;

static_assert(partition::kAlignment == offload::PackedMemory::kAlignment, "what is packed at home is so on devices");

Bytes device_bytes(const model::Architecture& model, const model::ParameterUse& use) {
  // Asked in every step: nothing is copied.
  const model::Parameter& whole = model.parameters()[use.id];
  const Bytes bytes = whole.bytes(model.method().dtype);
  const auto rows = static_cast<Bytes>(whole.shape[0]);
  const auto used = static_cast<Bytes>(use.rows);
  return round_up(used == rows ? bytes : bytes / rows * used, partition::kAlignment);
}

devices::BufferView rows_of(const model::Architecture& model, const model::ParameterUse& use,
                            devices::BufferView whole) {
  const std::int64_t rows = model.parameters()[use.id].shape[0];
  if (use.rows == rows) return whole;
  const Bytes row = whole.size / static_cast<Bytes>(rows);
  return whole.part(static_cast<Bytes>(use.first_row) * row, static_cast<Bytes>(use.rows) * row);
}

std::uint32_t copiers_for(double bytes_per_second, std::uint32_t processors) {
  const double wanted = std::ceil(bytes_per_second / kCopyOfThread);
  return static_cast<std::uint32_t>(std::clamp(wanted, 1.0, std::max(1.0, processors / 4.0)));
}

transfer::EngineOptions link_options(const devices::DeviceProfile& profile, bool recovers, bool verifies,
                                     const std::array<Bytes, 2>& longest) {
  transfer::EngineOptions options;
  options.chunk_bytes = devices::chunk_for(std::max(profile.link_up, 1.0));
  options.staging_down = recovers;
  options.copiers = copiers_for(profile.link_down, std::thread::hardware_concurrency());
  options.verify = verifies;
  options.longest = longest;
  return options;
}

partition::ModelShape describe_model(const model::Architecture& model, std::uint32_t tokens,
                                     std::uint32_t sequence_length, std::uint32_t staleness,
                                     const offload::OptimizerSettings& optimizer,
                                     const std::vector<std::uint32_t>& buckets) {
  const std::uint32_t bucket = devices::token_bucket(tokens);
  partition::ModelShape shape;
  std::map<std::uint32_t, LayerShape> classes;
  std::set<model::ParameterId> seen;
  std::set<model::ParameterId> in_parts;
  const bool separate_master = model.method().dtype != devices::DType::kFloat32;
  Bytes moments = 0;
  for (model::LayerIndex i = 0; i < model.layers().size(); ++i) {
    const model::Layer& layer = model.layers()[i];
    auto found = classes.find(layer.program_class);
    if (found == classes.end()) {
      found = classes.emplace(layer.program_class, describe_class(model, i, bucket, sequence_length)).first;
      // Fewer tokens may need a larger arena: what does not shrink with them then comes first and leaves other gaps.
      Bytes& scratch = found->second.scratch_bytes;
      scratch = arena_bytes(model, i, bucket);
      for (const std::uint32_t other : buckets) {
        if (other != bucket) scratch = std::max(scratch, arena_bytes(model, i, other));
      }
    }
    LayerShape entry = found->second;
    entry.name = layer.name;
    entry.head_part = model.is_head(i) && i + 1 < model.layers().size();
    for (const model::ParameterUse& use : layer.parameters) {
      const model::Parameter& parameter = model.parameters()[use.id];
      const std::uint64_t elements = model.part_of(use).elements();
      entry.weight_bytes += device_bytes(model, use);
      if (parameter.trained) entry.trained_weight_bytes += device_bytes(model, use);
      const bool table = layer.kind == model::LayerKind::kEmbedding;
      if (parameter.trained && !table) {
        entry.gradient_bytes += round_up(elements * sizeof(float), partition::kAlignment);
      }
      // Of a head in parts each counts its rows; the first one has the state of all.
      const bool fresh = seen.insert(use.id).second;
      if (fresh && use.piece == 0 && use.rows < parameter.shape[0]) in_parts.insert(use.id);
      if (fresh || in_parts.contains(use.id)) entry.parameters += elements;
      if (!fresh || !parameter.trained) continue;
      entry.trained_parameters += parameter.elements();
      const offload::StateLayout state = offload::state_layout(optimizer, parameter.elements());
      entry.moment_bytes += state.moments(parameter.elements());
      entry.state_disk_bytes +=
          offload::DiskTier::bytes_for(parameter.elements(), offload::disk_arrays(state, separate_master));
    }
    moments += entry.moment_bytes;
    shape.layers.push_back(std::move(entry));
  }
  // Down come a boundary, sums of gradients or a table's rows; up go a batch, boundaries and weights. What is short
  // travels together.
  auto& [up, down] = shape.longest_transfer;
  down = model.boundary_bytes(bucket);
  up = std::max(down, BatchLayout(model, bucket).total());
  for (const model::Layer& layer : model.layers()) {
    std::array<Run, 2> weights;  // frozen ones, trained ones
    Run sums;
    for (const model::ParameterUse& use : layer.parameters) {
      const model::Parameter part = model.part_of(use);
      up = std::max(up, weights[part.trained ? 1 : 0].add(device_bytes(model, use)));
      if (part.trained) {
        down = std::max(down, sums.add(round_up(part.elements() * sizeof(float), partition::kAlignment)));
      }
    }
  }
  down = std::max(down, shape.layers.front().row_gradient_bytes);
  Bytes weights = 0;
  Bytes trained = 0;
  for (const model::Parameter& parameter : model.parameters()) {
    weights += parameter.bytes(model.method().dtype) * (1 + (parameter.trained ? staleness : 0));
    if (parameter.trained) trained += parameter.elements();
  }
  // In fp32 the weights are the masters, unless two steps' are published.
  if (!separate_master && staleness > 0) weights += trained * 4;
  Bytes apart = 0;  // rows of a tied table
  for (const offload::GradientSpec& spec : gradient_specs(model)) {
    if (spec.dense && spec.sparse) apart += spec.elements * sizeof(float);
  }
  // The widest state has as many arrays as any parameter may have: small ones are kept in fp32.
  shape.disk_buffer_bytes =
      offload::DiskTier::buffer_bytes(offload::disk_arrays(offload::state_layout(optimizer, 0), separate_master));
  shape.host_bytes = {{"weights", weights},
                      {partition::kMasterWeights, separate_master ? trained * 4 : 0},
                      {partition::kMoments, moments},
                      {partition::kGradients, (trained * 4 + apart) * (1 + staleness)}};
  const CardStateLayout state(model, optimizer);
  shape.state_bytes = state.bytes();
  shape.largest_state_bytes = state.largest_array();
  shape.update_bytes = state.update_bytes();
  if (const devices::OpList probe = update_probe(model, optimizer); !probe.ops.empty()) {
    shape.update_shape = devices::shape_of(probe, probe.ops[0], 0);
  }
  shape.update_host_bytes = state.host_bytes();
  return shape;
}

partition::Workload describe_workload(const model::Architecture& model, std::uint32_t tokens, double mean_tokens,
                                      std::uint32_t microbatches, std::uint32_t reduction_group) {
  const std::uint32_t bucket = devices::token_bucket(tokens);
  partition::Workload work;
  work.dtype = model.method().dtype;
  work.microbatches = microbatches;
  work.microbatch_tokens = bucket;
  work.mean_tokens = mean_tokens;
  work.reduction_group = reduction_group;
  work.boundary_bytes = model.boundary_bytes(bucket);
  work.batch_bytes = BatchLayout(model, bucket).total();
  for (const model::Parameter& parameter : model.parameters()) {
    if (parameter.trained) work.trained_parameters += parameter.elements();
  }
  return work;
}

devices::OpList update_probe(const model::Architecture& model, const offload::OptimizerSettings& optimizer) {
  using devices::DType;
  using devices::TensorRole;
  constexpr std::int64_t kBlocks = 256;  // more bytes than cards have cache
  const devices::Shape flat = {kBlocks * static_cast<std::int64_t>(devices::kUpdateBlock)};
  devices::OpList list;
  if (optimizer.kind != offload::OptimizerKind::kAdamW) return list;
  list.tokens = 1;
  list.tensors = {{"gradients", flat, DType::kFloat32, TensorRole::kInput},
                  {"factors", {1, devices::kUpdateFactors}, DType::kFloat32, TensorRole::kInput},
                  {"keys", {1}, DType::kUInt64, TensorRole::kInput},
                  {"owners", {kBlocks, 2}, DType::kInt32, TensorRole::kInput},
                  {"masters", flat, DType::kFloat32, TensorRole::kState},
                  {"first moments", flat, DType::kFloat32, TensorRole::kState},
                  {"second moments", flat, DType::kFloat32, TensorRole::kState}};
  list.ops = {{devices::OpKind::kAdamW, {}, {0, 1, 2, 3, 4, 5, 6}, {}}};
  if (model.method().dtype != DType::kFloat32) {
    list.tensors.push_back({"weights", flat, model.method().dtype, TensorRole::kOutput});
    list.ops[0].writes = {7};
  }
  return list;
}

std::vector<model::ParameterId> update_order(const model::Architecture& model) {
  std::vector<model::ParameterId> order;
  std::vector<bool> seen(model.parameters().size(), false);
  for (const model::Layer& layer : model.layers()) {
    for (const model::ParameterUse& use : layer.parameters) {
      if (!model.parameters()[use.id].trained || seen[use.id]) continue;
      seen[use.id] = true;
      order.push_back(use.id);
    }
  }
  return order;
}

std::vector<model::ParameterId> parameters_on_disk(const model::Architecture& model, const partition::Plan& plan) {
  std::vector<bool> seen(model.parameters().size(), false);
  std::vector<model::ParameterId> on_disk;
  for (model::LayerIndex i = 0; i < model.layers().size(); ++i) {
    for (const model::ParameterUse& use : model.layers()[i].parameters) {
      if (!model.parameters()[use.id].trained || seen[use.id]) continue;
      seen[use.id] = true;
      if (i >= plan.first_layer_on_disk) on_disk.push_back(use.id);
    }
  }
  return on_disk;
}

std::vector<offload::ParameterSpec> parameter_specs(const model::Architecture& model,
                                                    const offload::OptimizerSettings& optimizer) {
  std::vector<offload::ParameterSpec> specs;
  for (const model::Parameter& parameter : model.parameters()) {
    specs.push_back({parameter.name, parameter.elements(), parameter.trained, parameter.decays(), parameter.encoding,
                     offload::state_layout(optimizer, parameter.elements()), static_cast<float>(parameter.rate_factor),
                     parameter.wide()});
  }
  // Of a layer those that change travel in every step, the others perhaps once.
  for (model::LayerIndex layer = static_cast<model::LayerIndex>(model.layers().size()); layer-- > 0;) {
    for (const model::ParameterUse& use : model.layers()[layer].parameters) {
      specs[use.id].group = 2 * layer + (specs[use.id].trained ? 1 : 0);
    }
  }
  return specs;
}

std::vector<offload::GradientSpec> gradient_specs(const model::Architecture& model) {
  std::vector<offload::GradientSpec> specs;
  std::vector<std::size_t> place(model.parameters().size());  // of a trained parameter's
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!parameter.trained) continue;
    place[id] = specs.size();
    offload::GradientSpec& spec = specs.emplace_back();
    spec.parameter = id;
    spec.elements = parameter.elements();
    spec.dense = false;
  }
  for (model::LayerIndex i = 0; i < model.layers().size(); ++i) {
    const bool table = model.layers()[i].kind == model::LayerKind::kEmbedding;
    for (const model::ParameterUse& use : model.layers()[i].parameters) {
      if (!model.parameters()[use.id].trained) continue;
      offload::GradientSpec& spec = specs[place[use.id]];
      if (!table && !spec.dense) spec.group = i;
      if (!table) spec.pieces = use.piece + 1;
      spec.sparse = spec.sparse || table;
      spec.dense = spec.dense || !table;
    }
  }
  for (offload::GradientSpec& spec : specs) {
    if (!spec.sparse) continue;
    spec.row_width = static_cast<std::uint64_t>(model.parameters()[spec.parameter].shape.back());
    // As torch.nn.Embedding(padding_idx) in transformers' models: the lookup gives this row no gradient (a tied head
    // may).
    if (!model.config().trains_padding) spec.padding_row = model.config().pad_token_id.value_or(-1);
  }
  return specs;
}

}  // namespace rondo::schedule
