// Tables of names, and the rotary settings.
#include "names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "architectures.h"
#include "names_experts.h"
#include "names_gemma4.h"
#include "names_latent.h"
#include "names_linear.h"
#include "names_space.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::RopeKind;

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOutside = {
    {{"lm_head", "output"},
     {"model.embed_tokens_per_layer", "per_layer_token_embd"},
     {"model.per_layer_model_projection", "per_layer_model_proj"},
     {"model.per_layer_projection_norm", "per_layer_proj_norm"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kInBlocks = {
    {{"self_attn.q_proj", "attn_q"},
     {"self_attn.k_proj", "attn_k"},
     {"self_attn.v_proj", "attn_v"},
     {"self_attn.o_proj", "attn_output"},
     {"mlp.gate_proj", "ffn_gate"},
     {"mlp.up_proj", "ffn_up"},
     {"mlp.down_proj", "ffn_down"}}};

/// Outside of blocks.
std::vector<std::pair<std::string, std::string_view>> names_outside(const model::ModelConfig& config) {
  std::vector<std::pair<std::string, std::string_view>> names = {
      {model::name_in_text_model(model::embedding_path(config)), "token_embd"},
      {model::name_in_text_model(model::last_norm_path(config)),
       config.short_convolution ? "token_embd_norm" : "output_norm"}};
  names.insert(names.end(), kOutside.begin(), kOutside.end());
  return names;
}

/// LFM2's own, which come before the others'.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kInBlocksOfLfm2 = {
    {{"self_attn.out_proj", "attn_output"},
     {"conv.conv", "shortconv.conv"},
     {"conv.in_proj", "shortconv.in_proj"},
     {"conv.out_proj", "shortconv.out_proj"},
     {"feed_forward.w1", "ffn_gate"},
     {"feed_forward.w3", "ffn_up"},
     {"feed_forward.w2", "ffn_down"}}};

/// Files name the MLP's norm for what stands before it.
bool names_by_place(Family family) {
  return family == Family::kGptOss || family == Family::kSeedOss || family == Family::kGlm4Moe ||
         has_linear_attention(family);
}

/// Norms over the hidden size: their names follow from the place, not from the other name.
std::array<std::pair<const char*, std::string_view>, 4> norms_in_blocks(const model::ModelConfig& config) {
  const model::NormNames norms = model::norm_names(config.norm_place);
  return {{{norms.attention_input, "attn_norm"},
           {norms.attention_output, "post_attention_norm"},
           {config.lone_mlps.empty() ? norms.mlp_input : nullptr,
            names_by_place(config.family) ? "post_attention_norm" : "ffn_norm"},
           {norms.mlp_output, "post_ffw_norm"}}};
}

/// Parameters by themselves, where all others are a module's weight or bias: pairs of theirs and ours.
std::vector<std::pair<std::string, std::string_view>> own_parameters(const model::ModelConfig& config) {
  std::vector<std::pair<std::string, std::string_view>> names;
  if (config.attention_sinks) names.emplace_back("self_attn.sinks", "attn_sinks.weight");
  if (config.experts && config.experts->choice_bias) {
    const model::ExpertNames experts = model::expert_names(config);
    names.emplace_back(fmt::format("{}{}", experts.module, experts.choice_bias), "exp_probs_b.bias");
  }
  if (config.linear_attention) {
    for (const auto& [theirs, ours] : {kDecay, kStepBias}) {
      names.emplace_back(fmt::format("linear_attn.{}", theirs), ours);
    }
  }
  for (const auto& [theirs, ours] : own_parameters_of_gemma4(config)) names.emplace_back(theirs, ours);
  for (const auto& [theirs, ours] : own_parameters_of_spaces(config)) names.emplace_back(theirs, ours);
  return names;
}

/// Calls fn(theirs, ours) for what blocks have, until it says that it has found what it looks for.
template <typename Fn>
void for_names_in_blocks(const model::ModelConfig& config, const Fn& fn) {
  for (const auto& [theirs, ours] : norms_in_blocks(config)) {
    if (theirs != nullptr && fn(std::string_view(theirs), ours)) return;
  }
  const auto [q_norm, k_norm] = model::qk_norm_names(config);
  for (const auto& [theirs, ours] : {std::pair(q_norm, "attn_q_norm"), std::pair(k_norm, "attn_k_norm")}) {
    if (fn(std::string_view(fmt::format("self_attn.{}", theirs)), std::string_view(ours))) return;
  }
  if (config.fused_linears && fn(std::string_view("self_attn.qkv_proj"), std::string_view("attn_qkv"))) return;
  if (config.fused_mlp && fn(std::string_view("mlp.gate_up_proj"), std::string_view("ffn_up"))) return;
  if (config.linear_attention && for_names_of_linear_attention(config, fn)) return;
  if (for_names_of_latent_attention(config, fn)) return;
  if (for_names_of_spaces(config, fn)) return;
  for (const auto& [theirs, ours] : kInBlocksOfLfm2) {
    if (config.short_convolution && fn(theirs, ours)) return;
  }
  if (config.shared_mlp && for_names_of_shared_mlp(config, fn)) return;
  for (const auto& [theirs, ours] : kInBlocks) {
    if (fn(theirs, ours)) return;
  }
  if (config.experts && for_names_of_experts(config, fn)) return;
  if (config.block_inputs && for_names_of_inputs(fn)) return;
  if (config.experts && config.experts->beside_mlp) for_names_beside_mlp(fn);
}

/// mistral3's readers divide the attention factor by that which this multiplier of the logarithm gives, for which they
/// take mscale 1.
bool has_log_multiplier(const model::RopeConfig& rope, Family family) {
  return family == Family::kMinistral3 && rope.mscale == 1.0 && rope.mscale_all_dim;
}

/// Readers derive yarn's attention factor, its ramp and its rounding by themselves.
bool has_default_yarn(const model::RopeConfig& rope, Family family) {
  const double factor = 0.1 * std::log(rope.factor) + 1.0;
  const bool divided = has_log_multiplier(rope, family);
  const bool attention = !rope.attention_factor || (!divided && std::abs(*rope.attention_factor - factor) < 1e-6);
  const bool usual = divided || !rope.mscale || !rope.mscale_all_dim;  // one alone has no effect
  return attention && usual && rope.beta_fast == 32.0 && rope.beta_slow == 1.0 &&
         rope.truncate == truncates_yarn(family);
}

std::uint32_t context_length(const model::ModelConfig& config) {
  std::uint32_t length = config.max_positions;
  if (window_pattern(config.family) != 0) return length;
  for (const std::uint32_t window : config.sliding_window) {
    if (window != 0) length = std::min(length, window);
  }
  return length;
}

void add_scaling(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  const model::RopeConfig& rope = config.rope;
  if (rope.kind == RopeKind::kLongRope) {  // its factors are tensors: kShortFactors, kLongFactors
    keys.add(prefix + "rope.scaling.original_context_length", rope.original_max_positions);
    keys.add(prefix + "rope.scaling.attn_factor", static_cast<float>(model::long_rope_amplitude(rope)));
  }
  if (rope.kind != RopeKind::kLinear && rope.kind != RopeKind::kYarn) return;
  keys.add(prefix + "rope.scaling.type", rope.kind == RopeKind::kLinear ? "linear" : "yarn");
  keys.add(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (rope.kind == RopeKind::kYarn) {
    keys.add(prefix + "rope.scaling.original_context_length", rope.original_max_positions);
  }
  if (has_log_multiplier(rope, config.family)) {
    keys.add(prefix + "rope.scaling.yarn_log_multiplier", static_cast<float>(*rope.mscale_all_dim));
  }
  if (rope.query_growth) keys.add(prefix + "attention.temperature_scale", static_cast<float>(rope.query_growth->rate));
}

/// Layers that slide or do not rotate: readers know which from the architecture alone.
Complaint complaint_of_layers(const model::ModelConfig& config) {
  if (config.global_heads) return complaint_of_gemma4(config);
  const std::uint32_t pattern = window_pattern(config.family);
  const bool slides = config.family == Family::kGemma2 ||
                      std::ranges::any_of(config.sliding_window, [](std::uint32_t window) { return window != 0; });
  for (std::uint32_t layer = 0; layer < config.num_layers && slides && pattern != 0; ++layer) {
    if ((config.sliding_window[layer] == 0) == ((layer + 1) % pattern == 0)) continue;
    return {{"layer_types", "layers slide in another pattern than that of GGUF's readers"}};
  }
  if (config.family == Family::kExaone4) {
    if (slides == (config.num_layers == kLayersOfSlidingExaone4) && slides != config.without_rope.empty()) return {};
    return {{"sliding_window", "GGUF's readers slide windows in 64 layers of this model, and in no other number"}};
  }
  if (config.state_space || !config.lone_mlps.empty()) return std::nullopt;  // see complaint_of_spaces()
  if (config.family == Family::kGraniteMoeHybrid && !config.without_rope.empty()) {
    return {{"position_embedding_type", "GGUF's readers turn queries and keys of this architecture"}};
  }
  for (std::uint32_t layer = 0; layer < config.without_rope.size(); ++layer) {
    if (config.without_rope[layer] == ((layer + 1) % kUnrotatedInterval == 0)) continue;
    return {{"no_rope_layers", "expected each fourth layer, as GGUF's readers have it"}};
  }
  if (config.family == Family::kSmolLm3 && slides) {
    return {{"use_sliding_window", "GGUF's readers slide no window in this model"}};
  }
  if (!config.window_rope || !slides) return std::nullopt;
  const bool usual =
      config.window_rope->kind == RopeKind::kDefault && config.window_rope->theta == usual_window_theta(config);
  if (usual) return std::nullopt;
  return {{"rope_parameters", "layers that slide have other rotary settings than in GGUF's readers"}};
}

/// Readers pass over the tensor of llama3's scaling.
bool divides_no_frequencies(const model::ModelConfig& config) {
  const Family family = config.family;
  return config.picture_turns || family == Family::kNemotron || family == Family::kFalconH1 ||
         family == Family::kHunYuan || family == Family::kSeedOss || family == Family::kErnie45 ||
         family == Family::kErnie45Moe || family == Family::kDots1 || family == Family::kHunYuanMoe ||
         family == Family::kGlm || family == Family::kGlm4 || family == Family::kGlm4Moe || family == Family::kLfm2 ||
         family == Family::kLfm2Moe || has_linear_attention(family) || has_latent_attention(family);
}

/// How many heads of keys there are, and how wide all are.
void add_head_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  if (config.global_heads) return add_gemma4_keys(prefix, config, keys);
  if (config.latent_attention) return add_latent_attention_keys(prefix, config, keys);
  if (lists_blocks(config.family) && config.state_space) {
    std::vector<std::int32_t> heads;
    for (std::uint32_t block = 0; block < config.num_layers; ++block) {
      const bool attends = has_attention(config, block) && !is_state_space(config, block);
      heads.push_back(attends ? static_cast<std::int32_t>(config.num_kv_heads) : 0);
    }
    keys.add(prefix + std::string(kHeadsOfKeys), heads);
  } else if (config.short_convolution) {
    std::vector<std::int32_t> heads;
    for (std::uint32_t block = 0; block < config.num_layers; ++block) {
      heads.push_back(is_convolution(config, block) ? 0 : static_cast<std::int32_t>(config.num_kv_heads));
    }
    keys.add(prefix + "attention.head_count_kv", heads);
    keys.add(prefix + "shortconv.l_cache", config.short_convolution->width);
  } else {
    keys.add(prefix + "attention.head_count_kv", config.num_kv_heads);
  }
  keys.add(prefix + "attention.key_length", config.head_dim);
  keys.add(prefix + "attention.value_length", config.head_dim);
  keys.add(prefix + "rope.dimension_count", model::turned_channels(config, config.rope));
}

/// Of what a reader that sees pictures wants to know.
void add_picture_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  std::vector<std::int32_t> pairs(config.picture_turns->pairs.begin(), config.picture_turns->pairs.end());
  pairs.push_back(0);  // of a fourth coordinate, which none has
  keys.add(prefix + std::string(kPairsByCoordinate), pairs);
  if (config.family != Family::kQwen2) keys.add(prefix + std::string(kDeepBlocks), config.picture_turns->deep_blocks);
}

/// In config.json, of those that readers have.
const char* name_of(model::Activation activation) {
  if (activation == model::Activation::kReluSquared) return "relu2";
  return activation == model::Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
}

/// Of attention.
bool has_no_biases(Family family) {
  switch (family) {
    case Family::kLlama:
    case Family::kInternLm3:
    case Family::kIQuestCoder:
    case Family::kHelium:
    case Family::kMistral:
    case Family::kMinistral3:
    case Family::kQwen2:
    case Family::kQwen2Moe:
    case Family::kSeedOss:
    case Family::kGlm:
    case Family::kGlm4:
    case Family::kGlm4Moe:
    case Family::kSmolLm3:
    case Family::kGranite:
    case Family::kGraniteMoeHybrid:
    case Family::kGraniteMoe:
    case Family::kGraniteMoeShared:
    case Family::kGptOss:
    case Family::kPhi3:
    case Family::kNemotron:
    case Family::kBamba:
    case Family::kFalconH1:
      return false;
    default:
      return true;
  }
}

Complaint complaint_of_weights(const model::ModelConfig& config) {
  const bool biased = config.attention_bias || config.attention_output_bias;
  const bool olmo =
      config.family == Family::kOlmo2 || config.family == Family::kOlmo3 || config.family == Family::kOlmoe;
  const bool nemotron = config.family == Family::kNemotron;
  const bool gemma = config.norms_add_one && !config.linear_attention && !nemotron;
  const bool oss = config.family == Family::kGptOss;
  const bool qwen2_moe = config.family == Family::kQwen2Moe;
  if (biased && has_no_biases(config.family)) {
    return {{"attention_bias", "GGUF's readers have no biases for this architecture"}};
  }
  if (config.attention_output_bias && config.family == Family::kSeedOss) {
    return {{"attention_out_bias", "GGUF's readers have no biases for this architecture"}};
  }
  if (config.mlp_bias && (config.family == Family::kArcee || config.family == Family::kSeedOss)) {
    return {{"mlp_bias", "GGUF's readers have no biases for this architecture"}};
  }
  if (oss && !biased) return {{"attention_bias", "GGUF's readers want biases"}};
  if (qwen2_moe && !biased) return {{"qkv_bias", "GGUF's readers want biases"}};
  if ((olmo || oss || qwen2_moe || nemotron) && config.tie_word_embeddings)
    return {{"tie_word_embeddings", "GGUF's readers want a head of its own"}};
  if (config.family == Family::kGemma2 && (config.attention_cap == 0.0 || config.logits_cap == 0.0)) {
    const char* key = config.attention_cap == 0.0 ? "attn_logit_softcapping" : "final_logit_softcapping";
    return {{key, "GGUF's readers cap scores and logits of this architecture"}};
  }
  if (gemma && !config.tie_word_embeddings) return {{"tie_word_embeddings", "GGUF's readers tie the head"}};
  const bool all_have_keys = config.family == Family::kOlmoe || config.family == Family::kDots1;
  if (all_have_keys && config.num_kv_heads != config.num_heads) {
    return {{"num_key_value_heads", "GGUF's readers have as many heads of keys as of queries"}};
  }
  const bool qwen2_vl = config.family == Family::kQwen2 && config.picture_turns;
  const bool derives_heads = olmo || qwen2_moe || qwen2_vl || nemotron || config.short_convolution.has_value();
  if (derives_heads && config.head_dim * config.num_heads != config.hidden_size) {
    return {{"head_dim", "GGUF's readers take hidden_size over the heads"}};
  }
  if (!has_factors(config.family) && config.attention_scale &&
      std::abs(*config.attention_scale / usual_attention_scale(config) - 1.0) > 1e-6) {
    return {{"query_pre_attn_scalar", "GGUF's readers scale scores otherwise"}};
  }
  return std::nullopt;
}

}  // namespace

