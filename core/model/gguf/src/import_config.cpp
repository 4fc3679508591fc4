// What is read here is written out as a config.json and read again by the room `model_files`: its limits hold too.
#include "import_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "architectures.h"
#include "import_experts.h"
#include "import_gemma4.h"
#include "import_latent.h"
#include "import_space.h"
#include "key_reader.h"
#include "names.h"
#include "names_latent.h"
#include "names_linear.h"
#include "names_space.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::RopeKind;

constexpr std::uint32_t kMaxSize = 1U << 24U;
constexpr std::uint32_t kMaxPositions = 0x7fffffffU;
constexpr std::uint32_t kMaxToken = 1U << 26U;

/// What readers take as different models under an architecture's name.
void refuse_unsupported(KeyReader& keys, const std::string& prefix) {
  if (const std::string kind = keys.text("general.type", "model"); kind != "model") {
    keys.refuse("general.type", fmt::format("expected model, found {}", name_in_quotes(kind)));
  }
  if (keys.integer("split.count", 0, kMaxSize, 0) > 1) {
    keys.refuse("split.count", "a file of several parts is not supported; join the parts first");
  }
  const bool granite = prefix == "granite." || prefix == "granitemoe.";
  if (!keys.flag(prefix + "attention.causal", true)) {
    keys.refuse(prefix + "attention.causal", "attention to what follows is not supported; expected true");
  }
  // Granite's name for a model without rotary embedding.
  if (granite && !keys.flag(prefix + "rope.scaling.finetuned", true)) {
    keys.refuse(prefix + "rope.scaling.finetuned", "layers without rotary embedding are not supported; expected true");
  }
  for (const char* scale :
       {"attention.scale", "logit_scale", "embedding_scale", "residual_scale", "final_logit_softcapping"}) {
    const bool caps = std::string_view(scale) == "final_logit_softcapping";
    const bool known = caps ? prefix == "gemma2." || prefix == "gemma4." : granite || prefix == "granitehybrid.";
    if (!known && keys.number(prefix + scale, 0.0, 1e6, 0.0) != 0.0) {
      keys.refuse(prefix + scale, "scaled activations are not supported; expected none");
    }
  }
}

/// The least share of which the whole, rounded down, gives `part`.
double share_of(std::uint32_t part, std::uint32_t whole) {
  const double share = static_cast<double>(part) / whole;
  return share * whole < part ? std::nextafter(share, 1.0) : share;
}

/// A list has 0 for each block that has a convolution; a number is that of all blocks.
void read_convolutions(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  model::ShortConvolutionConfig& convolution = config.short_convolution.emplace();
  convolution.width = keys.integer(prefix + "shortconv.l_cache", 2, model::kMaxConvolution);
  convolution.blocks.assign(config.num_layers, false);
  const std::string key = prefix + "attention.head_count_kv";
  if (!keys.is_list(key)) {
    config.num_kv_heads = keys.integer(key, 1, kMaxSize, config.num_heads);
    return;
  }
  const std::vector<std::int32_t> heads = keys.integers(key);
  if (heads.size() != config.num_layers) {
    keys.refuse(key, fmt::format("expected {}, one a layer, found {}", config.num_layers, heads.size()));
    return;
  }
  const std::int32_t most = std::ranges::max(heads);
  config.num_kv_heads = static_cast<std::uint32_t>(std::max(most, 1));
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    convolution.blocks[block] = heads[block] == 0;
    if (heads[block] == 0 || heads[block] == most) continue;
    keys.refuse(key, fmt::format("expected 0 or {} in each layer, found {} in layer {}", most, heads[block], block));
    return;
  }
}

