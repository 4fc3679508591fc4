// The part of a config.json that says what blocks of one half alone are, and by which names their weights go.
#include <algorithm>
#include <filesystem>

#include "helpers.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json mixers() {
  return {{"model_type", "nemotron_h"},
          {"hidden_size", 64},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 300},
          {"hybrid_override_pattern", "ME*-"},
          {"mamba_num_heads", 6},
          {"mamba_head_dim", 16},
          {"n_groups", 3},
          {"ssm_state_size", 12},
          {"n_routed_experts", 4},
          {"moe_intermediate_size", 20},
          {"moe_shared_expert_intermediate_size", 28}};
}

ModelConfig mixed(const Json& json) {
  const auto config = parse_config(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(Mixers, OfAPattern_AreOneHalfEach) {
  const ModelConfig config = mixed(mixers());
  EXPECT_EQ(config.num_layers, 4U);
  EXPECT_EQ(config.lone_mlps, (std::vector<bool>{false, true, false, true}));
  for (std::uint32_t block = 0; block < 4; ++block) {
    EXPECT_NE(has_attention(config, block), has_mlp(config, block)) << block;
    EXPECT_EQ(is_state_space(config, block), block == 0) << block;
    EXPECT_EQ(has_experts(config, block), block == 1) << block;
  }
  EXPECT_EQ(config.state_space->groups, 3U);
  EXPECT_EQ(config.state_space->row_width(), 36U);
  EXPECT_EQ(config.state_space->least_step, 0.001);
  EXPECT_EQ(config.experts->shared_width, 28U);
  EXPECT_TRUE(keeps_states(config));
}

/// Both spellings, and the one that transformers takes where several are there.
TEST(Mixers, InOtherWords_AreTheSame) {
  for (const char* key : {"layers_block_type", "layer_types"}) {
    Json json = mixers();
    json["hybrid_override_pattern"] = "MM";
    json[key] = {"mamba", "moe", "attention", "mlp"};
    EXPECT_EQ(mixed(json).lone_mlps, mixed(mixers()).lone_mlps) << key;
    json[key] = {"linear_attention", "moe", "full_attention", "mlp"};
    EXPECT_EQ(mixed(json).lone_mlps, mixed(mixers()).lone_mlps) << key;
  }
  Json json = mixers();
  json.erase("hybrid_override_pattern");
  EXPECT_EQ(mixed(json).lone_mlps, mixed(mixers()).lone_mlps);
}

TEST(Mixers, WrittenAgain_AreTheSame) {
  for (const char* pattern : {"ME*-", "M-M*", "*-", "EE", "M"}) {
    Json json = mixers();
    json["hybrid_override_pattern"] = pattern;
    const ModelConfig config = mixed(json);
    const Json written = Json::parse(format_config(config));
    EXPECT_EQ(written["hybrid_override_pattern"], pattern);
    EXPECT_EQ(format_config(mixed(written)), format_config(config)) << pattern;
  }
}

TEST(Mixers, WithoutExperts_ReadNothingOfThem) {
  Json json = mixers();
  json["hybrid_override_pattern"] = "M-*-";
  json["n_routed_experts"] = 0;
  EXPECT_FALSE(mixed(json).experts);
}

TEST(Mixers, Weights_HaveNoGateAndOneNorm) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : model_parameters(mixed(mixers()))) names.push_back(spec.name);
  const auto has = [&](const std::string& name) { return std::ranges::count(names, name) == 1; };
  for (const char* name :
       {"model.embeddings.weight", "model.layers.0.norm.weight", "model.layers.0.mixer.b_proj.weight",
        "model.layers.0.mixer.norm.weight", "model.layers.1.mixer.gate.weight",
        "model.layers.1.mixer.gate.e_score_correction_bias", "model.layers.1.mixer.experts.3.up_proj.weight",
        "model.layers.1.mixer.experts.3.down_proj.weight", "model.layers.1.mixer.shared_experts.up_proj.weight",
        "model.layers.2.mixer.o_proj.weight", "model.layers.3.mixer.down_proj.weight", "model.norm_f.weight"}) {
    EXPECT_TRUE(has(name)) << name;
  }
  EXPECT_TRUE(std::ranges::none_of(names, [](const std::string& name) {
    return name.find("gate_proj") != std::string::npos || name.find("layernorm") != std::string::npos;
  }));
}

