// Writes the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype), which transformers 5 reads too.
#include <algorithm>
#include <cmath>

#include "config_block_inputs.h"
#include "config_factors.h"
#include "config_mixers.h"
#include "config_rope.h"
#include "config_space.h"
#include "family.h"
#include "json_reader.h"
#include "layer_types.h"
#include "rondo/model/config.h"
#include "text_part.h"

namespace rondo::model {
namespace {

/// As older versions want it: these three keys and no others, but for what could not be found without.
OrderedJson long_rope_scaling(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  OrderedJson scaling = {
      {"type", "longrope"}, {"short_factor", rope.short_factors}, {"long_factor", rope.long_factors}};
  if (rope.factor != stretch_of(config, rope)) scaling["factor"] = rope.factor;
  if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
  return scaling;
}

/// Null for none, unless that would mean the family's own: `spelled_out`.
OrderedJson rope_scaling(const RopeConfig& rope, bool spelled_out = false) {
  if (rope.kind == RopeKind::kDefault && !spelled_out) return nullptr;
  OrderedJson scaling;
  scaling["rope_type"] = rope_kind_name(rope.kind);
  const bool may_lack_factor = rope.kind == RopeKind::kProportional && rope.factor == 1.0;
  if (rope.kind != RopeKind::kDefault && !may_lack_factor) scaling["factor"] = rope.factor;
  if (rope.alpha) scaling["alpha"] = *rope.alpha;
  if (rope.kind == RopeKind::kLlama3) {
    scaling["low_freq_factor"] = rope.low_frequency_factor;
    scaling["high_freq_factor"] = rope.high_frequency_factor;
  }
  if (rope.kind == RopeKind::kLongRope) {
    scaling["short_factor"] = rope.short_factors;
    scaling["long_factor"] = rope.long_factors;
    if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
  }
  if (rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn || rope.kind == RopeKind::kLongRope) {
    scaling["original_max_position_embeddings"] = rope.original_max_positions;
  }
  if (rope.kind == RopeKind::kYarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) scaling["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) scaling["mscale_all_dim"] = *rope.mscale_all_dim;
    if (!rope.truncate) scaling["truncate"] = false;
  }
  if (rope.query_growth) {
    scaling["original_max_position_embeddings"] = rope.query_growth->from;
    scaling["llama_4_scaling_beta"] = rope.query_growth->rate;
  }
  return scaling;
}

void add_sliding_layers(const std::vector<std::uint32_t>& windows, OrderedJson& out) {
  std::vector<bool> slides;
  for (const std::uint32_t window : windows) slides.push_back(window != 0);
  add_layer_types(slides, "sliding_attention", out);
}

void add_windows(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  const auto& windows = config.sliding_window;
  const auto first = std::find_if(windows.begin(), windows.end(), [](std::uint32_t window) { return window != 0; });
  const bool any = first != windows.end();
  if (traits.windows == Windows::kNone || traits.windows == Windows::kNever) return;
  out["sliding_window"] = any ? OrderedJson(*first) : OrderedJson(nullptr);
  if (traits.windows == Windows::kAll) return;
  if (traits.windows == Windows::kTurned) {
    // A null would turn all layers.
    if (!any && !config.without_rope.empty()) out["sliding_window"] = traits.default_window;
    return add_sliding_layers(windows, out);
  }
  if (traits.windows == Windows::kPattern || traits.windows == Windows::kUnturned ||
      traits.windows == Windows::kListed) {
    // transformers wants a number even where no layer slides.
    if (!any) out["sliding_window"] = traits.default_window;
    return add_sliding_layers(windows, out);
  }
  if (traits.windows == Windows::kBehind) return add_sliding_layers(windows, out);
  out["use_sliding_window"] = any;
  if (traits.windows == Windows::kSwitched) return;
  if (traits.windows == Windows::kUnrotated || traits.windows == Windows::kEven) {
    if (any) add_sliding_layers(windows, out);
    return;
  }
  // Older versions know only the first sliding layer; where that says all, the list is left out.
  const bool contiguous = std::find(first, windows.end(), 0U) == windows.end();
  out["max_window_layers"] =
      any && contiguous ? static_cast<std::uint32_t>(first - windows.begin()) : config.num_layers;
  if (any && !contiguous) add_sliding_layers(windows, out);
}

/// Both spellings: older versions of transformers know no settings by kind of layer, newer ones read no theta of layers
/// that slide outside of them.
void add_ropes(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (!traits.rotates) return;
  const auto set = [](const RopeConfig& rope) {
    OrderedJson settings = rope_scaling(rope, true);
    settings["rope_theta"] = rope.theta;
    if (rope.kind == RopeKind::kProportional) settings["partial_rotary_factor"] = rope.turned_share;
    return settings;
  };
  const auto both = [&] {
    return OrderedJson{{"full_attention", set(config.rope)}, {"sliding_attention", set(*config.window_rope)}};
  };
  if (traits.sets_ropes_by_kind) {
    out["rope_parameters"] = both();
    return;
  }
  out[std::string(traits.theta_key)] = config.rope.theta;
  const bool is_long = config.rope.kind == RopeKind::kLongRope && traits.long_rope_from != 0;
  const bool within =
      traits.turned_share && traits.turned_key.empty() && config.rope.turned_share != *traits.turned_share;
  out["rope_scaling"] =
      is_long ? long_rope_scaling(config) : rope_scaling(config.rope, !traits.default_rope.empty() || within);
  if (within) out["rope_scaling"]["partial_rotary_factor"] = config.rope.turned_share;
  if (traits.long_rope_from != 0) {
    out["original_max_position_embeddings"] = is_long ? config.rope.original_max_positions : config.max_positions;
  }
  if (const std::string key(traits.turned_key); traits.turned_share && !key.empty()) {
    out[key] = config.rope.turned_share;
  }
  if (traits.lists_thetas) out["layer_rope_theta"] = listed_thetas(config);
  if (!config.window_rope || traits.lists_thetas) return;
  if (!traits.window_theta_key.empty()) out[std::string(traits.window_theta_key)] = config.window_rope->theta;
  out["rope_parameters"] = both();
}

/// What Gemma 4 has beside Gemma 3.
void add_global_heads(const ModelConfig& config, OrderedJson& out) {
  if (!config.global_heads) return;
  const HeadShape& heads = *config.global_heads;
  out["global_head_dim"] = heads.size;
  out["num_global_key_value_heads"] = heads.kv_heads;
  out["attention_k_eq_v"] = heads.keys_are_values;
  add_block_inputs(config, out);
}

void add_factors(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (traits.scales_queries) {
    const double scale = scale_of_scores(config);
    out["query_pre_attn_scalar"] = std::lround(1.0 / (scale * scale));
  }
  const auto cap = [](double of) { return of == 0.0 ? OrderedJson(nullptr) : OrderedJson(of); };
  if (traits.attention_cap != 0.0) out["attn_logit_softcapping"] = cap(config.attention_cap);
  if (traits.logits_cap != 0.0 || traits.reads_logits_cap) out["final_logit_softcapping"] = cap(config.logits_cap);
  if (traits.reads_logit_scale) out["logit_scale"] = 1.0 / config.logits_scaling;
  if (traits.reads_linear_factors) add_linear_factors(config, out);
  if (traits.reads_depth_scale) add_depth_scale(config, out);
  if (traits.reads_mup) out["mup_enabled"] = config.embedding_multiplier != 1.0;
  if (!traits.reads_multipliers) return;
  out["attention_multiplier"] = scale_of_scores(config);
  out["embedding_multiplier"] = config.embedding_multiplier;
  out["residual_multiplier"] = config.residual_multiplier;
  out["logits_scaling"] = traits.multiplies_logits ? 1.0 / config.logits_scaling : config.logits_scaling;
  if (traits.reads_post_norm) out["use_post_norm"] = config.norm_place != NormPlace::kInput;
}

/// A range of blocks has experts, each so-many-th of them.
void add_ranged_blocks(const std::vector<bool>& dense, std::uint32_t layers, OrderedJson& out) {
  std::vector<std::uint32_t> mixtures;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    if (dense.empty() || !dense[layer]) mixtures.push_back(layer);
  }
  const bool one = mixtures.size() == 1;
  out["moe_layer_start_index"] = mixtures.empty() ? layers : mixtures.front();
  out["moe_layer_end_index"] = mixtures.empty() ? layers - 1 : mixtures.back();
  out["moe_layer_interval"] = mixtures.empty() || one ? 1 : mixtures[1] - mixtures[0];
}

void add_dense_blocks(const ExpertsConfig& experts, const ExpertTraits& traits, std::uint32_t layers,
                      OrderedJson& out) {
  const std::vector<bool>& dense = experts.dense_blocks;
  if (traits.mixtures == Mixtures::kRanged) return add_ranged_blocks(dense, layers, out);
  if (traits.mixtures == Mixtures::kBehind) {
    out[std::string(traits.leading_key)] = std::count(dense.begin(), dense.end(), true);
  }
  if (traits.mixtures == Mixtures::kListed || traits.mixtures == Mixtures::kListedOrBehind) {
    out["mlp_layer_types"] = OrderedJson::array();
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      out["mlp_layer_types"].push_back(!dense.empty() && dense[layer] ? "dense" : "sparse");
    }
  }
  if (traits.mixtures != Mixtures::kStepped) return;
  out["decoder_sparse_step"] = 1;
  out["mlp_only_layers"] = OrderedJson::array();
  for (std::size_t layer = 0; layer < dense.size(); ++layer) {
    if (dense[layer]) out["mlp_only_layers"].push_back(layer);
  }
}

