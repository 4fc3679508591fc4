// The part of a config.json that says which blocks have a state space, and by which names their weights go.
#include <algorithm>
#include <limits>

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
