// See names_gemma4.h.
#include "names_gemma4.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rondo/model/parameters.h"

namespace rondo::gguf {
namespace {

using model::BesideNames;
using model::BlockInputNames;
using model::RopeKind;

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNormsBesideMlp = {
    {{BesideNames::kMlpOutput, "post_ffw_norm_1"},
     {BesideNames::kExpertsInput, "pre_ffw_norm_2"},
     {BesideNames::kExpertsOutput, "post_ffw_norm_2"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOfInputs = {
    {{BlockInputNames::kGate, "inp_gate"},
     {BlockInputNames::kOutput, "proj"},
     {BlockInputNames::kOutputNorm, "post_norm"}}};

}  // namespace

bool for_names_of_inputs(const std::function<bool(std::string_view, std::string_view)>& fn) {
  return std::ranges::any_of(kOfInputs, [&](const auto& names) { return fn(names.first, names.second); });
}

bool for_names_beside_mlp(const std::function<bool(std::string_view, std::string_view)>& fn) {
  return std::ranges::any_of(kNormsBesideMlp, [&](const auto& names) { return fn(names.first, names.second); });
}

std::vector<std::pair<std::string, std::string_view>> own_parameters_of_gemma4(const model::ModelConfig& config) {
  std::vector<std::pair<std::string, std::string_view>> names;
  if (config.scales_blocks) names.emplace_back(model::kBlockScaleName, "layer_output_scale.weight");
  if (!config.experts || !config.experts->beside_mlp) return names;
  const std::string module = model::expert_names(config).module;
  names.emplace_back(module + BesideNames::kRouterScale, "ffn_gate_inp.scale");
  names.emplace_back(module + BesideNames::kExpertScale, "ffn_down_exps.scale");
  return names;
}

Complaint complaint_of_gemma4(const model::ModelConfig& config) {
  const std::uint32_t own = config.num_layers - config.sharing_blocks;
  const bool lends_last = config.sharing_blocks == 0 ||
                          (own >= 2 && config.sliding_window[own - 1] == 0 && config.sliding_window[own - 2] != 0);
  if (!lends_last) {
    return {
        {"num_kv_shared_layers",
         "GGUF's readers take shared keys and values from the last two layers that have some: one that slides, then "
         "one that sees all"}};
  }
  if (config.window_rope->kind == RopeKind::kDefault) return std::nullopt;
  return {{"rope_parameters", "layers that slide have other rotary settings than in GGUF's readers"}};
}

void add_gemma4_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  std::vector<std::int32_t> kv_heads;
  std::vector<bool> slides;
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    kv_heads.push_back(static_cast<std::int32_t>(heads_of(config, block).kv_heads));
    slides.push_back(config.sliding_window[block] != 0);
  }
  keys.add(key("attention.head_count_kv"), kv_heads);
  keys.add(key("attention.key_length"), config.global_heads->size);
  keys.add(key("attention.value_length"), config.global_heads->size);
  keys.add(key("rope.dimension_count"), config.global_heads->size);
  keys.add(key(kSlidingKeyLength), config.head_dim);
  keys.add(key(kSlidingValueLength), config.head_dim);
  keys.add(key(kSlidingTurned), config.head_dim);
  keys.add(key("rope.freq_base_swa"), static_cast<float>(config.window_rope->theta));
  keys.add(key(kSlidingPattern), slides);
  // Readers want a window even where no layer slides.
  const std::uint32_t window = *std::ranges::max_element(config.sliding_window);
  keys.add(key("attention.sliding_window"), window != 0 ? window : config.max_positions);
  keys.add(key(kSharingLayers), config.sharing_blocks);
  keys.add(key(kWidthOfEachLayer), config.block_inputs ? config.block_inputs->width : 0);
  // Where nothing is said, readers cap at kLogitsCap.
  keys.add(key("final_logit_softcapping"), static_cast<float>(config.logits_cap));
}

std::vector<float> divisors_of_gemma4(const model::ModelConfig& config) {
  const std::uint32_t pairs = config.global_heads->size / 2;
  if (config.rope.kind != RopeKind::kProportional) return std::vector<float>(pairs, 1.0F);
  std::vector<float> divisors(pairs, kStill);
  const auto turned = static_cast<std::ptrdiff_t>(config.rope.turned_share * pairs);
  std::fill_n(divisors.begin(), turned, static_cast<float>(config.rope.factor));
  return divisors;
}

}  // namespace rondo::gguf
