// PEFT's adapter_config.json: read, written, and refused where it asks for what is not supported.
#include "rondo/model/adapter.h"

#include <cmath>
#include <set>
#include <string>

#include "helpers.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kAll = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

Json good_adapter() {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"r", 8},
          {"lora_alpha", 16},
          {"lora_dropout", 0.05},
          {"target_modules", {"v_proj", "q_proj"}},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"use_dora", false},
          {"modules_to_save", nullptr},
          {"rank_pattern", Json::object()},
          {"alpha_pattern", Json::object()},
          {"loftq_config", Json::object()},
          {"base_model_name_or_path", "org/name"}};
}

absl::StatusOr<LoraConfig> load(const Json& document) {
  const auto folder = fresh_folder();
  put(folder / "adapter_config.json", document.dump());
  return load_adapter_config(folder);
}

ModelConfig small_model() {
  ModelConfig config;
  config.model_type = "llama";
  config.hidden_size = 8;
  config.intermediate_size = 16;
  config.num_layers = 2;
  config.num_heads = config.num_kv_heads = 2;
  config.head_dim = 4;
  return config;
}

TEST(LoadAdapterConfig, WhatPeftWrites_IsRead) {
  const auto config = load(good_adapter());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank, 8U);
  EXPECT_EQ(config->dropout, 0.05);
  EXPECT_EQ(config->base_model, "org/name");
  EXPECT_THAT(config->targets, testing::ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(config->scale_of("model.layers.0.self_attn.q_proj"), 2.0);
}

TEST(LoadAdapterConfig, Targets_HaveSeveralSpellings) {
  Json adapter = good_adapter();
  adapter["target_modules"] = "all-linear";
  EXPECT_EQ(load(adapter)->targets, linear_module_names());
  adapter["target_modules"] = {"self_attn.o_proj", "mlp.up_proj", "o_proj"};
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("o_proj", "up_proj"));
  adapter["target_modules"] = {"model.layers.1.mlp.up_proj", "layers.0.mlp.up_proj"};
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("up_proj"));
}

/// Each block has one of two kinds of attention.
TEST(LoadAdapterConfig, TargetsByLayer_NeedBeInEachLayerByOneModule) {
  Json adapter = good_adapter();
  adapter["target_modules"] = {"layers.0.linear_attn.in_proj_z", "layers.1.self_attn.q_proj", "layers.0.mlp.up_proj",
                               "layers.1.mlp.up_proj", "layers.0.linear_attn.out_proj"};
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("q_proj", "up_proj", "in_proj_z", "out_proj"));
  adapter["target_modules"] = {"layers.0.self_attn.q_proj", "layers.1.self_attn.v_proj"};
  expect_refused(load(adapter).status(), {"target_modules", "single layers"});
  adapter["target_modules"] = {"layers.1.self_attn.q_proj"};
  expect_refused(load(adapter).status(), {"target_modules", "single layers"});
}

TEST(LoadAdapterConfig, TargetsInASharedExpert_AreTheirNames) {
  Json adapter = good_adapter();
  adapter["target_modules"] = {"model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.mlp.shared_expert_gate",
                               "model.layers.0.self_attn.q_proj"};
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("q_proj", "up_proj", "shared_expert_gate"));
  adapter["target_modules"] = {"shared_expert.down_proj", "mlp.shared_expert_gate"};
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("down_proj", "shared_expert_gate"));
  adapter["target_modules"] = {"model.layers.0.router.proj", "layers.0.mlp.up_proj"};  // Gemma 4's
  EXPECT_THAT(load(adapter)->targets, testing::ElementsAre("up_proj", "proj"));
  adapter["target_modules"] = {"mlp.shared_expert"};
  expect_refused(load(adapter).status(), {"target_modules", "mlp.shared_expert"});
}