/// PEFT refuses out_proj in this family, and takes no name for the experts' tensors.
TEST(Mixers, LinearLayers_AreAdaptedAsPeftDoes) {
  const ModelConfig config = mixed(mixers());
  LoraConfig lora;
  ASSERT_TRUE(resolve_targets(config, "all", "", lora).ok());
  EXPECT_EQ(lora.targets,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "in_proj"}));
  EXPECT_TRUE(lora.parameters.empty());
  LoraConfig other;
  expect_refused(resolve_targets(config, "out_proj", "", other), {"lora_target", "out_proj", "in_proj"});
  std::vector<std::string> tensors;
  for (const ExpertTensor& tensor : expert_tensors(config)) tensors.push_back(tensor.path);
  EXPECT_EQ(tensors,
            (std::vector<std::string>{"model.layers.1.mixer.gate.weight", "model.layers.1.mixer.experts.up_proj",
                                      "model.layers.1.mixer.experts.down_proj"}));
}

struct WrongMixer {
  const char* name;
  Json change;
  std::vector<std::string> parts;  // of the message
};
void PrintTo(const WrongMixer& wrong, std::ostream* out) { *out << wrong.name; }

class WrongMixers : public testing::TestWithParam<WrongMixer> {};

TEST_P(WrongMixers, AreRefused_NamingTheKey) {
  Json json = mixers();
  for (const auto& [key, value] : GetParam().change.items()) json[key] = value;
  expect_refused(parse_config(json.dump(), "dir/config.json").status(), GetParam().parts);
}

INSTANTIATE_TEST_SUITE_P(
    , WrongMixers,
    testing::Values(
        WrongMixer{"letter", {{"hybrid_override_pattern", "M|*"}}, {"hybrid_override_pattern", "\"|\"", "E (experts)"}},
        WrongMixer{"no_letter", {{"hybrid_override_pattern", ""}}, {"hybrid_override_pattern", "1 to"}},
        WrongMixer{"word", {{"layers_block_type", {"mamba", "rwkv"}}}, {"layers_block_type", "\"rwkv\"", "moe"}},
        WrongMixer{"no_word", {{"layers_block_type", Json::array()}}, {"layers_block_type", "1 to"}},
        WrongMixer{"no_list", {{"layers_block_type", "M-"}}, {"layers_block_type", "a list of names"}},
        WrongMixer{"groups", {{"n_groups", 4}}, {"n_groups", "mamba_num_heads (6)", "found 4"}},
        WrongMixer{"older_groups", {{"mamba_n_groups", 4}}, {"mamba_n_groups", "mamba_num_heads (6)", "found 4"}},
        WrongMixer{"wide_state", {{"ssm_state_size", 257}}, {"ssm_state_size", "256", "257"}},
        WrongMixer{"long_convolution", {{"conv_kernel", 9}}, {"conv_kernel", "8", "9"}},
        WrongMixer{"gelu_in_spaces", {{"mamba_hidden_act", "gelu"}}, {"mamba_hidden_act", "\"gelu\"", "silu"}},
        WrongMixer{"silu_in_mlps", {{"mlp_hidden_act", "silu"}}, {"mlp_hidden_act", "\"silu\"", "relu2"}},
        WrongMixer{"latent", {{"moe_latent_size", 16}}, {"moe_latent_size", "expected null"}},
        WrongMixer{"window", {{"sliding_window", 16}}, {"sliding_window", "expected null"}},
        WrongMixer{"tied", {{"tie_word_embeddings", true}}, {"tie_word_embeddings", "expected false"}},
        WrongMixer{"biased_attention", {{"attention_bias", true}}, {"attention_bias", "expected false"}},
        WrongMixer{"unread_bias", {{"mamba_proj_bias", true}}, {"mamba_proj_bias", "expected false"}},
        WrongMixer{"dropout", {{"hidden_dropout", 0.1}}, {"hidden_dropout", "expected 0.0"}},
        WrongMixer{"shares_none",
                   {{"moe_shared_expert_intermediate_size", 0}},
                   {"moe_shared_expert_intermediate_size", "found 0"}},
        WrongMixer{"groups_of_experts", {{"n_group", 3}}, {"n_group", "out of 4"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace rondo::model