/// The blocks of which it is not so are each so-many-th, or a list says which.
void read_linear_attention(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (!has_linear_attention(config.family)) return;
  model::LinearAttentionConfig& linear = config.linear_attention.emplace();
  linear.convolution = keys.integer(prefix + "ssm.conv_kernel", 2, model::kMaxConvolution);
  linear.key_size = keys.integer(prefix + "ssm.state_size", 1, model::kMaxDeltaSize);
  linear.value_size = linear.key_size;
  linear.key_heads = keys.integer(prefix + "ssm.group_count", 1, kMaxSize);
  linear.value_heads = keys.integer(prefix + "ssm.time_step_rank", 1, kMaxSize);
  linear.joined_by_heads = config.family == Family::kQwen3Next;
  const std::uint64_t width = std::uint64_t{linear.value_heads} * linear.value_size;
  const std::uint64_t found = keys.integer(prefix + "ssm.inner_size", 1, 0xffffffffU);
  if (found != width) {
    keys.refuse(prefix + "ssm.inner_size", fmt::format("expected {}, {} heads of {}, found {}", width,
                                                       linear.value_heads, linear.value_size, found));
  }
  const std::string key = prefix + "attention.recurrent_layers";
  linear.blocks = keys.flags(key);
  if (!linear.blocks.empty()) {
    if (linear.blocks.size() < config.num_layers) {
      keys.refuse(key, fmt::format("expected {}, one a layer, found {}", config.num_layers, linear.blocks.size()));
    }
    linear.blocks.resize(config.num_layers);
    return;
  }
  const std::uint32_t interval = keys.integer(prefix + "full_attention_interval", 1, kMaxSize, 4);
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    linear.blocks.push_back((block + 1) % interval != 0);
  }
}

/// How many heads of keys there are, and how wide all are.
void read_heads(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family == Family::kLfm2 || config.family == Family::kLfm2Moe) {
    read_convolutions(keys, prefix, config);
  } else if (config.state_space || config.family == Family::kNemotronH) {
    read_kinds_of_blocks(keys, prefix, config);
  } else {
    config.num_kv_heads = keys.integer(prefix + "attention.head_count_kv", 1, kMaxSize, config.num_heads);
  }
  const std::uint32_t derived = std::max<std::uint32_t>(config.hidden_size / config.num_heads, 1);
  config.head_dim = keys.integer(prefix + "attention.key_length", 1, kMaxSize, derived);
  for (const char* same : {"attention.value_length", "rope.dimension_count"}) {
    const std::uint32_t found = keys.integer(prefix + same, 1, kMaxSize, config.head_dim);
    const bool turns = same == std::string_view("rope.dimension_count");
    if (found == config.head_dim || (turns && config.family == Family::kNemotronH)) continue;  // which does not turn
    const bool turns_in_part = config.family == Family::kPhi3 || config.family == Family::kGlm ||
                               config.family == Family::kGlm4 || config.family == Family::kGlm4Moe ||
                               config.family == Family::kNemotron || config.family == Family::kGraniteMoeHybrid ||
                               has_linear_attention(config.family);
    if (turns_in_part && turns && found < config.head_dim) {
      config.rope.turned_share = share_of(found, config.head_dim);
      continue;
    }
    keys.refuse(prefix + same, fmt::format("expected {}, the width of a head, found {}", config.head_dim, found));
  }
}

/// Nemotron-H's files may have the other one alone.
void read_epsilon(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  const std::string own = prefix + epsilon_key(config.family);
  const bool other = config.family == Family::kNemotronH && !keys.has(own);
  config.rms_norm_eps = keys.number(other ? prefix + epsilon_key(Family::kNemotron) : own, 0.0, 1.0);
}

