// The list of layers of a model and the recording of their graphs.
#include "rondo/model/architecture.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "block.h"
#include "rondo/base/float16.h"
#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/parameters.h"
#include "rope.h"

namespace rondo::model {
namespace {

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
      layer.parameters.push_back({place->second, 0, parameter.shape[0], 0, 0});
    }
    layers_.push_back(std::move(layer));
  }

  /// Of the layer that was added last: of the parameter it uses so many rows, the first of which is `first`.
  void take_rows(const std::string& name, std::int64_t first, std::int64_t rows) {
    for (ParameterUse& use : layers_.back().parameters) {
      if (use.id == ids_.at(name)) use = {use.id, first, rows, static_cast<std::uint32_t>(first / rows), 0};
    }
  }

  /// A head whose last parameter is the vocabulary: parts of `rows` of it, those before with the first.
  void add_head(const std::vector<Parameter>& parameters, std::int64_t rows) {
    add("lm_head", LayerKind::kHead, 0, parameters);
    if (layers_.back().parameters.back().rows <= rows) return;
    const Layer whole = std::move(layers_.back());
    layers_.pop_back();
    const ParameterUse all = whole.parameters.back();
    for (std::int64_t first = 0; first < all.rows; first += rows) {
      Layer part = whole;
      part.part = static_cast<std::uint32_t>(first / rows);
      part.name = fmt::format("lm_head.{}", part.part);
      if (part.part > 0) part.parameters.clear();
      if (part.part == 0) part.parameters.pop_back();
      part.parameters.push_back({all.id, first, std::min(rows, all.rows - first), part.part, 0});
      layers_.push_back(std::move(part));
    }
  }

 private:
  std::vector<Parameter>& parameters_;
  std::vector<Layer>& layers_;
  std::map<std::string, ParameterId> ids_;
};

/// What of a parameter enters the programs that use it.
std::string signature_of(const Parameter& parameter) {
  return fmt::format(";{} {} {} [{}]", static_cast<int>(parameter.kind), parameter.trained,
                     static_cast<int>(parameter.encoding), fmt::join(parameter.shape, ","));
}

/// Rows of a part of the head: about as many as wanted, and about equally many in each.
std::int64_t rows_of_head_part(const ModelConfig& config, const MethodSpec& method) {
  const std::int64_t vocabulary = config.vocab_size;
  const std::int64_t wanted = method.head_part_rows;
  if (wanted == 0 || method.boundary_encoding != devices::Encoding::kPlain) return vocabulary;
  constexpr std::int64_t kGrain = 128;
  const std::int64_t parts = std::max<std::int64_t>((vocabulary + (wanted - 1) / 2) / wanted, 1);
  const std::int64_t rows = (vocabulary + parts - 1) / parts;
  return wanted < kGrain || parts == 1 ? rows : (rows + kGrain - 1) / kGrain * kGrain;
}

/// The square root of a width, in numbers of `dtype`.
double rounded_root(std::uint32_t width, DType dtype) {
  const float root = std::sqrt(static_cast<float>(width));
  switch (dtype) {
    case DType::kBfloat16:
      return from_bfloat16(to_bfloat16(root));
    case DType::kFloat16:
      return from_float16(to_float16(root));
    default:
      return root;
  }
}

/// The factors of the layer's adapters.
std::string scales_of(const ModelConfig& config, const LoraConfig& lora, const Layer& layer) {
  std::string text;
  const auto add = [&](const std::vector<LinearModule>& linears) {
    for (const LinearModule& linear : linears) {
      if (!linear.adaptable || !lora.adapts(linear)) continue;
      text += fmt::format(";{} {}", linear.name, lora.scale_of(linear.path));
    }
  };
  if (layer.has_attention()) add(attention_linears(config, layer.block));
  if (layer.has_mlp()) add(mlp_linears(config, layer.block));
  if (!layer.has_mlp()) return text;
  for (const ExpertFactors& factors : expert_factors(config, lora, layer.block)) {
    text += fmt::format(";{}", factors.scale);
  }
  return text;
}

}  // namespace

bool MethodSpec::trains_block(std::uint32_t block, std::uint32_t blocks) const {
  if (!train_weights || !trained_blocks) return train_weights;
  return std::uint64_t{block} + *trained_blocks >= blocks;
}