absl::StatusOr<LoraConfig> load_with_factors(const Json& document, const std::vector<std::string>& paths) {
  const auto folder = fresh_folder();
  put(folder / "adapter_config.json", document.dump());
  std::vector<TensorToWrite> tensors;
  for (const std::string& path : paths) {
    for (const char factor : {'A', 'B'}) {
      tensors.push_back({adapter_tensor_name(path, factor), WeightType::kFloat32, {1, 1}});
    }
  }
  const auto fill = [](std::size_t /*index*/, std::span<std::byte> /*out*/) { return absl::OkStatus(); };
  const auto written =
      write_safetensors(folder / "adapter_model.safetensors", tensors, {}, produce_whole(tensors, fill));
  return written.ok() ? load_adapter_config(folder) : written;
}

TEST(LoadAdapterConfig, WhatChoosesAmongModules_IsReadOffTheFactors) {
  const std::vector<std::string> paths = {"model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"};
  const std::vector<Json> changes = {
      {{"target_modules", ".*(0\\.mlp\\.up|1\\.self_attn\\.q)_proj"}},
      {{"target_modules", {"layers.1.self_attn.q_proj", "layers.0.mlp.up_proj"}}},
      {{"target_modules", {"1.self_attn.q_proj", "0.mlp.up_proj"}}},
      {{"target_modules", {"q_proj", "up_proj"}}, {"exclude_modules", ".*(0.*q|1.*up)_.*"}},
      {{"target_modules", {"q_proj", "linear_1", "0.mlp.up_proj"}}, {"exclude_modules", ".*(0.*q|tower).*"}},
      {{"target_modules", "all-linear"}, {"exclude_modules", {"o_proj"}}}};
  for (const Json& change : changes) {
    Json adapter = good_adapter();
    adapter.update(change);
    const auto config = load_with_factors(adapter, paths);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->targets, testing::ElementsAre("q_proj", "up_proj")) << change;
    std::vector<std::string> adapted;
    for (const LinearModule& module : linear_modules(small_model())) {
      if (config->adapts(module)) adapted.push_back(module.path);
    }
    EXPECT_THAT(adapted, testing::UnorderedElementsAreArray(paths)) << change;
    const auto again = load_with_factors(Json::parse(format_adapter_config(*config)), paths);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->paths, config->paths);
  }
}

/// As PEFT's all-linear writes them of Nemotron-H, Granite 4, DeepSeek and Hunyuan.
TEST(LoadAdapterConfig, PathsOfEveryFamilysModules_AreRead) {
  const std::vector<std::string> paths = {"model.layers.0.mixer.in_proj",
                                          "model.layers.1.mixer.shared_experts.up_proj",
                                          "model.layers.2.mamba.in_proj",
                                          "model.layers.3.mlp.shared_experts.down_proj",
                                          "model.layers.4.shared_mlp.input_linear",
                                          "model.layers.5.mlp.shared_mlp.gate_proj",
                                          "model.layers.6.mlp.gate.wg"};
  Json adapter = good_adapter();
  adapter["target_modules"] = paths;
  const auto config = load_with_factors(adapter, paths);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->targets,
              testing::UnorderedElementsAre("in_proj", "up_proj", "down_proj", "input_linear", "gate_proj", "wg"));
  EXPECT_EQ(config->paths, std::set<std::string>(paths.begin(), paths.end()));
}

TEST(LoadAdapterConfig, ModuleWithoutFactors_IsNamed) {
  Json adapter = good_adapter();
  adapter["target_modules"] = {"layers.0.mlp.up_proj", "layers.1.mlp.up_proj"};
  expect_refused(load_with_factors(adapter, {"model.layers.0.mlp.up_proj"}).status(),
                 {"target_modules", "layers.1.mlp.up_proj", "adapter_model.safetensors"});
  adapter["target_modules"] = {"layers.0.mlp.up_proj", "linear_1"};
  expect_refused(load_with_factors(adapter, {"model.layers.0.mlp.up_proj"}).status(), {"target_modules", "linear_1"});
}

