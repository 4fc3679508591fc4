// State spaces in files, and blocks that are one half alone: shapes, keys, factors that weights are stored times, and
// what is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "container.h"
#include "files.h"
#include "names.h"
#include "reader.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "small_model.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_refused;
using test::fresh_folder;

/// Of kinds that init_model() does not make, too.
Model make_model(const std::string& arch, const std::function<void(Json&)>& edit = {}) {
  const fs::path folder = fresh_folder() / "model";
  model::InitOptions options = options_of(arch, 64, 96);
  options.num_hidden_layers = 4;
  EXPECT_TRUE(model::init_model(options, folder).ok());
  Json json = Json::parse(*read_file(folder / "config.json"));
  if (edit) edit(json);
  test::put(folder / "config.json", json.dump());
  const model::ModelConfig config = *model::load_config(folder);
  std::vector<model::TensorToWrite> tensors;
  for (const model::ParameterSpec& spec : model::model_parameters(config)) {
    tensors.push_back({spec.name, model::WeightType::kFloat32, spec.shape});
  }
  const auto fill = [&](std::size_t i, std::span<std::byte> out) {
    model::fill_normal(3, tensors[i].name, 0, 0.5, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    return absl::OkStatus();
  };
  const model::WritePlan plan = model::stored_weights(config, {tensors, model::produce_whole(tensors, fill)});
  EXPECT_TRUE(model::write_sharded_safetensors(folder, plan.tensors, plan.produce).ok());
  return {folder, config, *model::open_weights(config, folder)};
}

void make_granite(Json& config) {
  config["layer_types"] = {"mamba", "attention", "mamba", "mamba"};
  config["mamba_n_heads"] = 8;
  config["mamba_d_state"] = 12;
  config["mamba_n_groups"] = 2;
  config["embedding_multiplier"] = 2.0;
  config["position_embedding_type"] = nullptr;
}

void make_mixture(Json& config) {
  make_granite(config);
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  config["shared_intermediate_size"] = 32;
}

void make_lone(Json& config, const std::string& alone) {
  config["layers_block_type"] = {"linear_attention", alone, "full_attention", alone};
  config["time_step_min"] = 0.001;
  config.erase("hybrid_override_pattern");
}
void make_mlps(Json& config) { make_lone(config, "mlp"); }
void make_experts(Json& config) { make_lone(config, "moe"); }

void make_factors(Json& config) {
  config["attention_in_multiplier"] = 0.5;
  config["key_multiplier"] = 4.0;
  config["attention_out_multiplier"] = 8.0;
  config["ssm_in_multiplier"] = 2.0;
  config["ssm_out_multiplier"] = 0.25;
  config["ssm_multipliers"] = {0.5, 2.0, 4.0, 8.0, 16.0};
  config["mlp_multipliers"] = {2.0, 0.5};
  config["embedding_multiplier"] = 4.0;
  config["lm_head_multiplier"] = 0.5;
}

fs::path exported(const Model& m) {
  fs::path file = m.folder.parent_path() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, "f32", file);
  EXPECT_TRUE(status.ok()) << status;
  return file;
}

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

TEST(StateSpace, Exported_ComesBack) {
  using Case = std::tuple<const char*, const char*, void (*)(Json&)>;
  for (const auto& [arch, name, edit] :
       {Case("granitemoehybrid", "granitehybrid", make_granite),
        Case("granitemoehybrid", "granitehybrid", make_mixture), Case("nemotron_h", "nemotron_h", make_mlps),
        Case("nemotron_h", "nemotron_h_moe", make_experts)}) {
    SCOPED_TRACE(name);
    const Model m = make_model(arch, edit);
    const fs::path file = exported(m);
    EXPECT_EQ(read_gguf(file).keys["general.architecture"], name);
    const auto documents = import_documents(file);
    ASSERT_TRUE(documents.ok()) << documents.status();
    const model::ModelConfig config = *model::load_config(*documents);
    model::ModelConfig expected = m.config;
    expected.eos_token_ids = config.eos_token_ids;
    expected.pad_token_id = config.pad_token_id;
    if (expected.experts && !expected.lone_mlps.empty()) expected.intermediate_size = expected.experts->width;
    EXPECT_EQ(model::format_config(config), model::format_config(expected));
    const auto tensors = import_tensors(file);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok()) << model::check_model_tensors(config, *tensors);
    for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
      const std::vector<float> ours = values_of(*tensors, spec.name);
      const std::vector<float> theirs = values_of(m.files, spec.name);
      if (spec.name.ends_with(".A_log")) {  // files have -exp() of it
        EXPECT_THAT(ours, testing::Pointwise(testing::FloatNear(1e-6F), theirs)) << spec.name;
      } else {
        EXPECT_EQ(ours, theirs) << spec.name;
      }
    }
  }
}

