// See config_experts.h; the words are those of transformers 5.23.
#include "config_experts.h"

#include <algorithm>
#include <optional>

#include "config_mixers.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

/// The key's own name, or another that means the same where only that is there.
std::string either(const Fields& fields, std::string_view own, std::string_view other) {
  const std::string name(own);
  return !fields.has(name) && fields.has(std::string(other)) ? std::string(other) : name;
}

/// Either spelling of their number.
std::string count_key(const Fields& fields, const ExpertTraits& traits) {
  const bool local = traits.count_key == "num_experts" || traits.count_key == "n_routed_experts";
  return either(fields, traits.count_key, local ? "num_local_experts" : "num_experts");
}

std::vector<bool> parse_ranged_blocks(Fields& fields, std::uint32_t layers) {
  const std::uint32_t first = fields.integer("moe_layer_start_index", 0, kMaxLayers, 1);
  const bool to_the_last = !fields.has("moe_layer_end_index") || fields.at("moe_layer_end_index") == -1;
  const std::uint32_t last = to_the_last ? layers - 1 : fields.integer("moe_layer_end_index", 0, kMaxLayers);
  const std::uint32_t interval = fields.integer("moe_layer_interval", 1, kMaxLayers, 1);
  std::vector<bool> dense(layers);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    dense[layer] = (layer + 1) % interval != 0 || layer < first || layer > last;
  }
  return dense;
}

std::vector<bool> parse_leading_blocks(Fields& fields, const ExpertTraits& traits, std::uint32_t layers) {
  const std::uint32_t count = fields.integer(std::string(traits.leading_key), 0, kMaxLayers, traits.leading);
  std::vector<bool> dense(layers);
  std::fill_n(dense.begin(), std::min(count, layers), true);
  return dense;
}

std::vector<bool> parse_listed_blocks(Fields& fields, const ExpertTraits& traits, std::uint32_t layers) {
  std::vector<bool> dense(layers);
  std::fill_n(dense.begin(), std::min(traits.leading, layers), true);
  const std::string leading(traits.leading_key);
  if (!fields.has("mlp_layer_types")) {
    if (traits.mixtures == Mixtures::kListedOrBehind) return parse_leading_blocks(fields, traits, layers);
    if (leading.empty()) return dense;
    if (fields.integer(leading, 0, kMaxLayers, traits.leading) == traits.leading) return dense;
    fields.refuse(leading, fmt::format("transformers takes {} whatever this says; expected that, or mlp_layer_types",
                                       traits.leading));
    return dense;
  }
  const Json& types = fields.at("mlp_layer_types");
  if (!types.is_array() || types.size() != layers) {
    fields.expected("mlp_layer_types", fmt::format("a list of num_hidden_layers ({}) names", layers));
    return dense;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    dense[layer] = types[layer] == "dense";
    if (dense[layer] || types[layer] == "sparse") continue;
    fields.refuse("mlp_layer_types",
                  fmt::format("the MLP {} is not supported; supported: dense, sparse", excerpt(types[layer])));
  }
  return dense;
}

std::vector<bool> parse_stepped_blocks(Fields& fields, std::uint32_t layers) {
  const std::uint32_t step = fields.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  std::vector<bool> dense(layers, false);
  for (std::uint32_t layer = 0; layer < layers; ++layer) dense[layer] = (layer + 1) % step != 0;
  if (fields.has("mlp_only_layers")) {
    const Json& list = fields.at("mlp_only_layers");
    if (!list.is_array()) fields.expected("mlp_only_layers", "a list of numbers of layers");
    for (const Json& one : list.is_array() ? list : Json::array()) {
      if (!one.is_number_unsigned()) {
        fields.expected("mlp_only_layers", "a list of numbers of layers");
      } else if (one.get<std::uint64_t>() < layers) {
        dense[one.get<std::size_t>()] = true;
      }
    }
  }
  return dense;
}

std::vector<bool> parse_other_mixers(Fields& fields) {
  std::vector<bool> dense;
  for (const Mixer mixer : parse_mixers(fields)) dense.push_back(mixer != Mixer::kExperts);
  return dense;
}

