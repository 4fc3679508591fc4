// See names_space.h.
#include "names_space.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/model/parameters.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::StateSpaceConfig;

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kModulesOfSpaces = {
    {{"in_proj", "ssm_in"}, {"conv1d", "ssm_conv1d"}, {"norm", "ssm_norm"}, {"out_proj", "ssm_out"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kAttentionAlone = {
    {{"q_proj", "attn_q"}, {"k_proj", "attn_k"}, {"v_proj", "attn_v"}, {"o_proj", "attn_output"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOfMlps = {
    {{"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"}, {"down_proj", "ffn_down"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOwnOfSpaces = {
    {{"A_log", "ssm_a"}, {"D", "ssm_d"}, {"dt_bias", "ssm_dt.bias"}}};

bool is_lone(const model::ModelConfig& config) { return config.family == Family::kNemotronH; }

bool is_hybrid_granite(const model::ModelConfig& config) {
  return config.family == Family::kBamba || config.family == Family::kGraniteMoeHybrid;
}

/// In config.json.
const char* blocks_key(Family family) {
  if (family == Family::kBamba) return "attn_layer_indices";
  return family == Family::kNemotronH ? "layers_block_type" : "layer_types";
}

Complaint complaint_of_parts(const model::ModelConfig& config) {
  const StateSpaceConfig& space = *config.state_space;
  const bool lone = is_lone(config);
  if (space.linear_bias) {
    return {{lone ? "use_bias" : "mamba_proj_bias", "GGUF's readers have no biases for these layers"}};
  }
  if (!space.convolution_bias) {
    return {{lone ? "use_conv_bias" : "mamba_conv_bias", "GGUF's readers want biases"}};
  }
  if (space.normed_first) {
    return {{"mamba_norm_before_gate", "GGUF's readers norm what heads give once it is gated"}};
  }
  if (is_hybrid_granite(config) && space.width() != 2 * config.hidden_size) {
    return {{"mamba_expand", "GGUF's readers have state spaces twice as wide as the model"}};
  }
  const double most = lone ? kLeastStep : 0.0;  // that a least step may be
  if (space.least_step > most || std::isfinite(space.most_step)) {
    return {{lone ? "time_step_min" : "time_step_limit", "GGUF files do not say what a step is at least or at most"}};
  }
  return std::nullopt;
}

}  // namespace

bool lists_blocks(Family family) {
  return family == Family::kGraniteMoeHybrid || family == Family::kBamba || family == Family::kNemotronH;
}

std::string space_module(const model::ModelConfig& config) { return is_lone(config) ? "mixer." : "mamba."; }

bool for_names_of_spaces(const model::ModelConfig& config,
                         const std::function<bool(std::string_view, std::string_view)>& fn) {
  const auto any_of = [&](const auto& names, const std::string& module) {
    return std::ranges::any_of(names, [&](const auto& one) { return fn(module + std::string(one.first), one.second); });
  };
  const std::string module = space_module(config);
  if (config.state_space && any_of(kModulesOfSpaces, module)) return true;
  if (is_lone(config)) return any_of(kAttentionAlone, module) || any_of(kOfMlps, module);
  const bool renamed = config.family == Family::kBamba || config.family == Family::kFalconH1;
  return renamed && any_of(kOfMlps, "feed_forward.");
}

std::vector<std::pair<std::string, std::string_view>> own_parameters_of_spaces(const model::ModelConfig& config) {
  std::vector<std::pair<std::string, std::string_view>> names;
  // Readers of it want this one without an ending.
  if (config.family == Family::kFalconH1) names.emplace_back("pre_ff_layernorm.weight", "ffn_norm");
  if (!config.state_space) return names;
  for (const auto& [theirs, ours] : kOwnOfSpaces) {
    names.emplace_back(space_module(config) + std::string(theirs), ours);
  }
  return names;
}

bool is_of_space(const std::string& name) {
  return name.ends_with(".ssm_a") || name.ends_with(".ssm_d") || name.ends_with(".ssm_norm.weight");
}

std::vector<std::uint64_t> shape_of_space(const model::ModelConfig& config, const std::string& name,
                                          std::uint64_t elements) {
  if (!name.ends_with(".ssm_norm.weight")) return {elements, 1};
  const std::uint64_t groups = config.state_space->groups;
  return {groups, elements / groups};
}

Complaint complaint_of_spaces(const model::ModelConfig& config) {
  const bool wants = config.family == Family::kBamba || is_lone(config);
  if (wants && !config.state_space) {
    return {{blocks_key(config.family), "GGUF's readers want a state space"}};
  }
  if (!config.state_space) return std::nullopt;
  if (is_lone(config) && config.experts) {
    for (std::uint32_t block = 0; block < config.num_layers; ++block) {
      if (!config.lone_mlps[block] || has_experts(config, block)) continue;
      return {{"layers_block_type", "GGUF's readers have no MLPs beside experts"}};
    }
    if (config.experts->shared_width == 0) {
      return {{"moe_shared_expert_intermediate_size", "GGUF's readers want an expert that all tokens share"}};
    }
  }
  if (config.family == Family::kFalconH1 && config.attention_output_bias) {
    return {{"attention_bias", "GGUF's readers have no biases for what attention gives"}};
  }
  return complaint_of_parts(config);
}

void add_space_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  if (!config.state_space) return;
  const StateSpaceConfig& space = *config.state_space;
  keys.add(prefix + "ssm.conv_kernel", space.convolution);
  keys.add(prefix + "ssm.state_size", space.state_size);
  keys.add(prefix + "ssm.group_count", space.groups);
  keys.add(prefix + "ssm.inner_size", space.width());
  keys.add(prefix + "ssm.time_step_rank", space.heads);
  if (is_hybrid_granite(config)) keys.add(prefix + std::string(kTurns), config.without_rope.empty());
}

std::map<std::string, double> stored_factors(const model::ModelConfig& config) {
  std::map<std::string, double> factors;
  if (config.family != Family::kFalconH1) return factors;
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    for (const auto& half : {model::attention_linears(config, block), model::mlp_linears(config, block)}) {
      for (const model::LinearModule& linear : half) {
        for (const model::LinearModule& part : model::parts_or_self(linear)) factors[part.path] = part.factor;
      }
    }
  }
  factors[model::embedding_path(config)] = config.embedding_multiplier;
  factors["lm_head"] = 1.0 / config.logits_scaling;
  return factors;
}

}  // namespace rondo::gguf
