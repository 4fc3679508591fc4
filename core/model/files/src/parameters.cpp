// One list of a block's linear layers from which parameters and LoRA targets both come.
#include "rondo/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "family.h"

namespace rondo::model {
namespace {

constexpr const char* kModel = "model.";
// Of a block that is one half alone.
constexpr const char* kMixerName = "mixer";
constexpr const char* kMixerModule = "mixer.";

std::string layer_prefix(const ModelConfig& config, std::uint32_t layer) {
  return fmt::format("{}layers.{}.", name_prefix(config), layer);
}

LinearModule fused(const char* name, const std::vector<LinearModule>& parts, std::uint32_t turns = 1) {
  const LinearModule& first = parts.front();
  const std::string prefix = first.path.substr(0, first.path.size() - first.name.size());
  LinearModule whole{prefix + name, name, first.in, 0, first.layer, first.bias, parts, turns};
  for (const LinearModule& part : parts) whole.out += part.out;
  return whole;
}

/// PEFT sees b, c and x as one.
std::vector<LinearModule> convolution_linears(const ModelConfig& config, std::uint32_t layer) {
  const std::uint64_t hidden = config.hidden_size;
  const std::string prefix = attention_path(config, layer) + ".";
  const auto make = [&](const char* name) { return LinearModule{prefix + name, name, hidden, hidden, layer, false}; };
  return {fused("in_proj", {make("b_proj"), make("c_proj"), make("x_proj")}), make("out_proj")};
}

std::vector<LinearModule> linear_attention_linears(const ModelConfig& config, std::uint32_t layer) {
  const LinearAttentionConfig& linear = *config.linear_attention;
  const std::uint64_t hidden = config.hidden_size;
  const std::string prefix = attention_path(config, layer) + ".";
  const auto make = [&](const char* name, std::uint64_t in, std::uint64_t out) {
    return LinearModule{prefix + name, name, in, out, layer, false};
  };
  const auto q = make("q_proj", hidden, linear.key_width());
  const auto k = make("k_proj", hidden, linear.key_width());
  const auto v = make("v_proj", hidden, linear.value_width());
  const auto out = make("out_proj", linear.value_width(), hidden);
  if (linear.joined_by_heads) {
    const auto b = make("b_proj", hidden, linear.value_heads);
    const auto a = make("a_proj", hidden, linear.value_heads);
    return {fused("in_proj_qkvz", {q, k, v, make("z_proj", hidden, linear.value_width())}, linear.key_heads),
            fused("in_proj_ba", {b, a}, linear.key_heads), out};
  }
  return {fused("in_proj_qkv", {q, k, v}), make("in_proj_z", hidden, linear.value_width()),
          make("in_proj_b", hidden, linear.value_heads), make("in_proj_a", hidden, linear.value_heads), out};
}

/// PEFT sees all but the last as one.
std::vector<LinearModule> state_space_linears(const ModelConfig& config, std::uint32_t layer) {
  const StateSpaceConfig& space = *config.state_space;
  const LinearFactors& factors = config.linear_factors;
  const std::uint64_t hidden = config.hidden_size;
  const std::string prefix = space_path(config, layer) + ".";
  const auto make = [&](const char* name, std::uint64_t in, std::uint64_t out) {
    return LinearModule{prefix + name, name, in, out, layer, space.linear_bias};
  };
  std::vector<LinearModule> parts = {make("z_proj", hidden, space.width()), make("x_proj", hidden, space.width()),
                                     make("b_proj", hidden, space.row_width()),
                                     make("c_proj", hidden, space.row_width()), make("dt_proj", hidden, space.heads)};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].factor = factors.space_input * factors.space[i];
  LinearModule out = make("out_proj", space.width(), hidden);
  out.adaptable = traits_of(config.family).adapts_space_output;
  out.factor = factors.space_output;
  return {fused("in_proj", parts), out};
}

/// The channels of keys that turn are one head's; a head's keys and values take turns.
std::vector<LinearModule> latent_attention_linears(const ModelConfig& config, std::uint32_t layer) {
  const LatentAttentionConfig& latent = *config.latent_attention;
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t heads = config.num_heads;
  const std::string prefix = attention_path(config, layer) + ".";
  const auto make = [&](const char* name, std::uint64_t in, std::uint64_t out, bool bias = false) {
    return LinearModule{prefix + name, name, in, out, layer, bias};
  };
  std::vector<LinearModule> linears;
  if (latent.query_rank == 0) {
    linears.push_back(make("q_proj", hidden, heads * config.head_dim));
  } else {
    linears.push_back(make("q_a_proj", hidden, latent.query_rank, config.attention_bias));
    linears.push_back(make("q_b_proj", latent.query_rank, heads * config.head_dim));
  }
  linears.push_back(
      fused("kv_a_proj_with_mqa", {make("latent_proj", hidden, latent.rank, config.attention_bias),
                                   make("turned_proj", hidden, latent.turned_size, config.attention_bias)}));
  linears.push_back(fused("kv_b_proj",
                          {make("key_proj", latent.rank, heads * latent.plain_size),
                           make("value_proj", latent.rank, heads * latent.value_size)},
                          config.num_heads));
  linears.push_back(make("o_proj", heads * latent.value_size, hidden, config.attention_output_bias));
  return linears;
}

void add_linears(const std::vector<LinearModule>& linears, std::vector<ParameterSpec>& out) {
  for (const LinearModule& linear : linears) {
    for (const LinearModule& part : parts_or_self(linear)) {
      out.push_back({part.path + ".weight", {part.out, part.in}, ParameterKind::kMatrix, part.layer});
      if (part.bias) out.push_back({part.path + ".bias", {part.out}, ParameterKind::kBias, part.layer});
    }
  }
}

void add_expert_biases(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const ExpertNames names = expert_names(config);
  const std::string prefix = layer_prefix(config, layer) + names.module;
  const std::uint64_t count = config.experts->count;
  const auto bias = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    out.push_back({prefix + name + ".bias", std::move(shape), ParameterKind::kBias, layer});
  };
  bias(names.router, {count});
  bias(std::string("experts.") + names.gate, {count, config.experts->width});
  bias(std::string("experts.") + names.up, {count, config.experts->width});
  bias(std::string("experts.") + names.down, {count, config.hidden_size});
}

