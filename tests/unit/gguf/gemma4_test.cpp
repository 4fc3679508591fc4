// Gemma 4 in files: heads by the kind of layer, frequencies that stand still, experts beside an MLP, and adapters.
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "files.h"
#include "names.h"
#include "names_gemma4.h"
#include "reader.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "small_model.h"
#include "stored_file.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_refused;
using test::fresh_folder;

constexpr std::size_t kHidden = 48;
constexpr std::size_t kExperts = 8;
constexpr std::size_t kWidth = 32;  // of an expert

/// Two layers, of which the first slides; `edit` changes its config.json before it is read.
Model make_model(bool with_experts, const std::function<void(Json&)>& edit = {}) {
  model::InitOptions options = options_of("gemma4_text", kHidden, 64);
  options.moe_intermediate_size = with_experts ? kWidth : 0;
  const fs::path folder = fresh_folder() / "model";
  EXPECT_TRUE(model::init_model(options, folder).ok());
  Json document = Json::parse(*read_file(folder / "config.json"), nullptr, false);
  if (edit) edit(document);
  test::put(folder / "config.json", document.dump());
  const model::ModelConfig config = *model::load_config(folder);
  return {folder, config, *model::open_weights(config, folder)};
}

fs::path exported(const Model& m) {
  fs::path output = m.folder.parent_path() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, "f32", output);
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

/// The same number in the place of the one behind the first `name`, `gap` bytes after it.
template <typename Number>
void overwrite(std::string& bytes, const std::string& name, std::size_t gap, Number number) {
  const std::size_t place = bytes.find(name);
  ASSERT_NE(place, std::string::npos) << name;
  std::memcpy(bytes.data() + place + name.size() + gap, &number, sizeof number);
}

TEST(Gemma4, Keys_DescribeHeadsByTheKindOfLayer) {
  ReadFile file = read_gguf(exported(make_model(true)));
  const auto key = [&](const std::string& name) { return file.keys["gemma4." + name]; };
  EXPECT_EQ(key("attention.head_count_kv"), (Json{2, 1}));
  EXPECT_EQ(key("attention.sliding_window_pattern"), (Json{true, false}));
  EXPECT_EQ(key("attention.sliding_window"), 512);
  for (const std::string size : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    EXPECT_EQ(key(size), 24) << size;
    EXPECT_EQ(key(size + "_swa"), 12) << size;
  }
  EXPECT_EQ(key("attention.shared_kv_layers"), 0);
  EXPECT_EQ(key("embedding_length_per_layer_input"), 0);
  EXPECT_EQ(key("final_logit_softcapping"), 0.0);  // without which readers cap at 30
  EXPECT_EQ(key("expert_count"), kExperts);
  EXPECT_EQ(key("expert_feed_forward_length"), kWidth);
  EXPECT_FALSE(file.tensors.contains("blk.1.attn_v.weight"));  // keys are values there
}

TEST(Gemma4, ExpertsAndFactors_HaveTheReadersNames) {
  const Model m = make_model(true);
  const ReadFile file = read_gguf(exported(m));
  const auto ours = [&](const char* name) { return floats_of(file.tensors.at(std::string("blk.0.") + name)); };
  const auto theirs = [&](const std::string& name) { return values_of(m.files, "model.layers.0." + name); };
  std::vector<float> inner;
  for (std::size_t expert = 0; expert < kExperts; ++expert) {
    for (const char* part : {".gate_proj.weight", ".up_proj.weight"}) {
      const std::vector<float> matrix = theirs("experts." + std::to_string(expert) + part);
      inner.insert(inner.end(), matrix.begin(), matrix.end());
    }
  }
  EXPECT_EQ(ours("ffn_gate_up_exps.weight"), inner);
  EXPECT_EQ(file.tensors.at("blk.0.ffn_gate_up_exps.weight").sizes,
            (std::vector<std::uint64_t>{kHidden, 2 * kWidth, kExperts}));
  for (const auto& [name, own] :
       {std::pair("router.proj.weight", "ffn_gate_inp.weight"), std::pair("router.scale", "ffn_gate_inp.scale"),
        std::pair("router.per_expert_scale", "ffn_down_exps.scale"),
        std::pair("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"),
        std::pair("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"),
        std::pair("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"),
        std::pair("layer_scalar", "layer_output_scale.weight")}) {
    EXPECT_EQ(ours(own), theirs(name)) << name;
    EXPECT_EQ(model_tensor_name(m.config, std::string("blk.0.") + own), std::string("model.layers.0.") + name);
  }
}

