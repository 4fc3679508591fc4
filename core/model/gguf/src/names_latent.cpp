// See names_latent.h.
#include "names_latent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace rondo::gguf {
namespace {

using model::Family;
using model::LatentAttentionConfig;
using model::RopeKind;

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kModulesOfLatent = {
    {{"self_attn.q_a_proj", "attn_q_a"},
     {"self_attn.q_a_layernorm", "attn_q_a_norm"},
     {"self_attn.q_b_proj", "attn_q_b"},
     {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
     {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
     {"self_attn.kv_b_proj", "attn_kv_b"},
     {"self_attn.key_proj", "attn_k_b"},
     {"self_attn.value_proj", "attn_v_b"}}};

/// Readers take models of so many layers for ones whose queries have no latent, whatever the file says.
bool is_lite(const model::ModelConfig& config) {
  constexpr std::uint32_t kVocabularyOfKanana = 128256;
  return config.num_layers == 26 || config.num_layers == 27 ||
         (config.num_layers == 48 && config.vocab_size == kVocabularyOfKanana);
}

}  // namespace

bool has_latent_attention(Family family) {
  return family == Family::kDeepseekV2 || family == Family::kDeepseekV3 || family == Family::kGlm4MoeLite ||
         family == Family::kYoutu;
}

bool for_names_of_latent_attention(const model::ModelConfig& config,
                                   const std::function<bool(std::string_view, std::string_view)>& fn) {
  return config.latent_attention &&
         std::ranges::any_of(kModulesOfLatent, [&](const auto& names) { return fn(names.first, names.second); });
}

bool is_by_heads(const model::ModelConfig& config, const std::string& name) {
  return is_transposed(config, name) || (config.latent_attention && name.ends_with(".self_attn.value_proj.weight"));
}

bool is_transposed(const model::ModelConfig& config, const std::string& name) {
  return config.latent_attention && name.ends_with(".self_attn.key_proj.weight");
}

bool is_of_both(const std::string& name) { return name.find(".self_attn.kv_b_proj.") != std::string::npos; }

std::string name_of_both(const std::string& name) {
  const std::string_view ending = name.ends_with("key_proj.weight") ? "key_proj.weight" : "value_proj.weight";
  return name.substr(0, name.size() - ending.size()) + "kv_b_proj.weight";
}

bool applies_adapters(std::string_view module) {
  constexpr std::array<std::string_view, 5> kPassedOver = {"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                                                           "kv_b_proj"};
  return std::ranges::count(kPassedOver, module) == 0;
}

bool has_usual_yarn(const model::RopeConfig& rope) {
  const bool even = rope.mscale_all_dim && rope.mscale == rope.mscale_all_dim;
  return even && rope.attention_factor.value_or(1.0) == 1.0 && rope.beta_fast == 32.0 && rope.beta_slow == 1.0 &&
         rope.truncate;
}

Complaint complaint_of_latent_attention(const model::ModelConfig& config) {
  if (!config.latent_attention) return std::nullopt;
  if (!config.turns_neighbours) {
    return {{"rope_interleave", "GGUF's readers turn neighbouring channels of this architecture"}};
  }
  if (config.latent_attention->query_rank != 0 && is_lite(config)) {
    return {{"q_lora_rank", "GGUF's readers have none in models of so many layers"}};
  }
  if (config.mlp_bias) return {{"mlp_bias", "GGUF's readers have no biases for this architecture"}};
  if (config.rope.kind == RopeKind::kYarn && !has_usual_yarn(config.rope)) {
    return {{"rope_scaling",
             "only yarn with an mscale_all_dim that its mscale equals, beta_fast 32 and beta_slow 1 has a counterpart "
             "in GGUF"}};
  }
  return std::nullopt;
}

void add_latent_attention_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  const LatentAttentionConfig& latent = *config.latent_attention;
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  // Readers attend by one head of keys, which is the latent and what turns; its values are the latent.
  keys.add(key("attention.head_count_kv"), std::uint32_t{1});
  keys.add(key("attention.key_length"), latent.rank + latent.turned_size);
  keys.add(key("attention.value_length"), latent.rank);
  keys.add(key(kKeyLength), config.head_dim);
  keys.add(key(kValueLength), latent.value_size);
  keys.add(key("rope.dimension_count"), latent.turned_size);
  keys.add(key(kLatentRank), latent.rank);
  // Readers want the key where they do not know from the number of layers that there is none.
  if (latent.query_rank != 0 || !is_lite(config)) keys.add(key(kQueryRank), latent.query_rank);
  if (config.rope.kind == RopeKind::kYarn) {
    // Readers take it for a tenth of mscale_all_dim here, and for mscale_all_dim itself elsewhere.
    keys.add(key(kLogMultiplier), static_cast<float>(0.1 * *config.rope.mscale_all_dim));
  }
  if (config.experts) return;
  keys.add(key("leading_dense_block_count"), config.num_layers);
  keys.add(key("expert_feed_forward_length"), config.intermediate_size);
  keys.add(key("expert_shared_count"), std::uint32_t{0});
}

}  // namespace rondo::gguf