void add_experts(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  if (!has_experts(config, layer)) return;
  const ExpertNames names = expert_names(config);
  const std::string prefix = layer_prefix(config, layer) + names.module;
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t width = config.experts->width;
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    out.push_back({prefix + name + ".weight", {rows, columns}, ParameterKind::kMatrix, layer});
  };
  if (config.experts->beside_mlp) {
    out.push_back({prefix + BesideNames::kRouterScale, {hidden}, ParameterKind::kFactor, layer});
    out.push_back({prefix + BesideNames::kExpertScale, {config.experts->count}, ParameterKind::kFactor, layer});
  } else if (!config.experts->has_linear_router()) {
    matrix(names.router, config.experts->count, hidden);
  }
  for (std::uint32_t expert = 0; expert < config.experts->count; ++expert) {
    const std::string one = fmt::format("experts.{}.", expert);
    if (config.gated_mlp) matrix(one + names.gate, width, hidden);
    matrix(one + names.up, width, hidden);
    matrix(one + names.down, hidden, width);
  }
  if (config.experts->biases) add_expert_biases(config, layer, out);
  if (names.choice_bias != nullptr) {
    out.push_back({prefix + names.choice_bias, choice_bias_shape(config), ParameterKind::kChoiceBias, layer});
  }
}

/// Of attention that is not linear, beside its linear layers.
void add_full_attention(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const std::string prefix = attention_path(config, layer) + ".";
  for (const LatentNorm& norm : latent_norms(config)) {
    out.push_back({prefix + norm.name + ".weight", {norm.width}, ParameterKind::kNorm, layer});
  }
  if (config.attention_sinks) out.push_back({prefix + "sinks", {config.num_heads}, ParameterKind::kSink, layer});
  if (config.qk_norm == QkNorm::kNone || !config.norm_weight) return;
  const bool all = config.qk_norm == QkNorm::kAllHeads;
  const HeadShape shape = heads_of(config, layer);
  const auto norm = [&](const char* name, std::uint32_t heads) {
    const std::uint64_t size = std::uint64_t{shape.size} * (all ? heads : 1);
    out.push_back({prefix + name + ".weight", {size}, ParameterKind::kNorm, layer});
  };
  norm(qk_norm_names(config).q, config.num_heads);
  if (!shares_keys(config, layer)) norm(qk_norm_names(config).k, shape.kv_heads);
}