bool has_factors(Family family) {
  return family == Family::kGranite || family == Family::kGraniteMoeHybrid || family == Family::kGraniteMoe ||
         family == Family::kGraniteMoeShared;
}

std::uint32_t window_pattern(Family family) {
  switch (family) {
    case Family::kGemma3:
    case Family::kGemma4:  // whose files list them
      return 6;
    case Family::kOlmo3:
    case Family::kExaone4:
      return 4;
    case Family::kGptOss:
    case Family::kGemma2:
      return 2;
    default:
      return 0;
  }
}

std::string epsilon_key(Family family) {
  return family == Family::kNemotron ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
}

bool truncates_yarn(Family family) { return family != Family::kGptOss; }

model::Activation usual_activation(Family family) {
  const bool gemma =
      family == Family::kGemma || family == Family::kGemma2 || family == Family::kGemma3 || family == Family::kGemma4;
  const bool squares = family == Family::kArcee || family == Family::kNemotron || family == Family::kNemotronH;
  if (squares) return model::Activation::kReluSquared;
  return gemma ? model::Activation::kGeluTanh : model::Activation::kSilu;
}

double usual_window_theta(const model::ModelConfig& config) {
  return config.family == Family::kGemma3 ? 10000.0 : config.rope.theta;
}

double usual_attention_scale(const model::ModelConfig& config) {
  if (config.family == Family::kGemma4) return 1.0;
  constexpr std::uint32_t kLayersOfLargestGemma2 = 46;
  constexpr std::uint32_t kLayersOfLargestGemma3 = 62;
  const bool largest = (config.family == Family::kGemma2 && config.num_layers == kLayersOfLargestGemma2) ||
                       (config.family == Family::kGemma3 && config.num_layers == kLayersOfLargestGemma3);
  const double width = largest ? static_cast<double>(config.hidden_size) / config.num_heads : config.head_dim;
  return 1.0 / std::sqrt(width);
}

