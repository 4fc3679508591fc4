// Linear layers that files have as one, as Phi-3's and Qwen3.5's do: rows of parts, written again as they were read.
#include "rondo/model/fused_linears.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "helpers.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(RONDO_TEST_DATA) / "golden" / "phi3";
const fs::path kDora = fs::path(RONDO_TEST_DATA) / "variants" / "dora_fused" / "adapter";

std::vector<float> joined(const TensorFiles& files, const std::vector<std::string>& names) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = numbers_of(files, name);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(FusedLinears, OfAModel_AreRowsOfTheirParts) {
  const ModelConfig config = *load_config(kGolden / "model");
  const TensorFiles stored = *TensorFiles::open_model(kGolden / "model");
  const auto files = open_weights(config, kGolden / "model");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_model_tensors(config, *files).ok()) << check_model_tensors(config, *files);
  const std::string block = "model.layers.1.";
  EXPECT_EQ(numbers_of(stored, block + "self_attn.qkv_proj.weight"),
            joined(*files, {block + "self_attn.q_proj.weight", block + "self_attn.k_proj.weight",
                            block + "self_attn.v_proj.weight"}));
  EXPECT_EQ(numbers_of(stored, block + "mlp.gate_up_proj.weight"),
            joined(*files, {block + "mlp.gate_proj.weight", block + "mlp.up_proj.weight"}));
  EXPECT_EQ(files->find(block + "self_attn.k_proj.weight")->shape, (std::vector<std::uint64_t>{24, 48}));
}

TEST(FusedLinears, OfAnAdapter_HaveOneFactorAAndTheRowsOfB) {
  const ModelConfig config = *load_config(kGolden / "model");
  const LoraConfig lora = *load_adapter_config(kDora);
  const fs::path file = kDora / "adapter_model.safetensors";
  const TensorFiles stored = *TensorFiles::open_file(file);
  const auto files = open_factors(config, lora, file);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_adapter_tensors(config, lora, *files).ok()) << check_adapter_tensors(config, lora, *files);
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_EQ(files->find(adapter_tensor_name(attention + "qkv_proj", 'A'))->shape,
            (std::vector<std::uint64_t>{3, 48}));  // rank_pattern's
  std::vector<std::string> factors;
  std::vector<std::string> magnitudes;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    factors.push_back(adapter_tensor_name(attention + part, 'B'));
    magnitudes.push_back(magnitude_tensor_name(attention + part));
  }
  EXPECT_EQ(numbers_of(stored, adapter_tensor_name(attention + "qkv_proj", 'B')), joined(*files, factors));
  EXPECT_EQ(numbers_of(stored, magnitude_tensor_name(attention + "qkv_proj")), joined(*files, magnitudes));
}

/// Rows of queries and of their gates alternate by heads.
TEST(FusedLinears, OfGatedAttention_TakeTurns) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "golden" / "qwen3_5" / "model";
  const ModelConfig config = *load_config(folder);
  const TensorFiles stored = *TensorFiles::open_model(folder);
  const auto files = open_weights(config, folder);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_model_tensors(config, *files).ok()) << check_model_tensors(config, *files);
  const std::string attention = "model.layers.1.self_attn.";
  const std::vector<float> whole = numbers_of(stored, attention + "q_proj.weight");
  const std::vector<float> parts[] = {numbers_of(*files, attention + "query_proj.weight"),
                                      numbers_of(*files, attention + "gate_proj.weight")};
  const std::size_t head = std::size_t{config.head_dim} * config.hidden_size;
  ASSERT_EQ(whole.size(), 2 * head * config.num_heads);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(whole[i], parts[i / head % 2][i / head / 2 * head + i % head]) << i;
  }
  std::vector<float> middle(3 * head / 2);  // from the middle of one head to the end of the next
  TensorFiles::read_as_float32(*files->find(attention + "gate_proj.weight"), head / 2, middle);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), parts[1].begin() + static_cast<std::ptrdiff_t>(head / 2)));
  const std::string linear = "model.layers.0.linear_attn.";
  EXPECT_EQ(numbers_of(stored, linear + "conv1d.weight"),
            joined(*files, {linear + "q_conv1d.weight", linear + "k_conv1d.weight", linear + "v_conv1d.weight"}));
}