void add_linear_attention(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const LinearAttentionConfig& linear = *config.linear_attention;
  const std::string prefix = attention_path(config, layer) + ".";
  for (const ConvolutionPart& part : convolution_parts(linear)) {
    out.push_back(
        {prefix + part.name + ".weight", {part.channels, 1, linear.convolution}, ParameterKind::kConvolution, layer});
  }
  out.push_back({prefix + "A_log", {linear.value_heads}, ParameterKind::kRate, layer});
  out.push_back({prefix + "dt_bias", {linear.value_heads}, ParameterKind::kRateBias, layer});
  out.push_back({prefix + "norm.weight", {linear.value_size}, ParameterKind::kGain, layer});
}

void add_state_space(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const StateSpaceConfig& space = *config.state_space;
  const std::string prefix = space_path(config, layer) + ".";
  for (const ConvolutionPart& part : convolution_parts(space)) {
    const std::string module = prefix + part.name;
    out.push_back({module + ".weight", {part.channels, 1, space.convolution}, ParameterKind::kConvolution, layer});
    if (space.convolution_bias) out.push_back({module + ".bias", {part.channels}, ParameterKind::kBias, layer});
  }
  out.push_back({prefix + "A_log", {space.heads}, ParameterKind::kRate, layer});
  out.push_back({prefix + "dt_bias", {space.heads}, ParameterKind::kRateBias, layer});
  out.push_back({prefix + "D", {space.heads}, ParameterKind::kHeadScale, layer});
  if (space.normed) out.push_back({prefix + "norm.weight", {space.width()}, ParameterKind::kGain, layer});
}

/// Over the hidden size.
void add_norm(const ModelConfig& config, const std::string& path, std::optional<std::uint32_t> layer,
              std::vector<ParameterSpec>& out) {
  if (config.norm_weight) out.push_back({path + ".weight", {config.hidden_size}, ParameterKind::kNorm, layer});
  if (config.norm_bias) out.push_back({path + ".bias", {config.hidden_size}, ParameterKind::kBias, layer});
}

void add_norm_if(const ModelConfig& config, const char* name, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  if (name != nullptr) add_norm(config, layer_prefix(config, layer) + name, layer, out);
}

void add_attention_half(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const NormNames norms = norm_names(config.norm_place);
  add_norm_if(config, norms.attention_input, layer, out);
  add_linears(attention_linears(config, layer), out);
  if (is_convolution(config, layer)) {
    const std::uint64_t width = config.short_convolution->width;
    out.push_back({attention_path(config, layer) + ".conv.weight",
                   {config.hidden_size, 1, width},
                   ParameterKind::kConvolution,
                   layer});
  } else if (is_linear(config, layer)) {
    add_linear_attention(config, layer, out);
  } else {
    if (is_state_space(config, layer)) add_state_space(config, layer, out);
    if (!space_replaces_attention(config, layer)) add_full_attention(config, layer, out);
  }
  add_norm_if(config, norms.attention_output, layer, out);
}