absl::Status check_expressible(const model::ModelConfig& config, const std::string& origin) {
  if (architecture_name(config).empty()) {
    return invalid_input("{}: {}: GGUF files of this family are not supported; this model cannot be exported", origin,
                         config.model_type);
  }
  const model::Activation activation = usual_activation(config.family);
  if (config.activation != activation) {
    return invalid_input("{}: hidden_act: GGUF's {} has no activation but {}; this model cannot be exported", origin,
                         architecture_name(config), name_of(activation));
  }
  for (const Complaint& complaint :
       {complaint_of_layers(config), complaint_of_experts(config), complaint_of_linear_attention(config),
        complaint_of_latent_attention(config), complaint_of_spaces(config), complaint_of_weights(config)}) {
    if (!complaint) continue;
    return invalid_input("{}: {}: {}; this model cannot be exported", origin, complaint->first, complaint->second);
  }
  if (config.rope.kind == RopeKind::kDynamic && !config.rope.alpha) {
    return invalid_input(
        "{}: rope_scaling: dynamic scaling has no counterpart in GGUF; expected linear, yarn or llama3", origin);
  }
  if (config.rope.kind == RopeKind::kLlama3 && divides_no_frequencies(config)) {
    return invalid_input("{}: rope_scaling: GGUF's {} divides no frequencies; this model cannot be exported", origin,
                         architecture_name(config));
  }
  if (config.rope.kind == RopeKind::kLongRope && config.family != Family::kPhi3) {
    return invalid_input("{}: rope_scaling: longrope of GGUF's {} is not supported; this model cannot be exported",
                         origin, architecture_name(config));
  }
  if (config.rope.query_growth && config.rope.kind != RopeKind::kYarn) {
    return invalid_input("{}: rope_scaling: GGUF's {} is always stretched by yarn; this model cannot be exported",
                         origin, architecture_name(config));
  }
  if (config.rope.kind == RopeKind::kYarn && !config.latent_attention &&
      !has_default_yarn(config.rope, config.family)) {
    return invalid_input(
        "{}: rope_scaling: only yarn with its default attention factor, beta_fast 32 and beta_slow 1 "
        "has a counterpart in GGUF",
        origin);
  }
  return absl::OkStatus();
}