/// Of each head of keys there are rows of q, k, v and z, of b and a.
TEST(FusedLinears, OfLinearAttentionJoinedByHeads_TakeTurns) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "golden" / "qwen3_next" / "model";
  const ModelConfig config = *load_config(folder);
  const TensorFiles stored = *TensorFiles::open_model(folder);
  const TensorFiles files = *open_weights(config, folder);
  EXPECT_TRUE(check_model_tensors(config, files).ok()) << check_model_tensors(config, files);
  const std::string linear = "model.layers.2.linear_attn.";
  const auto in_turns = [&](const std::vector<std::string>& parts) {
    std::vector<float> whole;
    for (std::size_t head = 0; head < config.linear_attention->key_heads; ++head) {
      for (const std::string& part : parts) {
        const std::vector<float> all = numbers_of(files, linear + part + ".weight");
        const std::size_t size = all.size() / config.linear_attention->key_heads;
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(head * size);
        whole.insert(whole.end(), first, first + static_cast<std::ptrdiff_t>(size));
      }
    }
    return whole;
  };
  EXPECT_EQ(numbers_of(stored, linear + "in_proj_qkvz.weight"), in_turns({"q_proj", "k_proj", "v_proj", "z_proj"}));
  EXPECT_EQ(numbers_of(stored, linear + "in_proj_ba.weight"), in_turns({"b_proj", "a_proj"}));
}

class WrittenAgain : public testing::TestWithParam<const char*> {};

TEST_P(WrittenAgain, AreTheFilesThatWereRead) {
  const fs::path from = fs::path(RONDO_TEST_DATA) / "golden" / GetParam() / "model";
  const ModelConfig config = *load_config(from);
  const TensorFiles files = *open_weights(config, from);
  WritePlan plan;
  for (const ParameterSpec& spec : model_parameters(config)) {
    plan.tensors.push_back({spec.name, WeightType::kFloat32, spec.shape});
  }
  plan.produce = [&, tensors = plan.tensors](std::size_t index, const TensorSink& sink) {
    const std::vector<float> numbers = numbers_of(files, tensors[index].name);
    return sink(std::as_bytes(std::span(numbers)));
  };
  plan = stored_weights(config, std::move(plan));
  const fs::path folder = fresh_folder();
  ASSERT_TRUE(write_sharded_safetensors(folder, plan.tensors, plan.produce).ok());
  const TensorFiles again = *TensorFiles::open_model(folder);
  const TensorFiles original = *TensorFiles::open_model(from);
  ASSERT_EQ(again.tensors().size(), original.tensors().size());
  for (const auto& [name, view] : original.tensors()) {
    ASSERT_NE(again.find(name), nullptr) << name;
    EXPECT_EQ(again.find(name)->shape, view.shape) << name;
    EXPECT_TRUE(std::ranges::equal(again.find(name)->data, view.data)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(FusedLinears, WrittenAgain,
                         testing::Values("phi3", "qwen3_5", "qwen3_5_moe", "qwen3_next", "granitemoe", "glm4_moe",
                                         "glm4_moe_lite", "deepseek_v3", "deepseek_v2", "ernie4_5_moe", "lfm2_moe",
                                         "gemma4_moe", "youtu", "granitemoeshared", "granitemoehybrid",
                                         "granitemoehybrid_mamba", "hunyuan_moe", "minimax_m2", "exaone_moe", "afmoe",
                                         "nemotron_h", "bamba", "falcon_h1"),
                         [](const auto& instance) { return instance.param; });

TEST(FusedLinears, ThatAreMissingOrOfAnotherShape_AreNamed) {
  const ModelConfig config = *load_config(kGolden / "model");
  const fs::path folder = fresh_folder();
  fs::copy(kGolden / "model", folder, fs::copy_options::recursive);
  ModelConfig narrow = config;
  narrow.num_kv_heads = 1;
  expect_refused(open_weights(narrow, folder).status(),
                 {"model.layers.0.self_attn.qkv_proj.weight", "[72, 48]", "[96, 48]"});
  ModelConfig deep = config;
  deep.num_layers = 3;
  expect_refused(open_weights(deep, folder).status(), {"model.layers.2.self_attn.qkv_proj.weight", "missing"});
}

}  // namespace
}  // namespace rondo::model