void add_mlp_half(const ModelConfig& config, std::uint32_t layer, std::vector<ParameterSpec>& out) {
  const NormNames norms = norm_names(config.norm_place);
  add_norm_if(config, norms.mlp_input, layer, out);
  add_linears(mlp_linears(config, layer), out);
  add_experts(config, layer, out);
  if (has_experts(config, layer) && config.experts->beside_mlp) {
    for (const char* name : {BesideNames::kMlpOutput, BesideNames::kExpertsInput, BesideNames::kExpertsOutput}) {
      add_norm_if(config, name, layer, out);
    }
  }
  add_norm_if(config, norms.mlp_output, layer, out);
  if (config.block_inputs) add_norm_if(config, BlockInputNames::kOutputNorm, layer, out);
  if (!config.scales_blocks) return;
  out.push_back({layer_prefix(config, layer) + kBlockScaleName, {1}, ParameterKind::kBlockScale, layer});
}

/// Outside the blocks.
void add_input_parameters(const ModelConfig& config, std::vector<ParameterSpec>& out) {
  if (!config.block_inputs) return;
  const std::uint64_t width = config.block_inputs->width;
  const std::uint64_t all = width * config.num_layers;
  const auto add = [&](const char* module, std::vector<std::uint64_t> shape, ParameterKind kind) {
    out.push_back({name_prefix(config) + module + ".weight", std::move(shape), kind, std::nullopt});
  };
  add(BlockInputNames::kTable, {config.block_inputs->vocab_size, all}, ParameterKind::kMatrix);
  add(BlockInputNames::kProjection, {all, config.hidden_size}, ParameterKind::kMatrix);
  add(BlockInputNames::kProjectionNorm, {width}, ParameterKind::kNorm);
}

/// Published files have them.
bool is_of_shared_keys(const ModelConfig& config, const std::string& name) {
  for (std::uint32_t layer = config.num_layers - config.sharing_blocks; layer < config.num_layers; ++layer) {
    const std::string prefix = attention_path(config, layer) + ".";
    if (!name.starts_with(prefix)) continue;
    const std::string_view module = std::string_view(name).substr(prefix.size());
    return module.starts_with("k_proj.") || module.starts_with("v_proj.") || module.starts_with("k_norm.") ||
           module.starts_with("v_norm.");
  }
  return false;
}

}  // namespace

bool is_passed_over(const ModelConfig& config, const std::string& name) {
  const auto in_name = [&](const char* module) { return name.find(module) != std::string::npos; };
  const FamilyTraits& traits = traits_of(config.family);
  if (traits.linear_attention && name.starts_with("mtp.")) return true;
  if (!traits.ahead_prefix.empty() && name.starts_with(traits.ahead_prefix)) return true;
  if (traits.predicts_ahead && name.starts_with(layer_prefix(config, config.num_layers))) return true;
  if (is_of_shared_keys(config, name)) return true;
  if (!config.text_part) return false;
  return in_name("vision_tower") || in_name("multi_modal_projector") || name.starts_with("model.visual.") ||
         name.starts_with("visual.") || in_name("audio_tower") || in_name("embed_vision.") ||
         in_name("vision_embedder.") || in_name("embed_audio.");
}

std::string name_prefix(const ModelConfig& config) {
  return config.text_part ? std::string(kTextPartPrefix) : traits_of(config.family).prefix;
}

std::string embedding_path(const ModelConfig& config) {
  return name_prefix(config) + traits_of(config.family).embedding_name;
}

std::string name_in_text_model(const std::string& name) {
  return name.starts_with(kTextPartPrefix) ? kModel + name.substr(kTextPartPrefix.size()) : name;
}