TEST(LoadAdapterConfig, RsLora_DividesByTheRoot) {
  Json adapter = good_adapter();
  adapter["use_rslora"] = true;
  EXPECT_DOUBLE_EQ(load(adapter)->scale_of("q_proj"), 16.0 / std::sqrt(8.0));
}

TEST(LoadAdapterConfig, Dora_HasMagnitudesOfEveryModule) {
  Json adapter = good_adapter();
  EXPECT_FALSE(load(adapter)->use_dora);
  adapter["use_dora"] = true;
  EXPECT_TRUE(load(adapter)->use_dora);
}

struct BadAdapter {
  std::string name;
  Json change;
  std::vector<std::string> parts;
};

void PrintTo(const BadAdapter& wrong, std::ostream* out) { *out << wrong.name; }

class WrongAdapter : public testing::TestWithParam<BadAdapter> {};

TEST_P(WrongAdapter, IsRefused_NamingFileAndKey) {
  Json adapter = good_adapter();
  for (const auto& [key, value] : GetParam().change.items()) adapter[key] = value;
  expect_refused(load(adapter).status(), {"adapter_config.json"});
  expect_refused(load(adapter).status(), GetParam().parts);
}

INSTANTIATE_TEST_SUITE_P(
    Values, WrongAdapter,
    testing::Values(
        BadAdapter{"excluded", {{"exclude_modules", {"q_proj"}}}, {"exclude_modules", "vision_tower"}},
        BadAdapter{"kind", {{"peft_type", "IA3"}}, {"peft_type", "IA3", "LORA"}},
        BadAdapter{"no_kind", {{"peft_type", nullptr}}, {"peft_type"}},
        BadAdapter{"task", {{"task_type", "SEQ_CLS"}}, {"task_type", "SEQ_CLS"}},
        BadAdapter{"rank_zero", {{"r", 0}}, {"r:", "found 0"}},
        BadAdapter{"rank_huge", {{"r", 1000000}}, {"r:", "65536"}},
        BadAdapter{"rank_word", {{"r", "8"}}, {"r:", "an integer"}},
        BadAdapter{"alpha_none", {{"lora_alpha", nullptr}}, {"lora_alpha"}},
        BadAdapter{"alpha_zero", {{"lora_alpha", 0}}, {"lora_alpha"}},
        BadAdapter{"dropout_one", {{"lora_dropout", 1.0}}, {"lora_dropout", "less than 1"}},
        BadAdapter{"dropout_negative", {{"lora_dropout", -0.1}}, {"lora_dropout"}},
        BadAdapter{"bias", {{"bias", "all"}}, {"bias", "none", "all"}},
        BadAdapter{"dora_word", {{"use_dora", "yes"}}, {"use_dora"}},
        BadAdapter{"rank_regex", {{"rank_pattern", {{".*q_proj", 4}}}}, {"rank_pattern", "plain", ".*q_proj"}},
        BadAdapter{"rank_half", {{"rank_pattern", {{"q_proj", 4.5}}}}, {"rank_pattern", "q_proj", "65536"}},
        BadAdapter{"rank_none", {{"rank_pattern", {{"q_proj", 0}}}}, {"rank_pattern", "q_proj"}},
        BadAdapter{"rank_list", {{"rank_pattern", {4}}}, {"rank_pattern", "an object"}},
        BadAdapter{"alpha_negative", {{"alpha_pattern", {{"q_proj", -4}}}}, {"alpha_pattern", "q_proj"}},
        BadAdapter{"saved_norm", {{"modules_to_save", {"norm"}}}, {"modules_to_save", "lm_head", "norm"}},
        BadAdapter{"transposed", {{"fan_in_fan_out", true}}, {"fan_in_fan_out"}},
        BadAdapter{"layer_negative", {{"layers_to_transform", {-1}}}, {"layers_to_transform", "numbers"}},
        BadAdapter{"layer_word", {{"layers_to_transform", "last"}}, {"layers_to_transform", "numbers"}},
        BadAdapter{"layers_elsewhere",
                   {{"layers_to_transform", {0}}, {"layers_pattern", "h"}},
                   {"layers_pattern", "\"layers\""}},
        BadAdapter{"pissa", {{"init_lora_weights", "pissa_niter_4"}}, {"init_lora_weights", "pissa_niter_4"}},
        BadAdapter{"target_regex", {{"target_modules", ".*_proj"}}, {"target_modules", ".*_proj"}},
        BadAdapter{"target_none", {{"target_modules", Json::array()}}, {"target_modules", "[]"}},
        BadAdapter{"target_null", {{"target_modules", nullptr}}, {"target_modules"}},
        BadAdapter{
            "target_head", {{"target_modules", {"q_proj", "lm_head"}}}, {"target_modules", "lm_head", "up_proj"}},
        BadAdapter{"target_number", {{"target_modules", {7}}}, {"target_modules", "7"}},
        BadAdapter{"target_one_layer", {{"target_modules", {"model.layers.3.self_attn.q_proj"}}}, {"single layers"}},
        BadAdapter{"target_cut_path", {{"target_modules", {"model.layers.3"}}}, {"target_modules", "model.layers.3"}},
        BadAdapter{"target_layer_word", {{"target_modules", {"layers.x.q_proj"}}}, {"target_modules", "layers.x"}},
        BadAdapter{"target_layer_huge", {{"target_modules", {"layers.99999999999.mlp.up_proj"}}}, {"99999999999"}},
        BadAdapter{"target_layer_last", {{"target_modules", {"layers.4294967295.mlp.up_proj"}}}, {"single layers"}}),
    [](const auto& test_info) { return test_info.param.name; });