void add_experts(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (!traits.experts || (traits.lone_halves && !config.experts)) return;
  const ExpertsConfig experts = config.experts.value_or(ExpertsConfig{});
  if (!traits.experts->switch_key.empty()) {
    out[std::string(traits.experts->switch_key)] = config.experts.has_value();
    if (!config.experts) return;
  }
  out[std::string(traits.experts->count_key)] = experts.count;
  if (config.experts) out[std::string(traits.experts->choices_key)] = experts.choices;
  if (config.experts && (traits.experts->width != 0 || experts.beside_mlp))
    out["moe_intermediate_size"] = experts.width;
  if (const std::string_view key = traits.experts->shared_mlp_key; !key.empty()) {
    out[std::string(key)] = config.experts ? experts.shared_width : config.intermediate_size;
  } else if (!traits.experts->shared_width_key.empty()) {
    out[std::string(traits.experts->shared_width_key)] = experts.shared_width;
  } else if (!traits.experts->shared_count_key.empty()) {
    out[std::string(traits.experts->shared_count_key)] = experts.width == 0 ? 0 : experts.shared_width / experts.width;
  } else if (experts.shared_width != 0 && !traits.experts->shares_mlp) {
    out["shared_expert_intermediate_size"] = experts.shared_width;
  }
  const std::string factor_key(traits.experts->factor_key);
  const bool has_factor = traits.experts->by_sigmoids || traits.experts->reads_factor;
  if (has_factor && !factor_key.empty()) out[factor_key] = experts.factor;
  if (const std::string_view key = traits.experts->choice_bias_key; !key.empty()) {
    out[std::string(key)] = experts.choice_bias;
  }
  if (traits.experts->in_groups) {
    out["n_group"] = experts.groups;
    out["topk_group"] = experts.chosen_groups;
  }
  if (!traits.experts->normalises_always) out["norm_topk_prob"] = experts.normalised;
  if (experts.clamped) {
    out["swiglu_alpha"] = experts.clamped->alpha;
    out["swiglu_limit"] = experts.clamped->limit;
    if (experts.mxfp4) out["quantization_config"] = {{"quant_method", "mxfp4"}};
  }
  add_dense_blocks(experts, *traits.experts, config.num_layers, out);
  if (traits.predicts_ahead) out["num_nextn_predict_layers"] = 0;
}