TEST(StateSpace, KeysAndShapes_AreThoseOfItsReaders) {
  const Model m = make_model("granitemoehybrid", make_granite);
  ReadFile file = read_gguf(exported(m));
  const auto key = [&](const char* name) { return file.keys[std::string("granitehybrid.") + name]; };
  EXPECT_EQ(key("attention.head_count_kv"), (Json{0, 2, 0, 0}));
  EXPECT_EQ(key("ssm.conv_kernel"), 4);
  EXPECT_EQ(key("ssm.state_size"), 12);
  EXPECT_EQ(key("ssm.group_count"), 2);
  EXPECT_EQ(key("ssm.inner_size"), 128);
  EXPECT_EQ(key("ssm.time_step_rank"), 8);
  EXPECT_EQ(key("rope.scaling.finetuned"), false);
  EXPECT_EQ(key("embedding_scale"), 2.0);
  const auto sizes = [&](const char* name) { return file.tensors.at(std::string("blk.2.") + name).sizes; };
  EXPECT_EQ(sizes("ssm_a"), (std::vector<std::uint64_t>{1, 8}));
  EXPECT_EQ(sizes("ssm_d"), (std::vector<std::uint64_t>{1, 8}));
  EXPECT_EQ(sizes("ssm_norm.weight"), (std::vector<std::uint64_t>{64, 2}));
  EXPECT_EQ(sizes("ssm_dt.bias"), (std::vector<std::uint64_t>{8}));
  EXPECT_EQ(sizes("ssm_in.weight"), (std::vector<std::uint64_t>{64, 2 * 128 + 2 * 2 * 12 + 8}));
  EXPECT_EQ(sizes("ssm_conv1d.weight"), (std::vector<std::uint64_t>{4, 128 + 2 * 2 * 12}));
  std::vector<float> decay = values_of(m.files, "model.layers.2.mamba.A_log");
  for (float& value : decay) value = -std::exp(value);
  EXPECT_EQ(floats_of(file.tensors.at("blk.2.ssm_a")), decay);
  // In 16 bits they stay as they are.
  const fs::path narrow = m.folder / "narrow.gguf";
  ASSERT_TRUE(export_model(Documents(m.folder), m.config, m.files, "bf16", narrow).ok());
  file = read_gguf(narrow);
  for (const char* name : {"ssm_a", "ssm_d", "ssm_norm.weight", "ssm_conv1d.weight"}) {
    EXPECT_EQ(file.tensors.at(std::string("blk.2.") + name).type, 0U) << name;
  }
  EXPECT_EQ(file.tensors.at("blk.2.ssm_in.weight").type, 30U);
}

TEST(StateSpace, OfNemotronH_ListsSayWhatABlockIs) {
  const Model m = make_model("nemotron_h", make_experts);
  ReadFile file = read_gguf(exported(m));
  const auto key = [&](const char* name) { return file.keys[std::string("nemotron_h_moe.") + name]; };
  EXPECT_EQ(key("attention.head_count_kv"), (Json{0, 0, 2, 0}));
  EXPECT_EQ(key("feed_forward_length"), (Json{0, m.config.experts->width, 0, m.config.experts->width}));
  EXPECT_EQ(key("expert_weights_norm"), true);
  EXPECT_EQ(key("expert_shared_feed_forward_length"), m.config.experts->shared_width);
  EXPECT_EQ(key("attention.layer_norm_epsilon"), key("attention.layer_norm_rms_epsilon"));
  EXPECT_TRUE(file.tensors.contains("blk.1.exp_probs_b.bias"));
  EXPECT_TRUE(file.tensors.contains("blk.2.attn_q.weight"));
  EXPECT_FALSE(file.tensors.contains("blk.1.ffn_norm.weight"));
}

