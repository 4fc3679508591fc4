// The forward half of the recorder.
#include "rondo/model/recorder.h"

namespace rondo::model {

Recorder::Recorder(std::uint32_t tokens, DType dtype) : dtype_(dtype) { graph_.tokens = tokens; }

TensorId Recorder::tensor(std::string name, Shape shape, DType dtype, TensorRole role, std::uint32_t index,
                          devices::Encoding encoding) {
  graph_.tensors.push_back({std::move(name), std::move(shape), dtype, role, index, encoding});
  trained_.push_back(false);
  return static_cast<TensorId>(graph_.tensors.size() - 1);
}

TensorId Recorder::weight(std::uint32_t index, const std::string& name, const Shape& shape, bool trained,
                          devices::Encoding encoding) {
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    if (graph_.tensors[id].role == TensorRole::kWeight && graph_.tensors[id].index == index) return id;
  }
  const TensorId id = tensor(name, shape, dtype_, TensorRole::kWeight, index, encoding);
  trained_[id] = trained;
  return id;
}

TensorId Recorder::batch(devices::BatchTensor which) {
  const auto index = static_cast<std::uint32_t>(which);
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    if (graph_.tensors[id].role == TensorRole::kBatch && graph_.tensors[id].index == index) return id;
  }
  switch (which) {
    case devices::BatchTensor::kIds:
      return tensor("ids", {tokens()}, DType::kInt32, TensorRole::kBatch, index);
    case devices::BatchTensor::kPositions:
      return tensor("positions", {tokens()}, DType::kInt32, TensorRole::kBatch, index);
    case devices::BatchTensor::kTargets:
      return tensor("targets", {tokens()}, DType::kInt32, TensorRole::kBatch, index);
    case devices::BatchTensor::kBounds:
      return tensor("bounds", {tokens() + 2}, DType::kInt32, TensorRole::kBatch, index);
    case devices::BatchTensor::kKeys:
      return tensor("keys", {tokens()}, DType::kUInt64, TensorRole::kBatch, index);
    case devices::BatchTensor::kLossScale:
      return tensor("loss_scale", {1}, DType::kFloat32, TensorRole::kBatch, index);
    case devices::BatchTensor::kBlockRows:
      break;  // block_rows() knows how wide they are
  }
  return 0;
}

Op& Recorder::append(OpKind kind, devices::OpAttributes attributes) {
  Op& op = graph_.ops.emplace_back();
  op.kind = kind;
  op.attributes = std::move(attributes);
  return op;
}

TensorId Recorder::activation(std::string name, Shape shape) {
  return tensor(std::move(name), std::move(shape), dtype_, TensorRole::kScratch);
}

TensorId Recorder::embedding(TensorId table, double scale) {
  const TensorId ids = batch(devices::BatchTensor::kIds);
  const TensorId x = activation("embedded", {tokens(), graph_.tensors[table].shape[1]});
  Op& op = append(OpKind::kEmbedding, devices::EmbeddingAttributes{static_cast<float>(scale)});
  op.reads = {ids, table};
  op.writes = {x};
  return x;
}

TensorId Recorder::norm(TensorId x, std::optional<TensorId> weight, std::optional<TensorId> bias, const NormSpec& norm,
                        const std::string& name) {
  const TensorId y = activation(name, graph_.tensors[x].shape);
  devices::NormAttributes attributes{static_cast<float>(norm.epsilon)};
  attributes.weight_factor = weight ? static_cast<float>(norm.weight_factor) : 0.0F;
  attributes.weight_offset = static_cast<float>(norm.weight_offset);
  attributes.centred = norm.centred;
  attributes.has_bias = bias.has_value();
  Op& op = append(OpKind::kNorm, attributes);
  op.reads = {x};
  if (weight) op.reads.push_back(*weight);
  if (bias) op.reads.push_back(*bias);
  op.writes = {y};
  return y;
}

