// See names_linear.h.
#include "names_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "names.h"
#include "names_latent.h"

namespace rondo::gguf {
namespace {

using model::LinearAttentionConfig;

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kModules = {
    {{"in_proj_qkv", "attn_qkv"},
     {"in_proj_z", "attn_gate"},
     {"z_proj", "attn_gate"},  // Qwen3-Next's part
     {"in_proj_b", "ssm_beta"},
     {"in_proj_a", "ssm_alpha"},
     {"in_proj_ba", "ssm_ba"},
     {"conv1d", "ssm_conv1d"},
     {"norm", "ssm_norm"},
     {"out_proj", "ssm_out"}}};

constexpr std::string_view kByTurns = ".in_proj_qkvz";
constexpr std::string_view kBehind = ".in_proj_qkv";
constexpr std::string_view kApart = ".shared_mlp.input_linear";
constexpr std::size_t kPartsBehind = 3;  // q, k and v

bool has_module(const LinearAttentionConfig& linear, std::string_view theirs) {
  const bool of_next = theirs == "z_proj" || theirs == "in_proj_ba";
  const bool of_others = theirs == "in_proj_z" || theirs == "in_proj_b" || theirs == "in_proj_a";
  return linear.joined_by_heads ? !of_others : !of_next;
}

}  // namespace

bool has_linear_attention(model::Family family) {
  using model::Family;
  return family == Family::kQwen35 || family == Family::kQwen35Moe || family == Family::kQwen3Next;
}

bool for_names_of_linear_attention(const model::ModelConfig& config,
                                   const std::function<bool(std::string_view, std::string_view)>& fn) {
  return std::ranges::any_of(kModules, [&](const auto& names) {
    return has_module(*config.linear_attention, names.first) &&
           fn(fmt::format("linear_attn.{}", names.first), names.second);
  });
}

bool is_decay(const std::string& name) { return name.ends_with(".A_log"); }

std::uint32_t full_attention_interval(const LinearAttentionConfig& linear) {
  const auto first = std::ranges::find(linear.blocks, false);
  const auto interval = static_cast<std::uint32_t>(first - linear.blocks.begin()) + 1;
  for (std::uint32_t block = 0; block < linear.blocks.size(); ++block) {
    if (linear.blocks[block] != ((block + 1) % interval != 0)) return 0;
  }
  return interval;
}

Complaint complaint_of_linear_attention(const model::ModelConfig& config) {
  if (!config.linear_attention) return std::nullopt;
  if (full_attention_interval(*config.linear_attention) == 0) {
    return {{"layer_types", "GGUF's readers have full attention in each so-many-th layer"}};
  }
  if (config.linear_attention->key_size != config.linear_attention->value_size) {
    return {{"linear_value_head_dim", "GGUF's readers have heads of values as wide as those of keys"}};
  }
  return std::nullopt;
}

void add_linear_attention_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  if (!config.linear_attention) return;
  const LinearAttentionConfig& linear = *config.linear_attention;
  keys.add(prefix + "ssm.conv_kernel", linear.convolution);
  keys.add(prefix + "ssm.state_size", linear.key_size);
  keys.add(prefix + "ssm.group_count", linear.key_heads);
  keys.add(prefix + "ssm.time_step_rank", linear.value_heads);
  keys.add(prefix + "ssm.inner_size", linear.value_width());
  keys.add(prefix + "full_attention_interval", full_attention_interval(linear));
  if (linear.joined_by_heads) return;
  // Which pairs of channels turn by time, height and width, by turns; all by the same position where there is text.
  const auto pairs = static_cast<std::int32_t>(model::turned_channels(config, config.rope) / 2);
  keys.add(prefix + "rope.dimension_sections",
           std::vector<std::int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

std::vector<model::JoinedTensor> joined_as_in_files(std::vector<model::JoinedTensor> joined) {
  std::erase_if(joined, [](const model::JoinedTensor& tensor) {
    return tensor.name.find(kApart) != std::string::npos || is_of_both(tensor.name);
  });
  for (model::JoinedTensor& tensor : joined) {
    const std::size_t found = tensor.name.find(kByTurns);
    if (found == std::string::npos) continue;
    tensor.name.replace(found, kByTurns.size(), kBehind);
    tensor.parts.resize(kPartsBehind);
    tensor.turns = 1;
  }
  return joined;
}

std::vector<model::LinearModule> layers_in_files(const model::LinearModule& linear) {
  if (linear.path.ends_with(kApart)) return linear.parts;
  if (!linear.path.ends_with(kByTurns)) return {linear};
  model::LinearModule behind = linear;
  behind.path.replace(behind.path.size() - kByTurns.size(), kByTurns.size(), kBehind);
  return {behind, linear.parts.back()};
}

}  // namespace rondo::gguf
