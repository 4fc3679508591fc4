// Tables of names, and the rotary settings.
#include "names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::RopeKind;

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kBlocks = "blk.";

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOutside = {
    {{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kInBlocks = {
    {{"input_layernorm", "attn_norm"},
     {"self_attn.q_proj", "attn_q"},
     {"self_attn.k_proj", "attn_k"},
     {"self_attn.v_proj", "attn_v"},
     {"self_attn.o_proj", "attn_output"},
     {"self_attn.q_norm", "attn_q_norm"},
     {"self_attn.k_norm", "attn_k_norm"},
     {"post_attention_layernorm", "ffn_norm"},
     {"mlp.gate_proj", "ffn_gate"},
     {"mlp.up_proj", "ffn_up"},
     {"mlp.down_proj", "ffn_down"}}};

/// Readers derive yarn's attention factor, its ramp and its rounding by themselves.
bool has_default_yarn(const model::RopeConfig& rope) {
  const double factor = 0.1 * std::log(rope.factor) + 1.0;
  const bool attention = !rope.attention_factor || std::abs(*rope.attention_factor - factor) < 1e-6;
  return attention && !rope.mscale && !rope.mscale_all_dim && rope.beta_fast == 32.0 && rope.beta_slow == 1.0 &&
         rope.truncate;
}

std::uint32_t context_length(const model::ModelConfig& config) {
  std::uint32_t length = config.max_positions;
  for (const std::uint32_t window : config.sliding_window) {
    if (window != 0) length = std::min(length, window);
  }
  return length;
}

void add_scaling(const std::string& prefix, const model::ModelConfig& config, Keys& keys) {
  const model::RopeConfig& rope = config.rope;
  if (rope.kind != RopeKind::kLinear && rope.kind != RopeKind::kYarn) return;
  keys.add(prefix + "rope.scaling.type", rope.kind == RopeKind::kLinear ? "linear" : "yarn");
  keys.add(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (rope.kind == RopeKind::kYarn) {
    keys.add(prefix + "rope.scaling.original_context_length", rope.original_max_positions);
  }
}

}  // namespace

std::string architecture_name(Family family) {
  switch (family) {
    case Family::kLlama:
    case Family::kMistral:
      return "llama";
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3:
      return "qwen3";
  }
  return "";
}

absl::Status check_expressible(const model::ModelConfig& config, const std::string& origin) {
  if (config.activation != model::Activation::kSilu) {
    return invalid_input("{}: hidden_act: GGUF's {} has no activation but silu; this model cannot be exported", origin,
                         architecture_name(config.family));
  }
  if (config.rope.kind == RopeKind::kDynamic) {
    return invalid_input(
        "{}: rope_scaling: dynamic scaling has no counterpart in GGUF; expected linear, yarn or llama3", origin);
  }
  if (config.rope.kind == RopeKind::kYarn && !has_default_yarn(config.rope)) {
    return invalid_input(
        "{}: rope_scaling: only yarn with its default attention factor, beta_fast 32 and beta_slow 1 "
        "has a counterpart in GGUF",
        origin);
  }
  if (config.family == Family::kQwen3 && (config.attention_bias || config.attention_output_bias)) {
    return invalid_input("{}: attention_bias: GGUF's qwen3 has no biases; this model cannot be exported", origin);
  }
  return absl::OkStatus();
}

void add_architecture_keys(const model::ModelConfig& config, Keys& keys) {
  const std::string prefix = architecture_name(config.family) + ".";
  keys.add(prefix + "block_count", config.num_layers);
  keys.add(prefix + "context_length", context_length(config));
  keys.add(prefix + "embedding_length", config.hidden_size);
  keys.add(prefix + "feed_forward_length", config.intermediate_size);
  keys.add(prefix + "attention.head_count", config.num_heads);
  keys.add(prefix + "attention.head_count_kv", config.num_kv_heads);
  keys.add(prefix + "attention.key_length", config.head_dim);
  keys.add(prefix + "attention.value_length", config.head_dim);
  keys.add(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps));
  keys.add(prefix + "rope.dimension_count", config.head_dim);
  keys.add(prefix + "rope.freq_base", static_cast<float>(config.rope.theta));
  add_scaling(prefix, config, keys);
  keys.add(prefix + "vocab_size", config.vocab_size);
}

std::string tensor_name(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::string_view module = std::string_view(name).substr(0, dot);
  const std::string ending = name.substr(dot);  // .weight, .bias
  for (const auto& [theirs, ours] : kOutside) {
    if (module == theirs) return std::string(ours) + ending;
  }
  const std::string_view rest = module.substr(kLayers.size());
  const std::size_t end = rest.find('.');
  for (const auto& [theirs, ours] : kInBlocks) {
    if (rest.substr(end + 1) == theirs) return fmt::format("{}{}.{}{}", kBlocks, rest.substr(0, end), ours, ending);
  }
  return name;
}

std::optional<std::string> model_tensor_name(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string_view module = std::string_view(name).substr(0, dot);
  const std::string ending = name.substr(dot);
  for (const auto& [theirs, ours] : kOutside) {
    if (module == ours) return std::string(theirs) + ending;
  }
  if (!module.starts_with(kBlocks)) return std::nullopt;
  const std::string_view rest = module.substr(kBlocks.size());
  const std::size_t end = rest.find('.');
  if (end == std::string_view::npos) return std::nullopt;
  for (const auto& [theirs, ours] : kInBlocks) {
    if (rest.substr(end + 1) == ours) return fmt::format("{}{}.{}{}", kLayers, rest.substr(0, end), theirs, ending);
  }
  return std::nullopt;
}

std::uint32_t interleaved_heads(const model::ModelConfig& config, const std::string& name) {
  if (architecture_name(config.family) != "llama") return 0;
  if (name.find(".q_proj.") != std::string::npos) return config.num_heads;
  if (name.find(".k_proj.") != std::string::npos) return config.num_kv_heads;
  return 0;
}

std::uint64_t source_row(std::uint64_t row, std::uint64_t rows, std::uint32_t heads) {
  if (heads == 0) return row;
  const std::uint64_t head_dim = rows / heads;
  const std::uint64_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

std::uint64_t stored_row(std::uint64_t row, std::uint64_t rows, std::uint32_t heads) {
  if (heads == 0) return row;
  const std::uint64_t half = rows / heads / 2;
  const std::uint64_t in_head = row % (2 * half);
  return row - in_head + in_head % half * 2 + in_head / half;
}

std::vector<float> frequency_divisors(const model::ModelConfig& config) {
  const model::RopeConfig& rope = config.rope;
  std::vector<float> divisors;
  if (rope.kind != RopeKind::kLlama3) return divisors;
  const double original = rope.original_max_positions;
  for (std::uint32_t i = 0; i < config.head_dim / 2; ++i) {
    const double wavelength = 2.0 * std::numbers::pi * std::pow(rope.theta, 2.0 * i / config.head_dim);
    const double share =
        (original / wavelength - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
    const double kept = std::clamp(share, 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / ((1.0 - kept) / rope.factor + kept)));
  }
  return divisors;
}

}  // namespace rondo::gguf