TensorId Recorder::add(TensorId a, std::optional<TensorId> b, const std::string& name) {
  const TensorId y = activation(name, graph_.tensors[a].shape);
  Op& op = append(OpKind::kAdd);
  op.reads = {a};
  if (b) op.reads.push_back(*b);
  op.writes = {y};
  return y;
}

TensorId Recorder::matmul(TensorId x, TensorId w, std::optional<TensorId> bias, std::optional<TensorId> addend,
                          double alpha, Shape shape, const std::string& name, devices::Fp8Format fp8) {
  w = expanded(w);
  const TensorId y = activation(name, std::move(shape));
  Op& op = append(OpKind::kMatMul,
                  devices::MatMulAttributes{static_cast<float>(alpha), bias.has_value(), addend.has_value(), fp8});
  op.reads = {x, w};
  if (bias) op.reads.push_back(*bias);
  if (addend) op.reads.push_back(*addend);
  op.writes = {y};
  return y;
}

TensorId Recorder::expanded(TensorId x) {
  const auto before = encoded_.find(x);
  const TensorId source = before == encoded_.end() ? x : before->second;
  if (graph_.tensors[source].encoding == devices::Encoding::kPlain) return x;
  const TensorId numbers = activation(graph_.tensors[source].name, graph_.tensors[source].shape);
  Op& op = append(OpKind::kExpand);
  op.reads = {source};
  op.writes = {numbers};
  encoded_[numbers] = source;
  return numbers;
}

std::vector<TensorId> Recorder::expanded(const std::vector<TensorId>& all) {
  std::vector<TensorId> numbers;
  for (const TensorId one : all) numbers.push_back(expanded(one));
  return numbers;
}

TensorId Recorder::encoded(TensorId x, devices::Encoding encoding) {
  if (encoding == devices::Encoding::kPlain) return x;
  const TensorDesc numbers = graph_.tensors[x];
  const TensorId codes = tensor(numbers.name, numbers.shape, numbers.dtype, TensorRole::kScratch, 0, encoding);
  Op& op = append(OpKind::kEncode);
  op.reads = {x};
  op.writes = {codes};
  return codes;
}

TensorId Recorder::rope(TensorId x, const devices::RopeAttributes& attributes, const std::string& name) {
  const TensorId positions = batch(devices::BatchTensor::kPositions);
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kRope, attributes);
  op.reads = {x, positions, bounds};
  op.writes = {y};
  return y;
}

Recorder::Attended Recorder::attention(TensorId q, TensorId k, TensorId v,
                                       const devices::AttentionAttributes& attributes) {
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const Attended attended = attended_of(q, "attended");
  Op& op = append(OpKind::kAttention, attributes);
  op.reads = {q, k, v, bounds};
  op.writes = {attended.o, attended.lse};
  return attended;
}

Recorder::Attended Recorder::cached_attention(TensorId q, TensorId k, TensorId v, std::int64_t capacity,
                                              const devices::AttentionAttributes& attributes) {
  const TensorId positions = batch(devices::BatchTensor::kPositions);
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const Shape cache = {capacity, graph_.tensors[k].shape[1], graph_.tensors[k].shape[2]};
  const TensorId keys = tensor("key_cache", cache, dtype_, TensorRole::kState, 0);
  const TensorId values = tensor("value_cache", cache, dtype_, TensorRole::kState, 1);
  const Attended attended = attended_of(q, "attended");
  Op& op = append(OpKind::kCachedAttention, attributes);
  op.reads = {q, k, v, positions, bounds, keys, values};
  op.writes = {attended.o, attended.lse};
  return attended;
}

Recorder::Attended Recorder::attention_sink(const Attended& attended, TensorId sinks) {
  const Attended sunk = attended_of(attended.o, "attended_with_sink");
  Op& op = append(OpKind::kAttentionSink);
  op.reads = {attended.o, attended.lse, sinks};
  op.writes = {sunk.o, sunk.lse};
  return sunk;
}