TEST(Gemma4, FrequenciesCapAndDenseLayers_ComeBack) {
  const Model m = make_model(false, [](Json& config) {
    config["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 0.5;
    config["rope_parameters"]["full_attention"]["factor"] = 1.3;
    config["rope_parameters"]["sliding_attention"]["rope_theta"] = 300.0;
    config["final_logit_softcapping"] = 12.5;
  });
  const fs::path file = exported(m);
  std::vector<float> divisors(12, kStill);
  std::fill_n(divisors.begin(), 6, 1.3F);
  EXPECT_EQ(floats_of(read_gguf(file).tensors.at("rope_freqs.weight")), divisors);
  const auto documents = import_documents(file);
  ASSERT_TRUE(documents.ok()) << documents.status();
  model::ModelConfig config = *model::load_config(*documents);
  EXPECT_FALSE(config.experts.has_value());
  config.eos_token_ids = m.config.eos_token_ids;  // those of the tokenizer, too
  EXPECT_EQ(model::format_config(config), model::format_config(m.config));
  const auto tensors = import_tensors(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok());
}

/// Of E2B's shape.
Model small_model() {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "golden/gemma4_small/model";
  const model::ModelConfig config = *model::load_config(folder);
  return {folder, config, *model::open_weights(config, folder)};
}

TEST(Gemma4, InputsAndSharedKeys_ComeBack) {
  const Model m = small_model();
  const fs::path output = fresh_folder() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, "f32", output);
  ASSERT_TRUE(status.ok()) << status;
  ReadFile file = read_gguf(output);
  EXPECT_EQ(file.keys["gemma4.attention.shared_kv_layers"], 2);
  EXPECT_EQ(file.keys["gemma4.embedding_length_per_layer_input"], 26);
  EXPECT_EQ(file.keys["gemma4.feed_forward_length"], (Json{38, 38, 38, 76, 76}));
  for (const auto& [theirs, ours] :
       {std::pair("model.embed_tokens_per_layer.weight", kInputTable),
        std::pair("model.per_layer_model_projection.weight", "per_layer_model_proj.weight"),
        std::pair("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
        std::pair("model.layers.4.per_layer_input_gate.weight", "blk.4.inp_gate.weight"),
        std::pair("model.layers.4.per_layer_projection.weight", "blk.4.proj.weight"),
        std::pair("model.layers.4.post_per_layer_input_norm.weight", "blk.4.post_norm.weight")}) {
    EXPECT_EQ(floats_of(file.tensors.at(ours)), values_of(m.files, theirs)) << theirs;
  }
  EXPECT_FALSE(file.tensors.contains("blk.3.attn_k.weight"));
  const auto documents = import_documents(output);
  ASSERT_TRUE(documents.ok()) << documents.status();
  model::ModelConfig config = *model::load_config(*documents);
  config.eos_token_ids = m.config.eos_token_ids;  // those of the tokenizer, too
  config.bos_token_id = m.config.bos_token_id;
  config.pad_token_id = m.config.pad_token_id;
  EXPECT_EQ(model::format_config(config), model::format_config(m.config));
  const auto tensors = import_tensors(output);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok());
}

TEST(Gemma4, KeysSharedOtherwiseThanReadersDo_AreRefused) {
  Model m = small_model();
  m.config.sliding_window = {7, 0, 7, 7, 0};
  expect_refused(export_model(Documents(m.folder), m.config, m.files, "f32", fresh_folder() / "m.gguf"),
                 {"num_kv_shared_layers", "one that slides"});
}