NormNames norm_names(NormPlace place) {
  switch (place) {
    case NormPlace::kInput:
      return {"input_layernorm", nullptr, "post_attention_layernorm", nullptr};
    case NormPlace::kOutput:
      return {nullptr, "post_attention_layernorm", nullptr, "post_feedforward_layernorm"};
    case NormPlace::kBoth:
      return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
    case NormPlace::kAround:
      return {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"};
    case NormPlace::kNumbered:
      return {"input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2"};
    case NormPlace::kBeside:
      return {"input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"};
    case NormPlace::kOperator:
      return {"operator_norm", nullptr, "ffn_norm", nullptr};
    case NormPlace::kFeedForward:
      return {"input_layernorm", nullptr, "pre_ff_layernorm", nullptr};
    case NormPlace::kBefore:
      return {"input_layernorm", nullptr, "pre_feedforward_layernorm", nullptr};
    case NormPlace::kShared:
      return {"input_layernorm", nullptr, nullptr, nullptr};
    case NormPlace::kMixer:
      return {"norm", nullptr, "norm", nullptr};
  }
  return {nullptr, nullptr, nullptr, nullptr};
}

QkNormNames qk_norm_names(const ModelConfig& config) {
  if (config.norms_turned) return {"query_layernorm", "key_layernorm"};
  if (config.short_convolution) return {"q_layernorm", "k_layernorm"};
  return {"q_norm", "k_norm"};
}

std::vector<LatentNorm> latent_norms(const ModelConfig& config) {
  std::vector<LatentNorm> norms;
  if (!config.latent_attention) return norms;
  const LatentAttentionConfig& latent = *config.latent_attention;
  if (latent.query_rank != 0) norms.push_back({"q_a_layernorm", latent.query_rank});
  norms.push_back({"kv_a_layernorm", latent.rank});
  return norms;
}

std::string last_norm_path(const ModelConfig& config) {
  return name_prefix(config) + (config.short_convolution ? "embedding_norm" : traits_of(config.family).last_norm_name);
}

std::string mlp_path(const ModelConfig& config, std::uint32_t layer) {
  const char* name = config.short_convolution ? "feed_forward"
                     : config.shared_mlp      ? "shared_mlp"
                                              : traits_of(config.family).mlp_name;
  return layer_prefix(config, layer) + (config.lone_mlps.empty() ? name : kMixerName);
}

MlpNames mlp_names(const ModelConfig& config) {
  if (config.short_convolution) return {"w1", "w3", "w2"};
  const FamilyTraits& traits = traits_of(config.family);
  return {"gate_proj", traits.up_name, config.shared_mlp ? "output_linear" : traits.down_name};
}

ExpertNames expert_names(const ModelConfig& config) {
  ExpertNames names;
  const std::optional<ExpertTraits>& traits = traits_of(config.family).experts;
  if (!traits) return names;
  if (traits->numbered_weights) {
    names.module = "block_sparse_moe.";
    names.gate = "w1";
    names.up = "w3";
    names.down = "w2";
  }
  if (traits->stacked) names.router = "router";
  if (traits->in_linears) {
    names.module = "block_sparse_moe.";
    names.router = "router.layer";
  }
  if (config.short_convolution) {
    names.module = "feed_forward.";
    names.gate = "w1";
    names.up = "w3";
    names.down = "w2";
  }
  if (!traits->switch_key.empty()) {
    names.module = "";
    names.router = "router.proj";
  }
  if (traits->router != nullptr) names.router = traits->router;
  if (traits->mixtures == Mixtures::kMixers) names.module = kMixerModule;
  if (!traits->shared_count_key.empty() || !traits->shared_width_key.empty()) names.shared = "shared_experts";
  if (traits->shares_mlp) names.shared = "shared_mlp";
  if (config.experts && config.experts->choice_bias) names.choice_bias = traits->choice_bias.data();
  return names;
}

std::vector<std::uint64_t> choice_bias_shape(const ModelConfig& config) {
  const std::uint64_t count = config.experts->count;
  if (traits_of(config.family).experts->mixtures == Mixtures::kRanged) return {1, count};
  return {count};
}

MixtureInMemory mixture_in_memory(const ModelConfig& config) {
  const std::optional<ExpertTraits>& traits = traits_of(config.family).experts;
  if (traits && !traits->switch_key.empty()) return {"", "router.proj"};
  if (traits && traits->in_linears) return {"block_sparse_moe.", "router"};
  if (traits && traits->router != nullptr) return {"mlp.", traits->router};
  if (traits && traits->mixtures == Mixtures::kMixers) return {kMixerModule, "gate"};
  return {config.short_convolution ? "feed_forward." : "mlp.", traits && traits->stacked ? "router" : "gate"};
}

std::uint64_t ParameterSpec::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  return count;
}