TensorId Recorder::join_heads(TensorId a, std::optional<TensorId> b, std::int64_t heads, std::int64_t width,
                              const std::string& name) {
  const TensorId y = activation(name, {tokens(), heads, width});
  Op& op = append(OpKind::kJoinHeads);
  op.reads = {a};
  if (b) op.reads.push_back(*b);
  op.writes = {y};
  return y;
}

TensorId Recorder::joined(TensorId a, std::optional<TensorId> b, std::int64_t width, const std::string& name) {
  const TensorId y = activation(name, {graph_.tensors[a].shape[0], width});
  Op& op = append(OpKind::kJoinHeads);
  op.reads = {a};
  if (b) op.reads.push_back(*b);
  op.writes = {y};
  return y;
}

std::pair<TensorId, TensorId> Recorder::parted(TensorId whole, const Shape& first, const Shape& second,
                                               const std::string& first_name, const std::string& second_name) {
  const TensorId a = activation(first_name, first);
  const TensorId b = activation(second_name, second);
  Op& op = append(OpKind::kJoinHeadsBackward);
  op.reads = {whole};
  op.writes = {a, b};
  return {a, b};
}

TensorId Recorder::block_rows(std::int64_t width) {
  return tensor("block_rows", {tokens(), width}, dtype_, TensorRole::kBatch,
                static_cast<std::uint32_t>(devices::BatchTensor::kBlockRows));
}

Recorder::Attended Recorder::attended_of(TensorId q, const std::string& name) {
  const Shape shape = graph_.tensors[q].shape;
  const TensorId o = activation(name, shape);
  return {o, tensor(name + ".lse", {shape[0], shape[1]}, DType::kFloat32, TensorRole::kScratch)};
}

TensorId Recorder::convolution(TensorId x, TensorId w, std::optional<TensorId> bias, std::uint32_t state, bool decodes,
                               bool silu) {
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const TensorId y = activation("convolved", graph_.tensors[x].shape);
  const Shape before = {graph_.tensors[w].shape[1] - 1, graph_.tensors[w].shape[0]};
  std::vector<TensorId> reads = {x, w};
  if (bias) reads.push_back(*bias);
  reads.push_back(bounds);
  if (decodes) {
    reads.push_back(batch(devices::BatchTensor::kPositions));
    reads.push_back(tensor("inputs_before", before, dtype_, TensorRole::kState, state));
  }
  Op& op = append(OpKind::kConvolution, devices::DeltaAttributes{decodes, false, silu, bias.has_value()});
  op.reads.assign(reads.begin(), reads.end());
  op.writes = {y};
  return y;
}

Recorder::Decayed Recorder::decay(TensorId a, TensorId b, TensorId rates, TensorId bias) {
  const Shape shape = graph_.tensors[a].shape;
  const Decayed gates{tensor("g", shape, DType::kFloat32, TensorRole::kScratch),
                      tensor("beta", shape, DType::kFloat32, TensorRole::kScratch)};
  Op& op = append(OpKind::kDecay, devices::DeltaAttributes{});
  op.reads = {a, b, rates, bias};
  op.writes = {gates.g, gates.beta};
  return gates;
}

Recorder::Decayed Recorder::steps(TensorId a, TensorId rates, TensorId bias, double least, double most) {
  const Shape shape = graph_.tensors[a].shape;
  const Decayed gates{tensor("g", shape, DType::kFloat32, TensorRole::kScratch),
                      tensor("steps", shape, DType::kFloat32, TensorRole::kScratch)};
  devices::DeltaAttributes attributes;
  attributes.recurrence = devices::Recurrence::kStateSpace;
  attributes.least_step = static_cast<float>(least);
  attributes.most_step = static_cast<float>(most);
  Op& op = append(OpKind::kDecay, attributes);
  op.reads = {a, rates, bias};
  op.writes = {gates.g, gates.beta};
  return gates;
}

