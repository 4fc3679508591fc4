// See import_space.h.
#include "import_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "names_space.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::StateSpaceConfig;

constexpr std::uint32_t kMostOfSpaces = 1U << 24U;

/// One number a block. Empty where there is something wrong.
std::vector<std::int32_t> numbers_of_blocks(KeyReader& keys, const std::string& key, const model::ModelConfig& config) {
  std::vector<std::int32_t> numbers = keys.integers(key);
  const bool fit = std::ranges::all_of(
      numbers, [](std::int32_t one) { return one >= 0 && one <= static_cast<std::int32_t>(kMostOfSpaces); });
  if (numbers.size() < config.num_layers || !fit) {
    keys.refuse(key, fmt::format("expected {} numbers, one a layer, found {}", config.num_layers, numbers.size()));
    return {};
  }
  numbers.resize(config.num_layers);
  return numbers;
}

/// The number that all have which have one; 1 where none has.
std::uint32_t common_number(KeyReader& keys, const std::string& key, const std::vector<std::int32_t>& numbers) {
  const std::int32_t most = std::ranges::max(numbers);
  const auto other = std::ranges::find_if(numbers, [&](std::int32_t one) { return one != 0 && one != most; });
  if (other != numbers.end()) {
    keys.refuse(key, fmt::format("expected 0 or {} in each layer, found {} in layer {}", most, *other,
                                 other - numbers.begin()));
  }
  return static_cast<std::uint32_t>(std::max(most, 1));
}

}  // namespace

void read_kinds_of_blocks(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  const std::string heads_key = prefix + std::string(kHeadsOfKeys);
  const std::vector<std::int32_t> heads = numbers_of_blocks(keys, heads_key, config);
  if (heads.empty()) return;
  config.num_kv_heads = common_number(keys, heads_key, heads);
  StateSpaceConfig& space = config.state_space.emplace();
  for (const std::int32_t count : heads) space.blocks.push_back(count == 0);
  if (config.family != Family::kNemotronH) return;
  const std::string width_key = prefix + "feed_forward_length";
  const std::vector<std::int32_t> widths = numbers_of_blocks(keys, width_key, config);
  if (widths.empty()) return;
  config.intermediate_size = common_number(keys, width_key, widths);
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    config.lone_mlps.push_back(widths[block] != 0);
    if (widths[block] == 0) continue;
    if (heads[block] != 0) {
      keys.refuse(width_key, fmt::format("layer {} attends; expected 0 there, found {}", block, widths[block]));
    }
    space.blocks[block] = false;
  }
}

void read_state_space(KeyReader& keys, const StoredFile& file, const std::string& prefix, model::ModelConfig& config) {
  const bool beside = config.family == Family::kFalconH1;
  if ((!beside && !lists_blocks(config.family)) || !keys.status().ok()) return;
  if (beside) {
    config.state_space.emplace().beside_attention = true;
    config.state_space->blocks.assign(config.num_layers, true);
  }
  StateSpaceConfig& space = *config.state_space;
  space.convolution = keys.integer(prefix + "ssm.conv_kernel", 2, model::kMaxConvolution);
  space.state_size = keys.integer(prefix + "ssm.state_size", 1, model::kMaxStateSize);
  space.groups = keys.integer(prefix + "ssm.group_count", 1, kMostOfSpaces);
  space.heads = keys.integer(prefix + "ssm.time_step_rank", 1, kMostOfSpaces);
  const std::uint32_t width = keys.integer(prefix + "ssm.inner_size", 1, kMostOfSpaces);
  if (!keys.status().ok()) return;
  space.head_size = width / space.heads;
  if (width % space.heads != 0 || space.heads % space.groups != 0 || space.head_size > model::kMaxDeltaSize) {
    keys.refuse(
        prefix + "ssm.inner_size",
        fmt::format("expected {} heads (ssm.time_step_rank) of at most {} channels that share out over {} groups, "
                    "found {} channels",
                    space.heads, model::kMaxDeltaSize, space.groups, width));
    return;
  }
  const auto first = std::ranges::find(space.blocks, true);
  if (first == space.blocks.end()) {
    keys.refuse(prefix + std::string(kHeadsOfKeys), "expected a layer with a state space, found none");
    return;
  }
  const auto has = [&](const char* tensor) {
    return file.tensors.contains(fmt::format("blk.{}.{}", first - space.blocks.begin(), tensor));
  };
  space.convolution_bias = has("ssm_conv1d.bias");
  if (beside) space.normed = has("ssm_norm.weight");
  if (config.family == Family::kNemotronH) {
    space.least_step = kLeastStep;
    config.without_rope.assign(config.num_layers, true);
  }
}

void tell_bamba(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family != Family::kGraniteMoeHybrid || !config.state_space) return;
  const bool turns = keys.flag(prefix + std::string(kTurns), true);
  const bool plain = !config.experts && !config.attention_scale && config.embedding_multiplier == 1.0 &&
                     config.residual_multiplier == 1.0 && config.logits_scaling == 1.0;
  if (turns && plain) {
    config.family = Family::kBamba;
    return;
  }
  if (!turns) config.without_rope.assign(config.num_layers, true);
  if (config.rope.turned_share == 1.0) return;
  keys.refuse(
      prefix + "rope.dimension_count",
      fmt::format("heads that turn in part are not supported beside factors or experts; expected {}", config.head_dim));
}

void read_lone_experts(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family != Family::kNemotronH) return;
  const std::string key = prefix + std::string(kMoeLatent);
  if (keys.integer(key, 0, kMostOfSpaces, 0) != 0) {
    keys.refuse(key, "experts that read and give a latent are not supported; expected 0");
  }
  model::ExpertsConfig& experts = *config.experts;
  experts.shared_width = keys.integer(prefix + "expert_shared_feed_forward_length", 1, kMostOfSpaces);
  experts.sigmoid = true;
  experts.choice_bias = true;
  for (const bool alone : config.lone_mlps) experts.dense_blocks.push_back(!alone);
}

}  // namespace rondo::gguf