TEST(LoadAdapterConfig, NoFileOrNoObject_IsRefused) {
  expect_refused(load_adapter_config(fresh_folder()).status(),
                 {"expected the directory of an adapter", "found no adapter_config.json"});
  expect_refused(load(Json::array()).status(), {"adapter_config.json", "an object"});
}

TEST(FormatAdapterConfig, ReadAgain_IsTheSame) {
  LoraConfig config;
  config.rank = 5;
  config.alpha = 7.5;
  config.dropout = 0.25;
  config.use_rslora = true;
  config.use_dora = true;
  config.targets = {"k_proj", "down_proj"};
  config.base_model = "a/b\xff";  // a path need not be UTF-8
  config.rank_pattern = {{"layers.1.self_attn.k_proj", 2}, {"k_proj", 3}};
  config.alpha_pattern = {{"down_proj", 0.5}};
  config.layers = {1, 3};
  config.modules_to_save = {"lm_head"};
  const Json document = Json::parse(format_adapter_config(config), nullptr, false);
  ASSERT_TRUE(document.is_object());
  const auto again = load(document);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rank, config.rank);
  EXPECT_EQ(again->alpha, config.alpha);
  EXPECT_EQ(again->dropout, config.dropout);
  EXPECT_EQ(again->use_rslora, config.use_rslora);
  EXPECT_EQ(again->use_dora, config.use_dora);
  EXPECT_EQ(again->targets, config.targets);
  EXPECT_EQ(again->alpha_pattern, config.alpha_pattern);
  EXPECT_EQ(again->layers, config.layers);
  EXPECT_EQ(again->modules_to_save, config.modules_to_save);
}

TEST(LoraConfigOfModule, FirstPatternThatFits_Decides) {
  LoraConfig config;
  config.rank = 8;
  config.alpha = 16;
  config.rank_pattern = {{"layers.1.self_attn.k_proj", 2}, {"k_proj", 4}};
  config.alpha_pattern = {{"v_proj", 3}};
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.k_proj"), 2U);
  EXPECT_EQ(config.rank_of("model.layers.11.self_attn.k_proj"), 4U);
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.v_proj"), 8U);
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.block_proj"), 8U) << "a part of a name is no fit";
  EXPECT_DOUBLE_EQ(config.scale_of("model.layers.0.self_attn.k_proj"), 4.0);
  EXPECT_DOUBLE_EQ(config.scale_of("model.layers.0.self_attn.v_proj"), 3.0 / 8.0);
  config.use_rslora = true;
  EXPECT_DOUBLE_EQ(config.scale_of("model.layers.0.self_attn.k_proj"), 8.0);
}

