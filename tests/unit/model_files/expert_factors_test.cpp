// Adapters of experts: what PEFT's files have of them (tests/data/variants), read, written again and merged.
#include "rondo/model/expert_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "helpers.h"
#include "rondo/model/merge.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;

struct ExpertCase {
  fs::path base;
  ModelConfig config;
  fs::path file;
  LoraConfig lora;
};

/// `variant`: of tests/data/variants; `golden`: the model that it adapts.
ExpertCase open_expert_case(const char* variant, const char* golden) {
  const fs::path data = RONDO_TEST_DATA;
  const fs::path adapter = data / "variants" / variant / "adapter";
  const fs::path base = data / "golden" / golden / "model";
  return {base, *load_config(base), adapter / "adapter_model.safetensors", *load_adapter_config(adapter)};
}

class ExpertFactorFiles : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ExpertFactorFiles, FitTheModel_AndAreWrittenAsTheyWere) {
  const ExpertCase c = open_expert_case(GetParam().first, GetParam().second);
  const auto files = open_factors(c.config, c.lora, c.file);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_adapter_tensors(c.config, c.lora, *files).ok()) << check_adapter_tensors(c.config, c.lora, *files);
  WritePlan plan;
  for (const ParameterSpec& spec : adapter_parameters(c.config, c.lora)) {
    plan.tensors.push_back({spec.name, WeightType::kFloat32, spec.shape});
  }
  plan.produce = [&, tensors = plan.tensors](std::size_t index, const TensorSink& sink) {
    const std::vector<float> numbers = numbers_of(*files, tensors[index].name);
    return sink(std::as_bytes(std::span(numbers)));
  };
  plan = stored_factors(c.config, c.lora, std::move(plan));
  const fs::path written = fresh_folder() / "adapter_model.safetensors";
  ASSERT_TRUE(write_safetensors(written, plan.tensors, {}, plan.produce).ok());
  const TensorFiles again = *TensorFiles::open_file(written);
  const TensorFiles original = *TensorFiles::open_file(c.file);
  ASSERT_EQ(again.tensors().size(), original.tensors().size());
  for (const auto& [name, view] : original.tensors()) {
    ASSERT_NE(again.find(name), nullptr) << name;
    EXPECT_EQ(again.find(name)->shape, view.shape) << name;
    EXPECT_TRUE(std::ranges::equal(again.find(name)->data, view.data)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertFactorFiles,
                         testing::Values(std::pair("experts", "qwen3_moe"), std::pair("experts_down", "mixtral"),
                                         std::pair("experts_inner", "olmoe"), std::pair("experts_stacked", "gpt_oss")),
                         [](const auto& one) { return one.param.first; });

TEST(ExpertFactors, OfOneTensor_AreOfItsModuleItself) {
  const ExpertCase c = open_expert_case("experts_inner", "olmoe");
  const auto factors = expert_factors(c.config, c.lora, 1);
  ASSERT_EQ(factors.size(), 2U);
  EXPECT_EQ(factors[0].a, "base_model.model.model.layers.1.mlp.gate.lora_A.weight");
  EXPECT_EQ(factors[1].stored_b, "base_model.model.model.layers.1.mlp.experts.lora_B.weight");
  EXPECT_EQ(factors[1].rank, 8U);
  EXPECT_EQ(factors[1].scale, 2.0);
  const ExpertCase both = open_expert_case("experts", "qwen3_moe");
  EXPECT_TRUE(expert_factors(both.config, both.lora, 1).empty()) << "a block without experts";
  EXPECT_EQ(expert_factors(both.config, both.lora, 2)[1].stored_b,
            "base_model.model.model.layers.2.mlp.experts.base_layer.lora_B.weight");
}

/// The rows of B that PEFT's file has of gate or up, and of down: row * rank * experts + column * experts + expert.
struct StoredB {
  std::vector<float> b;
  std::size_t rank;
  std::size_t experts;
  float at(std::size_t row, std::size_t k, std::size_t expert) const {
    return b[row * rank * experts + k * experts + expert];
  }
};

/// Adapters have the names that transformers gives modules, whatever files call them.
TEST(ExpertFactors, OfGranite_HaveTheNamesOfItsModules) {
  const ModelConfig config = *load_config(fs::path(RONDO_TEST_DATA) / "golden" / "granitemoe" / "model");
  EXPECT_FALSE(names_mean_experts(config));
  LoraConfig lora;
  lora.rank = 2;
  lora.parameters = {"experts.gate_up_proj", "router.weight"};
  const std::vector<ExpertFactors> factors = expert_factors(config, lora, 1);
  ASSERT_EQ(factors.size(), 2U);
  EXPECT_EQ(factors[0].a, "base_model.model.model.layers.1.block_sparse_moe.router.lora_A.weight");
  EXPECT_EQ(factors[1].a, "base_model.model.model.layers.1.block_sparse_moe.experts.lora_A.weight");
  EXPECT_FALSE(factors[1].in_turn);
  EXPECT_EQ(weight_of_expert(config, factors[0].tensor, 0, 0), "model.layers.1.block_sparse_moe.router.layer.weight");
  EXPECT_EQ(weight_of_expert(config, factors[1].tensor, 3, 1),
            "model.layers.1.block_sparse_moe.experts.3.up_proj.weight");
}

/// PEFT takes no names for Qwen2-MoE's experts, but for the MLPs beside them.
TEST(ExpertFactors, OfQwen2Moe_AreNamedAsTensorsAlone) {
  const ModelConfig config = *load_config(fs::path(RONDO_TEST_DATA) / "golden" / "qwen2_moe" / "model");
  EXPECT_FALSE(names_mean_experts(config));
  LoraConfig lora;
  ASSERT_TRUE(resolve_targets(config, "all", "", lora).ok());
  EXPECT_TRUE(lora.parameters.empty());
  EXPECT_EQ(lora.targets, (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                    "down_proj", "shared_expert_gate"}));
}