TEST(StateSpace, OfFalconH1_WeightsAreTimesItsFactors) {
  const Model m = make_model("falcon_h1", [](Json& config) {
    make_factors(config);
    config["tie_word_embeddings"] = true;
  });
  const fs::path file = exported(m);
  const ReadFile read = read_gguf(file);
  const auto ours = [&](const char* name) { return floats_of(read.tensors.at(name)); };
  const auto theirs = [&](const char* name) { return values_of(m.files, std::string("model.") + name); };
  EXPECT_EQ(ours("token_embd.weight"), times(theirs("embed_tokens.weight"), 4.0F));
  EXPECT_EQ(ours("output.weight"), times(theirs("embed_tokens.weight"), 0.5F));  // a head of its own
  EXPECT_EQ(ours("blk.1.attn_q.weight"), times(theirs("layers.1.self_attn.q_proj.weight"), 0.5F));
  EXPECT_EQ(ours("blk.1.attn_k.weight"), times(theirs("layers.1.self_attn.k_proj.weight"), 2.0F));
  EXPECT_EQ(ours("blk.1.attn_output.weight"), times(theirs("layers.1.self_attn.o_proj.weight"), 8.0F));
  EXPECT_EQ(ours("blk.1.ssm_out.weight"), times(theirs("layers.1.mamba.out_proj.weight"), 0.25F));
  EXPECT_EQ(ours("blk.1.ffn_gate.weight"), times(theirs("layers.1.feed_forward.gate_proj.weight"), 2.0F));
  EXPECT_EQ(ours("blk.1.ffn_up.weight"), theirs("layers.1.feed_forward.up_proj.weight"));
  EXPECT_EQ(ours("blk.1.ffn_norm"), theirs("layers.1.pre_ff_layernorm.weight"));
  std::vector<float> rows;
  for (const auto& [part, factor] : {std::pair("z", 1.0F), std::pair("x", 4.0F), std::pair("b", 8.0F),
                                     std::pair("c", 16.0F), std::pair("dt", 32.0F)}) {
    const std::string name = std::string("layers.1.mamba.") + part + "_proj.weight";
    const std::vector<float> more = times(theirs(name.c_str()), factor);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ours("blk.1.ssm_in.weight"), rows);
  // It comes back without factors, with a head of its own.
  const model::ModelConfig config = *model::load_config(*import_documents(file));
  EXPECT_EQ(config.linear_factors.key, 1.0);
  EXPECT_EQ(config.embedding_multiplier, 1.0);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(model::check_model_tensors(config, *import_tensors(file)).ok());
}

