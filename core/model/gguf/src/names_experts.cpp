// See names_experts.h.
#include "names_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "names.h"
#include "names_latent.h"
#include "names_linear.h"
#include "rondo/model/parameters.h"

namespace rondo::gguf {
namespace {

using model::Family;

constexpr std::string_view kGateAndUp = "ffn_gate_up_exps";

/// Files of Gemma 4 have gate and up of all experts in one tensor.
bool joins_gate_and_up(const model::ModelConfig& config) { return config.experts && config.experts->beside_mlp; }

/// An expert's matrices, and what the tensors of all are called, where gate and up have one each.
std::array<std::pair<const char*, std::string_view>, 3> experts_in_blocks(const model::ModelConfig& config) {
  const model::ExpertNames names = model::expert_names(config);
  return {{{names.gate, "ffn_gate_exps"}, {names.up, "ffn_up_exps"}, {names.down, "ffn_down_exps"}}};
}

/// Of the expert that all tokens share.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSharedExpert = {
    {{"gate_proj", "ffn_gate_shexp"}, {"up_proj", "ffn_up_shexp"}, {"down_proj", "ffn_down_shexp"}}};

/// Blocks without experts, none behind one that has them.
bool lead(const std::vector<bool>& dense_blocks) {
  return std::is_sorted(dense_blocks.begin(), dense_blocks.end(), std::greater<bool>());
}

}  // namespace

bool names_width_of_experts(Family family) {
  return family == Family::kQwen2Moe || family == Family::kQwen3Moe || family == Family::kGptOss ||
         family == Family::kGemma4 || family == Family::kHunYuanMoe || family == Family::kNemotronH ||
         counts_leading_blocks(family) || has_linear_attention(family);
}

bool counts_shared_experts(Family family) {
  return family == Family::kGlm4Moe || family == Family::kErnie45Moe || family == Family::kDots1 ||
         has_latent_attention(family);
}

bool counts_leading_blocks(Family family) { return counts_shared_experts(family) || family == Family::kLfm2Moe; }

bool names_scores(Family family) {
  return (names_shares(family) && family != Family::kNemotronH) || family == Family::kLfm2Moe;
}

bool names_shares(Family family) {
  return family == Family::kGlm4Moe || family == Family::kDots1 || family == Family::kNemotronH ||
         has_latent_attention(family);
}

bool normalises_shares(Family family) { return family != Family::kOlmoe && family != Family::kQwen2Moe; }

bool is_stored_as_vector(const model::ModelConfig& config, const std::string& name) {
  const bool bias = config.family == Family::kErnie45Moe && name.ends_with(".exp_probs_b.bias");
  return bias || name.ends_with(".ffn_gate_inp_shexp.weight");
}

std::optional<std::pair<std::string_view, std::string_view>> in_block(std::string_view name, std::string_view start) {
  if (!name.starts_with(start)) return std::nullopt;
  name.remove_prefix(start.size());
  const std::size_t end = name.find('.');
  if (end == std::string_view::npos) return std::nullopt;
  return std::pair(name.substr(0, end), name.substr(end + 1));
}

bool for_names_of_experts(const model::ModelConfig& config,
                          const std::function<bool(std::string_view, std::string_view)>& fn) {
  const model::ExpertNames names = model::expert_names(config);
  if (fn(fmt::format("{}{}", names.module, names.router), kRouter)) return true;
  if (config.experts->shared_width != 0) {
    for (const auto& [theirs, ours] : kSharedExpert) {
      if (fn(fmt::format("{}{}.{}", names.module, names.shared, theirs), ours)) return true;
    }
  }
  if (config.experts->gates_shared && fn("mlp.shared_expert_gate", "ffn_gate_inp_shexp")) return true;
  // Of their biases; a stack of matrices is no tensor of the model.
  for (const auto& [theirs, ours] : experts_in_blocks(config)) {
    if (fn(fmt::format("{}experts.{}", names.module, theirs), ours)) return true;
  }
  return false;
}

bool for_names_of_shared_mlp(const model::ModelConfig& config,
                             const std::function<bool(std::string_view, std::string_view)>& fn) {
  constexpr std::array<std::array<std::string_view, 3>, 3> kNames = {
      {{"shared_mlp.gate_proj", "ffn_gate", "ffn_gate_shexp"},
       {"shared_mlp.up_proj", "ffn_up", "ffn_up_shexp"},
       {"shared_mlp.output_linear", "ffn_down", "ffn_down_shexp"}}};
  return std::ranges::any_of(kNames, [&](const auto& names) { return fn(names[0], names[config.experts ? 2 : 1]); });
}

