// From the text of a config.json to a ModelConfig: defaults as in transformers 5.23, every value within limits that
// keep the sizes of tensors far from overflow.
#include <algorithm>
#include <cmath>
#include <utility>

#include "config_block_inputs.h"
#include "config_convolution.h"
#include "config_experts.h"
#include "config_factors.h"
#include "config_latent.h"
#include "config_linear.h"
#include "config_mixers.h"
#include "config_rope.h"
#include "config_space.h"
#include "family.h"
#include "json_fields.h"
#include "layer_types.h"
#include "rondo/base/status.h"
#include "rondo/model/config_documents.h"
#include "text_part.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMaxHidden = 1U << 20U;
constexpr std::uint32_t kMaxHeads = 1U << 14U;
constexpr std::uint32_t kMaxHeadDim = 1U << 14U;
constexpr std::uint32_t kMaxHeadsTimesDim = 1U << 24U;
constexpr std::uint32_t kMaxVocabulary = 1U << 26U;
constexpr double kLeastEpsilon = 1e-30;  // with 0 the norm of padding, whose channels are 0, is no number

const FamilyTraits* parse_family(Fields& fields) {
  const std::string model_type = fields.word("model_type");
  const FamilyTraits* traits = find_family(model_type);
  if (traits == nullptr && fields.status().ok()) {
    fields.refuse("model_type",
                  fmt::format("{} is not supported; supported: {}", quoted_name(model_type), family_names()));
  }
  return traits;
}

/// Published GPT-OSS has its experts in MXFP4: stacked_experts.h.
bool is_mxfp4(const Fields& fields, const FamilyTraits& traits) {
  const Json& settings = fields.at("quantization_config");
  return traits.experts && traits.experts->stacked && settings.is_object() &&
         settings.value("quant_method", Json()) == "mxfp4";
}

/// transformers reads the weights from the file that this names, whatever others there are.
void refuse_other_files(Fields& fields) {
  const std::string file = fields.word("transformers_weights", "model.safetensors");
  if (file == "model.safetensors" || file == "model.safetensors.index.json") return;
  fields.refuse("transformers_weights", fmt::format("weights are read from model.safetensors or its shards, found {}; "
                                                    "rename the files and leave the key out",
                                                    quoted_name(file)));
}

/// Of the model itself, when it is trained. `key`: empty for none.
void refuse_dropout(Fields& fields, const FamilyTraits& traits, const std::string& key, const char* where) {
  if (key.empty() || fields.number(key, {0.0, 1.0}, traits.dropout) == 0.0) return;
  const std::string absent = fields.has(key) ? "" : fmt::format("; without the key it is {:g}", traits.dropout);
  fields.refuse(key, fmt::format("dropout {} is not supported; expected 0.0{}", where, absent));
}

/// Features that change what the model computes or how its weights are stored.
void refuse_unsupported(Fields& fields, const FamilyTraits& traits) {
  refuse_other_files(fields);
  if (fields.has("quantization_config") && !is_mxfp4(fields, traits)) {
    fields.refuse("quantization_config", "quantized weights are not supported; use the model in bf16, fp16 or fp32");
  }
  if (traits.global_head_dim == 0 && fields.has("per_layer_config") && !fields.at("per_layer_config").empty()) {
    fields.refuse("per_layer_config", "layers of different shapes are not supported");
  }
  refuse_dropout(fields, traits, "attention_dropout", "inside attention");
  refuse_dropout(fields, traits, std::string(traits.residual_dropout_key), "of what a block adds");
  refuse_dropout(fields, traits, std::string(traits.embedding_dropout_key), "of embeddings");
  const bool caps_logits = traits.reads_logits_cap || traits.logits_cap != 0.0;
  for (const auto& [key, read] : {std::pair("attn_logit_softcapping", traits.attention_cap != 0.0),
                                  std::pair("final_logit_softcapping", caps_logits)}) {
    if (!read && fields.has(key)) {
      fields.refuse(key, fmt::format("capped scores are not supported for {}; expected null", traits.model_type));
    }
  }
  if (fields.has("clip_qkv")) fields.refuse("clip_qkv", "capped queries and keys are not supported; expected null");
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "use_mrope", "use_bidirectional_attention"}) {
    // Of a text that has no pictures "vision" says nothing.
    if (traits.global_head_dim != 0 && fields.at(key) == "vision") continue;
    if (traits.global_head_dim != 0 && fields.at(key) == "all") {
      fields.refuse(key, "attention to what follows is not supported; expected null or \"vision\"");
    }
    if (fields.flag(key, false)) fields.refuse(key, "is not supported; expected false");
  }
  // transformers' masks let every token see all others where this is there and not true.
  if (fields.present("is_causal") && fields.at("is_causal") != true) {
    fields.refuse("is_causal", "attention to what follows is not supported; expected true");
  }
}

