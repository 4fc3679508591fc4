// The part of a config.json that says which blocks have a state space, and by which names their weights go.
#include <algorithm>
#include <limits>
#include <map>

#include "helpers.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

Json spaces() {
  return {{"model_type", "granitemoehybrid"},
          {"hidden_size", 64},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"vocab_size", 300},
          {"num_local_experts", 0},
          {"intermediate_size", 96},
          {"shared_intermediate_size", 96},
          {"layer_types", {"mamba", "attention", "mamba"}},
          {"mamba_n_heads", 4},
          {"mamba_d_state", 16}};
}

/// With the largest states.
Json bamba() {
  return {{"model_type", "bamba"},    {"hidden_size", 64},         {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},  {"vocab_size", 300},
          {"intermediate_size", 96},  {"attn_layer_indices", {1}}, {"mamba_n_heads", 4}};
}

Json falcon() {
  return {{"model_type", "falcon_h1"},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 300},
          {"intermediate_size", 96},
          {"mamba_d_ssm", 48},
          {"mamba_n_heads", 3},
          {"mamba_d_state", 20},
          {"attention_in_multiplier", 2.0},
          {"key_multiplier", 0.125},
          {"attention_out_multiplier", 1.5},
          {"ssm_in_multiplier", 0.5},
          {"ssm_out_multiplier", 0.375},
          {"ssm_multipliers", {0.5, 1.0, 1.5, 2.0, 2.5}},
          {"mlp_multipliers", {0.5, 4.0}},
          {"embedding_multiplier", 3.0},
          {"lm_head_multiplier", 0.25}};
}