TensorId Recorder::delta_rule(TensorId q, TensorId k, TensorId v, const Decayed& gates, bool decodes,
                              devices::Recurrence recurrence, std::uint32_t state) {
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const Shape of_values = graph_.tensors[v].shape;
  const std::int64_t size = graph_.tensors[k].shape[2];
  const TensorId o = activation("delta_rule", of_values);
  std::vector<TensorId> reads = {q, k, v, gates.g, gates.beta, bounds};
  std::vector<TensorId> writes = {o};
  if (decodes) {
    reads.push_back(batch(devices::BatchTensor::kPositions));
    reads.push_back(tensor("state", {of_values[1], size, of_values[2]}, DType::kFloat32, TensorRole::kState, state));
  } else {
    const std::int64_t count = (of_values[0] + devices::kDeltaChunk - 1) / devices::kDeltaChunk;
    writes.push_back(
        tensor("checkpoints", {count, of_values[1], size, of_values[2]}, DType::kFloat32, TensorRole::kScratch));
  }
  devices::DeltaAttributes attributes;
  attributes.has_state = decodes;
  attributes.recurrence = recurrence;
  Op& op = append(OpKind::kDeltaRule, attributes);
  op.reads.assign(reads.begin(), reads.end());
  op.writes.assign(writes.begin(), writes.end());
  return o;
}

TensorId Recorder::gated_activation(TensorId gate, std::optional<TensorId> up,
                                    const devices::GatedActivationAttributes& attributes) {
  const TensorId y = activation("activated", graph_.tensors[gate].shape);
  Op& op = append(OpKind::kGatedActivation, attributes);
  op.reads = {gate};
  if (up) op.reads.push_back(*up);
  op.writes = {y};
  return y;
}

TensorId Recorder::soft_cap(TensorId x, double cap, const std::string& name) {
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kSoftCap, devices::SoftCapAttributes{static_cast<float>(cap)});
  op.reads = {x};
  op.writes = {y};
  return y;
}

TensorId Recorder::dropout(TensorId x, double probability, std::uint32_t site, const std::string& name, bool rest) {
  const TensorId keys = batch(devices::BatchTensor::kKeys);
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kDropout, devices::DropoutAttributes{static_cast<float>(probability), site, rest});
  op.reads = {x, keys};
  op.writes = {y};
  return y;
}

TensorId Recorder::noise(TensorId x, double amount, const std::string& name) {
  const TensorId keys = batch(devices::BatchTensor::kKeys);
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kNoise, devices::NoiseAttributes{static_cast<float>(amount)});
  op.reads = {x, keys, bounds};
  op.writes = {y};
  return y;
}

TensorId Recorder::magnitude_scale(TensorId m, TensorId w, TensorId a, TensorId b, double alpha,
                                   const std::string& name) {
  w = expanded(w);
  const Shape shape = graph_.tensors[m].shape;
  const TensorId scale = tensor(name + ".scale", shape, DType::kFloat32, TensorRole::kScratch);
  const TensorId inverse = tensor(name + ".inverse", shape, DType::kFloat32, TensorRole::kScratch);
  Op& op = append(OpKind::kMagnitudeScale, devices::MagnitudeAttributes{static_cast<float>(alpha)});
  op.reads = {w, a, b, m};
  op.writes = {scale, inverse};
  return scale;
}

TensorId Recorder::column_scale(TensorId x, TensorId scale, std::optional<TensorId> bias,
                                std::optional<TensorId> addend, const std::string& name) {
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kColumnScale, devices::ColumnScaleAttributes{bias.has_value(), addend.has_value()});
  op.reads = {x, scale};
  if (bias) op.reads.push_back(*bias);
  if (addend) op.reads.push_back(*addend);
  op.writes = {y};
  return y;
}

TensorId Recorder::select_last(TensorId x) {
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const TensorId y = activation("last", {1, graph_.tensors[x].shape[1]});
  Op& op = append(OpKind::kSelectLast);
  op.reads = {x, bounds};
  op.writes = {y};
  return y;
}