/// As transformers writes it of models whose heads differ: by layer what it has otherwise than the others. Gives that
/// of all layers that see all.
Json layer_overrides(Fields& fields, const ModelConfig& config) {
  const Json& layers = fields.at("per_layer_config");
  if (!layers.is_object()) {
    fields.expected("per_layer_config", "an object");
    return Json::object();
  }
  Json common;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const Json own = layers.value(std::to_string(layer), Json::object());
    const bool global = config.sliding_window[layer] == 0;
    if (!global && own.empty()) continue;
    if (common.is_null() && global) common = own;
    if (global && own == common) continue;
    fields.refuse("per_layer_config",
                  fmt::format("layer {} differs from others of its kind, which is not supported", layer));
  }
  for (const auto& [key, value] : common.items()) {
    if (key == "head_dim" || key == "num_key_value_heads") continue;
    fields.refuse("per_layer_config", fmt::format("layers whose {} differs are not supported", quoted_name(key)));
  }
  return common.is_object() ? common : Json::object();
}

void check_head_size(Fields& fields, const char* key, std::uint32_t size, std::uint32_t heads) {
  if (fields.status().ok() && size % 2 != 0) {
    fields.refuse(key, fmt::format("expected an even number (rotary embedding turns pairs), found {}", size));
  }
  if (size > kMaxHeadsTimesDim / heads) {
    fields.refuse(key, fmt::format("expected {} * num_attention_heads of at most {}, found {} * {}", key,
                                   kMaxHeadsTimesDim, size, heads));
  }
}

/// Of layers that see all; config.sliding_window must be set.
void parse_global_heads(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (traits.global_head_dim == 0) return;
  HeadShape heads{config.num_kv_heads, traits.global_head_dim, fields.flag("attention_k_eq_v", false)};
  if (fields.present("per_layer_config")) {
    const Json overrides = layer_overrides(fields, config);
    Fields own(overrides, fields.origin(), "per_layer_config.");
    heads.size = own.integer("head_dim", 1, kMaxHeadDim, config.head_dim);
    heads.kv_heads = own.integer("num_key_value_heads", 1, kMaxHeads, config.num_kv_heads);
    fields.adopt(own.status());
    if (!heads.keys_are_values && heads.kv_heads != config.num_kv_heads) {
      fields.refuse("per_layer_config", "num_key_value_heads that differ without attention_k_eq_v are not supported");
    }
  } else {
    if (fields.present("global_head_dim") && !fields.has("global_head_dim")) {
      fields.expected("global_head_dim", "an integer");
    }
    heads.size = fields.integer("global_head_dim", 1, kMaxHeadDim, traits.global_head_dim);
    const std::uint32_t count = fields.integer("num_global_key_value_heads", 1, kMaxHeads, config.num_kv_heads);
    if (heads.keys_are_values) heads.kv_heads = count;
  }
  check_head_size(fields, "global_head_dim", heads.size, config.num_heads);
  if (fields.status().ok() && config.num_heads % heads.kv_heads != 0) {
    fields.refuse("num_attention_heads", fmt::format("expected a multiple of num_global_key_value_heads ({}), found {}",
                                                     heads.kv_heads, config.num_heads));
  }
  config.global_heads = heads;
}