void read_sizes(KeyReader& keys, const StoredFile& file, const std::string& prefix, model::ModelConfig& config) {
  config.num_layers = keys.integer(prefix + "block_count", 1, 10'000);
  if (config.family == Family::kGlm4Moe || config.family == Family::kNemotronH || has_linear_attention(config.family) ||
      has_latent_attention(config.family)) {
    // The last ones predict further tokens.
    const std::uint32_t most = std::min(config.num_layers - 1, 1U);
    config.num_layers -= keys.integer(prefix + "nextn_predict_layers", 0, most, 0);
  }
  config.max_positions = keys.integer(prefix + "context_length", 1, kMaxPositions);
  config.hidden_size = keys.integer(prefix + "embedding_length", 1, kMaxSize);
  const std::optional<std::uint32_t> no_mlp = config.family == Family::kQwen35Moe ? std::optional(0U) : std::nullopt;
  const std::string width_key = prefix + "feed_forward_length";
  const bool by_layer =
      (config.family == Family::kGemma4 && keys.is_list(width_key)) || config.family == Family::kNemotronH;
  if (!by_layer) config.intermediate_size = keys.integer(width_key, no_mlp ? 0 : 1, kMaxSize, no_mlp);
  config.num_heads = keys.integer(prefix + "attention.head_count", 1, kMaxSize);
  if (config.family == Family::kGemma4) {
    read_gemma4(keys, file, prefix, config);
  } else if (has_latent_attention(config.family)) {
    read_latent_attention(keys, prefix, config);
  } else {
    read_heads(keys, prefix, config);
  }
  read_epsilon(keys, prefix, config);
  read_state_space(keys, file, prefix, config);
  read_linear_attention(keys, prefix, config);
}

/// Nothing in text depends on them, but what is exported again has to say them.
void read_picture_turns(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (!config.picture_turns) return;
  model::PictureTurns& turns = *config.picture_turns;
  const std::string key = prefix + std::string(kPairsByCoordinate);
  const std::vector<std::int32_t> pairs = keys.integers(key);
  constexpr std::int32_t kMost = 1 << 16;
  const bool fit = std::ranges::all_of(pairs, [](std::int32_t count) { return count >= 0 && count <= kMost; });
  if (!fit || pairs.size() < turns.pairs.size()) {
    keys.refuse(key, fmt::format("expected {} numbers from 0 to {}", turns.pairs.size(), kMost));
    return;
  }
  const auto others = std::span(pairs).subspan(turns.pairs.size());
  if (std::ranges::any_of(others, [](std::int32_t count) { return count != 0; })) {
    keys.refuse(key, "turns by a fourth coordinate are not supported; expected 0 of them");
  }
  for (std::size_t i = 0; i < turns.pairs.size(); ++i) turns.pairs[i] = static_cast<std::uint32_t>(pairs[i]);
  if (config.family != Family::kQwen2) {
    turns.deep_blocks = keys.integer(prefix + std::string(kDeepBlocks), 0, config.num_layers, 0);
  }
}

/// What goes with the tensors of read_long_factors().
void read_long_scaling(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  const std::string kind = keys.text(prefix + "rope.scaling.type", "none");
  if (kind != "none" && kind != "longrope") {
    keys.refuse(prefix + "rope.scaling.type",
                fmt::format("{} is not supported; supported: none, longrope", name_in_quotes(kind)));
  }
  config.rope.original_max_positions =
      keys.integer(prefix + "rope.scaling.original_context_length", 1, kMaxPositions, config.max_positions);
  config.rope.attention_factor = keys.number(prefix + "rope.scaling.attn_factor", 0.0, 1e6, 1.0);
}

/// What mistral3's readers divide the attention factor by; 0 counts as absent.
void read_log_multiplier(KeyReader& keys, const std::string& key, model::RopeConfig& rope) {
  const double multiplier = keys.number(key, 0.0, 1e6);
  if (multiplier == 0.0) return;
  if (rope.attention_factor) keys.refuse(key, "expected no rope.scaling.attn_factor beside it");
  rope.mscale = 1.0;
  rope.mscale_all_dim = multiplier;
}

/// Under mistral3's name a model whose queries do not grow is a Mistral.
void read_query_growth(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family != Family::kMinistral3) return;
  const double rate = keys.number(prefix + "attention.temperature_scale", 0.0, 1e6, 0.0);
  if (rate == 0.0) {
    config.family = Family::kMistral;
    return;
  }
  const std::uint32_t from =
      keys.integer(prefix + "rope.scaling.original_context_length", 1, kMaxPositions, config.max_positions);
  config.rope.query_growth = model::QueryGrowth{.rate = rate, .from = from};
}