ModelConfig parsed(const Json& json) {
  const auto config = parse_config(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(StateSpaces, OfAFile_HaveItsSizesAndDefaults) {
  const ModelConfig config = parsed(spaces());
  ASSERT_TRUE(config.state_space);
  EXPECT_EQ(config.state_space->blocks, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(config.state_space->head_size, 32U);  // 2 * 64 over 4
  EXPECT_EQ(config.state_space->convolution, 4U);
  EXPECT_TRUE(config.state_space->convolution_bias);
  EXPECT_FALSE(config.state_space->linear_bias);
  EXPECT_EQ(config.state_space->most_step, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(keeps_states(config));
}

TEST(StateSpaces, WhereNoLayerIsNamed_AreEverywhere) {
  Json json = spaces();
  json.erase("layer_types");
  EXPECT_EQ(parsed(json).state_space->blocks, std::vector<bool>(3, true));
}

TEST(StateSpaces, WhereAllLayersAttend_AreNowhere) {
  Json json = spaces();
  json["layer_types"] = {"attention", "full_attention", "attention"};
  json["mamba_n_heads"] = 7;  // which nothing reads then
  EXPECT_FALSE(parsed(json).state_space);
}

/// As transformers 5 writes what is not a number in JSON.
TEST(StateSpaces, WithALimitOfTimeSteps_KeepIt) {
  Json json = spaces();
  json["time_step_limit"] = {0.25, {{"__float__", "Infinity"}}};
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.state_space->least_step, 0.25);
  EXPECT_EQ(config.state_space->most_step, std::numeric_limits<double>::infinity());
  const ModelConfig again = parsed(Json::parse(format_config(config)));
  EXPECT_EQ(again.state_space->least_step, 0.25);
  EXPECT_EQ(again.state_space->most_step, std::numeric_limits<double>::infinity());
}

TEST(StateSpaces, LinearLayers_AreAdaptedAsOneAndTheLast) {
  const ModelConfig config = parsed(spaces());
  std::vector<std::string> names;
  for (const LinearModule& linear : attention_linears(config, 2)) names.push_back(linear.path);
  EXPECT_EQ(names, (std::vector<std::string>{"model.layers.2.mamba.in_proj", "model.layers.2.mamba.out_proj"}));
  LoraConfig lora;
  ASSERT_TRUE(resolve_targets(config, "all", "", lora).ok());
  for (const char* name : {"in_proj", "out_proj", "q_proj", "input_linear", "output_linear"}) {
    EXPECT_EQ(std::ranges::count(lora.targets, name), 1) << name;
  }
}

/// Bamba's: all but those that are listed, where transformers passes over numbers of no layer.
TEST(StateSpaces, WhereAttentionIsListed_AreInAllOthers) {
  Json json = bamba();
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.state_space->blocks, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(config.without_rope.empty());
  EXPECT_EQ(config.rope.turned_share, 0.5);
  EXPECT_EQ(config.state_space->state_size, 256U);
  json["attn_layer_indices"] = {1, 3, -1};
  EXPECT_EQ(parsed(json).state_space->blocks, config.state_space->blocks);
  json["attn_layer_indices"] = nullptr;
  EXPECT_EQ(parsed(json).state_space->blocks, std::vector<bool>(3, true));
  json["attn_layer_indices"] = {0, 1, 2};
  EXPECT_FALSE(parsed(json).state_space);
}

/// transformers reads Bamba's share of channels that turn from the rotary settings alone.
TEST(StateSpaces, OfBamba_TurnAsTheSettingsSay) {
  Json json = bamba();
  json["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(parsed(json).rope.turned_share, 0.5);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e3}, {"partial_rotary_factor", 0.75}};
  const ModelConfig again = parsed(Json::parse(format_config(parsed(json))));
  EXPECT_EQ(again.rope.turned_share, 0.75);
  EXPECT_EQ(again.rope.theta, 5e3);
  json["rope_parameters"]["partial_rotary_factor"] = 0.2;
  expect_refused(parse_config(json.dump(), "config.json").status(),
                 {"partial_rotary_factor", "even number", "found 3"});
}

TEST(StateSpaces, BesideAttention_AreInAllBlocks) {
  const ModelConfig config = parsed(falcon());
  EXPECT_EQ(config.state_space->blocks, std::vector<bool>(2, true));
  EXPECT_EQ(config.state_space->width(), 48U);
  EXPECT_FALSE(config.state_space->normed);
  EXPECT_EQ(attention_path(config, 1), "model.layers.1.self_attn");
  EXPECT_EQ(space_path(config, 1), "model.layers.1.mamba");
  std::vector<std::string> names;
  for (const LinearModule& linear : linear_modules(config)) {
    if (linear.layer == 1) names.push_back(linear.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"in_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                             "down_proj"}));
}

/// What a linear layer reads and what it gives is multiplied at once.
TEST(StateSpaces, BesideAttention_HaveFactorsOfLinearLayers) {
  const ModelConfig config = parsed(falcon());
  std::map<std::string, double> factors;
  for (const LinearModule& linear : attention_linears(config, 0)) {
    for (const LinearModule& part : parts_or_self(linear)) factors[part.name] = part.factor;
  }
  for (const LinearModule& linear : mlp_linears(config, 0)) factors[linear.name] = linear.factor;
  const std::map<std::string, double> expected = {
      {"z_proj", 0.25},    {"x_proj", 0.5},  {"b_proj", 0.75},  {"c_proj", 1.0}, {"dt_proj", 1.25},
      {"out_proj", 0.375}, {"q_proj", 2.0},  {"k_proj", 0.25},  {"v_proj", 2.0}, {"o_proj", 1.5},
      {"gate_proj", 0.5},  {"up_proj", 1.0}, {"down_proj", 4.0}};
  EXPECT_EQ(factors, expected);
  EXPECT_EQ(config.logits_scaling, 4.0);
  EXPECT_EQ(config.embedding_multiplier, 3.0);
}

TEST(StateSpaces, BesideAttention_WrittenAgain_AreTheSame) {
  for (const bool normed : {false, true}) {
    Json json = falcon();
    json["mamba_rms_norm"] = normed;
    const ModelConfig config = parsed(json);
    const ModelConfig again = parsed(Json::parse(format_config(config)));
    EXPECT_EQ(again.state_space->normed, normed);
    EXPECT_EQ(again.state_space->normed_first, normed);
    EXPECT_EQ(again.state_space->width(), 48U);
    for (const LinearModule& linear : attention_linears(config, 0)) {
      for (std::size_t i = 0; i < linear.parts.size(); ++i) {
        EXPECT_EQ(attention_linears(again, 0)[0].parts[i].factor, linear.parts[i].factor) << linear.parts[i].name;
      }
    }
    EXPECT_EQ(again.linear_factors.key, 0.125);
    EXPECT_EQ(again.linear_factors.down, 4.0);
    EXPECT_EQ(again.logits_scaling, 4.0);
  }
}

struct WrongSpace {
  const char* name;
  Json change;
  std::vector<std::string> parts;  // of the message
};
void PrintTo(const WrongSpace& wrong, std::ostream* out) { *out << wrong.name; }

/// `json`, and in it what is wrong.
void expect_refused_with(Json json, const WrongSpace& wrong) {
  for (const auto& [key, value] : wrong.change.items()) json[key] = value;
  expect_refused(parse_config(json.dump(), "dir/config.json").status(), wrong.parts);
}

class WrongSpaces : public testing::TestWithParam<WrongSpace> {};

TEST_P(WrongSpaces, AreRefused_NamingTheKey) { expect_refused_with(spaces(), GetParam()); }

TEST(StateSpaces, OfBambaThatAreWrong_AreRefusedNamingTheKey) {
  for (const WrongSpace& wrong :
       {WrongSpace{"", {{"attn_layer_indices", 1}}, {"attn_layer_indices", "a list of numbers of layers"}},
        WrongSpace{"", {{"attn_layer_indices", {"1"}}}, {"attn_layer_indices", "a list of numbers of layers"}},
        WrongSpace{"", {{"z_loss_coefficient", 1e-4}}, {"z_loss_coefficient", "expected 0.0"}},
        WrongSpace{"", {{"mamba_d_state", 257}}, {"mamba_d_state", "256", "257"}}}) {
    expect_refused_with(bamba(), wrong);
  }
}

TEST(StateSpaces, BesideAttentionThatAreWrong_AreRefusedNamingTheKey) {
  for (const WrongSpace& wrong :
       {WrongSpace{"", {{"mamba_d_ssm", 50}}, {"mamba_n_heads", "3 heads", "mamba_d_ssm (50)"}},
        WrongSpace{"", {{"mamba_d_ssm", nullptr}}, {"mamba_n_heads", "mamba_expand * hidden_size (128)"}},
        WrongSpace{"", {{"ssm_multipliers", {1.0, 2.0}}}, {"ssm_multipliers", "a list of 5 numbers"}},
        WrongSpace{"", {{"mlp_multipliers", {1.0, 0.0}}}, {"mlp_multipliers", "a list of 2 numbers"}},
        WrongSpace{"", {{"projectors_bias", true}}, {"projectors_bias", "mamba_proj_bias", "false"}},
        WrongSpace{"",
                   {{"mamba_proj_bias", true}, {"projectors_bias", true}},
                   {"mamba_proj_bias", "ssm_multipliers", "expected false"}},
        WrongSpace{"", {{"attention_bias", true}}, {"attention_bias", "key_multiplier", "expected false"}},
        WrongSpace{"", {{"mlp_bias", true}}, {"mlp_bias", "mlp_multipliers", "expected false"}},
        WrongSpace{"",
                   {{"mamba_rms_norm", true}, {"mamba_n_groups", 3}},
                   {"mamba_norm_before_gate", "groups", "expected false"}},
        WrongSpace{"", {{"hidden_act", "gelu"}}, {"hidden_act", "silu", "Mamba"}}}) {
    expect_refused_with(falcon(), wrong);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , WrongSpaces,
    testing::Values(
        WrongSpace{"another_layer", {{"layer_types", {"attention", "mamba", "rwkv"}}}, {"layer_types", "\"rwkv\""}},
        WrongSpace{"fewer_layers", {{"layer_types", {"mamba"}}}, {"layer_types", "num_hidden_layers (3)"}},
        WrongSpace{"wide_state", {{"mamba_d_state", 257}}, {"mamba_d_state", "256", "257"}},
        WrongSpace{"groups", {{"mamba_n_groups", 3}}, {"mamba_n_groups", "mamba_n_heads (4)", "found 3"}},
        WrongSpace{"another_width",
                   {{"mamba_d_head", 16}},
                   {"mamba_d_head", "mamba_expand * hidden_size (128)", "heads of 16"}},
        WrongSpace{"uneven_heads", {{"mamba_n_heads", 5}}, {"mamba_n_heads", "5 heads", "(128)"}},
        WrongSpace{"wide_heads", {{"mamba_n_heads", 1}, {"mamba_expand", 4}}, {"mamba_n_heads", "128", "found 256"}},
        WrongSpace{"long_convolution", {{"mamba_d_conv", 9}}, {"mamba_d_conv", "8", "found 9"}},
        WrongSpace{"steps_backward", {{"time_step_limit", {0.5, 0.1}}}, {"time_step_limit", "least and the largest"}},
        WrongSpace{"one_step", {{"time_step_limit", {0.5}}}, {"time_step_limit"}},
        WrongSpace{"biases_times_a_factor",
                   {{"mamba_proj_bias", true}, {"residual_multiplier", 0.5}},
                   {"mamba_proj_bias", "residual_multiplier", "expected false"}},
        WrongSpace{"gelu", {{"hidden_act", "gelu"}}, {"hidden_act", "silu", "Mamba"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace rondo::model
