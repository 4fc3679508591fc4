// See config_space.h; the words are those of transformers 5.23, and of files that older ones wrote.
#include "config_space.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMostExpansion = 64;
constexpr std::uint32_t kMostSpaceWidth = 1U << 24U;
constexpr std::uint32_t kDefaultSpaceWidth = 1024;
constexpr std::uint32_t kDefaultState = 256;
constexpr const char* kAttentionKey = "attn_layer_indices";

std::vector<bool> parse_spaces(Fields& fields, std::uint32_t layers) {
  const char* key = !fields.has("layer_types") && fields.has("layers_block_type") ? "layers_block_type" : "layer_types";
  std::vector<bool> blocks(layers, true);
  if (!fields.has(key)) return blocks;
  const Json& types = fields.at(key);
  if (!types.is_array() || types.size() != layers) {
    fields.expected(key, fmt::format("a list of num_hidden_layers ({}) names", layers));
    return blocks;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const Json& type = types[layer];
    blocks[layer] = type == "mamba" || type == "linear_attention";
    if (blocks[layer] || type == "attention" || type == "full_attention") continue;
    fields.refuse(key, fmt::format("the layer {} is not supported; supported: attention, mamba", excerpt(type)));
  }
  return blocks;
}

/// Bamba: all but those that are listed, where numbers beyond the last block say nothing.
std::vector<bool> parse_listed(Fields& fields, std::uint32_t layers) {
  std::vector<bool> blocks(layers, true);
  if (!fields.has(kAttentionKey)) return blocks;
  const Json& list = fields.at(kAttentionKey);
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& one) { return one.is_number_integer(); })) {
    fields.expected(kAttentionKey, "a list of numbers of layers");
    return blocks;
  }
  for (const Json& one : list) {
    const auto layer = one.get<std::int64_t>();
    if (layer >= 0 && layer < layers) blocks[static_cast<std::size_t>(layer)] = false;
  }
  return blocks;
}

/// transformers writes infinity as an object.
std::optional<double> limit_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_object() && value.value("__float__", Json()) == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

void parse_steps(Fields& fields, StateSpaceConfig& space) {
  if (!fields.has("time_step_limit")) return;
  const Json& limits = fields.at("time_step_limit");
  const bool two = limits.is_array() && limits.size() == 2;
  const std::optional<double> least = two ? limit_of(limits[0]) : std::nullopt;
  const std::optional<double> most = two ? limit_of(limits[1]) : std::nullopt;
  if (!least || !most || !(*least >= 0.0) || !(*least <= *most) || !std::isfinite(*least)) {
    fields.expected("time_step_limit", "the least and the largest step, from 0 on");
    return;
  }
  space.least_step = *least;
  space.most_step = *most;
}

/// Of all heads together. `said_by`: what says so.
struct Width {
  std::uint32_t channels = 0;
  const char* said_by = "mamba_expand * hidden_size";
};

/// Falcon-H1: mamba_d_ssm, unless that is null.
Width parse_width(Fields& fields, const FamilyTraits& traits, const ModelConfig& config) {
  const std::uint32_t expansion = fields.integer("mamba_expand", 1, kMostExpansion, 2);
  const bool null = fields.present("mamba_d_ssm") && !fields.has("mamba_d_ssm");
  if (!traits.beside_attention || null) return {expansion * config.hidden_size};
  return {fields.integer("mamba_d_ssm", 1, kMostSpaceWidth, kDefaultSpaceWidth), "mamba_d_ssm"};
}

/// `auto`: what the heads leave each of the width.
std::uint32_t parse_head_size(Fields& fields, const Width& wanted, std::uint32_t heads) {
  const std::uint32_t width = wanted.channels;
  const bool given = fields.has("mamba_d_head") && fields.at("mamba_d_head") != "auto";
  const std::uint32_t size = given ? fields.integer("mamba_d_head", 1, kMaxDeltaSize) : width / heads;
  if (fields.status().ok() && std::uint64_t{size} * heads != width) {
    fields.refuse(given ? "mamba_d_head" : "mamba_n_heads",
                  fmt::format("expected {} heads to be as wide as {} ({}), found heads of {}", heads, wanted.said_by,
                              width, size));
  } else if (fields.status().ok() && size > kMaxDeltaSize) {
    fields.refuse("mamba_n_heads", fmt::format("expected heads of at most {}, found {}", kMaxDeltaSize, size));
  }
  return size;
}

std::vector<bool> parse_blocks(Fields& fields, const FamilyTraits& traits, const ModelConfig& config) {
  if (traits.beside_attention) return std::vector<bool>(config.num_layers, true);
  return traits.lists_attention ? parse_listed(fields, config.num_layers) : parse_spaces(fields, config.num_layers);
}