void read_scaling(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  model::RopeConfig& rope = config.rope;
  rope.theta = keys.number(prefix + "rope.freq_base", 1.0, 1e18, 10000.0);
  if (config.family == Family::kPhi3) return read_long_scaling(keys, prefix, config);
  // Readers take a factor without a kind for linear, and know it by an older name too; 0 counts as absent.
  const std::string kind = keys.text(prefix + "rope.scaling.type", "linear");
  const bool older = keys.has(prefix + "rope.scale_linear") && !keys.has(prefix + "rope.scaling.factor");
  const std::string named = prefix + (older ? "rope.scale_linear" : "rope.scaling.factor");
  const double factor = keys.number(named, 0.0, 1e6, 0.0);
  if (kind == "linear") {
    if (factor != 0.0 && factor < 1.0) keys.refuse(named, fmt::format("expected at least 1, found {:g}", factor));
    rope.kind = factor > 1.0 ? RopeKind::kLinear : RopeKind::kDefault;
  } else if (kind == "yarn") {
    rope.kind = RopeKind::kYarn;
    rope.original_max_positions =
        keys.integer(prefix + "rope.scaling.original_context_length", 1, kMaxPositions, config.max_positions);
    const double attention = keys.number(prefix + "rope.scaling.attn_factor", 0.0, 1e6, 1.0);
    if (factor < 1.0) keys.refuse(prefix + "rope.scaling.factor", "expected at least 1, as yarn needs");
    rope.truncate = truncates_yarn(config.family);
    rope.beta_fast = keys.number(prefix + "rope.scaling.yarn_beta_fast", 1e-3, 1e6, rope.beta_fast);
    rope.beta_slow = keys.number(prefix + "rope.scaling.yarn_beta_slow", 1e-3, 1e6, rope.beta_slow);
    if (attention != 1.0) rope.attention_factor = attention * (0.1 * std::log(std::max(factor, 1.0)) + 1.0);
    if (config.latent_attention) read_tenth_of_mscale(keys, prefix, factor, config);
    for (const char* own : {"yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"}) {
      const std::string key = prefix + "rope.scaling." + own;
      if (!keys.has(key)) continue;
      if (config.latent_attention && kLogMultiplier.ends_with(own)) continue;
      if (config.family == Family::kMinistral3 && own == std::string_view("yarn_log_multiplier")) {
        read_log_multiplier(keys, key, rope);
      } else {
        keys.refuse(key, "yarn with settings of its own is not supported");
      }
    }
  } else if (kind != "none") {
    keys.refuse(prefix + "rope.scaling.type",
                fmt::format("{} is not supported; supported: none, linear, yarn", name_in_quotes(kind)));
  }
  if (factor >= 1.0) rope.factor = factor;
}

/// Gemma 2's caps. Granite's factors; 0 counts as absent.
void read_factors(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family == Family::kGemma4) {  // 0: none
    config.logits_cap = keys.number(prefix + "final_logit_softcapping", 0.0, 1e6, kLogitsCap);
  }
  if (config.family == Family::kGemma2) {
    config.attention_cap = keys.number(prefix + "attn_logit_softcapping", 1e-3, 1e6, kAttentionCap);
    config.logits_cap = keys.number(prefix + "final_logit_softcapping", 1e-3, 1e6, kLogitsCap);
  }
  if (!has_factors(config.family)) return;
  const auto factor = [&](const char* name) { return keys.number(prefix + name, 0.0, 1e6, 0.0); };
  if (const double scale = factor("attention.scale"); scale != 0.0) config.attention_scale = scale;
  for (const auto& [name, value] :
       {std::pair("embedding_scale", &config.embedding_multiplier),
        std::pair("residual_scale", &config.residual_multiplier), std::pair("logit_scale", &config.logits_scaling)}) {
    if (const double found = factor(name); found != 0.0) *value = found;
  }
}

