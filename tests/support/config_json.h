// A model's configuration and the tensors that follow from it, in the words of the goldens of config.json.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/model/config.h"
#include "rondo/model/parameters.h"

namespace rondo::model {

template <typename Number>
nlohmann::json or_null(const std::optional<Number>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

inline nlohmann::json to_json(const RopeConfig& rope) {
  nlohmann::json growth = nullptr;
  if (rope.query_growth) growth = {rope.query_growth->rate, rope.query_growth->from};
  return {{"kind", static_cast<int>(rope.kind)},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"low", rope.low_frequency_factor},
          {"high", rope.high_frequency_factor},
          {"original", rope.original_max_positions},
          {"alpha", or_null(rope.alpha)},
          {"attention_factor", or_null(rope.attention_factor)},
          {"beta_fast", rope.beta_fast},
          {"beta_slow", rope.beta_slow},
          {"mscale", or_null(rope.mscale)},
          {"mscale_all_dim", or_null(rope.mscale_all_dim)},
          {"truncate", rope.truncate},
          {"short_factors", rope.short_factors},
          {"long_factors", rope.long_factors},
          {"query_growth", growth},
          {"turned_share", rope.turned_share}};
}

inline nlohmann::json experts_to_json(const ModelConfig& config) {
  if (!config.experts) return nullptr;
  std::vector<std::uint32_t> without;
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    if (!has_experts(config, block)) without.push_back(block);
  }
  nlohmann::json clamped = nullptr;
  if (config.experts->clamped) clamped = {config.experts->clamped->alpha, config.experts->clamped->limit};
  nlohmann::json choice = nullptr;
  const ExpertsConfig& experts = *config.experts;
  if (experts.choice_bias || experts.sigmoid || experts.factor != 1.0) {
    choice = {experts.choice_bias, experts.sigmoid, experts.factor, experts.groups, experts.chosen_groups};
  }
  return {experts.count, experts.choices, experts.normalised, without, clamped, choice};
}

inline nlohmann::json linear_to_json(const ModelConfig& config) {
  if (!config.linear_attention) return nullptr;
  const LinearAttentionConfig& linear = *config.linear_attention;
  return {linear.key_heads, linear.value_heads, linear.key_size, linear.value_size, linear.convolution, linear.blocks};
}

inline nlohmann::json convolution_to_json(const ModelConfig& config) {
  if (!config.short_convolution) return nullptr;
  return {config.short_convolution->width, config.short_convolution->blocks};
}

/// Without a limit there is null.
inline nlohmann::json space_to_json(const StateSpaceConfig& space) {
  const bool limited = std::isfinite(space.most_step);
  return {space.heads,
          space.head_size,
          space.state_size,
          space.convolution,
          space.convolution_bias,
          space.linear_bias,
          space.least_step,
          limited ? nlohmann::json(space.most_step) : nlohmann::json(),
          space.blocks,
          space.groups};
}

/// And whether what a state space gives is normed, and before it is gated.
inline nlohmann::json factors_to_json(const ModelConfig& config) {
  const LinearFactors& factors = config.linear_factors;
  return {factors.attention_input,
          factors.key,
          factors.attention_output,
          factors.space_input,
          factors.space_output,
          factors.space,
          factors.gate,
          factors.down,
          config.state_space->normed,
          config.state_space->normed_first};
}

inline nlohmann::json global_heads_to_json(const ModelConfig& config) {
  if (!config.global_heads) return nullptr;
  return {config.global_heads->kv_heads, config.global_heads->size, config.global_heads->keys_are_values};
}

/// Block by block: none, or whose keys and values are its own and others', or another's.
inline nlohmann::json sharing_to_json(const ModelConfig& config) {
  nlohmann::json modes = nlohmann::json::array();
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    const char* own = lends_keys(config, block) ? "store" : nullptr;
    const char* mode = shares_keys(config, block) ? "reuse" : own;
    modes.push_back(mode != nullptr ? nlohmann::json(mode) : nlohmann::json());
  }
  return modes;
}

/// `parameters`: names and shapes, in name order.
inline nlohmann::json to_json(const ModelConfig& config) {
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> parameters;
  for (const ParameterSpec& spec : model_parameters(config)) parameters.emplace_back(spec.name, spec.shape);
  std::sort(parameters.begin(), parameters.end());
  nlohmann::json json = {
      {"model_type", config.model_type},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_layers", config.num_layers},
      {"num_heads", config.num_heads},
      {"num_kv_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"global_heads", global_heads_to_json(config)},
      {"vocab_size", config.vocab_size},
      {"max_positions", config.max_positions},
      {"rms_norm_eps", config.rms_norm_eps},
      {"activation", static_cast<int>(config.activation)},
      {"rope", config.family == Family::kNemotronH ? nlohmann::json(nullptr) : to_json(config.rope)},
      {"window_rope", config.window_rope ? to_json(*config.window_rope) : nlohmann::json(nullptr)},
      {"without_rope", config.without_rope.empty() ? std::vector<bool>(config.num_layers) : config.without_rope},
      {"attention_scale", static_cast<float>(scale_of_scores(config))},
      {"embedding_scale", static_cast<float>(config.scales_embedding_by_width ? std::sqrt(config.hidden_size)
                                                                              : config.embedding_multiplier)},
      {"residual_multiplier", config.residual_multiplier},
      {"logits_scaling", config.logits_scaling},
      {"attention_cap", config.attention_cap},
      {"logits_cap", config.logits_cap},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"initializer_range", config.initializer_range},
      {"dtype", static_cast<int>(config.weight_type)},
      {"sliding_window", config.sliding_window},
      {"bos", or_null(config.bos_token_id)},
      {"eos", config.eos_token_ids},
      {"pad", or_null(config.pad_token_id)},
      {"experts", experts_to_json(config)},
      {"linear_attention", linear_to_json(config)},
      {"short_convolution", convolution_to_json(config)},
      {"parameters", parameters}};
  if (config.sharing_blocks != 0) json["sharing"] = sharing_to_json(config);
  if (config.family == Family::kFalconH1) json["linear_factors"] = factors_to_json(config);
  if (config.state_space) json["state_space"] = space_to_json(*config.state_space);
  return json;
}

}  // namespace rondo::model