Complaint complaint_of_experts(const model::ModelConfig& config) {
  const bool mixture = config.family == Family::kQwen2Moe || config.family == Family::kQwen3Moe;
  if (mixture && !config.experts) return {{"num_experts", "GGUF's readers want some"}};
  if (!config.experts) return std::nullopt;
  if (config.family == Family::kGraniteMoeHybrid && !config.state_space) {
    return {{"num_local_experts", "GGUF files of this family with experts are not supported; expected 0"}};
  }
  const model::ExpertsConfig& experts = *config.experts;
  const bool lone = !config.lone_mlps.empty();  // of each block files say what it is
  if (!experts.dense_blocks.empty() && !lone && !counts_leading_blocks(config.family)) {
    return {{"mlp_only_layers", "GGUF's readers have experts in all layers of this architecture"}};
  }
  if (!lone && !lead(experts.dense_blocks)) {
    return {{"moe_layer_interval", "GGUF's readers have layers without experts in front of all others alone"}};
  }
  if (config.family == Family::kLfm2Moe && !experts.choice_bias) {
    return {{"use_expert_bias", "GGUF's readers want the bias"}};
  }
  if (config.family == Family::kLfm2Moe && experts.factor != 1.0) {
    return {{"routed_scaling_factor", "GGUF's readers have none for this architecture"}};
  }
  // Of one whose scores are softmax they would choose other groups than the model.
  const bool in_groups = config.latent_attention && experts.sigmoid;
  if (experts.groups != 1 && !in_groups)
    return {{"n_group", "GGUF's readers have no groups of experts for this architecture"}};
  if (experts.clamped && experts.clamped != model::ClampedSwiglu{}) {
    return {{"swiglu_limit", "GGUF's readers have 7, and an alpha of 1.702"}};
  }
  if (names_shares(config.family) || experts.normalised == normalises_shares(config.family)) return std::nullopt;
  return {{"norm_topk_prob", "GGUF's readers take it the other way"}};
}

void add_expert_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  if (!config.experts) return;
  const model::ExpertsConfig& experts = *config.experts;
  keys.add(prefix + "expert_count", experts.count);
  keys.add(prefix + "expert_used_count", experts.choices);
  if (names_width_of_experts(config.family)) keys.add(prefix + "expert_feed_forward_length", experts.width);
  if (counts_shared_experts(config.family)) {
    keys.add(prefix + "expert_shared_count", experts.shared_width / experts.width);
  }
  if (config.family == Family::kNemotronH) keys.add(prefix + "expert_shared_count", std::uint32_t{1});
  if (experts.shared_width != 0 && config.family != Family::kGlm4Moe && !config.latent_attention) {
    keys.add(prefix + "expert_shared_feed_forward_length", experts.shared_width);
  }
  if (counts_leading_blocks(config.family)) {
    const auto count = std::ranges::count(experts.dense_blocks, true);
    keys.add(prefix + "leading_dense_block_count", static_cast<std::uint32_t>(count));
  }
  if (config.family == Family::kErnie45Moe) keys.add(prefix + "interleave_moe_layer_step", std::uint32_t{1});
  if (names_scores(config.family)) keys.add(prefix + "expert_gating_func", experts.sigmoid ? kSigmoids : kSoftmax);
  if (experts.groups != 1) {
    keys.add(prefix + "expert_group_count", experts.groups);
    keys.add(prefix + "expert_group_used_count", experts.chosen_groups);
  }
  if (names_shares(config.family)) {
    keys.add(prefix + "expert_weights_norm", experts.normalised);
    keys.add(prefix + "expert_weights_scale", static_cast<float>(experts.factor));
  }
}

std::optional<Stacked> stacked(const model::ModelConfig& config, const std::string& of_model) {
  if (!config.experts) return std::nullopt;
  const std::string name = model::name_in_text_model(of_model);
  const auto place = in_block(name, kLayers);
  const std::string start = std::string(model::expert_names(config).module) + "experts.";
  if (!place) return std::nullopt;
  const auto expert = in_block(place->second, start);
  if (!expert) return std::nullopt;
  for (const auto& [theirs, ours] : experts_in_blocks(config)) {
    if (expert->second != std::string(theirs) + ".weight") continue;
    std::uint32_t number = 0;
    std::from_chars(expert->first.data(), expert->first.data() + expert->first.size(), number);
    const model::ExpertNames names = model::expert_names(config);
    const bool joined = joins_gate_and_up(config) && std::string_view(theirs) != names.down;
    const std::string whole = fmt::format("{}{}.{}.weight", kBlocks, place->first, joined ? kGateAndUp : ours);
    if (!joined) return Stacked{whole, number};
    return Stacked{.name = whole, .expert = number, .part = std::string_view(theirs) == names.up ? 1U : 0U, .parts = 2};
  }
  return std::nullopt;
}

std::vector<std::string> model_names_of_stack(const model::ModelConfig& config, const std::string& name) {
  std::vector<std::string> names;
  const auto place = in_block(name, kBlocks);
  if (!config.experts || !place) return names;
  const model::ExpertNames experts = model::expert_names(config);
  std::vector<const char*> parts;
  for (const auto& [theirs, ours] : experts_in_blocks(config)) {
    if (place->second == std::string(ours) + ".weight") parts = {theirs};
  }
  if (place->second == fmt::format("{}.weight", kGateAndUp)) parts = {experts.gate, experts.up};
  for (std::uint32_t expert = 0; expert < config.experts->count && !parts.empty(); ++expert) {
    for (const char* part : parts) {
      names.push_back(fmt::format("{}{}.{}experts.{}.{}.weight", kLayers, place->first, experts.module, expert, part));
    }
  }
  return names;
}

}  // namespace rondo::gguf