/// Layers of Gemma 2 and 3, OLMo 3 and GPT-OSS slide in the pattern of the architecture, unless a list says which do.
void read_pattern(KeyReader& keys, const std::string& prefix, std::uint32_t window, model::ModelConfig& config) {
  const std::string key = prefix + "attention.sliding_window_pattern";
  const std::vector<bool> slides = keys.flags(key);
  if (!slides.empty() && slides.size() != config.num_layers) {
    keys.refuse(key, fmt::format("expected {}, one a layer, found {}", config.num_layers, slides.size()));
    return;
  }
  const std::uint32_t pattern = window_pattern(config.family);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const bool here = slides.empty() ? (layer + 1) % pattern != 0 : slides[layer];
    config.sliding_window[layer] = here ? window : 0;
  }
  if (config.family == Family::kGptOss || config.family == Family::kGemma2) return;  // all rotate alike
  config.window_rope.emplace().theta =
      keys.number(prefix + "rope.freq_base_swa", 1.0, 1e18, usual_window_theta(config));
}

/// EXAONE 4: where layers slide, those that see all have no rotary embedding.
void read_turned_windows(KeyReader& keys, const std::string& prefix, std::uint32_t window, model::ModelConfig& config) {
  if ((window != 0) != (config.num_layers == kLayersOfSlidingExaone4)) {
    keys.refuse(prefix + "attention.sliding_window",
                fmt::format("expected one in {} layers and in no other number, as readers have it; found {} in {}",
                            kLayersOfSlidingExaone4, window, config.num_layers));
  }
  if (window == 0) return;
  read_pattern(keys, prefix, window, config);
  config.window_rope.reset();  // all turn alike
  for (const std::uint32_t here : config.sliding_window) config.without_rope.push_back(here == 0);
}

void read_window(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  if (config.family == Family::kGemma4) {  // the windows came with the heads
    config.window_rope.emplace().theta = keys.number(prefix + "rope.freq_base_swa", 1.0, 1e18, config.rope.theta);
    return;
  }
  const std::string key = prefix + "attention.sliding_window";
  const bool always = config.family == Family::kGemma2;
  const std::uint32_t window = keys.integer(key, always ? 1 : 0, kMaxPositions, always ? kWindowOfGemma2 : 0);
  if (window != 0 && config.family == Family::kOlmo2) config.family = Family::kOlmo3;
  if (window_pattern(config.family) != 0) {
    config.sliding_window.assign(config.num_layers, 0);
    if (config.family == Family::kExaone4) return read_turned_windows(keys, prefix, window, config);
    if (window != 0) return read_pattern(keys, prefix, window, config);
    if (config.family == Family::kGptOss) return;
    config.window_rope.emplace().theta = usual_window_theta(config);
    return;
  }
  config.sliding_window.assign(config.num_layers, window < config.max_positions ? window : 0);
  if (window == 0 || window >= config.max_positions) return;
  if (config.family == Family::kPhi3) return;  // all do
  if (config.family != Family::kLlama) {
    keys.refuse(key, "which layers slide is not known from the file; expected none to do so");
    return;
  }
  config.family = Family::kMistral;
}

/// All of them, those of each kind in one tensor a block.
bool has_experts_in_mxfp4(const StoredFile& file, const model::ModelConfig& config) {
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    for (const char* kind : {"gate", "up", "down"}) {
      const auto found = file.tensors.find(fmt::format("blk.{}.ffn_{}_exps.weight", block, kind));
      if (found == file.tensors.end() || found->second.coding->name != "mxfp4") return false;
    }
  }
  return true;
}