std::optional<std::uint32_t> or_none(std::uint32_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

void parse_heads(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  config.num_heads = fields.integer("num_attention_heads", 1, kMaxHeads, or_none(traits.num_heads));
  // Absent and null differ: a null always means one key head to each query head.
  const bool kv_absent = !fields.present("num_key_value_heads") && traits.kv_heads != 0;
  config.num_kv_heads = config.num_heads;
  if (!traits.fused_by_heads) {
    config.num_kv_heads =
        fields.integer("num_key_value_heads", 1, kMaxHeads, kv_absent ? traits.kv_heads : config.num_heads);
  }
  if (fields.status().ok() && config.num_heads % config.num_kv_heads != 0) {
    fields.refuse("num_attention_heads",
                  fmt::format("expected a multiple of num_key_value_heads ({}{}), found {}", config.num_kv_heads,
                              kv_absent ? ", the default" : "", config.num_heads));
  }
  if (traits.latent_attention) return parse_latent_attention(fields, traits, config);
  const bool divides = config.hidden_size % config.num_heads == 0;
  const bool head_dim_given = fields.has("head_dim") || traits.head_dim != 0;
  if (fields.status().ok() && !divides && (!head_dim_given || traits.divides_heads)) {
    fields.refuse("hidden_size", fmt::format("expected a multiple of num_attention_heads ({}), found {}",
                                             config.num_heads, config.hidden_size));
  }
  if (traits.head_dim != 0 && fields.present("head_dim") && !fields.has("head_dim")) {
    fields.expected("head_dim", fmt::format("an integer for {}", traits.model_type));
  }
  const std::uint32_t derived = traits.head_dim != 0 ? traits.head_dim : config.hidden_size / config.num_heads;
  config.head_dim = fields.integer("head_dim", 1, kMaxHeadDim, derived);
  check_head_size(fields, "head_dim", config.head_dim, config.num_heads);
  if (traits.fills_width && fields.status().ok() && config.head_dim * config.num_heads != config.hidden_size) {
    fields.refuse("head_dim",
                  fmt::format("expected hidden_size ({}) over num_attention_heads ({}), found {}{}", config.hidden_size,
                              config.num_heads, config.head_dim, fields.has("head_dim") ? "" : ", the default"));
  }
}

/// LFM2's is two thirds of what the file says, times a factor, rounded up.
std::uint32_t parse_intermediate(Fields& fields, const FamilyTraits& traits) {
  const char* key = traits.adjusts_width && fields.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  std::uint32_t size = fields.integer(key, 1, kMaxIntermediate, or_none(traits.intermediate_size));
  if (!traits.adjusts_width || !fields.flag("block_auto_adjust_ff_dim", true)) return size;
  size = 2 * size / 3;
  const std::uint32_t multiple = fields.integer("block_multiple_of", 1, kMaxIntermediate, 256);
  const char* factor = "block_ffn_dim_multiplier";
  if (!fields.present(factor) || fields.has(factor)) {
    size = static_cast<std::uint32_t>(fields.number(factor, {1e-6, 64.0}, 1.0) * size);
    size = (size + multiple - 1) / multiple * multiple;
  }
  if (size < 1 || size > kMaxIntermediate) {
    fields.refuse(
        key, fmt::format("expected 1 to {} channels after block_auto_adjust_ff_dim, found {}", kMaxIntermediate, size));
  }
  return size;
}

void parse_sizes(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  config.hidden_size = fields.integer("hidden_size", 1, kMaxHidden);
  if (!traits.experts || !traits.experts->everywhere) {
    config.intermediate_size = parse_intermediate(fields, traits);
  }
  config.num_layers = traits.lone_halves ? static_cast<std::uint32_t>(parse_mixers(fields).size())
                                         : fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxVocabulary, or_none(traits.vocab_size));
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions, traits.max_positions);
  config.rms_norm_eps = traits.rms_norm_eps;
  if (const std::string key(traits.eps_key); !key.empty()) {
    config.rms_norm_eps = fields.number(key, {kLeastEpsilon, 1.0}, traits.rms_norm_eps);
  }
  const double by_width = 2.0 / std::sqrt(5.0 * config.hidden_size);
  config.initializer_range =
      fields.number("initializer_range", {0.0, 1.0}, traits.deviates_by_width ? by_width : traits.initializer_range);
  parse_heads(fields, traits, config);
}