void add_architecture_keys(const model::ModelConfig& config, Keys& keys) {
  const std::string prefix = architecture_name(config) + ".";
  keys.add(prefix + "block_count", config.num_layers);
  keys.add(prefix + "context_length", context_length(config));
  keys.add(prefix + "embedding_length", config.hidden_size);
  if (config.widens_sharing || !config.lone_mlps.empty()) {
    std::vector<std::int32_t> widths;
    for (std::uint32_t block = 0; block < config.num_layers; ++block) {
      const std::uint32_t width = has_experts(config, block) ? config.experts->width : mlp_width(config, block);
      widths.push_back(has_mlp(config, block) ? static_cast<std::int32_t>(width) : 0);
    }
    keys.add(prefix + "feed_forward_length", widths);
  } else if (config.intermediate_size != 0) {
    keys.add(prefix + "feed_forward_length", config.intermediate_size);
  }
  keys.add(prefix + "attention.head_count", config.num_heads);
  add_head_keys(prefix, config, keys);
  keys.add(prefix + epsilon_key(config.family), static_cast<float>(config.rms_norm_eps));
  if (config.family == Family::kNemotronH) {  // its readers want the other one
    keys.add(prefix + epsilon_key(Family::kNemotron), static_cast<float>(config.rms_norm_eps));
  }
  keys.add(prefix + "rope.freq_base", static_cast<float>(stretched_theta(config, config.rope)));
  add_scaling(prefix, config, keys);
  if (has_factors(config.family)) {
    keys.add(prefix + "attention.scale", static_cast<float>(scale_of_scores(config)));
    keys.add(prefix + "embedding_scale", static_cast<float>(config.embedding_multiplier));
    keys.add(prefix + "residual_scale", static_cast<float>(config.residual_multiplier));
    keys.add(prefix + "logit_scale", static_cast<float>(config.logits_scaling));
  }
  if (config.family == Family::kGemma2) {
    keys.add(prefix + "attn_logit_softcapping", static_cast<float>(config.attention_cap));
    keys.add(prefix + "final_logit_softcapping", static_cast<float>(config.logits_cap));
  }
  if (window_pattern(config.family) != 0 && !config.global_heads) {
    const auto window = std::ranges::max_element(config.sliding_window);
    if (*window != 0) keys.add(prefix + "attention.sliding_window", *window);
  }
  if (config.picture_turns) add_picture_keys(prefix, config, keys);
  add_linear_attention_keys(prefix, config, keys);
  add_space_keys(prefix, config, keys);
  add_expert_keys(prefix, config, keys);
  keys.add(prefix + "vocab_size", config.vocab_size);
}