void add_linear_attention(const ModelConfig& config, OrderedJson& out) {
  if (!config.linear_attention) return;
  const LinearAttentionConfig& linear = *config.linear_attention;
  out["linear_num_key_heads"] = linear.key_heads;
  out["linear_num_value_heads"] = linear.value_heads;
  out["linear_key_head_dim"] = linear.key_size;
  out["linear_value_head_dim"] = linear.value_size;
  out["linear_conv_kernel_dim"] = linear.convolution;
  add_layer_types(linear.blocks, "linear_attention", out);
}

void add_short_convolution(const ModelConfig& config, OrderedJson& out) {
  if (!config.short_convolution) return;
  out["conv_L_cache"] = config.short_convolution->width;
  out["conv_bias"] = false;
  out["block_auto_adjust_ff_dim"] = false;
  add_layer_types(config.short_convolution->blocks, "conv", out);
}

void add_latent_attention(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (!config.latent_attention) return;
  const LatentAttentionConfig& latent = *config.latent_attention;
  out["q_lora_rank"] = latent.query_rank == 0 ? OrderedJson(nullptr) : OrderedJson(latent.query_rank);
  out["kv_lora_rank"] = latent.rank;
  out["qk_nope_head_dim"] = latent.plain_size;
  out["qk_rope_head_dim"] = latent.turned_size;
  out["v_head_dim"] = latent.value_size;
  if (traits.reads_interleave) out["rope_interleave"] = config.turns_neighbours;
}

