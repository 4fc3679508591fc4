// See import_experts.h.
#include "import_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "import_latent.h"
#include "import_space.h"
#include "names.h"
#include "names_experts.h"
#include "names_latent.h"
#include "names_linear.h"

namespace rondo::gguf {
namespace {

using model::Family;

constexpr std::uint32_t kMostOfAKind = 1U << 24U;

/// Where files may leave it out.
std::optional<std::uint32_t> width_of_experts(const model::ModelConfig& config) {
  if (config.family != Family::kQwen2Moe || config.experts->choices == 0) return std::nullopt;
  return config.intermediate_size / config.experts->choices;
}

std::optional<std::uint32_t> width_of_shared_expert(const model::ModelConfig& config) {
  return config.family == Family::kQwen2Moe ? std::optional(config.intermediate_size) : std::nullopt;
}

void read_shared_expert(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  model::ExpertsConfig& experts = *config.experts;
  if (config.family == Family::kQwen2Moe || has_linear_attention(config.family)) {
    experts.shared_width =
        keys.integer(prefix + "expert_shared_feed_forward_length", 1, kMostOfAKind, width_of_shared_expert(config));
  }
  if (config.family == Family::kGraniteMoeHybrid) {  // of which there may be none
    experts.shared_width = keys.integer(prefix + "expert_shared_feed_forward_length", 0, kMostOfAKind, 0);
  }
  if (!counts_shared_experts(config.family)) return;
  constexpr std::uint32_t kMost = 64;
  const bool ernie = config.family == Family::kErnie45Moe;  // of which there may be none
  experts.shared_width = experts.width * keys.integer(prefix + "expert_shared_count", ernie ? 0 : 1, kMost);
  if (!ernie) return;
  const std::string key = prefix + "expert_shared_feed_forward_length";
  const std::uint32_t width = keys.integer(key, 0, kMostOfAKind, experts.shared_width);
  if (width == experts.shared_width) return;
  keys.refuse(key,
              fmt::format("expected {}, that of expert_shared_count experts, found {}", experts.shared_width, width));
}

/// DeepSeek V3's. Those of V2 are chosen otherwise than readers do, and shares of its experts never sum to 1.
void read_groups(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  model::ExpertsConfig& experts = *config.experts;
  const std::uint32_t most = experts.sigmoid ? experts.count : 1;
  experts.groups = keys.integer(prefix + "expert_group_count", 1, most, 1);
  experts.chosen_groups = keys.integer(prefix + "expert_group_used_count", 1, experts.groups, 1);
  if (!experts.sigmoid && experts.normalised) {
    keys.refuse(prefix + "expert_weights_norm", "true, but scores are softmax of logits; expected false");
  }
}

/// Which experts are chosen, and their shares.
void read_choice(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  model::ExpertsConfig& experts = *config.experts;
  experts.normalised = normalises_shares(config.family);
  if (names_scores(config.family)) {
    const std::string key = prefix + "expert_gating_func";
    std::uint32_t kind = keys.integer(key, 0, kMostOfAKind, usual_scores(config));
    if (kind == 0) kind = usual_scores(config);  // counts as absent
    experts.sigmoid = kind == kSigmoids;
    experts.choice_bias = experts.sigmoid;
    if (config.latent_attention && kind != kSigmoids && kind != kSoftmax) {
      keys.refuse(key, fmt::format("expected {} (softmax) or {} (sigmoids), found {}", kSoftmax, kSigmoids, kind));
    } else if (!config.latent_attention && kind != kSigmoids) {
      keys.refuse(key, fmt::format("expected {}, sigmoids, found {}", kSigmoids, kind));
    }
  }
  if (!names_shares(config.family)) return;
  experts.normalised = keys.flag(prefix + "expert_weights_norm", false);
  const double factor = keys.number(prefix + "expert_weights_scale", 0.0, 1e3, 0.0);
  experts.factor = factor == 0.0 ? 1.0 : factor;  // 0 counts as absent
  if (config.latent_attention) return read_groups(keys, prefix, config);
  for (const char* groups : {"expert_group_count", "expert_group_used_count"}) {
    if (keys.integer(prefix + groups, 0, kMostOfAKind, 1) > 1) {
      keys.refuse(prefix + groups, "groups of experts are not supported in files; expected 1");
    }
  }
}

}  // namespace

void read_experts(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  const std::uint32_t count = keys.integer(prefix + "expert_count", 0, model::kMaxExperts, 0);
  constexpr std::array kWanted = {Family::kQwen2Moe,   Family::kQwen3Moe, Family::kOlmoe,      Family::kGptOss,
                                  Family::kGraniteMoe, Family::kGlm4Moe,  Family::kErnie45Moe, Family::kLfm2Moe,
                                  Family::kQwen35Moe,  Family::kQwen3Next};
  const bool wanted = config.experts || std::ranges::count(kWanted, config.family) > 0;
  const bool may_have = config.family == Family::kLlama || config.family == Family::kGemma4 ||
                        config.family == Family::kGraniteMoeHybrid || config.family == Family::kNemotronH ||
                        has_latent_attention(config.family);
  if (count == 0 && wanted) keys.refuse(prefix + "expert_count", "expected experts, found none");
  if (count != 0 && !wanted && !may_have) {
    keys.refuse(prefix + "expert_count", "this architecture is not supported as a mixture of experts");
  }
  if (count == 0 && has_latent_attention(config.family)) config.family = family_by_scores(config);
  if (count == 0 || !keys.status().ok()) return;
  if (config.family == Family::kLlama) config.family = Family::kMixtral;
  model::ExpertsConfig& experts = config.experts.emplace();
  experts.count = count;
  experts.choices = keys.integer(prefix + "expert_used_count", 1, std::min(count, model::kMaxChoices));
  experts.beside_mlp = config.family == Family::kGemma4;
  experts.width = config.intermediate_size;
  if (names_width_of_experts(config.family)) {
    experts.width = keys.integer(prefix + "expert_feed_forward_length", 1, kMostOfAKind, width_of_experts(config));
  }
  read_shared_expert(keys, prefix, config);
  read_lone_experts(keys, prefix, config);
  read_choice(keys, prefix, config);
  if (counts_leading_blocks(config.family)) {
    const std::uint32_t leading = keys.integer(prefix + "leading_dense_block_count", 0, config.num_layers, 0);
    experts.dense_blocks.assign(config.num_layers, false);
    std::fill_n(experts.dense_blocks.begin(), leading, true);
  }
  if (config.family == Family::kErnie45Moe &&
      keys.integer(prefix + "interleave_moe_layer_step", 0, kMostOfAKind, 1) > 1) {
    keys.refuse(prefix + "interleave_moe_layer_step",
                "layers without experts behind others are not supported; expected 1");
  }
  if (config.latent_attention) config.family = family_by_scores(config);
  if (config.family != Family::kGptOss) return;
  config.intermediate_size = experts.width;  // all blocks have experts
  experts.clamped.emplace();
}

}  // namespace rondo::gguf