Activation parse_activation(Fields& fields, const FamilyTraits& traits) {
  const std::string key(traits.activation_key);
  if (key.empty()) return Activation::kSilu;
  if (!traits.gated_mlp && traits.activation.empty()) {
    const std::string name = fields.word(key, "relu2");
    if (name != "relu2") {
      fields.refuse(key, fmt::format("the activation {} is not supported; expected relu2, which MLPs of {} have",
                                     quoted_name(name), traits.model_type));
    }
    return Activation::kReluSquared;
  }
  const std::string_view usual = traits.is_gemma ? "gelu_pytorch_tanh" : "silu";
  const std::string name = fields.word(key, std::string(traits.activation.empty() ? usual : traits.activation));
  // The first Gemma's files say gelu and mean its approximation.
  if (name == "gelu" && traits.family == Family::kGemma) return Activation::kGeluTanh;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return Activation::kGelu;
  // gelu_new is the tanh approximation under an older name.
  if (name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  fields.refuse(key, fmt::format("the activation {} is not supported; supported: silu, gelu, "
                                 "gelu_pytorch_tanh",
                                 quoted_name(name)));
  return Activation::kSilu;
}

/// Llama never slides and Mistral always does when it has a window; a list that says otherwise belongs to another
/// model.
void check_layer_types(Fields& fields, const ModelConfig& config, const std::vector<bool>& slides) {
  if (slides.empty() || !fields.status().ok()) return;
  for (std::size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer] == (config.sliding_window[layer] != 0)) continue;
    fields.refuse("layer_types",
                  fmt::format("layer {} is {}, which {} cannot mix; expected all layers to be the same", layer,
                              slides[layer] ? "sliding_attention" : "full_attention", config.model_type));
    return;
  }
}

/// All layers slide but each so-many-th, unless `slides` says which.
void parse_window_pattern(Fields& fields, const FamilyTraits& traits, const std::vector<bool>& slides,
                          ModelConfig& config) {
  const bool turned = traits.windows == Windows::kTurned || traits.windows == Windows::kUnturned;
  const bool reads_pattern = traits.family == Family::kGemma3 || (turned && slides.empty());
  const std::uint32_t pattern =
      reads_pattern ? fields.integer(std::string(traits.pattern_key), 1, kMaxLayers, traits.window_pattern)
                    : traits.window_pattern;
  const std::uint32_t last = traits.sees_all_first ? 0 : 1;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (slides.empty() ? (layer + last) % pattern == 0 : !slides[layer]) continue;
    if (traits.global_head_dim != 0 && layer + 1 == config.num_layers) continue;  // it sees all, whatever the file says
    if (fields.present("sliding_window") && !fields.has("sliding_window")) {
      fields.refuse("sliding_window",
                    fmt::format("layer {} is sliding_attention; expected an integer, found null", layer));
      return;
    }
    config.sliding_window[layer] = fields.integer("sliding_window", 1, kMaxPositions, traits.default_window);
  }
}

/// A null says that no layer slides and all are turned.
void parse_turned_windows(Fields& fields, const FamilyTraits& traits, const std::vector<bool>& slides,
                          ModelConfig& config) {
  const bool none = fields.present("sliding_window") && !fields.has("sliding_window");
  if (none && traits.windows == Windows::kTurned) return check_layer_types(fields, config, slides);
  parse_window_pattern(fields, traits, slides, config);
  for (const std::uint32_t window : config.sliding_window) config.without_rope.push_back(window == 0);
}