TEST(FormatAdapterConfig, WholeAlpha_IsAnInteger) {
  LoraConfig config;
  config.targets = {"q_proj"};
  EXPECT_TRUE(Json::parse(format_adapter_config(config), nullptr, false)["lora_alpha"].is_number_integer());
}

/// What words of lora_target and target_parameters make of an adapter of rank 8.
absl::StatusOr<LoraConfig> resolved(const ModelConfig& model, const std::string& words,
                                    const std::string& parameters = "", LoraConfig lora = {}) {
  const absl::Status status = resolve_targets(model, words, parameters, lora);
  if (!status.ok()) return status;
  return lora;
}

TEST(ResolveTargets, Words_BecomeNamesInTheModelsOrder) {
  EXPECT_EQ(resolved(small_model(), "all")->targets, kAll);
  EXPECT_THAT(resolved(small_model(), "up_proj, q_proj,up_proj")->targets, testing::ElementsAre("q_proj", "up_proj"));
  EXPECT_EQ(resolved(small_model(), "q_proj,all")->targets, kAll);
}

TEST(ResolveTargets, EndsOfPaths_ChooseAmongModulesOfAName) {
  const ModelConfig model = small_model();
  // These say no more than the names.
  const auto all = resolved(model, "self_attn.q_proj,mlp.down_proj");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->targets, testing::ElementsAre("q_proj", "down_proj"));
  EXPECT_THAT(all->paths, testing::IsEmpty());
  const std::string second = "model.layers.1.";
  const auto some = resolved(model, "layers.1.self_attn.q_proj, down_proj");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(some->targets, testing::ElementsAre("q_proj", "down_proj"));
  std::set<std::string> expected = {second + "self_attn.q_proj"};
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    expected.insert("model.layers." + std::to_string(layer) + ".mlp.down_proj");
  }
  EXPECT_EQ(some->paths, expected);
  EXPECT_EQ(Json::parse(format_adapter_config(*some), nullptr, false)["target_modules"], Json(expected));
  EXPECT_THAT(resolved(model, "layers.1.self_attn.q_proj,q_proj")->paths, testing::IsEmpty());
  LoraConfig last;
  last.layers = {1};
  EXPECT_THAT(resolved(model, "layers.1.self_attn.q_proj, down_proj", "", last)->paths,
              testing::ElementsAre(second + "mlp.down_proj", second + "self_attn.q_proj"));
  expect_refused(resolved(model, "layers.0.self_attn.q_proj", "", last).status(),
                 {"lora_target", "model.layers.0.self_attn.q_proj", "layers_to_transform (1)"});
  for (const char* none : {"attn.q_proj", "layers.9.self_attn.q_proj", ".q_proj", "self_attn"}) {
    expect_refused(resolved(model, none).status(), {"lora_target", none});
  }
}

TEST(ResolveTargets, UnknownWord_IsNamedWithThePossibleOnes) {
  expect_refused(resolved(small_model(), "q_proj,c_attn").status(), {"lora_target", "\"c_attn\"", "down_proj"});
  expect_refused(resolved(small_model(), "lm_head").status(), {"lm_head"});
  expect_refused(resolved(small_model(), "").status(), {"\"\""});
  expect_refused(resolved(small_model(), "q_proj,").status(), {"\"\""});
  expect_refused(resolved(small_model(), "none").status(), {"\"none\""});
}

ModelConfig with_experts() {
  ModelConfig config = small_model();
  config.experts = {4, 2, 8, true, {false, true}};
  return config;
}

