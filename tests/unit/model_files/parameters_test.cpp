// The list of a model's weights and its comparison with files. (Names and shapes themselves are compared with
// transformers in config_goldens_test.cpp.)
#include "rondo/model/parameters.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "helpers.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

ModelConfig small_qwen3() {
  ModelConfig config;
  config.family = Family::kQwen3;
  config.model_type = "qwen3";
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.vocab_size = 10;
  config.attention_bias = true;
  config.qk_norm = QkNorm::kHead;
  return config;
}

/// A file of zeros with these tensors.
TensorFiles file_of(const std::vector<ParameterSpec>& parameters) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterSpec& spec : parameters) tensors.push_back({spec.name, WeightType::kBfloat16, spec.shape});
  const auto file = fresh_folder() / "model.safetensors";
  const auto zeros = [](std::size_t, std::span<std::byte> out) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return absl::OkStatus();
  };
  EXPECT_TRUE(write_safetensors(file, tensors, {}, produce_whole(tensors, zeros)).ok());
  auto files = TensorFiles::open_file(file);
  EXPECT_TRUE(files.ok()) << files.status();
  return *std::move(files);
}

const ParameterSpec& named(const std::vector<ParameterSpec>& parameters, std::string_view name) {
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
  EXPECT_NE(found, parameters.end()) << name;
  return found == parameters.end() ? parameters.front() : *found;
}

TEST(ModelParameters, KindsAndLayers_AreSet) {
  const auto parameters = model_parameters(small_qwen3());
  EXPECT_EQ(parameters.front().kind, ParameterKind::kEmbedding);
  EXPECT_EQ(parameters.front().layer, std::nullopt);
  EXPECT_EQ(parameters.back().name, "lm_head.weight");
  const auto& query = named(parameters, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_THAT(query.shape, testing::ElementsAre(24, 8));
  EXPECT_EQ(query.elements(), 192U);
  EXPECT_EQ(query.layer, 1U);
  EXPECT_EQ(named(parameters, "model.layers.0.self_attn.k_proj.bias").kind, ParameterKind::kBias);
  EXPECT_EQ(named(parameters, "model.layers.0.self_attn.k_norm.weight").kind, ParameterKind::kNorm);
  EXPECT_EQ(named(parameters, "model.norm.weight").kind, ParameterKind::kNorm);
}

TEST(ModelParameters, OfExperts_AreNamedAsTheFamilyDoes) {
  ModelConfig config = small_qwen3();
  config.experts = {3, 2, 5, false, {true, false}};
  auto parameters = model_parameters(config);
  EXPECT_THAT(named(parameters, "model.layers.0.mlp.gate_proj.weight").shape, testing::ElementsAre(12, 8));
  EXPECT_THAT(named(parameters, "model.layers.1.mlp.gate.weight").shape, testing::ElementsAre(3, 8));
  EXPECT_THAT(named(parameters, "model.layers.1.mlp.experts.2.up_proj.weight").shape, testing::ElementsAre(5, 8));
  EXPECT_THAT(named(parameters, "model.layers.1.mlp.experts.0.down_proj.weight").shape, testing::ElementsAre(8, 5));
  config.family = Family::kMixtral;
  config.experts->dense_blocks.clear();
  parameters = model_parameters(config);
  EXPECT_THAT(named(parameters, "model.layers.0.block_sparse_moe.gate.weight").shape, testing::ElementsAre(3, 8));
  EXPECT_THAT(named(parameters, "model.layers.0.block_sparse_moe.experts.1.w2.weight").shape,
              testing::ElementsAre(8, 5));
}

TEST(LinearModules, EveryOne_HasItsMatrixInTheModel) {
  const ModelConfig config = small_qwen3();
  const auto parameters = model_parameters(config);
  const auto modules = linear_modules(config);
  EXPECT_EQ(modules.size(), 14U);
  for (const LinearModule& module : modules) {
    EXPECT_THAT(named(parameters, module.path + ".weight").shape, testing::ElementsAre(module.out, module.in));
    EXPECT_THAT(linear_module_names(), testing::Contains(module.name));
    EXPECT_EQ(module.bias, module.name[0] != 'o' && module.path.find("self_attn") != std::string::npos);
  }
}

/// An adapter may be on the expert that all tokens share, in families in which PEFT takes no names for the others'.
TEST(LinearModules, OfASharedExpert_AreThoseThatPeftAdapts) {
  ModelConfig config = small_qwen3();
  config.experts = {3, 2, 5, false, {}};
  config.experts->shared_width = 7;
  config.experts->gates_shared = true;
  const auto names_of_mlp = [&] {
    std::vector<std::string> names;
    for (const LinearModule& module : linear_modules(config)) {
      if (module.layer == 1 && module.path.starts_with("model.layers.1.mlp.")) names.push_back(module.path.substr(19));
    }
    return names;
  };
  EXPECT_THAT(names_of_mlp(), testing::ElementsAre("shared_expert_gate"));
  config.experts->adapts_shared = true;
  EXPECT_THAT(names_of_mlp(), testing::ElementsAre("shared_expert.gate_proj", "shared_expert.up_proj",
                                                   "shared_expert.down_proj", "shared_expert_gate"));
  const auto parameters = model_parameters(config);
  EXPECT_THAT(named(parameters, "model.layers.0.mlp.shared_expert.down_proj.weight").shape, testing::ElementsAre(8, 7));
  EXPECT_THAT(named(parameters, "model.layers.0.mlp.shared_expert_gate.weight").shape, testing::ElementsAre(1, 8));
  LoraConfig lora;
  ASSERT_TRUE(resolve_targets(config, "all", "", lora).ok());
  EXPECT_THAT(lora.targets, testing::ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                 "down_proj", "shared_expert_gate"));
}