/// Which optional tensors the file has says which features the model has.
void read_features(const StoredFile& file, model::ModelConfig& config) {
  const auto has = [&](const char* name) { return file.tensors.contains(std::string_view(name)); };
  config.tie_word_embeddings = !has("output.weight");
  config.activation = usual_activation(config.family);
  if (config.family == Family::kQwen2Moe) config.attention_bias = has("blk.0.attn_q.bias");
  if (config.family == Family::kGptOss) {
    config.attention_bias = has("blk.0.attn_q.bias");
    config.experts->mxfp4 = has_experts_in_mxfp4(file, config);
  }
  if (config.family == Family::kSeedOss || config.family == Family::kGlm || config.family == Family::kGlm4 ||
      config.family == Family::kGlm4Moe)
    config.attention_bias = has("blk.0.attn_q.bias");
  if (config.family == Family::kGlm4Moe && has("blk.0.attn_q_norm.weight")) config.qk_norm = model::QkNorm::kHead;
  if (config.state_space) {
    const auto attends = [&](std::uint32_t block) {
      return config.state_space->beside_attention || !config.state_space->blocks[block];
    };
    for (std::uint32_t block = 0; block < config.num_layers && config.family != Family::kNemotronH; ++block) {
      if (!attends(block)) continue;
      config.attention_bias = file.tensors.contains(fmt::format("blk.{}.attn_q.bias", block));
      config.attention_output_bias = config.attention_bias;
      break;
    }
    config.mlp_bias = has("blk.0.ffn_up.bias");
    return;
  }
  if (config.family == Family::kNemotron) {
    config.attention_bias = config.attention_output_bias = has("blk.0.attn_q.bias");
    config.mlp_bias = has("blk.0.ffn_up.bias");
  }
  if (config.family == Family::kLlama || config.family == Family::kSmolLm3 || has_factors(config.family)) {
    config.attention_bias = has("blk.0.attn_q.bias");
    config.attention_output_bias = config.attention_bias;
    config.mlp_bias = has("blk.0.ffn_gate.bias");
  }
}

void read_tokens(KeyReader& keys, model::ModelConfig& config) {
  const auto token = [&](const char* name) -> std::optional<std::int32_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!keys.has(key)) return std::nullopt;
    // Writers put an id of all ones where there is none.
    const std::uint32_t id = keys.integer(key, 0, 0xffffffffU);
    if (id == 0xffffffffU) return std::nullopt;
    if (id < config.vocab_size && id < kMaxToken) return static_cast<std::int32_t>(id);
    keys.refuse(key, fmt::format("expected a token below {}, found {}", config.vocab_size, id));
    return std::nullopt;
  };
  config.bos_token_id = token("bos");
  config.pad_token_id = token("padding");
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id = token(name);
    if (id && std::ranges::count(config.eos_token_ids, *id) == 0) config.eos_token_ids.push_back(*id);
  }
}

model::WeightType weight_type_of(const StoredTensor& tensor) {
  if (tensor.coding->name == "f32") return model::WeightType::kFloat32;
  return tensor.coding->name == "f16" ? model::WeightType::kFloat16 : model::WeightType::kBfloat16;
}

/// rope_freqs.weight, which llama's files have where frequencies are divided one by one.
absl::Status read_divisors(const StoredFile& file, model::ModelConfig& config) {
  if (config.global_heads) return read_still_frequencies(file, config);
  const auto found = file.tensors.find("rope_freqs.weight");
  if (found == file.tensors.end()) return absl::OkStatus();
  const StoredTensor& tensor = found->second;
  if (tensor.shape != std::vector<std::uint64_t>{config.head_dim / 2}) {
    return invalid_input("{}: tensor {}: expected [{}] numbers, half the width of a head", file.origin(), found->first,
                         config.head_dim / 2);
  }
  std::vector<float> divisors(config.head_dim / 2);
  decode_stretch(*tensor.coding, tensor.data, 0, divisors);
  const auto rope = rope_of_divisors(divisors, config.rope.theta, config.max_positions);
  if (rope && rope->kind != RopeKind::kDefault && config.rope.query_growth) {
    return invalid_input("{}: tensor {}: frequencies of a model whose queries grow are not divided; expected ones",
                         file.origin(), found->first);
  }
  if (!rope || (config.rope.kind != RopeKind::kDefault && rope->kind != RopeKind::kDefault)) {
    return invalid_input("{}: tensor {}: its divisors of frequencies are not those of a llama3 scaling", file.origin(),
                         found->first);
  }
  if (rope->kind != RopeKind::kDefault) config.rope = *rope;
  return absl::OkStatus();
}