Recorder::Routed Recorder::route(TensorId logits, std::int64_t choices, const devices::RouteAttributes& attributes,
                                 std::optional<TensorId> bias) {
  const TensorId bounds = batch(devices::BatchTensor::kBounds);
  const Shape shape = {tokens(), choices};
  const Shape ends = {graph_.tensors[logits].shape[1] + 1};
  const TensorId shares = tensor("shares", shape, DType::kFloat32, TensorRole::kScratch);
  const TensorId experts = tensor("experts", shape, DType::kInt32, TensorRole::kScratch);
  const TensorId rows = tensor("rows", shape, DType::kInt32, TensorRole::kScratch);
  const TensorId offsets = tensor("offsets", ends, DType::kInt32, TensorRole::kScratch);
  Op& op = append(OpKind::kRoute, attributes);
  op.reads = {logits, bounds};
  if (bias) op.reads.push_back(*bias);
  op.writes = {shares, experts, rows, offsets};
  return {shares, experts, rows, offsets};
}

TensorId Recorder::share_scale(const Routed& routed, TensorId scale) {
  const TensorId y =
      tensor("scaled_shares", graph_.tensors[routed.shares].shape, DType::kFloat32, TensorRole::kScratch);
  Op& op = append(OpKind::kShareScale);
  op.reads = {routed.shares, routed.experts, scale};
  op.writes = {y};
  return y;
}

TensorId Recorder::dispatch(TensorId x, const Routed& routed) {
  const std::int64_t choices = graph_.tensors[routed.rows].shape[1];
  const TensorId y = activation("sent", {choices * tokens(), graph_.tensors[x].shape[1]});
  Op& op = append(OpKind::kDispatch);
  op.reads = {x, routed.rows};
  op.writes = {y};
  return y;
}

TensorId Recorder::grouped_matmul(TensorId x, const Routed& routed, const std::vector<TensorId>& w,
                                  const std::string& name) {
  const std::vector<TensorId> numbers = expanded(w);
  const TensorId y = activation(name, {graph_.tensors[x].shape[0], graph_.tensors[w[0]].shape[0]});
  Op& op = append(OpKind::kGroupedMatMul, devices::GroupAttributes{});
  op.reads = {x, routed.offsets};
  op.reads.insert(op.reads.end(), numbers.begin(), numbers.end());
  op.writes = {y};
  return y;
}

TensorId Recorder::stacked_matmul(TensorId x, const Routed& routed, TensorId w, std::optional<TensorId> addend,
                                  double alpha, const std::string& name) {
  const Shape shape = graph_.tensors[w].shape;
  const TensorId y = activation(name, {graph_.tensors[x].shape[0], shape[1]});
  Op& op =
      append(OpKind::kGroupedMatMul, devices::GroupAttributes{addend.has_value(), static_cast<float>(alpha), shape[0]});
  op.reads = {x, routed.offsets, w};
  if (addend) op.reads.push_back(*addend);
  op.writes = {y};
  return y;
}

TensorId Recorder::grouped_bias(TensorId x, const Routed& routed, TensorId bias, const std::string& name) {
  const TensorId y = activation(name, graph_.tensors[x].shape);
  Op& op = append(OpKind::kGroupedBias);
  op.reads = {x, routed.offsets, bias};
  op.writes = {y};
  return y;
}

TensorId Recorder::combine(TensorId x, const Routed& routed, std::optional<TensorId> addend, double alpha) {
  const TensorId y = activation("combined", {tokens(), graph_.tensors[x].shape[1]});
  Op& op = append(OpKind::kCombine, devices::CombineAttributes{static_cast<float>(alpha), true, addend.has_value()});
  op.reads = {x, routed.rows, routed.shares};
  if (addend) op.reads.push_back(*addend);
  op.writes = {y};
  return y;
}