TEST(CheckModelTensors, AllThere_IsAccepted) {
  const ModelConfig config = small_qwen3();
  EXPECT_TRUE(check_model_tensors(config, file_of(model_parameters(config))).ok());
}

TEST(CheckModelTensors, Missing_AreNamedAndCounted) {
  const ModelConfig config = small_qwen3();
  auto parameters = model_parameters(config);
  std::erase_if(parameters, [](const auto& spec) { return spec.kind == ParameterKind::kBias; });
  expect_refused(check_model_tensors(config, file_of(parameters)),
                 {"model.safetensors", "6 of 31", "model.layers.0.self_attn.q_proj.bias", "and 3 more"});
}

TEST(CheckModelTensors, OtherShape_IsNamedWithBoth) {
  const ModelConfig config = small_qwen3();
  auto parameters = model_parameters(config);
  parameters[0].shape = {8, 10};
  expect_refused(check_model_tensors(config, file_of(parameters)),
                 {"model.embed_tokens.weight", "expected [10, 8]", "found [8, 10]"});
  parameters[0].shape = {80};
  expect_refused(check_model_tensors(config, file_of(parameters)), {"found [80]"});
}

TEST(CheckModelTensors, Unexpected_IsNamed) {
  const ModelConfig config = small_qwen3();
  auto parameters = model_parameters(config);
  parameters.push_back({"model.layers.2.mlp.up_proj.weight", {12, 8}, ParameterKind::kMatrix, 2});
  expect_refused(check_model_tensors(config, file_of(parameters)), {"no place", "model.layers.2.mlp.up_proj.weight"});
}

TEST(CheckModelTensors, HarmlessExtras_ArePassedOver) {
  ModelConfig config = small_qwen3();
  auto parameters = model_parameters(config);
  config.tie_word_embeddings = true;  // the head is now one too many
  parameters.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {3}, ParameterKind::kNorm, 0});
  EXPECT_TRUE(check_model_tensors(config, file_of(parameters)).ok());
}

TEST(HasOwnHead, OnlyOneOfOtherNumbers_Counts) {
  const std::filesystem::path golden = std::filesystem::path(RONDO_TEST_DATA) / "golden";
  ModelConfig config = small_qwen3();
  EXPECT_FALSE(has_own_head(config, file_of(model_parameters(config))));  // both are zeros
  for (const auto& [name, own] : {std::pair("llama", true), std::pair("qwen3_tied", false)}) {
    config = *load_config(golden / name / "model");
    config.tie_word_embeddings = true;
    EXPECT_EQ(has_own_head(config, *TensorFiles::open_model(golden / name / "model")), own) << name;
  }
}

/// As transformers loads it.
TEST(OpenWeights, TiedModelWithTheHeadAlone_HasAnEmbedding) {
  const std::filesystem::path golden = std::filesystem::path(RONDO_TEST_DATA) / "golden/qwen3_tied/model";
  const ModelConfig config = *load_config(golden);
  ASSERT_TRUE(config.tie_word_embeddings);
  const auto whole = open_weights(config, golden);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const TensorView* embedding = whole->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  std::vector<TensorToWrite> tensors;
  std::vector<const TensorView*> views;
  for (const auto& [name, view] : whole->tensors()) {
    if (name == "lm_head.weight") continue;
    tensors.push_back({&view == embedding ? "lm_head.weight" : name, view.type, view.shape});
    views.push_back(&view);
  }
  const std::filesystem::path folder = fresh_folder();
  const absl::Status written =
      write_safetensors(folder / "model.safetensors", tensors, {},
                        [&](std::size_t i, const TensorSink& sink) { return sink(views[i]->data); });
  ASSERT_TRUE(written.ok()) << written;
  const auto files = open_weights(config, folder);
  ASSERT_TRUE(files.ok()) << files.status();
  const absl::Status checked = check_model_tensors(config, *files);
  EXPECT_TRUE(checked.ok()) << checked;
  const TensorView* found = files->find("model.embed_tokens.weight");
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(std::ranges::equal(found->data, embedding->data));
}

TEST(CheckAdapterTensors, FactorsOfTheTargets_AreExpected) {
  const ModelConfig config = small_qwen3();
  LoraConfig lora;
  lora.rank = 3;
  lora.targets = {"o_proj"};
  auto parameters = adapter_parameters(config, lora);
  ASSERT_EQ(parameters.size(), 4U);
  EXPECT_EQ(parameters[0].name, "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight");
  EXPECT_THAT(parameters[0].shape, testing::ElementsAre(3, 24));
  EXPECT_THAT(parameters[1].shape, testing::ElementsAre(8, 3));
  EXPECT_TRUE(check_adapter_tensors(config, lora, file_of(parameters)).ok());
  lora.rank = 4;
  expect_refused(check_adapter_tensors(config, lora, file_of(parameters)), {"lora_A", "expected [4, 24]"});
  parameters.pop_back();
  expect_refused(check_adapter_tensors(config, lora, file_of(parameters)), {"missing", "lora_B"});
}

}  // namespace
}  // namespace rondo::model