/// The two tensors of factors, which phi3's files have where the model was stretched.
absl::Status read_long_factors(const StoredFile& file, model::ModelConfig& config) {
  if (config.family != Family::kPhi3) return absl::OkStatus();
  model::RopeConfig& rope = config.rope;
  const std::uint64_t count = model::turned_channels(config, rope) / 2;
  std::size_t found = 0;
  for (const auto& [name, factors] :
       {std::pair(kShortFactors, &rope.short_factors), std::pair(kLongFactors, &rope.long_factors)}) {
    const auto tensor = file.tensors.find(std::string_view(name));
    if (tensor == file.tensors.end()) continue;
    if (tensor->second.shape != std::vector<std::uint64_t>{count}) {
      return invalid_input("{}: tensor {}: expected [{}] numbers, one for each two channels that turn", file.origin(),
                           name, count);
    }
    std::vector<float> values(count);
    decode_stretch(*tensor->second.coding, tensor->second.data, 0, values);
    factors->assign(values.begin(), values.end());
    ++found;
  }
  if (found == 1) {
    return invalid_input("{}: expected both tensors {} and {}, found one", file.origin(), kShortFactors, kLongFactors);
  }
  const double amplitude = std::exchange(rope.attention_factor, std::nullopt).value_or(1.0);
  if (found == 0) return absl::OkStatus();
  rope.kind = RopeKind::kLongRope;
  rope.factor = model::stretch_of(config, rope);
  if (std::abs(amplitude / model::long_rope_amplitude(rope) - 1.0) > 1e-6) rope.attention_factor = amplitude;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<model::ModelConfig> import_config(const StoredFile& file) {
  KeyReader keys(file);
  const std::string architecture = keys.text("general.architecture");
  RONDO_RETURN_IF_ERROR(keys.status());
  const std::optional<model::ModelConfig> known = config_of_architecture(architecture);
  if (!known) {
    return invalid_input("{}: general.architecture: {} is not supported; supported: {}", file.origin(),
                         name_in_quotes(architecture), architectures_read());
  }
  const std::string prefix = architecture + ".";
  refuse_unsupported(keys, prefix);
  RONDO_RETURN_IF_ERROR(keys.status());
  const auto embedding = file.tensors.find("token_embd.weight");
  if (embedding == file.tensors.end() || embedding->second.shape.size() != 2) {
    return invalid_input("{}: tensor token_embd.weight: expected a matrix, found none", file.origin());
  }
  if (embedding->second.shape[0] > kMaxToken) {
    return invalid_input("{}: tensor token_embd.weight: expected at most {} rows, found {}", file.origin(), kMaxToken,
                         embedding->second.shape[0]);
  }
  model::ModelConfig config = *known;
  config.vocab_size = static_cast<std::uint32_t>(embedding->second.shape[0]);
  config.weight_type = weight_type_of(embedding->second);
  read_sizes(keys, file, prefix, config);
  RONDO_RETURN_IF_ERROR(keys.status());  // from here on the sizes are used to allocate and to divide
  read_experts(keys, prefix, config);
  RONDO_RETURN_IF_ERROR(keys.status());
  read_scaling(keys, prefix, config);
  read_query_growth(keys, prefix, config);
  read_picture_turns(keys, prefix, config);
  read_window(keys, prefix, config);
  read_factors(keys, prefix, config);
  tell_bamba(keys, prefix, config);
  if (!config.attention_scale) config.attention_scale = usual_attention_scale(config);
  if (config.family == Family::kLlama && config.hidden_size % config.num_heads != 0) config.family = Family::kMistral;
  read_features(file, config);
  read_tokens(keys, config);
  RONDO_RETURN_IF_ERROR(keys.status());
  RONDO_RETURN_IF_ERROR(read_divisors(file, config));
  RONDO_RETURN_IF_ERROR(read_long_factors(file, config));
  return model::parse_config(model::format_config(config), file.origin() + " as config.json");
}

}  // namespace rondo::gguf