std::vector<ParameterSpec> model_parameters(const ModelConfig& config) {
  const std::vector<std::uint64_t> table = {config.vocab_size, config.hidden_size};
  std::vector<ParameterSpec> out;
  out.push_back({embedding_path(config) + ".weight", table, ParameterKind::kEmbedding, std::nullopt});
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (has_attention(config, layer)) add_attention_half(config, layer, out);
    if (has_mlp(config, layer)) add_mlp_half(config, layer, out);
  }
  add_norm(config, last_norm_path(config), std::nullopt, out);
  add_input_parameters(config, out);
  if (!config.tie_word_embeddings) out.push_back({"lm_head.weight", table, ParameterKind::kMatrix, std::nullopt});
  return out;
}

std::vector<LinearModule> parts_or_self(const LinearModule& linear) {
  return linear.parts.empty() ? std::vector{linear} : linear.parts;
}

std::string attention_path(const ModelConfig& config, std::uint32_t layer) {
  if (is_convolution(config, layer)) return layer_prefix(config, layer) + "conv";
  if (!config.lone_mlps.empty()) return layer_prefix(config, layer) + kMixerName;
  if (space_replaces_attention(config, layer)) return space_path(config, layer);
  return layer_prefix(config, layer) +
         (is_linear(config, layer) ? "linear_attn" : traits_of(config.family).attention_name);
}

bool space_replaces_attention(const ModelConfig& config, std::uint32_t layer) {
  return is_state_space(config, layer) && !config.state_space->beside_attention;
}

std::string space_path(const ModelConfig& config, std::uint32_t layer) {
  return layer_prefix(config, layer) + (config.lone_mlps.empty() ? "mamba" : kMixerName);
}

std::vector<ConvolutionPart> convolution_parts(const LinearAttentionConfig& linear) {
  return {{"q_conv1d", linear.key_width()}, {"k_conv1d", linear.key_width()}, {"v_conv1d", linear.value_width()}};
}

std::vector<ConvolutionPart> convolution_parts(const StateSpaceConfig& space) {
  return {{"x_conv1d", space.width()}, {"b_conv1d", space.row_width()}, {"c_conv1d", space.row_width()}};
}

std::vector<LinearModule> attention_linears(const ModelConfig& config, std::uint32_t layer) {
  if (!has_attention(config, layer)) return {};
  if (is_linear(config, layer)) return linear_attention_linears(config, layer);
  if (is_convolution(config, layer)) return convolution_linears(config, layer);
  if (space_replaces_attention(config, layer)) return state_space_linears(config, layer);
  if (config.latent_attention) return latent_attention_linears(config, layer);
  const std::uint64_t hidden = config.hidden_size;
  const HeadShape heads = heads_of(config, layer);
  const std::uint64_t query = static_cast<std::uint64_t>(config.num_heads) * heads.size;
  const std::uint64_t key = static_cast<std::uint64_t>(heads.kv_heads) * heads.size;
  const std::string prefix = attention_path(config, layer) + ".";
  const auto make = [&](const char* name, std::uint64_t in, std::uint64_t out, bool bias) {
    return LinearModule{prefix + name, name, in, out, layer, bias};
  };
  std::vector<LinearModule> inputs = {make("q_proj", hidden, query, config.attention_bias)};
  const bool own_keys = !shares_keys(config, layer);
  if (own_keys) inputs.push_back(make("k_proj", hidden, key, config.attention_bias));
  if (own_keys && !heads.keys_are_values) inputs.push_back(make("v_proj", hidden, key, config.attention_bias));
  const FamilyTraits& traits = traits_of(config.family);
  const std::uint32_t turns = config.fused_by_heads ? config.num_heads : 1;
  if (config.fused_linears) inputs = {fused(traits.joined_name, inputs, turns)};
  if (config.gates_apart) {
    // To PEFT its name is that of experts.
    inputs.insert(inputs.begin() + 1, make("gate_proj", hidden, query, false))->adaptable = false;
  } else if (config.gates_attention) {
    const std::vector<LinearModule> parts = {make("query_proj", hidden, query, config.attention_bias),
                                             make("gate_proj", hidden, query, config.attention_bias)};
    inputs.front() = fused("q_proj", parts, config.num_heads);
  }
  const char* output = config.short_convolution ? "out_proj" : traits.output_name;
  inputs.push_back(make(output, query, hidden, config.attention_output_bias));
  if (!is_state_space(config, layer)) return inputs;
  const LinearFactors& factors = config.linear_factors;
  for (LinearModule& linear : inputs) {
    linear.factor = linear.name == output ? factors.attention_output : factors.attention_input;
    if (linear.name == "k_proj") linear.factor *= factors.key;
  }
  std::vector<LinearModule> both = state_space_linears(config, layer);
  both.insert(both.end(), inputs.begin(), inputs.end());
  return both;
}