TensorId Recorder::statistics_before() {
  return tensor("statistics", {tokens(), 3}, DType::kFloat32, TensorRole::kInput, 2);
}

TensorId Recorder::normalisers(TensorRole role, std::uint32_t index) {
  return tensor("normalisers", {tokens(), 2}, DType::kFloat32, role, index);
}

void Recorder::vocabulary_statistics(TensorId x, TensorId w, const devices::VocabularyAttributes& attributes) {
  const TensorId targets = batch(devices::BatchTensor::kTargets);
  const TensorId passed = tensor("passed", graph_.tensors[x].shape, dtype_, TensorRole::kOutput, 0);
  const TensorId statistics = tensor("statistics", {tokens(), 3}, DType::kFloat32, TensorRole::kOutput, 1);
  Op op{OpKind::kVocabularyStatistics, attributes, {x, targets, w}, {statistics, passed}};
  if (attributes.first_row > 0) op.reads.push_back(statistics_before());
  graph_.ops.push_back(std::move(op));
}

void Recorder::vocabulary_loss(TensorId x, const std::vector<TensorId>& w, devices::VocabularyAttributes attributes) {
  const bool before = attributes.first_row > 0;
  attributes.has_loss_scale = attributes.has_input_gradient && dtype_ == DType::kFloat16;
  Op op{OpKind::kVocabularyLoss, attributes, {x, batch(devices::BatchTensor::kTargets)}, {}};
  op.reads.insert(op.reads.end(), w.begin(), w.end());
  if (before) op.reads.push_back(statistics_before());
  if (attributes.has_loss_scale) op.reads.push_back(batch(devices::BatchTensor::kLossScale));
  op.writes.push_back(tensor("loss", {1}, DType::kFloat64, TensorRole::kLoss));
  if (attributes.has_input_gradient) {
    op.writes.push_back(activation("d_normed", graph_.tensors[x].shape));
    if (before) op.writes.push_back(normalisers(TensorRole::kOutput, 1));
    leave_gradient(x, op.writes[1], before);
  }
  for (std::size_t part = 0; part < w.size() && attributes.has_weight_gradient; ++part) {
    op.writes.push_back(gradient_of_weight(w[part]));
  }
  graph_.ops.push_back(std::move(op));
}

void Recorder::vocabulary_gradient(TensorId x, TensorId w, devices::VocabularyAttributes attributes) {
  attributes.has_loss_scale = dtype_ == DType::kFloat16;
  const bool before = attributes.first_row > 0;
  const Shape shape = graph_.tensors[x].shape;
  const TensorId above = tensor("dy", shape, dtype_, TensorRole::kInput, 1);
  const TensorId targets = batch(devices::BatchTensor::kTargets);
  Op op{OpKind::kVocabularyGradient, attributes, {x, targets, w, normalisers(TensorRole::kInput, 3), above}, {}};
  if (attributes.has_loss_scale) op.reads.push_back(batch(devices::BatchTensor::kLossScale));
  op.writes.push_back(activation("d_normed", shape));
  if (before) op.writes.push_back(normalisers(TensorRole::kOutput, 1));
  leave_gradient(x, op.writes[0], before);
  if (attributes.has_weight_gradient) op.writes.push_back(gradient_of_weight(w));
  graph_.ops.push_back(std::move(op));
}

/// To the part before, or to the norm.
void Recorder::leave_gradient(TensorId x, TensorId dx, bool to_part) {
  if (to_part) {
    set_role(dx, TensorRole::kOutput, 0);
  } else {
    gradients_.emplace_back(x, dx);
  }
}

TensorId Recorder::gradient_of_weight(TensorId weight_id) {
  const TensorDesc& w = graph_.tensors[weight_id];
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    if (graph_.tensors[id].role == TensorRole::kGradient && graph_.tensors[id].index == w.index) return id;
  }
  return tensor("d_" + w.name, w.shape, DType::kFloat32, TensorRole::kGradient, w.index);
}

}  // namespace rondo::model