TEST(AttentionAlone, NamesTheLayersOfTheModelsAttention) {
  const auto text_of = [](const char* name) {
    return attention_alone(*load_config(fs::path(RONDO_TEST_DATA) / "golden" / name / "model"));
  };
  EXPECT_EQ(text_of("glm4_moe"), "lora_target: q_proj,k_proj,v_proj,o_proj");
  EXPECT_EQ(text_of("qwen3_next"), "lora_target: q_proj,k_proj,v_proj,o_proj");
  EXPECT_EQ(text_of("lfm2_moe"), "lora_target: q_proj,k_proj,v_proj,out_proj");
  EXPECT_EQ(text_of("glm4_moe_lite"), "lora_target: q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj");
  EXPECT_EQ(text_of("deepseek_v3"), "lora_target: q_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj");
}

/// As PEFT has it: Hunyuan's router is a linear layer of its own name, AFMoE's gate of attention has a name of experts.
TEST(ExpertFactors, OfRoutersWithNamesOfTheirOwn_AreNamedAsInPeft) {
  const auto all_of = [](const char* name) {
    LoraConfig lora;
    EXPECT_TRUE(
        resolve_targets(*load_config(fs::path(RONDO_TEST_DATA) / "golden" / name / "model"), "all", "", lora).ok());
    return lora;
  };
  const std::vector<std::string> attention = {"q_proj", "k_proj", "v_proj", "o_proj"};
  EXPECT_EQ(all_of("hunyuan_moe").targets, (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "wg"}));
  EXPECT_EQ(all_of("hunyuan_moe").parameters, (std::vector<std::string>{"gate_up_proj", "down_proj"}));
  for (const char* name : {"afmoe", "minimax_m2", "dots1", "exaone_moe", "mellum"}) {
    EXPECT_EQ(all_of(name).targets, attention) << name;
    EXPECT_EQ(all_of(name).parameters, (std::vector<std::string>{"gate.weight", "gate_up_proj", "down_proj"})) << name;
  }
  EXPECT_EQ(all_of("granitemoeshared").targets,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "input_linear", "output_linear"}));
  EXPECT_TRUE(all_of("granitemoeshared").parameters.empty());
}