std::vector<LinearModule> mlp_linears(const ModelConfig& config, std::uint32_t layer) {
  if (!has_mlp(config, layer)) return {};
  const bool beside = has_experts(config, layer) && config.experts->beside_mlp;
  const bool mixture = has_experts(config, layer) && !beside;
  if (mixture && config.experts->shared_width == 0) return {};
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t inner = mixture ? config.experts->shared_width : mlp_width(config, layer);
  const std::string mlp = mlp_path(config, layer) + ".";
  const MlpNames names = mlp_names(config);
  const bool within = mixture && !config.shared_mlp;
  const std::string prefix = mlp + (within ? std::string(expert_names(config).shared) + "." : "");
  const auto make = [&](const char* name, std::uint64_t in, std::uint64_t out) {
    return LinearModule{prefix + name, name, in, out, layer, config.mlp_bias};
  };
  std::vector<LinearModule> linears;
  if (config.gated_mlp) {
    linears.push_back(make(names.gate, hidden, inner));
    linears.back().factor = config.linear_factors.gate;
  }
  linears.push_back(make(names.up, hidden, inner));
  if (config.fused_mlp) linears = {fused("gate_up_proj", linears)};
  if (config.shared_mlp) linears = {fused("input_linear", linears)};
  linears.push_back(make(names.down, inner, hidden));
  linears.back().factor = config.linear_factors.down;
  for (LinearModule& linear : linears) linear.adaptable = !config.experts || config.experts->adapts_shared;
  if (mixture && config.experts->gates_shared) {
    linears.push_back({mlp + "shared_expert_gate", "shared_expert_gate", hidden, 1, layer, false});
  }
  if (has_experts(config, layer) && config.experts->has_linear_router()) {
    const ExpertNames experts = expert_names(config);
    const std::string router = layer_prefix(config, layer) + experts.module + experts.router;
    linears.push_back({router, router.substr(router.rfind('.') + 1), hidden, config.experts->count, layer, false});
    linears.back().exact = true;
  }
  if (config.block_inputs) {
    const auto own = [&](const char* name, std::uint64_t in, std::uint64_t out) {
      linears.push_back({layer_prefix(config, layer) + name, name, in, out, layer, false});
    };
    own(BlockInputNames::kGate, hidden, config.block_inputs->width);
    own(BlockInputNames::kOutput, config.block_inputs->width, hidden);
  }
  return linears;
}

std::vector<LinearModule> linear_modules(const ModelConfig& config) {
  std::vector<LinearModule> out;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const std::vector<LinearModule>& half : {attention_linears(config, layer), mlp_linears(config, layer)}) {
      std::ranges::copy_if(half, std::back_inserter(out), &LinearModule::adaptable);
    }
  }
  return out;
}

}  // namespace rondo::model
