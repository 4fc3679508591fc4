// See config_mixers.h; the words are those of transformers 5.23, and of files that older ones wrote.
#include "config_mixers.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "config_space.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr const char* kLetters = "hybrid_override_pattern";

struct MixerWord {
  Mixer mixer;
  std::string_view word;
  std::string_view older;
  char letter;
};
constexpr std::array<MixerWord, 4> kMixerWords = {{{Mixer::kSpace, "linear_attention", "mamba", 'M'},
                                                   {Mixer::kExperts, "moe", "moe", 'E'},
                                                   {Mixer::kAttention, "full_attention", "attention", '*'},
                                                   {Mixer::kMlp, "mlp", "mlp", '-'}}};

void check_layers(Fields& fields, const std::string& key, std::size_t count) {
  if (count >= 1 && count <= kMaxLayers) return;
  fields.expected(key, fmt::format("1 to {} layers", kMaxLayers));
}

std::vector<Mixer> parse_words(Fields& fields, const char* key) {
  const Json& types = fields.at(key);
  std::vector<Mixer> mixers;
  if (!types.is_array()) {
    fields.expected(key, "a list of names");
    return mixers;
  }
  for (const Json& type : types) {
    const auto* const found =
        std::ranges::find_if(kMixerWords, [&](const MixerWord& one) { return type == one.word || type == one.older; });
    if (found != kMixerWords.end()) {
      mixers.push_back(found->mixer);
    } else {
      fields.refuse(key, fmt::format("the layer {} is not supported; supported: linear_attention, full_attention, mlp, "
                                     "moe",
                                     excerpt(type)));
    }
  }
  check_layers(fields, key, mixers.size());
  return mixers;
}

std::vector<Mixer> parse_letters(Fields& fields) {
  std::vector<Mixer> mixers;
  for (const char letter : fields.word(kLetters)) {
    const auto* const found = std::ranges::find(kMixerWords, letter, &MixerWord::letter);
    if (found != kMixerWords.end()) {
      mixers.push_back(found->mixer);
    } else {
      fields.refuse(kLetters,
                    fmt::format("the layer {} is not supported; supported: M (Mamba), * (attention), - (MLP), E "
                                "(experts)",
                                quoted_name(std::string(1, letter))));
    }
  }
  check_layers(fields, kLetters, mixers.size());
  return mixers;
}

/// The older name, where that is there: then it is what transformers takes.
std::string older_or(const Fields& fields, const char* older, const char* key) {
  return fields.present(older) ? older : key;
}

void parse_space_sizes(Fields& fields, StateSpaceConfig& space) {
  space.heads = fields.integer("mamba_num_heads", 1, kMostSpaceHeads, 128);
  space.head_size = fields.integer("mamba_head_dim", 1, kMaxDeltaSize, 64);
  space.state_size = fields.integer("ssm_state_size", 1, kMaxStateSize, 128);
  const std::string groups = older_or(fields, "mamba_n_groups", "n_groups");
  space.groups = parse_space_groups(fields, groups, 8, "mamba_num_heads", space.heads);
  space.convolution = fields.integer(older_or(fields, "mamba_d_conv", "conv_kernel"), 2, kMaxConvolution, 4);
  space.convolution_bias = fields.flag(older_or(fields, "mamba_conv_bias", "use_conv_bias"), true);
  space.linear_bias = fields.flag("use_bias", false);
  // transformers passes over time_step_limit, and takes this for the least one.
  space.least_step = fields.number(older_or(fields, "mamba_dt_min", "time_step_min"), {0.0, 1e6}, 0.001);
  const std::string activation = fields.word("mamba_hidden_act", "silu");
  if (activation == "silu" || activation == "swish") return;
  fields.refuse("mamba_hidden_act",
                fmt::format("the activation {} is not supported; expected silu", quoted_name(activation)));
}

/// What transformers' layers do otherwise than these say, or passes over.
void refuse_unread(Fields& fields, const ModelConfig& config) {
  for (const char* key : {"attention_bias", "mamba_proj_bias"}) {
    if (fields.flag(key, false)) fields.refuse(key, "transformers passes over it; expected false");
  }
  if (config.tie_word_embeddings) {
    fields.refuse("tie_word_embeddings", "transformers ties no weights of this family; expected false");
  }
  if (fields.has("sliding_window")) {
    fields.refuse("sliding_window", "attention of this family slides no window; expected null");
  }
  if (fields.has("moe_latent_size")) {
    fields.refuse("moe_latent_size", "experts that read and give a latent are not supported; expected null");
  }
}

}  // namespace

bool has_attention(const ModelConfig& config, std::uint32_t block) {
  return config.lone_mlps.empty() || !config.lone_mlps[block];
}

bool has_mlp(const ModelConfig& config, std::uint32_t block) {
  return config.lone_mlps.empty() || config.lone_mlps[block];
}

std::vector<Mixer> parse_mixers(Fields& fields) {
  std::vector<Mixer> mixers;
  if (fields.has("layer_types")) {
    mixers = parse_words(fields, "layer_types");
  } else if (fields.has("layers_block_type")) {
    mixers = parse_words(fields, "layers_block_type");
  } else if (fields.has(kLetters)) {
    mixers = parse_letters(fields);
  } else {
    for (const MixerWord& one : kMixerWords) mixers.push_back(one.mixer);
  }
  if (mixers.empty()) mixers.push_back(Mixer::kAttention);  // there is an error then
  return mixers;
}

void parse_lone_halves(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.lone_halves) return;
  refuse_unread(fields, config);
  StateSpaceConfig space;
  for (const Mixer mixer : parse_mixers(fields)) {
    config.lone_mlps.push_back(mixer == Mixer::kMlp || mixer == Mixer::kExperts);
    space.blocks.push_back(mixer == Mixer::kSpace);
  }
  if (std::ranges::count(space.blocks, true) == 0) return;
  parse_space_sizes(fields, space);
  config.state_space = std::move(space);
}

void add_lone_halves(const ModelConfig& config, const FamilyTraits& traits, OrderedJson& out) {
  if (!traits.lone_halves) return;
  OrderedJson types = OrderedJson::array();
  std::string pattern;
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    const Mixer alone = has_experts(config, block) ? Mixer::kExperts : Mixer::kMlp;
    const Mixer attention = is_state_space(config, block) ? Mixer::kSpace : Mixer::kAttention;
    const auto* const found =
        std::ranges::find(kMixerWords, has_mlp(config, block) ? alone : attention, &MixerWord::mixer);
    types.push_back(found->word);
    pattern += found->letter;
  }
  out["layers_block_type"] = std::move(types);
  out[kLetters] = pattern;  // all that others than transformers read
  if (!config.state_space) return;
  const StateSpaceConfig& space = *config.state_space;
  out["mamba_num_heads"] = space.heads;
  out["mamba_head_dim"] = space.head_size;
  out["ssm_state_size"] = space.state_size;
  out["n_groups"] = space.groups;
  out["conv_kernel"] = space.convolution;
  out["use_conv_bias"] = space.convolution_bias;
  out["use_bias"] = space.linear_bias;
  out["time_step_min"] = space.least_step;
  out["mamba_hidden_act"] = "silu";
}

}  // namespace rondo::model