void add_tokens(const ModelConfig& config, OrderedJson& out) {
  const auto id = [](std::optional<std::int32_t> token) { return token ? OrderedJson(*token) : OrderedJson(nullptr); };
  out["bos_token_id"] = id(config.bos_token_id);
  if (config.eos_token_ids.size() > 1) {
    out["eos_token_id"] = config.eos_token_ids;
  } else {
    out["eos_token_id"] = config.eos_token_ids.empty() ? OrderedJson(nullptr) : OrderedJson(config.eos_token_ids[0]);
  }
  out["pad_token_id"] = id(config.pad_token_id);
}

}  // namespace

std::string format_config(const ModelConfig& config) {
  const FamilyTraits& traits = traits_of(config.family);
  OrderedJson out;
  out["architectures"] = OrderedJson::array({traits.architecture});
  out["model_type"] = traits.model_type;
  out["hidden_size"] = config.hidden_size;
  if (config.intermediate_size != 0) out["intermediate_size"] = config.intermediate_size;
  out["num_hidden_layers"] = config.num_layers;
  out["num_attention_heads"] = config.num_heads;
  out["num_key_value_heads"] = config.num_kv_heads;
  if (!config.latent_attention) out["head_dim"] = config.head_dim;
  add_global_heads(config, out);
  out["vocab_size"] = config.vocab_size;
  out["max_position_embeddings"] = config.max_positions;
  if (const std::string key(traits.activation_key); !key.empty()) out[key] = activation_name(config.activation);
  if (!traits.eps_key.empty()) out[std::string(traits.eps_key)] = config.rms_norm_eps;
  add_ropes(config, traits, out);
  add_picture_turns(config, out);
  if (traits.unrotated_interval != 0 && !config.without_rope.empty()) {
    OrderedJson rotated = OrderedJson::array();
    for (const bool without : config.without_rope) rotated.push_back(without ? 0 : 1);
    out["no_rope_layers"] = std::move(rotated);
  }
  add_factors(config, traits, out);
  add_experts(config, traits, out);
  add_linear_attention(config, out);
  add_short_convolution(config, out);
  add_latent_attention(config, traits, out);
  add_state_space(config, traits, out);
  add_lone_halves(config, traits, out);
  if (traits.reads_use_bias) out["use_bias"] = config.attention_bias;
  if (!traits.qkv_bias_key.empty()) out[std::string(traits.qkv_bias_key)] = config.attention_bias;
  if (traits.reads_attention_bias) out["attention_bias"] = config.attention_bias;
  if (traits.reads_mlp_bias) out["mlp_bias"] = config.mlp_bias;
  if (traits.reads_qk_norm) out["use_qk_norm"] = config.qk_norm == QkNorm::kHead;
  if (const auto& key = traits.output_bias_key; key && !key->empty()) {
    out[std::string(*key)] = config.attention_output_bias;
  }
  out["attention_dropout"] = 0.0;
  for (const std::string_view key : {traits.residual_dropout_key, traits.embedding_dropout_key}) {
    if (!key.empty()) out[std::string(key)] = 0.0;
  }
  if (!traits.parallel_key.empty()) out[std::string(traits.parallel_key)] = config.parallel;
  add_windows(config, traits, out);
  out["initializer_range"] = config.initializer_range;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["torch_dtype"] = weight_type_name(config.weight_type);
  out["use_cache"] = true;
  add_tokens(config, out);
  return to_text(out);
}

}  // namespace rondo::model