/// Layers without rotary embedding: `no_rope_layers` has a 0 for each (and a 1 for the others).
void parse_unrotated(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (traits.unrotated_interval == 0) return;
  config.without_rope.assign(config.num_layers, false);
  if (!fields.has("no_rope_layers")) {
    const std::uint32_t interval = fields.integer("no_rope_layer_interval", 1, kMaxLayers, traits.unrotated_interval);
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      config.without_rope[layer] = (layer + 1) % interval == 0;
    }
    return;
  }
  const Json& list = fields.at("no_rope_layers");
  const bool numbers =
      list.is_array() && list.size() == config.num_layers && std::ranges::all_of(list, [](const Json& one) {
        return one.is_number_unsigned() && one.get<std::uint64_t>() <= 1;
      });
  if (!numbers) {
    fields.expected("no_rope_layers",
                    fmt::format("a list of num_hidden_layers ({}) numbers 0 or 1", config.num_layers));
    return;
  }
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) config.without_rope[layer] = list[layer] == 0;
}

/// `use_sliding_window`, and which layers do: `slides`, or else those that the family names.
void parse_chosen_windows(Fields& fields, const FamilyTraits& traits, const std::vector<bool>& slides,
                          ModelConfig& config) {
  const bool unrotated = traits.windows == Windows::kUnrotated;
  const bool listed = traits.windows == Windows::kListed;
  const bool behind = traits.windows == Windows::kBehind || listed;
  const bool used = behind || fields.flag("use_sliding_window", false);
  const bool even = traits.windows == Windows::kEven;
  const bool null_window = !fields.has("sliding_window") && (unrotated || fields.present("sliding_window"));
  if (used && even && null_window) fields.expected("sliding_window", "an integer, for use_sliding_window is true");
  const std::uint32_t window =
      used && !null_window ? fields.integer("sliding_window", 1, kMaxPositions, kDefaultWindow) : 0;
  const std::uint32_t first = listed ? 0 : fields.integer("max_window_layers", 0, kMaxPositions, traits.first_window);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const bool counted = even ? layer % 2 == 0 && layer < first : layer >= first;
    const bool by_default = unrotated ? config.without_rope[layer] : counted;
    const bool here = slides.empty() ? by_default : slides[layer];
    if (here && !slides.empty() && window == 0) {
      fields.refuse("layer_types", fmt::format("layer {} is sliding_attention, but {}sliding_window null", layer,
                                               behind ? "" : "use_sliding_window is false or "));
      return;
    }
    config.sliding_window[layer] = here ? window : 0;
  }
}

void parse_windows(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  config.sliding_window.assign(config.num_layers, 0);
  // Whose layer_types say something else.
  if (traits.linear_attention || traits.short_convolution || traits.state_space || traits.lone_halves) return;
  const std::vector<bool> slides = parse_layer_types(fields, config.num_layers, "sliding_attention");
  switch (traits.windows) {
    case Windows::kNever:
      if (fields.flag("use_sliding_window", false)) {
        fields.refuse("use_sliding_window", fmt::format("{} slides no window; expected false", traits.model_type));
      }
      [[fallthrough]];
    case Windows::kNone:
      return check_layer_types(fields, config, slides);
    case Windows::kSwitched:
      if (!fields.flag("use_sliding_window", false)) return check_layer_types(fields, config, slides);
      [[fallthrough]];
    case Windows::kAll: {
      const std::uint32_t absent = fields.present("sliding_window") ? 0 : traits.default_window;
      const std::uint32_t window = fields.integer("sliding_window", 1, kMaxPositions, absent);
      config.sliding_window.assign(config.num_layers, window);
      return check_layer_types(fields, config, slides);
    }
    case Windows::kPattern:
      return parse_window_pattern(fields, traits, slides, config);
    case Windows::kTurned:
    case Windows::kUnturned:
      return parse_turned_windows(fields, traits, slides, config);
    case Windows::kBehind:
    case Windows::kListed:
    case Windows::kChosen:
    case Windows::kEven:
    case Windows::kUnrotated:
      return parse_chosen_windows(fields, traits, slides, config);
  }
}