/// Of LFM2's neither; of GLM's and ERNIE's all names mean experts, and those that all share have no adapter.
TEST(ExpertFactors, OfThoseThatABiasChooses_AreNamedAsInPeft) {
  const auto config_of = [](const char* name) {
    return *load_config(fs::path(RONDO_TEST_DATA) / "golden" / name / "model");
  };
  for (const char* name : {"glm4_moe", "ernie4_5_moe"}) {
    LoraConfig lora;
    ASSERT_TRUE(resolve_targets(config_of(name), "all", "", lora).ok()) << name;
    EXPECT_EQ(lora.targets, (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"})) << name;
    EXPECT_EQ(lora.parameters, (std::vector<std::string>{"gate.weight", "gate_up_proj", "down_proj"})) << name;
  }
  for (const char* name : {"glm4_moe_lite", "deepseek_v2"}) {
    LoraConfig latent;
    ASSERT_TRUE(resolve_targets(config_of(name), "all", "", latent).ok()) << name;
    EXPECT_EQ(latent.targets,
              (std::vector<std::string>{"o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}))
        << name;
    EXPECT_EQ(latent.parameters, (std::vector<std::string>{"gate.weight", "gate_up_proj", "down_proj"})) << name;
  }
  const ModelConfig lfm2 = config_of("lfm2_moe");
  LoraConfig lora;
  lora.rank = 2;
  ASSERT_TRUE(resolve_targets(lfm2, "all", "", lora).ok());
  EXPECT_TRUE(lora.parameters.empty());
  EXPECT_EQ(lora.targets,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "out_proj", "in_proj", "w1", "w3", "w2"}));
  lora.parameters = {"experts.gate_up_proj"};
  const std::vector<ExpertFactors> factors = expert_factors(lfm2, lora, 1);
  ASSERT_EQ(factors.size(), 1U);
  EXPECT_EQ(factors[0].a, "base_model.model.model.layers.1.feed_forward.experts.lora_A.weight");
  EXPECT_EQ(weight_of_expert(lfm2, factors[0].tensor, 3, 1), "model.layers.1.feed_forward.experts.3.w3.weight");
}

/// Of Gemma 4's neither, and its router is a linear layer.
TEST(ExpertFactors, OfGemma4_AreNamedAsTensorsAlone) {
  const ModelConfig config = *load_config(fs::path(RONDO_TEST_DATA) / "golden/gemma4_moe/model");
  LoraConfig lora;
  lora.rank = 2;
  ASSERT_TRUE(resolve_targets(config, "all", "", lora).ok());
  EXPECT_TRUE(lora.parameters.empty());
  EXPECT_EQ(lora.targets, (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                    "down_proj", "proj"}));
  lora.parameters = {"experts.gate_up_proj"};
  const std::vector<ExpertFactors> factors = expert_factors(config, lora, 1);
  ASSERT_EQ(factors.size(), 1U);
  EXPECT_EQ(factors[0].a, "base_model.model.model.layers.1.experts.lora_A.weight");
  EXPECT_EQ(weight_of_expert(config, factors[0].tensor, 3, 1), "model.layers.1.experts.3.up_proj.weight");
  LoraConfig unknown;
  const absl::Status status = resolve_targets(config, "all", "router.weight", unknown);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("experts.gate_up_proj, experts.down_proj"));
}

TEST(ExpertFactors, Merged_AreInTheWeightsOfTheirExpert) {
  for (const bool stacked : {false, true}) {
    const ExpertCase c =
        stacked ? open_expert_case("experts_stacked", "gpt_oss") : open_expert_case("experts", "qwen3_moe");
    const TensorFiles base = *open_weights(c.config, c.base);
    const TensorFiles adapter = *open_factors(c.config, c.lora, c.file);
    const TensorFiles stored = *TensorFiles::open_file(c.file);
    const fs::path folder = fresh_folder();
    ASSERT_TRUE(write_merged_weights(c.config, base, c.lora, adapter, folder).ok());
    ModelConfig expanded = c.config;
    expanded.experts->mxfp4 = false;
    const TensorFiles merged = *open_weights(expanded, folder);
    const std::string experts = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_";
    const std::size_t rank = stacked ? 3 : 8;
    const std::vector<float> a = numbers_of(stored, experts + "A.weight");
    const StoredB b{numbers_of(stored, experts + "B.weight"), rank, c.config.experts->count};
    const std::size_t width = c.config.experts->width;
    const std::size_t in = c.config.hidden_size;
    const double scale = stacked ? 8 / std::sqrt(3.0) : 2.0;
    for (const std::size_t expert : {0U, 3U}) {
      for (const std::size_t part : {0U, 1U}) {
        const std::string name =
            fmt::format("model.layers.0.mlp.experts.{}.{}.weight", expert, part == 0 ? "gate_proj" : "up_proj");
        const std::vector<float> before = numbers_of(base, name);
        const std::vector<float> after = numbers_of(merged, name);
        ASSERT_EQ(after.size(), width * in);
        for (std::size_t i = 0; i < after.size(); ++i) {
          const std::size_t row = stacked ? i / in * 2 + part : part * width + i / in;
          double sum = 0;
          for (std::size_t k = 0; k < rank; ++k) {
            sum += double{b.at(row, k, expert)} * double{a[(expert * rank + k) * in + i % in]};
          }
          ASSERT_NEAR(after[i], before[i] + scale * sum, 1e-6) << name << " " << i;
        }
      }
    }
    EXPECT_NE(numbers_of(merged, "model.layers.0.mlp." + std::string(stacked ? "router" : "gate") + ".weight"),
              numbers_of(base, "model.layers.0.mlp." + std::string(stacked ? "router" : "gate") + ".weight"));
  }
}

TEST(ExpertFactors, ThatAreMissingOrOfAnotherShape_AreNamed) {
  ExpertCase c = open_expert_case("experts", "qwen3_moe");
  const std::string b = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_B.weight";
  LoraConfig wider = c.lora;
  wider.rank_pattern = {{"gate_up_proj", 9}};
  expect_refused(open_factors(c.config, wider, c.file).status(), {b, "[52, 99]", "[52, 88]"});
  wider = open_expert_case("experts_inner", "olmoe").lora;
  wider.parameters.emplace_back("down_proj");
  expect_refused(open_factors(c.config, wider, open_expert_case("experts_inner", "olmoe").file).status(),
                 {b, "missing"});
}

}  // namespace
}  // namespace rondo::model
