// The list of layers of a model and the recording of their graphs.
#include "rondo/model/architecture.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "block.h"
#include "rondo/base/status.h"
#include "rope.h"

namespace rondo::model {
namespace {

constexpr const char* kEmbeddingName = "model.embed_tokens.weight";

/// Collects layers; parameters of one name are one parameter.
class Assembler {
 public:
  Assembler(std::vector<Parameter>& parameters, std::vector<Layer>& layers)
      : parameters_(parameters), layers_(layers) {}

  void add(std::string name, LayerKind kind, std::uint32_t block, const std::vector<Parameter>& parameters) {
    Layer layer;
    layer.name = std::move(name);
    layer.kind = kind;
    layer.block = block;
    for (const Parameter& parameter : parameters) {
      const auto [place, fresh] = ids_.try_emplace(parameter.name, static_cast<ParameterId>(parameters_.size()));
      if (fresh) parameters_.push_back(parameter);
      layer.parameters.push_back(place->second);
    }
    layers_.push_back(std::move(layer));
  }

 private:
  std::vector<Parameter>& parameters_;
  std::vector<Layer>& layers_;
  std::map<std::string, ParameterId> ids_;
};

}  // namespace

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kFused:
      return "fused";
    case Phase::kEvaluate:
      return "evaluate";
    case Phase::kDecode:
      return "decode";
  }
  return "";
}

absl::StatusOr<Architecture> Architecture::make(const ModelConfig& config, const MethodSpec& method) {
  Architecture model;
  model.config_ = config;
  model.method_ = method;
  model.rope_ = rope_attributes(config);
  const std::int64_t hidden = config.hidden_size;
  const bool trains = method.train_weights;
  const Parameter embedding{kEmbeddingName, {config.vocab_size, hidden}, WeightKind::kEmbedding, trains};
  const Parameter head = config.tie_word_embeddings
                             ? embedding
                             : Parameter{"lm_head.weight", {config.vocab_size, hidden}, WeightKind::kMatrix, trains};
  Assembler assembler(model.parameters_, model.layers_);
  assembler.add("model.embed_tokens", LayerKind::kEmbedding, 0, {embedding});
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    assembler.add(fmt::format("model.layers.{}.self_attn", block), LayerKind::kAttention, block,
                  attention_parts(config, method, block).parameters);
    assembler.add(fmt::format("model.layers.{}.mlp", block), LayerKind::kMlp, block,
                  mlp_parts(config, method, block).parameters);
  }
  assembler.add("lm_head", LayerKind::kHead, 0,
                {Parameter{"model.norm.weight", {hidden}, WeightKind::kNorm, trains}, head});

  std::map<std::tuple<LayerKind, std::uint32_t, bool, bool>, std::uint32_t> classes;
  bool trained_below = false;
  for (Layer& layer : model.layers_) {
    layer.gives_input_gradient = trained_below;
    for (const ParameterId id : layer.parameters) trained_below = trained_below || model.parameters_[id].trained;
    layer.has_backward = trained_below;
    const std::uint32_t window = layer.kind == LayerKind::kAttention ? config.sliding_window[layer.block] : 0;
    const auto key = std::tuple(layer.kind, window, layer.gives_input_gradient, layer.has_backward);
    layer.program_class = classes.try_emplace(key, static_cast<std::uint32_t>(classes.size())).first->second;
  }
  model.program_classes_ = static_cast<std::uint32_t>(classes.size());
  return model;
}

LayerIndex Architecture::first_backward_layer() const {
  LayerIndex layer = 0;
  while (layer < layers_.size() && !layers_[layer].has_backward) ++layer;
  return layer;
}

Bytes Architecture::boundary_bytes(std::uint32_t tokens) const {
  return Bytes{tokens} * config_.hidden_size * devices::size_of(method_.dtype);
}

Graph Architecture::record_graph(LayerIndex index, Phase phase, std::uint32_t tokens, std::uint32_t capacity) const {
  const Layer& layer = layers_[index];
  Recorder recorder(tokens, method_.dtype);
  const auto weight = [&](std::uint32_t i) {
    const Parameter& parameter = parameters_[layer.parameters[i]];
    return recorder.weight(i, parameter.name, parameter.shape, parameter.trained);
  };
  const bool with_gradients = layer.has_backward && phase != Phase::kEvaluate && phase != Phase::kDecode;
  if (layer.kind == LayerKind::kEmbedding) {
    const TensorId y = recorder.embedding(weight(0));
    recorder.set_role(y, TensorRole::kOutput, 0);
    if (with_gradients) recorder.backward(y, {});
    return recorder.take();
  }
  const TensorId x = recorder.tensor("x", {tokens, config_.hidden_size}, method_.dtype, TensorRole::kInput, 0);
  const std::optional<TensorId> input = layer.gives_input_gradient ? std::optional(x) : std::nullopt;
  if (layer.kind == LayerKind::kHead) {
    if (phase == Phase::kDecode) {
      const TensorId last = recorder.select_last(x);
      const TensorId normed = recorder.rms_norm(last, weight(0), config_.rms_norm_eps, "normed");
      const TensorId logits = recorder.matmul(normed, weight(1), {}, {}, 1.0, {1, config_.vocab_size}, "logits");
      recorder.set_role(logits, TensorRole::kLogits, 0);
      recorder.set_dtype(logits, DType::kFloat32);
      return recorder.take();
    }
    const TensorId normed = recorder.rms_norm(x, weight(0), config_.rms_norm_eps, "normed");
    recorder.cross_entropy(normed, weight(1), with_gradients);
    if (with_gradients) recorder.backward({}, input);
    return recorder.take();
  }
  const TensorId y = layer.kind == LayerKind::kAttention
                         ? record_attention(recorder, x, attention_parts(config_, method_, layer.block), config_,
                                            method_, rope_, layer.block, phase == Phase::kDecode ? capacity : 0)
                         : record_mlp(recorder, x, mlp_parts(config_, method_, layer.block), config_, method_);
  recorder.set_role(y, TensorRole::kOutput, 0);
  if (with_gradients) recorder.backward(y, input);
  return recorder.take();
}

devices::OpList Architecture::record(LayerIndex layer, Phase phase, Keep keep, std::uint32_t tokens,
                                     std::uint32_t capacity) const {
  const Graph graph = record_graph(layer, phase, tokens, capacity);
  switch (phase) {
    case Phase::kForward:
      return forward_program(graph, keep);
    case Phase::kBackward:
      return backward_program(graph, keep);
    case Phase::kFused:
    case Phase::kEvaluate:
    case Phase::kDecode:
      return whole_program(graph);
  }
  return {};
}

std::vector<devices::TensorDesc> Architecture::saved(LayerIndex layer, Keep keep, std::uint32_t tokens) const {
  return saved_tensors(record_graph(layer, Phase::kForward, tokens, 0), keep);
}

}  // namespace rondo::model