/// Or by the other name, where only that is there.
bool flag_of_either(Fields& fields, const char* key, const char* other, bool fallback) {
  return fields.flag(!fields.has(key) && fields.has(other) ? other : key, fallback);
}

void parse_biases(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (traits.biased_alike) {
    config.attention_bias = config.attention_output_bias =
        flag_of_either(fields, "attention_bias", "qkv_bias", traits.attention_bias);
    config.mlp_bias = flag_of_either(fields, "mlp_bias", "bias", false);
    if (config.mlp_bias == config.attention_bias) return;
    fields.refuse(fields.has("mlp_bias") ? "mlp_bias" : "bias",
                  fmt::format("expected what {} says ({}), found {}",
                              fields.has("attention_bias") || !fields.has("qkv_bias") ? "attention_bias" : "qkv_bias",
                              config.attention_bias, config.mlp_bias));
    return;
  }
  const bool all_biased = traits.reads_use_bias && fields.flag("use_bias", traits.use_bias);
  const bool bias = all_biased || (traits.reads_attention_bias && fields.flag("attention_bias", traits.attention_bias));
  const std::string qkv_key(traits.qkv_bias_key);
  const bool qkv_bias = !qkv_key.empty() && fields.flag(qkv_key, traits.qkv_bias);
  config.attention_bias = bias || qkv_bias || traits.qkv_bias_always;
  config.attention_output_bias = bias;
  if (const auto& key = traits.output_bias_key) {
    config.attention_output_bias = !key->empty() && fields.flag(std::string(*key), false);
  }
  config.mlp_bias =
      traits.mlp_bias_always || all_biased || (traits.reads_mlp_bias && fields.flag("mlp_bias", traits.mlp_bias));
}

/// bos and pad are one id; a list of one is let pass.
std::optional<std::int32_t> single_token(Fields& fields, const char* key, std::optional<std::int32_t> fallback) {
  const std::vector<std::int32_t> ids = fields.token_ids(key, fallback);
  if (ids.size() > 1) fields.expected(key, "one token id or null");
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

WeightType parse_dtype(Fields& fields) {
  const char* key = fields.has("dtype") ? "dtype" : "torch_dtype";
  const std::string word = fields.word(key, "float32");
  const std::string name = word.starts_with("torch.") ? word.substr(6) : word;  // as PyTorch prints it
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kFloat16}) {
    if (name == weight_type_name(type)) return type;
  }
  fields.expected(key, "float32, bfloat16 or float16");
  return WeightType::kFloat32;
}

}  // namespace

HeadShape heads_of(const ModelConfig& config, std::uint32_t block) {
  if (config.global_heads && config.sliding_window[block] == 0) return *config.global_heads;
  return {config.num_kv_heads, config.head_dim, false};
}

std::uint32_t turned_channels(const ModelConfig& config, const RopeConfig& rope) {
  const std::uint32_t channels = config.latent_attention ? config.latent_attention->turned_size : config.head_dim;
  return static_cast<std::uint32_t>(channels * rope.turned_share);
}

double scale_of_scores(const ModelConfig& config) {
  const double scale = config.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  const RopeConfig& rope = config.rope;
  if (!config.latent_attention || !rope.mscale_all_dim || rope.factor <= 1.0) return scale;
  const double stretched = 0.1 * *rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return scale * stretched * stretched;
}