std::string tensor_name(const model::ModelConfig& config, const std::string& of_model) {
  const std::string name = model::name_in_text_model(of_model);
  const auto place = in_block(name, kLayers);
  for (const auto& [theirs, ours] : own_parameters(config)) {
    if (place && place->second == theirs) return fmt::format("{}{}.{}", kBlocks, place->first, ours);
  }
  const std::size_t dot = name.rfind('.');
  const std::string_view module = std::string_view(name).substr(0, dot);
  const std::string ending = name.substr(dot);  // .weight, .bias
  for (const auto& [theirs, ours] : names_outside(config)) {
    if (module == theirs) return std::string(ours) + ending;
  }
  const std::string_view rest = module.substr(kLayers.size());
  const std::size_t end = rest.find('.');
  std::string out = name;
  for_names_in_blocks(config, [&](std::string_view theirs, std::string_view ours) {
    if (rest.substr(end + 1) != theirs) return false;
    out = fmt::format("{}{}.{}{}", kBlocks, rest.substr(0, end), ours, ending);
    return true;
  });
  return out;
}

std::optional<std::string> model_tensor_name(const model::ModelConfig& config, const std::string& name) {
  const auto place = in_block(name, kBlocks);
  for (const auto& [theirs, ours] : own_parameters(config)) {
    if (place && place->second == ours) return fmt::format("{}{}.{}", kLayers, place->first, theirs);
  }
  if (place && config.family == Family::kGlm4Moe && place->second.starts_with("nextn.")) {
    return fmt::format("{}{}.{}", kLayers, place->first, place->second);  // of the block that is passed over
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string_view module = std::string_view(name).substr(0, dot);
  const std::string ending = name.substr(dot);
  for (const auto& [theirs, ours] : names_outside(config)) {
    if (module == ours) return std::string(theirs) + ending;
  }
  if (!module.starts_with(kBlocks)) return std::nullopt;
  const std::string_view rest = module.substr(kBlocks.size());
  const std::size_t end = rest.find('.');
  if (end == std::string_view::npos) return std::nullopt;
  std::optional<std::string> out;
  for_names_in_blocks(config, [&](std::string_view theirs, std::string_view ours) {
    if (rest.substr(end + 1) != ours) return false;
    out = fmt::format("{}{}.{}{}", kLayers, rest.substr(0, end), theirs, ending);
    return true;
  });
  return out;
}

bool is_convolution_weight(const std::string& name) {
  return name.ends_with(".shortconv.conv.weight") || name.ends_with(".ssm_conv1d.weight");
}

bool stays_wide(const std::string& name) {
  return name.find(kRouter) != std::string::npos || name.ends_with("_exps.bias") || is_of_space(name) ||
         is_convolution_weight(name);
}

float stored_offset(const model::ModelConfig& config, const std::string& name) {
  const bool is_norm = name.ends_with("norm.weight") && !name.ends_with(".linear_attn.norm.weight");
  return config.norms_add_one && is_norm ? 1.0F : 0.0F;
}

std::vector<float> frequency_divisors(const model::ModelConfig& config) {
  if (config.global_heads) return divisors_of_gemma4(config);
  const model::RopeConfig& rope = config.rope;
  std::vector<float> divisors;
  if (rope.kind != RopeKind::kLlama3) return divisors;
  const double original = rope.original_max_positions;
  for (std::uint32_t i = 0; i < config.head_dim / 2; ++i) {
    const double wavelength = 2.0 * std::numbers::pi * std::pow(rope.theta, 2.0 * i / config.head_dim);
    const double share =
        (original / wavelength - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
    const double kept = std::clamp(share, 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / ((1.0 - kept) / rope.factor + kept)));
  }
  return divisors;
}

}  // namespace rondo::gguf