bool MethodSpec::trains_end(const char* module) const {
  if (train_lora && lora && lora->saves(module)) return true;
  return train_weights && !trained_blocks;
}

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kInputGradient:
      return "input_gradient";
    case Phase::kWeightGradient:
      return "weight_gradient";
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
  const std::uint32_t size = config.global_heads ? config.global_heads->size : config.head_dim;
  model.rope_ = rope_attributes(config, config.rope, size);
  if (config.window_rope) model.window_rope_ = rope_attributes(config, *config.window_rope, config.head_dim);
  const std::int64_t hidden = config.hidden_size;
  if (config.tie_word_embeddings && method.lora && !method.lora->modules_to_save.empty()) {
    return invalid_input("modules_to_save: {} of a model whose head is its embedding are not supported; leave it out",
                         fmt::join(method.lora->modules_to_save, ", "));
  }
  if (method.boundary_encoding != devices::Encoding::kPlain && hidden % devices::kEncodedBlock != 0) {
    return invalid_input("boundary_quantization_bit: the model's hidden_size is {}, no multiple of {}; leave it out",
                         hidden, devices::kEncodedBlock);
  }
  const bool carries = carried_widths(config).all() != hidden;
  if (method.boundary_encoding != devices::Encoding::kPlain && carries) {
    return invalid_input(
        "boundary_quantization_bit: blocks of this model share keys and values or have inputs of "
        "their own, which would be rounded between all layers; leave it out");
  }
  if (!embedding_path(config).ends_with("embed_tokens") && method.lora && method.lora->saves("embed_tokens")) {
    return invalid_input("modules_to_save: embed_tokens of {}, where it is {}, is not supported; leave it out",
                         config.model_type, embedding_path(config));
  }
  const auto saved = [&](const char* module) { return method.lora && method.lora->saves(module); };
  const std::string prefix = name_prefix(config);
  Parameter embedding{embedding_path(config) + ".weight",
                      {config.vocab_size, hidden},
                      WeightKind::kEmbedding,
                      method.trains_end("embed_tokens")};
  embedding.of_adapter = saved("embed_tokens");
  Parameter head = embedding;
  if (!config.tie_word_embeddings) {
    head = {"lm_head.weight", {config.vocab_size, hidden}, WeightKind::kMatrix, method.trains_end("lm_head")};
    head.of_adapter = saved("lm_head");
  }
  Assembler assembler(model.parameters_, model.layers_);
  assembler.add(embedding_path(config), LayerKind::kEmbedding, 0, {embedding});
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    if (config.parallel) {
      assembler.add(fmt::format("{}layers.{}", prefix, block), LayerKind::kBlock, block,
                    parallel_parts(config, method, block).parameters());
      continue;
    }
    if (has_attention(config, block)) {
      assembler.add(attention_path(config, block), LayerKind::kAttention, block,
                    attention_parts(config, method, block).parameters);
    }
    if (has_mlp(config, block)) {
      assembler.add(mlp_path(config, block), LayerKind::kMlp, block, mlp_parts(config, method, block).parameters);
    }
    if (config.block_inputs) {
      const std::int64_t rows = config.block_inputs->width;
      assembler.take_rows(prefix + BlockInputNames::kProjection + ".weight", block * rows, rows);
    }
  }
  model.first_head_layer_ = static_cast<LayerIndex>(model.layers_.size());
  std::vector<Parameter> last;
  const NormUse norm = norm_use(config, 0);
  const bool trains_norm = method.trains_end("norm");
  if (norm.weight) {
    last.push_back({last_norm_path(config) + ".weight", {hidden}, WeightKind::kNorm, trains_norm});
    last.back().named_as_norm = last_norm_path(config).ends_with("norm");
  }
  if (norm.bias) last.push_back({last_norm_path(config) + ".bias", {hidden}, WeightKind::kBias, trains_norm});
  last.push_back(head);
  assembler.add_head(last, rows_of_head_part(config, method));

  if (const auto& inputs = config.block_inputs) {
    model.block_table_ = {static_cast<ParameterId>(model.parameters_.size()), config.num_layers, inputs->width,
                          rounded_root(inputs->width, method.dtype)};
    const std::int64_t columns = std::int64_t{inputs->width} * config.num_layers;
    model.parameters_.push_back(
        {prefix + BlockInputNames::kTable + ".weight", {inputs->vocab_size, columns}, WeightKind::kEmbedding});
  }

  std::map<std::string, std::uint32_t> classes;
  bool trained_below = false;
  for (Layer& layer : model.layers_) {
    layer.gives_input_gradient = trained_below;
    for (ParameterUse& use : layer.parameters) use.contribution = model.contributions_++;
    for (const ParameterUse& use : layer.parameters) trained_below = trained_below || model.parameters_[use.id].trained;
    layer.has_backward = trained_below;
    const bool attention = layer.has_attention();
    const std::uint32_t window = attention ? config.sliding_window[layer.block] : 0;
    const bool rotates = attention && model.rope_of(layer.block) != nullptr;
    const bool linear = attention && is_linear(config, layer.block);
    const bool convolution = attention && is_convolution(config, layer.block);
    const bool space = attention && is_state_space(config, layer.block);
    const bool lends = attention && lends_keys(config, layer.block);
    std::string key = fmt::format("{} {} {} {} {} {} {} {} {}", static_cast<int>(layer.kind), window, rotates, linear,
                                  convolution, space, lends, layer.gives_input_gradient, layer.has_backward);
    // Blocks may differ in what is trained, what is adapted and by how much.
    for (const ParameterUse& use : layer.parameters) {
      // Which rows of a matrix a block has is nothing to its program.
      const std::int64_t first = layer.kind == LayerKind::kHead ? use.first_row : 0;
      key += signature_of(model.parameters_[use.id]) + fmt::format(" {}+{}", first, use.rows);
    }
    if (method.lora) key += scales_of(config, *method.lora, layer);
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

Bytes Architecture::boundary_bytes(std::uint32_t tokens, Phase phase) const {
  const TensorDesc boundary{"boundary", boundary_shape(tokens), method_.dtype, TensorRole::kInput,
                            0,          encoding_between(phase)};
  const bool in_parts = first_head_layer_ + 1 < layers_.size() && phase != Phase::kDecode;
  if (!in_parts) return boundary.bytes();
  return std::max(boundary.bytes(), head_offset(tokens) + Bytes{tokens} * 3 * sizeof(float));
}

Shape Architecture::boundary_shape(std::uint32_t tokens) const { return {tokens, carried_widths(config_).all()}; }

Bytes Architecture::head_offset(std::uint32_t tokens) const {
  constexpr Bytes kAlignment = 256;
  return round_up(Bytes{tokens} * config_.hidden_size * devices::size_of(method_.dtype), kAlignment);
}

const devices::RopeAttributes* Architecture::rope_of(std::uint32_t block) const {
  if (!config_.without_rope.empty() && config_.without_rope[block]) return nullptr;
  return window_rope_ && config_.sliding_window[block] != 0 ? &*window_rope_ : &rope_;
}

double Architecture::embedding_scale() const {
  if (!config_.scales_embedding_by_width) return config_.embedding_multiplier;
  return rounded_root(config_.hidden_size, method_.dtype);
}

/// Dividing what the head multiplies divides its logits.
TensorId Architecture::record_last_norm(Recorder& recorder, TensorId x, LayerIndex layer) const {
  const auto weight = [&](std::optional<std::uint32_t> i) -> std::optional<TensorId> {
    if (!i) return std::nullopt;
    const Parameter& parameter = parameters_[layers_[layer].parameters[*i].id];
    return recorder.weight(*i, parameter.name, parameter.shape, parameter.trained);
  };
  const NormUse use = norm_use(config_, 0);
  return record_norm(recorder, x, weight(use.weight), weight(use.bias), config_, "normed",
                     1.0 / config_.logits_scaling);
}

Parameter Architecture::part_of(const ParameterUse& use) const {
  Parameter part = parameters_[use.id];
  part.shape[0] = use.rows;
  return part;
}

Architecture::WeightPlace Architecture::weight_place(LayerIndex layer, std::uint32_t index) const {
  const auto own = static_cast<std::uint32_t>(layers_[layer].parameters.size());
  if (index < own) return {layer, index};
  return {layer + index - own + 1, 0};
}

bool Architecture::draws(LayerIndex layer) const {
  if (is_head(layer)) return false;
  if (layers_[layer].kind == LayerKind::kEmbedding) return method_.noise_alpha > 0.0;
  return method_.train_lora && method_.lora && method_.lora->dropout > 0.0;
}

Graph Architecture::record_graph(LayerIndex index, Phase phase, std::uint32_t tokens, std::uint32_t capacity) const {
  if (is_head(index)) return record_head(index, phase, tokens);
  const Layer& layer = layers_[index];
  Recorder recorder(tokens, method_.dtype);
  const auto weight = [&](std::uint32_t i) {
    const Parameter& parameter = parameters_[layer.parameters[i].id];
    return recorder.weight(i, parameter.name, parameter.shape, parameter.trained);
  };
  const bool with_gradients = layer.has_backward && phase != Phase::kEvaluate && phase != Phase::kDecode;
  const devices::Encoding between = encoding_between(phase);
  if (layer.kind == LayerKind::kEmbedding) {
    TensorId x = recorder.embedding(weight(0), embedding_scale());
    if (draws(index) && phase != Phase::kEvaluate && phase != Phase::kDecode) {
      // Granite's and AFMoE's factor multiplies the noise too, as transformers adds it to what the table gives.
      x = recorder.noise(x, method_.noise_alpha * config_.embedding_multiplier, "noisy");
    }
    if (config_.norms_embedding) x = record_norm(recorder, x, {}, {}, config_, "normed");
    const TensorId sent = recorder.encoded(record_first_carried(recorder, x, config_), between);
    recorder.set_role(sent, TensorRole::kOutput, 0);
    if (with_gradients) recorder.backward(sent, {});
    return recorder.take();
  }
  const TensorId arrived = recorder.tensor("x", boundary_shape(tokens), method_.dtype, TensorRole::kInput, 0, between);
  Carried carried(recorder, config_, recorder.expanded(arrived));
  const std::optional<TensorId> input = layer.gives_input_gradient ? std::optional(arrived) : std::nullopt;
  MethodSpec method = method_;
  if (phase == Phase::kEvaluate && method.lora) method.lora->dropout = 0.0;
  const std::uint32_t block = layer.block;
  const std::uint32_t cached = phase == Phase::kDecode ? capacity : 0;
  TensorId y = carried.stream();
  if (layer.kind == LayerKind::kBlock) {
    y = record_parallel(recorder, carried, parallel_parts(config_, method, block), config_, method, rope_of(block),
                        block, cached);
  } else if (layer.kind == LayerKind::kAttention) {
    y = record_attention(recorder, carried, attention_parts(config_, method, block), config_, method, rope_of(block),
                         block, cached);
  } else {
    y = record_mlp(recorder, carried, mlp_parts(config_, method, block), config_, method);
  }
  const TensorId sent = recorder.encoded(carried.with(y), between);
  recorder.set_role(sent, TensorRole::kOutput, 0);
  if (with_gradients) recorder.backward(sent, input);
  return recorder.take();
}

/// A part of the head, or for kFused and kEvaluate all parts from this one on. The first one has the norm: between
/// parts the normed activation travels, so that the others need nothing but their rows.
Graph Architecture::record_head(LayerIndex index, Phase phase, std::uint32_t tokens) const {
  const Layer& layer = layers_[index];
  if (phase == Phase::kDecode) return record_logits(tokens);
  const bool joint = phase == Phase::kFused || phase == Phase::kEvaluate || index + 1 == layers_.size();
  const bool with_gradients = layer.has_backward && phase != Phase::kEvaluate && (joint || phase != Phase::kForward);
  Recorder recorder(tokens, method_.dtype);
  const auto weight = [&](LayerIndex of, std::uint32_t place, std::uint32_t as) {
    const Parameter part = part_of(layers_[of].parameters[place]);
    return recorder.weight(as, part.name, part.shape, part.trained);
  };
  const auto own = static_cast<std::uint32_t>(layer.parameters.size());
  const ParameterUse& rows = layer.parameters.back();
  devices::VocabularyAttributes attributes{config_.vocab_size, rows.first_row, 1, with_gradients,
                                           with_gradients && parameters_[rows.id].trained};
  attributes.cap = static_cast<float>(config_.logits_cap);
  const Shape given = layer.part == 0 ? boundary_shape(tokens) : Shape{tokens, config_.hidden_size};
  const TensorId arrived = recorder.tensor("x", given, method_.dtype, TensorRole::kInput, 0, encoding_between(phase));
  TensorId x = recorder.expanded(arrived);
  if (layer.part == 0) x = record_last_norm(recorder, record_stream(recorder, x, config_), index);
  std::vector<TensorId> w = {weight(index, own - 1, own - 1)};
  for (LayerIndex of = index + 1; joint && of < layers_.size(); ++of) {
    w.push_back(weight(of, 0, own + of - index - 1));
  }
  attributes.parts = static_cast<std::uint32_t>(w.size());
  if (joint) {
    recorder.vocabulary_loss(x, w, attributes);
  } else if (phase == Phase::kForward) {
    recorder.vocabulary_statistics(x, w[0], attributes);
  } else {
    recorder.vocabulary_gradient(x, w[0], attributes);
  }
  const bool goes_further = layer.part == 0 && layer.gives_input_gradient;
  if (with_gradients && layer.part == 0) recorder.backward({}, goes_further ? std::optional(arrived) : std::nullopt);
  return recorder.take();
}

/// Of the last token, over all parts.
Graph Architecture::record_logits(std::uint32_t tokens) const {
  const Layer& layer = layers_[first_head_layer_];
  Recorder recorder(tokens, method_.dtype);
  const TensorId x = recorder.tensor("x", boundary_shape(tokens), method_.dtype, TensorRole::kInput, 0);
  const TensorId last = record_stream(recorder, recorder.select_last(x), config_);
  const TensorId normed = record_last_norm(recorder, last, first_head_layer_);
  const auto place = static_cast<std::uint32_t>(layer.parameters.size() - 1);
  const Parameter& head = parameters_[layer.parameters[place].id];
  const TensorId w = recorder.weight(place, head.name, head.shape, head.trained);
  TensorId logits = recorder.matmul(normed, w, {}, {}, 1.0, {1, config_.vocab_size}, "logits");
  recorder.set_dtype(logits, DType::kFloat32);
  if (config_.logits_cap > 0) {
    logits = recorder.soft_cap(logits, config_.logits_cap, "capped");
    recorder.set_dtype(logits, DType::kFloat32);
  }
  recorder.set_role(logits, TensorRole::kLogits, 0);
  return recorder.take();
}

/// What the other parts read.
Graph Architecture::record_head_norm(std::uint32_t tokens) const {
  Recorder recorder(tokens, method_.dtype);
  const TensorId carried = recorder.tensor("x", boundary_shape(tokens), method_.dtype, TensorRole::kInput, 0);
  const TensorId x = record_stream(recorder, carried, config_);
  recorder.set_role(record_last_norm(recorder, x, first_head_layer_), TensorRole::kOutput, 0);
  return recorder.take();
}

devices::OpList Architecture::record(LayerIndex layer, Phase phase, Keep keep, std::uint32_t tokens,
                                     std::uint32_t capacity) const {
  if (layer == first_head_layer_ && phase == Phase::kForward && keep != Keep::kNothing) {
    return whole_program(record_head_norm(tokens));
  }
  const Graph graph = record_graph(layer, phase, tokens, capacity);
  if (is_head(layer)) return phase == Phase::kWeightGradient ? devices::OpList{} : whole_program(graph);
  switch (phase) {
    case Phase::kForward:
      return forward_program(graph, keep);
    case Phase::kBackward:
      return backward_program(graph, keep);
    case Phase::kInputGradient:
      return input_gradient_program(graph, keep);
    case Phase::kWeightGradient:
      return weight_gradient_program(graph, keep);
    case Phase::kFused:
    case Phase::kEvaluate:
    case Phase::kDecode:
      return whole_program(graph);
  }
  return {};
}

std::vector<devices::TensorDesc> Architecture::saved(LayerIndex layer, Keep keep, std::uint32_t tokens) const {
  if (is_head(layer)) return {};
  return saved_tensors(record_graph(layer, Phase::kForward, tokens, 0), keep);
}

std::vector<devices::TensorDesc> Architecture::held(LayerIndex layer, Keep keep, std::uint32_t tokens) const {
  if (is_head(layer)) return {};
  return held_tensors(record_graph(layer, Phase::kBackward, tokens, 0), keep);
}

}  // namespace rondo::model