absl::StatusOr<ModelConfig> parse_config(std::string_view text, const std::string& origin) {
  RONDO_ASSIGN_OR_RETURN(const Json document, parse_json(text, origin));
  if (!document.is_object()) return invalid_input("{}: expected an object, found {}", origin, excerpt(document));
  const std::optional<Json> text_part = text_part_of(document);
  Fields fields(text_part ? *text_part : document, origin,
                document.contains("text_config") && text_part ? "text_config." : "");
  const FamilyTraits* traits = parse_family(fields);
  if (traits == nullptr) return fields.status();
  ModelConfig config;
  config.text_part = text_part.has_value();
  config.family = traits->family;
  config.model_type = traits_of(traits->family).model_type;
  refuse_unsupported(fields, *traits);
  if (!traits->experts) refuse_experts(fields);
  parse_sizes(fields, *traits, config);
  // From here on the sizes are used to allocate and to divide.
  RONDO_RETURN_IF_ERROR(fields.status());
  config.activation = parse_activation(fields, *traits);
  if (traits->rotates) {
    parse_ropes(fields, *traits, config);
  } else {
    config.without_rope.assign(config.num_layers, true);
  }
  parse_picture_turns(fields, config);
  parse_unrotated(fields, *traits, config);
  const bool older_key = traits->short_convolution && fields.has("tie_embedding");
  config.tie_word_embeddings = fields.flag(older_key ? "tie_embedding" : "tie_word_embeddings", traits->ties);
  config.trains_padding = traits->trains_padding;
  parse_biases(fields, *traits, config);
  config.attention_sinks = traits->attention_sinks;
  config.fused_linears = traits->fused;
  config.fused_by_heads = traits->fused_by_heads;
  config.fused_mlp = traits->fused_mlp;
  config.gated_mlp = traits->gated_mlp;
  config.gates_attention = config.gates_apart = traits->gates_attention;
  // A null means false.
  const bool interleaves =
      !traits->reads_interleave || fields.flag("rope_interleave", !fields.present("rope_interleave"));
  config.turns_neighbours = traits->turns_neighbours && interleaves;
  config.turns_backwards = traits->turns_backwards;
  parse_factors(fields, *traits, config);
  parse_experts(fields, *traits, config);
  parse_linear_attention(fields, *traits, config);
  parse_short_convolution(fields, *traits, config);
  parse_state_space(fields, *traits, config);
  parse_lone_halves(fields, *traits, config);
  parse_windows(fields, *traits, config);
  parse_listed_thetas(fields, *traits, config);
  parse_global_heads(fields, *traits, config);
  parse_block_inputs(fields, *traits, config);
  config.weight_type = parse_dtype(fields);
  config.bos_token_id = single_token(fields, "bos_token_id", traits->bos);
  config.eos_token_ids = fields.token_ids("eos_token_id", traits->eos);
  if (!fields.has("eos_token_id") && !traits->stops.empty()) {
    config.eos_token_ids.assign(traits->stops.begin(), traits->stops.end());
  }
  config.pad_token_id = single_token(fields, "pad_token_id", traits->pad);
  RONDO_RETURN_IF_ERROR(fields.status());
  return config;
}

absl::StatusOr<ModelConfig> load_config(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read("config.json", kMaxConfigBytes));
  return parse_config(text, documents.place("config.json"));
}

absl::StatusOr<ModelConfig> load_config(const std::filesystem::path& folder) { return load_config(Documents(folder)); }

absl::StatusOr<std::vector<std::int32_t>> load_stop_ids(const Documents& documents, const ModelConfig& config) {
  const std::string name = "generation_config.json";
  if (!documents.has(name)) return config.eos_token_ids;
  RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(name, kMaxConfigBytes));
  const std::string origin = documents.place(name);
  RONDO_ASSIGN_OR_RETURN(const Json document, parse_json(text, origin));
  if (!document.is_object()) return invalid_input("{}: expected an object, found {}", origin, excerpt(document));
  Fields fields(document, origin);
  std::vector<std::int32_t> ids = fields.token_ids("eos_token_id", std::nullopt);
  RONDO_RETURN_IF_ERROR(fields.status());
  return ids.empty() ? config.eos_token_ids : ids;
}

absl::StatusOr<std::vector<std::int32_t>> load_stop_ids(const std::filesystem::path& folder,
                                                        const ModelConfig& config) {
  return load_stop_ids(Documents(folder), config);
}

}  // namespace rondo::model