/// As PEFT's all-linear: gate and up are one tensor, whose rank and alpha are those of two.
TEST(ResolveTargets, OfAModelWithExperts_AreTheirTensorsToo) {
  const auto all = resolved(with_experts(), "all");
  EXPECT_THAT(all->targets, testing::ElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  EXPECT_THAT(all->parameters, testing::ElementsAre("gate.weight", "gate_up_proj", "down_proj"));
  const std::string experts = "model.layers.0.mlp.experts.";
  EXPECT_EQ(all->rank_of(experts + "gate_up_proj"), 16U);
  EXPECT_EQ(all->rank_of(experts + "down_proj"), 8U);
  EXPECT_EQ(all->scale_of(experts + "gate_up_proj"), 2.0);
  EXPECT_TRUE(all->adapts_tensor(experts + "down_proj"));
  EXPECT_FALSE(all->adapts_tensor("model.layers.0.mlp.shared_expert_gate.weight"));
  EXPECT_THAT(resolved(with_experts(), "down_proj,q_proj")->parameters, testing::ElementsAre("down_proj"));
  EXPECT_THAT(resolved(with_experts(), "q_proj")->parameters, testing::IsEmpty());
  LoraConfig own;
  own.rank_pattern = {{"gate_up_proj", 3}};
  const LoraConfig by_name = *resolved(with_experts(), "all", "", own);
  EXPECT_EQ(by_name.rank_of(experts + "gate_up_proj"), 3U);
  const Json written = Json::parse(format_adapter_config(by_name), nullptr, false);
  EXPECT_EQ(written["rank_pattern"]["gate_up_proj"], 3);
  EXPECT_EQ(written["alpha_pattern"]["gate_up_proj"], 32);
  EXPECT_EQ(written["target_parameters"], Json::array({"gate.weight", "gate_up_proj", "down_proj"}));
  expect_refused(resolved(with_experts(), "up_proj").status(), {"lora_target", "up_proj", "gate_proj", "both"});
  expect_refused(resolved(with_experts(), "w1").status(), {"lora_target", "\"w1\"", "gate_proj"});
}

TEST(ResolveTargets, Tensors_AreNamedByTheEndsOfTheirPaths) {
  const auto one = resolved(with_experts(), "none", "mlp.experts.down_proj, gate.weight");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->targets, testing::IsEmpty());
  EXPECT_THAT(one->parameters, testing::ElementsAre("mlp.experts.down_proj", "gate.weight"));
  ModelConfig shared = with_experts();  // of a family whose names mean the MLP that all tokens share
  shared.experts->shared_width = 8;
  shared.experts->adapts_shared = true;
  EXPECT_THAT(resolved(shared, "all")->parameters, testing::IsEmpty());
  const auto both = resolved(shared, "up_proj", "gate_up_proj");
  EXPECT_THAT(both->targets, testing::ElementsAre("up_proj"));
  EXPECT_EQ(both->rank_of("model.layers.0.mlp.experts.gate_up_proj"), 8U);
  expect_refused(resolved(with_experts(), "all", "mlp.experts.w1").status(),
                 {"target_parameters", "mlp.experts.w1", "mlp.experts.gate_up_proj", "mlp.gate.weight"});
  expect_refused(resolved(small_model(), "all", "down_proj").status(), {"target_parameters", "no experts"});
}

TEST(ResolveTargets, WhatAdaptersOfExpertsDoNotKnow_IsNamed) {
  LoraConfig dropping;
  dropping.dropout = 0.1;
  LoraConfig dora;
  dora.use_dora = true;
  LoraConfig last;
  last.layers = {1};
  expect_refused(resolved(with_experts(), "all", "", dropping).status(), {"lora_dropout", "q_proj"});
  expect_refused(resolved(with_experts(), "all", "", dora).status(), {"use_dora"});
  expect_refused(resolved(with_experts(), "none", "down_proj", last).status(), {"layers_to_transform"});
  EXPECT_TRUE(resolved(with_experts(), "q_proj,o_proj", "", dropping).ok());
}

}  // namespace
}  // namespace rondo::model