/// Beside factors of what has them they would have to be multiplied too.
void parse_space_biases(Fields& fields, const FamilyTraits& traits, const ModelConfig& config,
                        StateSpaceConfig& space) {
  space.linear_bias = fields.flag("mamba_proj_bias", false);
  if (traits.beside_attention && fields.flag("projectors_bias", false) != space.linear_bias) {
    fields.refuse("projectors_bias", fmt::format("expected what mamba_proj_bias says ({}), found {}", space.linear_bias,
                                                 !space.linear_bias));
  }
  if (!space.linear_bias) return;
  const auto is_factor = [](double factor) { return factor != 1.0; };
  const LinearFactors& factors = config.linear_factors;
  if (config.residual_multiplier != 1.0) {
    fields.refuse("mamba_proj_bias", "biases with a residual_multiplier are not supported; expected false");
  } else if (is_factor(factors.space_output) || std::ranges::any_of(factors.space, is_factor)) {
    fields.refuse("mamba_proj_bias",
                  "biases with ssm_multipliers or an ssm_out_multiplier are not supported; expected false");
  }
}

}  // namespace

bool is_state_space(const ModelConfig& config, std::uint32_t block) {
  return config.state_space && config.state_space->blocks[block];
}

std::uint32_t parse_space_groups(Fields& fields, const std::string& key, std::uint32_t by_default,
                                 const char* heads_key, std::uint32_t heads) {
  const std::uint32_t groups = fields.integer(key, 1, kMostSpaceHeads, by_default);
  if (fields.status().ok() && heads % groups != 0) {
    fields.refuse(key, fmt::format("expected a divisor of {} ({}), found {}", heads_key, heads, groups));
  }
  return groups;
}

void parse_state_space(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.state_space) return;
  const bool may_not_turn = !traits.lists_attention && !traits.beside_attention;
  if (may_not_turn && fields.at("position_embedding_type") != "rope") {
    config.without_rope.assign(config.num_layers, true);
  }
  if (traits.lists_attention && fields.number("z_loss_coefficient", {0.0, 1e6}, 0.0) != 0.0) {
    fields.refuse("z_loss_coefficient", "the square of the logits' sum in the loss is not supported; expected 0.0");
  }
  StateSpaceConfig space;
  space.beside_attention = traits.beside_attention;
  space.blocks = parse_blocks(fields, traits, config);
  if (std::ranges::count(space.blocks, true) == 0) return;  // whatever else is said
  space.heads = fields.integer("mamba_n_heads", 1, kMostSpaceHeads, 128);
  space.state_size = fields.integer("mamba_d_state", 1, kMaxStateSize, kDefaultState);
  space.convolution = fields.integer("mamba_d_conv", 2, kMaxConvolution, 4);
  space.convolution_bias = fields.flag("mamba_conv_bias", true);
  space.groups = parse_space_groups(fields, "mamba_n_groups", 1, "mamba_n_heads", space.heads);
  parse_space_biases(fields, traits, config, space);
  if (traits.beside_attention) {
    space.normed = fields.flag("mamba_rms_norm", false);
    space.normed_first = fields.flag("mamba_norm_before_gate", true) && space.normed;
    if (space.normed_first && fields.status().ok() && space.groups > 1) {
      fields.refuse("mamba_norm_before_gate",
                    "heads in groups that are normed before the gate are not supported; expected false");
    }
  }
  const Width width = parse_width(fields, traits, config);
  if (!fields.status().ok()) return;
  space.head_size = parse_head_size(fields, width, space.heads);
  parse_steps(fields, space);
  // transformers takes it behind the convolutions too.
  if (config.activation != Activation::kSilu) {
    fields.refuse("hidden_act", fmt::format("expected silu beside Mamba's layers, whose convolutions have no other "
                                            "activation here, found {}",
                                            activation_name(config.activation)));
  }
  config.state_space = std::move(space);
}

namespace {

void add_blocks(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (traits.beside_attention) return;
  OrderedJson types = OrderedJson::array();
  OrderedJson others = OrderedJson::array();
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    types.push_back(is_state_space(config, block) ? "mamba" : "attention");
    if (!is_state_space(config, block)) others.push_back(block);
  }
  if (traits.lists_attention) {
    out[kAttentionKey] = std::move(others);
    return;
  }
  out["layer_types"] = std::move(types);
  out["position_embedding_type"] = config.without_rope.empty() ? OrderedJson("rope") : OrderedJson(nullptr);
}

}  // namespace

void add_state_space(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (!traits.state_space) return;
  add_blocks(config, traits, out);
  out["mamba_n_heads"] = 1;  // fits any width
  if (!config.state_space) return;
  const StateSpaceConfig& space = *config.state_space;
  out["mamba_n_heads"] = space.heads;
  out["mamba_d_head"] = space.head_size;
  out["mamba_d_state"] = space.state_size;
  out["mamba_d_conv"] = space.convolution;
  if (space.beside_attention) {
    out["mamba_d_ssm"] = space.width();
    out["mamba_rms_norm"] = space.normed;
    out["mamba_norm_before_gate"] = space.normed_first;
    out["projectors_bias"] = space.linear_bias;
  } else {
    out["mamba_expand"] = space.width() / config.hidden_size;
  }
  out["mamba_n_groups"] = space.groups;
  out["mamba_conv_bias"] = space.convolution_bias;
  out["mamba_proj_bias"] = space.linear_bias;
  if (space.least_step == 0.0 && std::isinf(space.most_step)) return;
  OrderedJson most = space.most_step;
  if (std::isinf(space.most_step)) most = {{"__float__", "Infinity"}};
  out["time_step_limit"] = OrderedJson::array({space.least_step, std::move(most)});
}

}  // namespace rondo::model