/// Blocks with one MLP, or without, where not all have experts.
std::vector<bool> parse_dense_blocks(Fields& fields, const ExpertTraits& traits, std::uint32_t layers) {
  std::vector<bool> dense;
  if (traits.mixtures == Mixtures::kStepped) dense = parse_stepped_blocks(fields, layers);
  if (traits.mixtures == Mixtures::kRanged) dense = parse_ranged_blocks(fields, layers);
  if (traits.mixtures == Mixtures::kBehind) dense = parse_leading_blocks(fields, traits, layers);
  if (traits.mixtures == Mixtures::kMixers) dense = parse_other_mixers(fields);
  const bool listed = traits.mixtures == Mixtures::kListed || traits.mixtures == Mixtures::kListedOrBehind;
  if (listed) dense = parse_listed_blocks(fields, traits, layers);
  return std::find(dense.begin(), dense.end(), true) == dense.end() ? std::vector<bool>() : dense;
}

/// How many times as wide as another expert the one is that all share.
std::uint32_t shared_count(Fields& fields, const ExpertTraits& traits) {
  constexpr std::uint32_t kMost = 64;
  const bool must_be_there = traits.shared_count == 0 && !traits.may_share_none;
  return fields.integer(std::string(traits.shared_count_key), traits.may_share_none ? 0 : 1, kMost,
                        must_be_there ? std::nullopt : std::optional(traits.shared_count));
}

/// One number for all blocks, or a list with the same for each.
std::uint32_t choices_of(Fields& fields, const std::string& key, const ExpertTraits& traits, std::uint32_t layers) {
  const std::optional<std::uint32_t> absent = traits.choices == 0 ? std::nullopt : std::optional(traits.choices);
  const Json& list = fields.at(key);
  if (!traits.lists_choices || !list.is_array()) return fields.integer(key, 1, kMaxChoices, absent);
  const bool same = list.size() == layers && std::ranges::all_of(list, [&](const Json& one) {
                      return one.is_number_unsigned() && one == list[0] && one <= kMaxChoices && one >= 1;
                    });
  if (same) return list[0].get<std::uint32_t>();
  fields.expected(key, fmt::format("an integer, or a list with the same one for each of {} layers, from 1 to {}",
                                   layers, kMaxChoices));
  return 1;
}

/// Of the MLP that all tokens share.
std::uint32_t shared_width(Fields& fields, const ExpertTraits& traits, const ModelConfig& config,
                           const ExpertsConfig& experts) {
  if (traits.shares_mlp) return config.intermediate_size;
  if (!traits.shared_mlp_key.empty()) {
    const std::uint32_t least = traits.shared_mlp_width == 0 ? 0 : 1;
    return fields.integer(std::string(traits.shared_mlp_key), least, kMaxIntermediate, traits.shared_mlp_width);
  }
  if (!traits.shared_width_key.empty()) {
    return fields.integer(std::string(traits.shared_width_key), 1, kMaxIntermediate, traits.shared_width_absent);
  }
  if (traits.shared_width != 0) {
    return fields.integer("shared_expert_intermediate_size", 1, kMaxIntermediate, traits.shared_width);
  }
  return traits.shared_count_key.empty() ? 0 : shared_count(fields, traits) * experts.width;
}

/// Which experts a token goes to, and their shares.
void parse_choice(Fields& fields, const ExpertTraits& traits, ExpertsConfig& experts) {
  experts.normalised = traits.normalises_always || fields.flag("norm_topk_prob", traits.normalises);
  if (traits.never_normalises && experts.normalised) {
    fields.refuse("norm_topk_prob", "transformers passes over it; expected false");
  }
  const bool asks = !traits.choice_bias_key.empty();
  experts.choice_bias =
      !traits.choice_bias.empty() && (!asks || fields.flag(std::string(traits.choice_bias_key), true));
  experts.sigmoid = traits.by_sigmoids;
  experts.added = traits.added;
  if (traits.mixtures == Mixtures::kRanged) {
    if (fields.flag("use_bias", false)) {
      fields.refuse("use_bias", "a bias of the head is not supported; expected false");
    }
    constexpr double kMostLeast = 1e-6;
    const double least = fields.number("moe_norm_min", {0.0, 1.0}, 1e-12);
    if (least > kMostLeast) {
      fields.refuse("moe_norm_min", fmt::format("shares that do not sum to 1 are not supported; expected at most {}, "
                                                "found {}",
                                                kMostLeast, least));
    }
  }
  // The other one, of a group's largest score, is that of no router here.
  if (traits.never_normalises && fields.word("topk_method", "greedy") != "greedy") {
    fields.refuse("topk_method",
                  fmt::format("{} is not supported; expected \"greedy\"", excerpt(fields.at("topk_method"))));
  }
  if (!traits.by_sigmoids && !traits.reads_factor) return;
  if (!traits.factor_key.empty()) {
    experts.factor = fields.number(std::string(traits.factor_key), {1e-3, 1e3}, traits.factor);
  }
  if (!traits.in_groups) return;
  experts.groups = fields.integer("n_group", 1, kMaxExperts, traits.groups);
  experts.chosen_groups =
      fields.integer("topk_group", 1, experts.groups, std::min(traits.chosen_groups, experts.groups));
  if (!fields.status().ok() || experts.groups == 1) return;
  if (experts.count % experts.groups != 0 || experts.count < 2 * experts.groups) {
    fields.refuse("n_group", fmt::format("expected groups of as many experts out of {}, two at least, found {}",
                                         experts.count, experts.groups));
  } else if (experts.choices > experts.count / experts.groups * experts.chosen_groups) {
    fields.refuse("topk_group", fmt::format("expected groups with {} experts, found {} with {} each", experts.choices,
                                            experts.chosen_groups, experts.count / experts.groups));
  }
}

}  // namespace