TEST(StateSpace, AdapterOfFalconH1_HasItsFactorsInB) {
  const Model m = make_model("falcon_h1", make_factors);
  model::LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 4;
  lora.targets = {"in_proj", "k_proj"};
  const fs::path stored = m.folder.parent_path() / "adapter_model.safetensors";
  model::WritePlan plan;
  for (const model::LinearModule& linear : model::linear_modules(m.config)) {
    if (!lora.adapts(linear)) continue;
    const auto add = [&](char factor, std::vector<std::uint64_t> shape) {
      plan.tensors.push_back(
          {model::adapter_tensor_name(linear.path, factor), model::WeightType::kFloat32, std::move(shape)});
    };
    add('A', {2, linear.in});
    add('B', {linear.out, 2});
  }
  const auto fill = [&](std::size_t i, std::span<std::byte> out) {
    model::fill_normal(5, plan.tensors[i].name, 0, 0.5,
                       {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    return absl::OkStatus();
  };
  ASSERT_TRUE(model::write_safetensors(stored, plan.tensors, {}, model::produce_whole(plan.tensors, fill)).ok());
  const auto files = *model::open_factors(m.config, lora, stored);
  const fs::path output = m.folder.parent_path() / "a.gguf";
  ASSERT_TRUE(export_adapter(Documents(m.folder), m.config, lora, files, "f32", output).ok());
  const ReadFile read = read_gguf(output);
  const auto plain = *model::TensorFiles::open_file(stored);
  const auto theirs = [&](const char* module, char factor) {
    return values_of(plain, model::adapter_tensor_name(std::string("model.layers.1.") + module, factor));
  };
  EXPECT_EQ(floats_of(read.tensors.at("blk.1.attn_k.weight.lora_a")), theirs("self_attn.k_proj", 'A'));
  EXPECT_EQ(floats_of(read.tensors.at("blk.1.attn_k.weight.lora_b")), times(theirs("self_attn.k_proj", 'B'), 2.0F));
  EXPECT_EQ(floats_of(read.tensors.at("blk.1.ssm_in.weight.lora_a")), theirs("mamba.in_proj", 'A'));
  std::vector<float> b = theirs("mamba.in_proj", 'B');
  const std::uint64_t width = m.config.state_space->width();
  const std::uint64_t row = m.config.state_space->row_width();
  for (std::uint64_t i = 0; i < b.size(); ++i) {
    const std::uint64_t place = i / 2;
    b[i] *= place < width                 ? 1.0F
            : place < 2 * width           ? 4.0F
            : place < 2 * width + row     ? 8.0F
            : place < 2 * width + 2 * row ? 16.0F
                                          : 32.0F;
  }
  EXPECT_EQ(floats_of(read.tensors.at("blk.1.ssm_in.weight.lora_b")), b);
}

TEST(StateSpace, WhatReadersHaveOtherwise_IsRefused) {
  const auto refused = [](model::ModelConfig config, const char* key,
                          const std::function<void(model::ModelConfig&)>& change) {
    EXPECT_TRUE(check_expressible(config, "config.json").ok()) << check_expressible(config, "config.json");
    change(config);
    expect_refused(check_expressible(config, "config.json"), {"config.json", key, "cannot be exported"});
  };
  const model::ModelConfig granite = make_model("granitemoehybrid", make_granite).config;
  refused(granite, "mamba_expand", [](auto& config) { config.state_space->head_size *= 2; });
  refused(granite, "mamba_conv_bias", [](auto& config) { config.state_space->convolution_bias = false; });
  refused(granite, "mamba_proj_bias", [](auto& config) { config.state_space->linear_bias = true; });
  refused(granite, "time_step_limit", [](auto& config) { config.state_space->most_step = 0.5; });
  refused(granite, "time_step_limit", [](auto& config) { config.state_space->least_step = 0.001; });
  const model::ModelConfig falcon = make_model("falcon_h1").config;
  refused(falcon, "mamba_norm_before_gate", [](auto& config) { config.state_space->normed_first = true; });
  refused(falcon, "attention_bias", [](auto& config) { config.attention_bias = config.attention_output_bias = true; });
  refused(falcon, "rope_scaling", [](auto& config) { config.rope.kind = model::RopeKind::kLlama3; });
  refused(make_model("bamba").config, "attn_layer_indices", [](auto& config) { config.state_space.reset(); });
  const model::ModelConfig nemotron = make_model("nemotron_h", make_experts).config;
  refused(nemotron, "layers_block_type", [](auto& config) { config.experts->dense_blocks[3] = true; });
  refused(nemotron, "layers_block_type", [](auto& config) { config.state_space.reset(); });
  refused(nemotron, "time_step_min", [](auto& config) { config.state_space->least_step = 0.002; });
  refused(nemotron, "n_group", [](auto& config) { config.experts->groups = 2; });
}

/// `after`: bytes between the key's name and the number.
void overwrite(const fs::path& file, const std::string& good, const std::string& key, std::size_t after,
               std::uint32_t number) {
  std::string bytes = good;
  const std::size_t place = bytes.find(key);
  ASSERT_NE(place, std::string::npos) << key;
  std::memcpy(bytes.data() + place + key.size() + after, &number, sizeof number);
  test::put(file, bytes);
}

TEST(StateSpace, FilesWhoseKeysCannotBe_AreRefused) {
  const Model m = make_model("nemotron_h", make_mlps);
  const fs::path file = exported(m);
  const std::string good = *read_file(file);
  // Heads do not turn, whatever a file says of it; published ones have hidden_size over the heads.
  overwrite(file, good, "nemotron_h.rope.dimension_count", 4, 84);
  EXPECT_TRUE(import_documents(file).ok()) << import_documents(file).status();
  constexpr std::size_t kNumber = 4;  // behind a number's type
  constexpr std::size_t kList = 16;   // behind a list's, its numbers', and how many there are
  const auto refused = [&](const char* key, std::size_t after, std::uint32_t number, const char* part) {
    overwrite(file, good, std::string("nemotron_h.") + key, after, number);
    expect_refused(import_documents(file).status(), {"nemotron_h.", part});
  };
  refused("ssm.inner_size", kNumber, 30, "ssm.inner_size: expected 4 heads");
  refused("ssm.group_count", kNumber, 3, "share out over 3 groups");
  refused("ssm.conv_kernel", kNumber, 1, "ssm.conv_kernel: expected");
  refused("attention.head_count_kv", kList + 4, 1,
          "attention.head_count_kv: expected 0 or 2 in each layer, found 1 in layer 1");
  refused("attention.head_count_kv", kList, 0xffffffffU, "attention.head_count_kv: expected 4 numbers, one a layer");
  refused("feed_forward_length", kList + 8, m.config.intermediate_size, "feed_forward_length: layer 2 attends");
}

TEST(StateSpace, DamagedListsOfBlocks_AreReadOrRefused) {
  const Model m = make_model("nemotron_h", make_experts);
  const fs::path file = exported(m);
  const std::string good = *read_file(file);
  std::mt19937 random(11);
  int refused = 0;
  for (const char* list : {"attention.head_count_kv", "feed_forward_length"}) {
    const std::string key = std::string("nemotron_h_moe.") + list;
    for (int round = 0; round < 100; ++round) {
      std::string bytes = good;
      // One of four numbers becomes another small one.
      const std::uint32_t number = random() % 4;
      const std::size_t place = bytes.find(key) + key.size() + 16 + random() % 4 * sizeof number;
      std::memcpy(bytes.data() + place, &number, sizeof number);
      test::put(file, bytes);
      const auto documents = import_documents(file);
      const auto tensors = import_tensors(file);
      const bool read =
          documents.ok() && tensors.ok() && model::check_model_tensors(*model::load_config(*documents), *tensors).ok();
      if (!read) ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace rondo::gguf