TEST(Gemma4, HeadsThatAllTurn_ComeBack) {
  const Model m = make_model(false, [](Json& config) {
    config["rope_parameters"]["full_attention"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
    config["layer_types"] = {"full_attention", "full_attention"};
  });
  const auto documents = import_documents(exported(m));
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig config = *model::load_config(*documents);
  EXPECT_EQ(config.rope.kind, model::RopeKind::kDefault);
  EXPECT_EQ(config.rope.theta, 500.0);
  EXPECT_EQ(config.sliding_window, (std::vector<std::uint32_t>{0, 0}));
  EXPECT_EQ(config.global_heads->kv_heads, 1U);
}

TEST(Gemma4, FilesThatItsReadersTakeOtherwise_AreRefused) {
  const fs::path file = exported(make_model(true));
  const std::string good = *read_file(file);
  const auto refused = [&](const std::string& name, std::size_t gap, auto number, const std::string& what) {
    std::string bytes = good;
    overwrite(bytes, name, gap, number);
    test::put(file, bytes);
    expect_refused(import_documents(file).status(), {name, what});
  };
  constexpr std::size_t kBehindType = 4;
  constexpr std::size_t kBehindCount = 16;
  refused("gemma4.attention.shared_kv_layers", kBehindType, std::uint32_t{2}, "expected");
  refused("gemma4.embedding_length_per_layer_input", kBehindType, std::uint32_t{256}, kInputTable);
  refused("gemma4.attention.value_length", kBehindType, std::uint32_t{16}, "expected 24");
  refused("gemma4.attention.value_length_swa", kBehindType, std::uint32_t{16}, "expected 12");
  refused("gemma4.attention.sliding_window_pattern", kBehindCount + 1, std::uint8_t{1}, "last layer");
  refused("gemma4.attention.head_count_kv", kBehindCount, std::int32_t{0}, "one a layer");
  test::put(file, good);
  const auto opened = open_stored_file(file);
  const auto at = reinterpret_cast<const char*>(opened->tensors.at("rope_freqs.weight").data.data()) -
                  reinterpret_cast<const char*>(opened->head.data());
  std::string bytes = good;
  const float other = 3.0F;
  std::memcpy(bytes.data() + at + sizeof other, &other, sizeof other);  // of the second of three that turn
  test::put(file, bytes);
  expect_refused(import_documents(file).status(), {"rope_freqs.weight", "found 3"});
}

/// An adapter of the experts' tensor, each of its numbers another.
fs::path adapter_of(const Model& m, const model::LoraConfig& lora) {
  model::WritePlan plan;
  std::vector<std::vector<float>> numbers;
  float next = 0;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    std::vector<float>& values = numbers.emplace_back(shape[0] * shape[1]);
    for (float& value : values) value = next += 1.0F;
    plan.tensors.push_back({name, model::WeightType::kFloat32, std::move(shape)});
  };
  for (const model::ExpertFactors& factors : model::expert_factors(m.config, lora)) {
    add(factors.a, {factors.experts * factors.rank, factors.in});
    add(factors.stored_b, {factors.stored_rows(), factors.experts * factors.rank});
  }
  plan.produce = [numbers](std::size_t index, const model::TensorSink& sink) {
    return sink(std::as_bytes(std::span(numbers[index])));
  };
  fs::path file = m.folder.parent_path() / "adapter_model.safetensors";
  EXPECT_TRUE(model::write_safetensors(file, plan.tensors, {}, plan.produce).ok());
  return file;
}

model::LoraConfig lora_of(const std::string& tensor) {
  model::LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 2;
  lora.parameters = {tensor};
  return lora;
}

TEST(Gemma4, AdapterOfGateAndUp_IsOneAsTheirTensor) {
  const Model m = make_model(true);
  const model::LoraConfig lora = lora_of("experts.gate_up_proj");
  const auto files = *model::open_factors(m.config, lora, adapter_of(m, lora));
  const fs::path output = m.folder.parent_path() / "a.gguf";
  const absl::Status status = export_adapter(Documents(m.folder), m.config, lora, files, "f32", output);
  ASSERT_TRUE(status.ok()) << status;
  const ReadFile file = read_gguf(output);
  EXPECT_EQ(file.tensors.size(), 4U);  // A and B of two layers
  const model::ExpertFactors factors = model::expert_factors(m.config, lora).front();
  const ReadTensor& a = file.tensors.at("blk.0.ffn_gate_up_exps.weight.lora_a");
  EXPECT_EQ(a.sizes, (std::vector<std::uint64_t>{kHidden, 2, kExperts}));
  EXPECT_EQ(floats_of(a), values_of(files, factors.a));
  const ReadTensor& b = file.tensors.at("blk.0.ffn_gate_up_exps.weight.lora_b");
  EXPECT_EQ(b.sizes, (std::vector<std::uint64_t>{2, 2 * kWidth, kExperts}));
  std::vector<float> expected;
  const std::size_t of_expert = kWidth * 2;
  for (std::size_t expert = 0; expert < kExperts; ++expert) {
    for (const model::ExpertFactors::Part& part : factors.parts) {
      const std::vector<float> rows = values_of(files, part.b);
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(expert * of_expert);
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(of_expert));
    }
  }
  EXPECT_EQ(floats_of(b), expected);
}

TEST(Gemma4, AdapterOfDown_IsRefusedForReadersDoNotScaleIt) {
  const Model m = make_model(true);
  const model::LoraConfig lora = lora_of("experts.down_proj");
  const auto files = *model::open_factors(m.config, lora, adapter_of(m, lora));
  expect_refused(export_adapter(Documents(m.folder), m.config, lora, files, "f32", m.folder.parent_path() / "a.gguf"),
                 {"model.layers.0.experts.down_proj", "per_expert_scale", "merge"});
}

TEST(Gemma4, WhatReadersLack_IsRefused) {
  Model m = make_model(false);
  m.config.window_rope->kind = model::RopeKind::kProportional;
  expect_refused(check_expressible(m.config, "config.json"), {"rope_parameters"});
  m.config.window_rope->kind = model::RopeKind::kDefault;
  EXPECT_TRUE(check_expressible(m.config, "config.json").ok());
  m.config.attention_bias = true;
  expect_refused(check_expressible(m.config, "config.json"), {"attention_bias"});
}

}  // namespace
}  // namespace rondo::gguf