bool has_experts(const ModelConfig& config, std::uint32_t block) {
  if (!config.experts) return false;
  return config.experts->dense_blocks.empty() || !config.experts->dense_blocks[block];
}

void refuse_experts(Fields& fields) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"}) {
    if (fields.has(key) && fields.at(key) != 0) {
      fields.refuse(key, "this family is not supported as a mixture of experts; expected a dense model");
    }
  }
}

void parse_experts(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.experts) return;
  const ExpertTraits& own = *traits.experts;
  if (fields.flag("output_router_logits", false)) {
    fields.refuse("output_router_logits", "an auxiliary loss of the routers is not supported; expected false");
  }
  if (fields.number("router_jitter_noise", {0.0, 1.0}, 0.0) != 0.0) {
    fields.refuse("router_jitter_noise", "noise before the routers is not supported; expected 0.0");
  }
  const bool beside_mlp = !own.switch_key.empty();
  if (beside_mlp && !fields.flag(std::string(own.switch_key), false)) return;
  if (own.mixtures == Mixtures::kMixers && std::ranges::count(parse_mixers(fields), Mixer::kExperts) == 0) return;
  const auto or_none = [](std::uint32_t number) { return number == 0 ? std::nullopt : std::optional(number); };
  ExpertsConfig experts;
  config.shared_mlp = !own.shared_mlp_key.empty();
  if (own.may_be_none && fields.at(count_key(fields, own)) == 0) {
    config.intermediate_size = shared_width(fields, own, config, experts);
    return;
  }
  experts.beside_mlp = beside_mlp;
  experts.linear_router = own.linear_router;
  const std::uint32_t least = own.mixtures == Mixtures::kStepped ? 0 : 1;
  const std::string choices_key = either(fields, own.choices_key, "num_experts_per_tok");
  experts.count = fields.integer(count_key(fields, own), least, kMaxExperts, or_none(own.count));
  experts.choices = choices_of(fields, choices_key, own, config.num_layers);
  experts.width = own.width == 0 && !beside_mlp ? config.intermediate_size
                                                : fields.integer("moe_intermediate_size", 1, kMaxIntermediate,
                                                                 or_none(own.width == kInFile ? 0 : own.width));
  parse_choice(fields, own, experts);
  experts.biases = own.stacked;
  if (own.stacked) {
    experts.mxfp4 = fields.has("quantization_config");  // others are refused
    experts.clamped = {fields.number("swiglu_alpha", {1e-3, 1e3}, ClampedSwiglu{}.alpha),
                       fields.number("swiglu_limit", {1e-3, 1e6}, ClampedSwiglu{}.limit)};
  }
  experts.shared_width = shared_width(fields, own, config, experts);
  experts.gates_shared = own.shared_width != 0;
  experts.adapts_shared = own.adapts_shared;
  experts.dense_blocks = parse_dense_blocks(fields, own, config.num_layers);
  if (experts.count == 0 || !fields.status().ok()) return;
  if (experts.choices > experts.count) {
    fields.refuse(choices_key, fmt::format("expected at most as many as there are experts ({}), found {}",
                                           experts.count, experts.choices));
  }
  config.experts = std::move(experts);
}

}  // namespace rondo::model
