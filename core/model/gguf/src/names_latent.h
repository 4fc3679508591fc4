// What readers of GGUF files have of attention by a latent (their deepseek2): names of tensors, keys, and what they
// take for granted.
//
// Keys and values are linear in the latent by kv_b_proj in models, whose rows are of each head first keys', then
// values'. Files have two tensors for it:
//
//   attn_k_b   [heads][rank][channels that do not turn]   transposed: readers multiply queries by it
//   attn_v_b   [heads][channels of a value][rank]
//
// Files from before April 2025 have attn_kv_b, as models have it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "names_experts.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// DeepSeek V2 and V3, GLM-4.7-Flash, Youtu.
bool has_latent_attention(model::Family family);

inline constexpr std::string_view kQueryRank = "attention.q_lora_rank";
inline constexpr std::string_view kLatentRank = "attention.kv_lora_rank";
/// Of a head, where keys and values are in two tensors; key_length and value_length are then of what readers cache.
inline constexpr std::string_view kKeyLength = "attention.key_length_mla";
inline constexpr std::string_view kValueLength = "attention.value_length_mla";
inline constexpr std::string_view kLogMultiplier = "rope.scaling.yarn_log_multiplier";

/// Calls fn(theirs, ours) for modules of this attention until it returns true, which then is returned.
bool for_names_of_latent_attention(const model::ModelConfig& config,
                                   const std::function<bool(std::string_view, std::string_view)>& fn);

/// Whether the model's weight is one of a matrix a head in files, and whether these are transposed there.
bool is_by_heads(const model::ModelConfig& config, const std::string& name);
bool is_transposed(const model::ModelConfig& config, const std::string& name);
/// kv_b_proj, whose parts those are, by the name that models have for its weight or an adapter's for its B.
bool is_of_both(const std::string& name);
/// Of the tensor that is_of_both(), for a weight that is_by_heads().
std::string name_of_both(const std::string& name);

/// Whether readers add what an adapter gives to what this layer does. They pass over those of queries', keys' and
/// values' layers without a word; and kv_b_proj, whose keys' part they multiply queries by, has no product of its own.
bool applies_adapters(std::string_view module);

/// REQUIRES: config.latent_attention, as below. Readers have one scale of scores and no amplitude beside it.
bool has_usual_yarn(const model::RopeConfig& rope);

Complaint complaint_of_latent_attention(const model::ModelConfig& config);

/// Of heads, the latent and rotary scaling; of a model without experts also what readers want to know of them.
void add_latent_attention_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys);

}  // namespace rondo::gguf
