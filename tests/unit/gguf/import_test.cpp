// Models as directories, exported and read back: the same configuration, the same numbers; and what is refused.
#include "rondo/gguf/import.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "container.h"
#include "files.h"
#include "import_config.h"
#include "names.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "row_order.h"
#include "small_model.h"
#include "stored_file.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_refused;
using test::fresh_folder;

/// A random model of this architecture; `edit` changes its config.json before it is read.
Model make_model(const std::string& arch, const fs::path& folder, const std::function<void(Json&)>& edit = {}) {
  EXPECT_TRUE(model::init_model(options_of(arch, 64, 96), folder).ok());
  if (edit) {
    Json config = Json::parse(*read_file(folder / "config.json"), nullptr, false);
    edit(config);
    test::put(folder / "config.json", config.dump());
  }
  return {folder, *model::load_config(folder), *model::open_weights(*model::load_config(folder), folder)};
}

fs::path exported(const Model& m, const std::string& quantization) {
  fs::path file = m.folder.parent_path() / (quantization + ".gguf");
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, quantization, file);
  EXPECT_TRUE(status.ok()) << status;
  return file;
}

class ImportModel : public testing::TestWithParam<const char*> {};

TEST_P(ImportModel, Exported_ComesBackBitForBit) {
  const Model m = make_model(GetParam(), fresh_folder() / "model");
  const fs::path file = exported(m, "f32");
  EXPECT_TRUE(is_gguf(file));
  EXPECT_FALSE(is_gguf(m.folder / "config.json"));
  const auto documents = import_documents(file);
  ASSERT_TRUE(documents.ok()) << documents.status();
  const auto config = model::load_config(*documents);
  ASSERT_TRUE(config.ok()) << config.status();
  model::ModelConfig expected = m.config;
  if (expected.family == model::Family::kMistral) {  // the file calls both llama
    expected.family = model::Family::kLlama;
    expected.model_type = "llama";
  }
  expected.eos_token_ids = *model::load_stop_ids(m.folder, m.config);  // one list in the file
  expected.pad_token_id = config->pad_token_id;  // the tokenizer's configuration has one, the model's need not
  EXPECT_EQ(model::format_config(*config), model::format_config(expected));
  EXPECT_EQ(*model::load_stop_ids(*documents, *config), *model::load_stop_ids(m.folder, m.config));
  const auto tensors = import_tensors(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(model::check_model_tensors(*config, *tensors).ok());
  for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
    if (spec.name.ends_with(".A_log")) continue;  // files have -exp() of it
    EXPECT_EQ(values_of(*tensors, spec.name), values_of(m.files, spec.name)) << spec.name;
  }
  for (std::uint32_t layer = 0; layer < m.config.num_layers; ++layer) {
    const bool space = model::is_state_space(m.config, layer);
    if (!model::is_linear(m.config, layer) && !space) continue;
    const std::string module = space ? model::space_path(m.config, layer) : model::attention_path(m.config, layer);
    const std::string name = module + ".A_log";
    EXPECT_THAT(values_of(*tensors, name), testing::Pointwise(testing::FloatNear(1e-6F), values_of(m.files, name)));
  }
}

TEST_P(ImportModel, Q8_IsNear) {
  const Model m = make_model(GetParam(), fresh_folder() / "model");
  const auto tensors = import_tensors(exported(m, "q8_0"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
    const std::vector<float> theirs = values_of(m.files, spec.name);
    const std::vector<float> ours = values_of(*tensors, spec.name);
    float largest = 0;
    for (const float value : theirs) largest = std::max(largest, std::abs(value));
    // Half a step of the largest block, and fp16's rounding of its scale.
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_NEAR(ours[i], theirs[i], largest * (0.5 / 127 + 0x1p-11)) << spec.name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ImportModel,
                         testing::Values("llama", "arcee", "mistral", "ministral3", "qwen2", "qwen3", "smollm3",
                                         "granite", "granitemoe", "olmo2", "olmo3", "gemma", "gemma2", "gemma3_text",
                                         "gemma4_text", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "ernie4_5_moe",
                                         "lfm2_moe", "olmoe", "gpt_oss", "phi3", "hunyuan_v1_dense", "exaone4",
                                         "seed_oss", "ernie4_5", "glm", "glm4", "lfm2", "qwen3_5_text",
                                         "qwen3_5_moe_text", "qwen3_next", "deepseek_v2", "deepseek_v3", "youtu",
                                         "bamba", "falcon_h1", "nemotron"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST(ImportTensors, PiecesAndBf16_AreTheWhole) {
  const Model m = make_model("llama", fresh_folder() / "model");
  const auto tensors = *import_tensors(exported(m, "f32"));
  const model::TensorView& view = *tensors.find("model.layers.0.self_attn.k_proj.weight");
  const std::vector<float> whole = values_of(m.files, view.name);
  for (const std::uint64_t first : {0U, 1U, 63U, 64U, 700U}) {
    std::vector<float> piece(201);
    model::TensorFiles::read_as_float32(view, first, piece);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first))) << first;
  }
  std::vector<std::uint16_t> ours(view.elements());
  std::vector<std::uint16_t> theirs(view.elements());
  model::TensorFiles::read_as_bfloat16(view, ours);
  model::TensorFiles::read_as_bfloat16(*m.files.find(view.name), theirs);
  EXPECT_EQ(ours, theirs);
}

TEST(ImportConfig, GranitesFactors_ComeBack) {
  const Model m = make_model("granite", fresh_folder() / "model", [](Json& config) {
    config["embedding_multiplier"] = 12.5;
    config["residual_multiplier"] = 0.22;
    config["logits_scaling"] = 8.0;
    config["attention_multiplier"] = 0.015625;
  });
  const auto documents = import_documents(exported(m, "f32"));
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig ours = *model::load_config(*documents);
  EXPECT_EQ(ours.embedding_multiplier, 12.5);
  EXPECT_EQ(ours.residual_multiplier, 0.22);
  EXPECT_EQ(ours.logits_scaling, 8.0);
  EXPECT_EQ(ours.attention_scale, 0.015625);
}

TEST(ImportConfig, Gemma2sCaps_ComeBack) {
  const Model m = make_model("gemma2", fresh_folder() / "model", [](Json& config) {
    config["attn_logit_softcapping"] = 20.0;
    config["final_logit_softcapping"] = 12.5;
  });
  const auto documents = import_documents(exported(m, "f32"));
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig ours = *model::load_config(*documents);
  EXPECT_EQ(ours.attention_cap, 20.0);
  EXPECT_EQ(ours.logits_cap, 12.5);
  EXPECT_EQ(ours.sliding_window, m.config.sliding_window);
}

/// The key is one letter away from another one that no reader knows.
TEST(ImportConfig, Mistral3WhoseQueriesDoNotGrow_IsAMistral) {
  const Model m = make_model("ministral3", fresh_folder() / "model");
  const fs::path file = exported(m, "f32");
  std::string bytes = *read_file(file);
  const std::string key = "attention.temperature_scale";
  bytes.replace(bytes.find(key), key.size(), "attention.temperature_scald");
  test::put(file, bytes);
  const auto documents = import_documents(file);
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig ours = *model::load_config(*documents);
  EXPECT_EQ(ours.family, model::Family::kMistral);
  EXPECT_FALSE(ours.rope.query_growth);
  EXPECT_EQ(ours.rope.mscale_all_dim, 1.0);
}

/// 64 layers slide, but each fourth, which is not turned.
TEST(ImportConfig, WindowsOfExaone4_AreKnownByTheNumberOfLayers) {
  model::InitOptions options = options_of("exaone4", 32, 32);
  options.num_hidden_layers = kLayersOfSlidingExaone4;
  const fs::path folder = fresh_folder() / "model";
  ASSERT_TRUE(model::init_model(options, folder).ok());
  Json config = Json::parse(*read_file(folder / "config.json"), nullptr, false);
  config["sliding_window"] = 16;
  config.erase("layer_types");
  test::put(folder / "config.json", config.dump());
  const model::ModelConfig theirs = *model::load_config(folder);
  const Model m{folder, theirs, *model::open_weights(theirs, folder)};
  const auto documents = import_documents(exported(m, "f32"));
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig ours = *model::load_config(*documents);
  EXPECT_EQ(ours.sliding_window, theirs.sliding_window);
  EXPECT_EQ(ours.without_rope, theirs.without_rope);
  EXPECT_TRUE(ours.without_rope[3]);
  EXPECT_EQ(ours.sliding_window[2], 16U);
}

/// Files have the theta that alpha stretches.
TEST(ImportConfig, HunYuansAlpha_IsInTheta) {
  const Model m = make_model("hunyuan_v1_dense", fresh_folder() / "model", [](Json& config) {
    config["rope_scaling"] = {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  });
  const auto documents = import_documents(exported(m, "f32"));
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig ours = *model::load_config(*documents);
  EXPECT_EQ(ours.rope.kind, model::RopeKind::kDefault);
  EXPECT_NEAR(ours.rope.theta / (10000.0 * std::pow(1000.0, 16.0 / 14.0)), 1.0, 1e-6);
}

/// Heads of 16, of which 6 turn.
void stretch_phi(Json& config) {
  config["max_position_embeddings"] = 1024;
  config["original_max_position_embeddings"] = 64;
  config["partial_rotary_factor"] = 0.375;
  config["rope_scaling"] = {
      {"type", "longrope"}, {"short_factor", {1.0, 1.25, 2.0}}, {"long_factor", {1.5, 4.0, 40.0}}};
}

TEST(ImportConfig, PhisLongRope_ComesBack) {
  for (const bool own_factor : {false, true}) {
    const Model m = make_model("phi3", fresh_folder() / "model", [&](Json& config) {
      stretch_phi(config);
      if (own_factor) config["rope_scaling"]["attention_factor"] = 1.5;
    });
    const fs::path file = exported(m, "f32");
    const auto documents = import_documents(file);
    ASSERT_TRUE(documents.ok()) << documents.status();
    const model::ModelConfig ours = *model::load_config(*documents);
    EXPECT_EQ(ours.rope.kind, model::RopeKind::kLongRope);
    EXPECT_EQ(ours.rope.turned_share, 0.375);
    EXPECT_EQ(ours.rope.original_max_positions, 64U);
    EXPECT_EQ(ours.rope.short_factors, m.config.rope.short_factors);
    EXPECT_EQ(ours.rope.long_factors, m.config.rope.long_factors);
    EXPECT_EQ(ours.rope.attention_factor, m.config.rope.attention_factor);
    EXPECT_TRUE(model::check_model_tensors(ours, *import_tensors(file)).ok());
  }
}

/// The factors take part in the file by themselves.
TEST(ImportConfig, OfPhisFactors_BothAreWanted) {
  const Model m = make_model("phi3", fresh_folder() / "model", stretch_phi);
  const fs::path file = exported(m, "f32");
  std::string bytes = *read_file(file);
  bytes.replace(bytes.find("rope_factors_long"), 17, "rope_factors_lone");
  test::put(file, bytes);
  expect_refused(import_documents(file).status(),
                 {"rope_factors_short.weight", "rope_factors_long.weight", "found one"});
}

TEST(ImportTensors, NormsOfGemma_AreStoredWithTheOneThatTheyAdd) {
  const Model m = make_model("gemma", fresh_folder() / "model");
  const std::string name = "model.layers.1.input_layernorm.weight";
  const auto file = *open_stored_file(exported(m, "f32"));
  const StoredTensor& stored = file.tensors.at("blk.1.attn_norm.weight");
  std::vector<float> values(64);
  decode_stretch(*stored.coding, stored.data, 0, values);
  EXPECT_THAT(values, testing::Each(1.0F));
  EXPECT_THAT(values_of(m.files, name), testing::Each(0.0F));
}

TEST(ImportConfig, RotaryScaling_ComesBack) {
  const std::pair<const char*, Json> kSettings[] = {
      {"linear", {{"rope_type", "linear"}, {"factor", 2.5}}},
      {"yarn", {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}},
      {"llama31",
       {{"rope_type", "llama3"},
        {"factor", 8.0},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", 4.0},
        {"original_max_position_embeddings", 8192}}},
      {"own",
       {{"rope_type", "llama3"},
        {"factor", 5.5},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", 6.0},
        {"original_max_position_embeddings", 640}}}};
  const fs::path folder = fresh_folder();
  for (const auto& setting : kSettings) {
    const std::string name = setting.first;
    const Model m = make_model("llama", folder / name / "model", [&](Json& config) {
      // Frequencies lie at both ends and, for what is solved, several between them.
      config["rope_theta"] = name == "own" ? 500.0 : 500000.0;
      config["rope_scaling"] = setting.second;
    });
    const auto documents = import_documents(exported(m, "f32"));
    ASSERT_TRUE(documents.ok()) << name << documents.status();
    const model::RopeConfig ours = model::load_config(*documents)->rope;
    const model::RopeConfig& theirs = m.config.rope;
    EXPECT_EQ(ours.kind, theirs.kind) << name;
    EXPECT_EQ(ours.theta, theirs.theta) << name;
    EXPECT_EQ(ours.factor, theirs.factor) << name;
    EXPECT_EQ(ours.low_frequency_factor, theirs.low_frequency_factor) << name;
    EXPECT_EQ(ours.high_frequency_factor, theirs.high_frequency_factor) << name;
    EXPECT_EQ(ours.original_max_positions, theirs.original_max_positions) << name;
  }
}

TEST(RopeOfDivisors, WhatNoSettingGives_IsNone) {
  EXPECT_EQ(rope_of_divisors({1, 1, 1, 1}, 10000.0, 2048)->kind, model::RopeKind::kDefault);
  EXPECT_FALSE(rope_of_divisors({1, 3, 2, 8}, 10000.0, 2048));
  EXPECT_FALSE(rope_of_divisors({1, 0.5F, 2, 8}, 10000.0, 2048));
  EXPECT_FALSE(rope_of_divisors({1, NAN, 2, 8}, 10000.0, 2048));
  EXPECT_FALSE(rope_of_divisors({}, 10000.0, 2048));
}

/// Divisors of a made-up setting, and those of the setting that is read out of them.
void expect_same_divisors(std::uint32_t head_dim, double theta, double original, double low, double high) {
  model::ModelConfig config;
  config.head_dim = head_dim;
  config.rope.kind = model::RopeKind::kLlama3;
  config.rope.theta = theta;
  config.rope.factor = 8.0;
  config.rope.original_max_positions = static_cast<std::uint32_t>(original);
  config.rope.low_frequency_factor = low;
  config.rope.high_frequency_factor = high;
  const std::vector<float> divisors = frequency_divisors(config);
  const auto found = rope_of_divisors(divisors, theta, 131072);
  ASSERT_TRUE(found) << theta << " " << original << " " << low << " " << high;
  config.rope = *found;
  const std::vector<float> again = frequency_divisors(config);
  for (std::size_t i = 0; i < divisors.size(); ++i) EXPECT_NEAR(again[i], divisors[i], 1e-5F * divisors[i]) << i;
}

TEST(RopeOfDivisors, OneFrequencyBlendedOrNone_ASettingIsFoundThatDividesAlike) {
  expect_same_divisors(64, 5e5, 4096, 1.0, 2.0);
  expect_same_divisors(64, 1e6, 1024, 1.0, 2.0);
  expect_same_divisors(64, 5e5, 4096, 1.0, 1.5);
  expect_same_divisors(64, 5e5, 4096, 2.0, 3.0);
  expect_same_divisors(64, 5e5, 4096, 1.0, 1.7);  // none of the high ends that are tried
  expect_same_divisors(8, 1e4, 1024, 1.0, 4.0);   // pairs that lie far apart
  expect_same_divisors(8, 1e4, 3, 1.0, 4.0);      // none of them kept
}

TEST(Order, OfNeighbouringRows_IsTheHalvesOfAHeadByTurns) {
  const auto heads = [](std::uint64_t count, std::uint64_t turned) {
    return Order{.stretches = count, .outer = 2, .inner = turned / 2};
  };
  for (const Order& order : {Order{}, heads(1, 24), heads(3, 8), heads(3, 6)}) {
    for (std::uint64_t row = 0; row < 24; ++row) EXPECT_EQ(stored_place(source_place(row, 24, order), 24, order), row);
  }
  EXPECT_EQ(source_place(12, 24, heads(3, 6)), 10U);
  EXPECT_EQ(source_place(14, 24, heads(3, 6)), 14U);  // behind those that turn
}

TEST(ModelTensorName, UndoesTensorName) {
  const fs::path folder = fresh_folder();
  for (const char* arch : {"qwen3", "olmo2", "gemma2", "gemma3_text"}) {
    const model::ModelConfig config = make_model(arch, folder / arch).config;
    for (const model::ParameterSpec& spec : model::model_parameters(config)) {
      EXPECT_EQ(model_tensor_name(config, tensor_name(config, spec.name)), spec.name);
    }
  }
  const model::ModelConfig mixtral = make_model("mixtral", folder / "mixtral").config;
  for (const model::ParameterSpec& spec : model::model_parameters(mixtral)) {
    const auto place = stacked(mixtral, spec.name);
    if (!place) {
      EXPECT_EQ(model_tensor_name(mixtral, tensor_name(mixtral, spec.name)), spec.name);
      continue;
    }
    const std::vector<std::string> names = model_names_of_stack(mixtral, place->name);
    ASSERT_EQ(names.size(), 8U);
    EXPECT_EQ(names[place->expert], spec.name);
  }
  EXPECT_TRUE(model_names_of_stack(mixtral, "blk.0.ffn_gate.weight").empty());
  model::ModelConfig config;
  config.text_part = true;
  EXPECT_EQ(tensor_name(config, "model.language_model.layers.1.self_attn.q_proj.weight"), "blk.1.attn_q.weight");
  for (const char* other : {"blk.0.attn_sinks.weight", "blk.0", "nothing", "blk.attn_q.weight", ""}) {
    EXPECT_FALSE(model_tensor_name(config, other)) << other;
  }
}

/// A file of one small matrix and the keys that `add` gives beside a whole set.
fs::path file_with(const std::function<void(Keys&)>& add, const std::vector<std::string>& without = {},
                   const std::string& embedding = "token_embd.weight") {
  Keys keys;
  const auto with = [&](const std::string& name, auto value) {
    if (std::find(without.begin(), without.end(), name) == without.end()) keys.add(name, value);
  };
  with("general.architecture", std::string_view("llama"));
  for (const char* size :
       {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"}) {
    with(std::string("llama.") + size, std::uint32_t{4});
  }
  with("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  add(keys);
  const fs::path file = fresh_folder() / "m.gguf";
  const absl::Status written = write_container(file, keys, {{embedding, {8, 4}, TensorType::kF32}},
                                               [](std::size_t, std::span<std::byte>) { return absl::OkStatus(); });
  EXPECT_TRUE(written.ok()) << written;
  return file;
}

absl::Status read_with(const std::function<void(Keys&)>& add, const std::vector<std::string>& without = {},
                       const std::string& embedding = "token_embd.weight") {
  return import_documents(file_with(add, without, embedding)).status();
}

TEST(ImportConfig, WhatIsMissing_IsNamed) {
  const auto nothing = [](Keys&) {};
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    expect_refused(read_with(nothing, {key}), {"m.gguf", key, "missing"});
  }
  expect_refused(read_with(nothing, {}, "token_embed.weight"), {"m.gguf", "token_embd.weight"});
}

TEST(ImportConfig, WhatIsNotSupported_IsRefusedByKey) {
  const auto refused = [](const char* key, auto value, const std::string& part,
                          const std::vector<std::string>& without = {}) {
    expect_refused(read_with([&](Keys& keys) { keys.add(key, value); }, without), {"m.gguf", key, part});
  };
  refused("general.architecture", "rwkv6", "llama, arcee, mistral3, qwen2, qwen3", {"general.architecture"});
  refused("general.type", "adapter", "expected model");
  refused("split.count", std::uint32_t{3}, "parts");
  refused("llama.expert_count", std::uint32_t{513}, "0 to 512");
  refused("llama.block_count", std::uint32_t{0}, "1 to", {"llama.block_count"});
  refused("llama.embedding_length", "wide", "integer", {"llama.embedding_length"});
  refused("llama.feed_forward_length", std::vector<std::int32_t>{4, 8}, "array", {"llama.feed_forward_length"});
  refused("llama.attention.layer_norm_rms_epsilon", NAN, "nan", {"llama.attention.layer_norm_rms_epsilon"});
  refused("llama.attention.value_length", std::uint32_t{3}, "width of a head");
  refused("llama.rope.dimension_count", std::uint32_t{8}, "width of a head");
  refused("llama.rope.scaling.type", "longrope", "longrope");
  refused("llama.rope.freq_base", 0.0F, "expected 1 to");
  refused("llama.attention.scale", 0.5F, "scaled");
  refused("llama.final_logit_softcapping", 30.0F, "scaled");
  refused("llama.attention.causal", false, "what follows");
  expect_refused(read_with(
                     [](Keys& keys) {
                       keys.add("general.architecture", "granite");
                       keys.add("granite.rope.scaling.finetuned", false);
                     },
                     {"general.architecture"}),
                 {"granite.rope.scaling.finetuned", "rotary embedding"});
  const auto refused_of_lfm2 = [](const std::vector<std::int32_t>& heads, const std::string& part) {
    expect_refused(read_with(
                       [&](Keys& keys) {
                         keys.add("general.architecture", "lfm2");
                         keys.add("lfm2.block_count", std::uint32_t{3});
                         keys.add("lfm2.context_length", std::uint32_t{64});
                         keys.add("lfm2.embedding_length", std::uint32_t{16});
                         keys.add("lfm2.feed_forward_length", std::uint32_t{16});
                         keys.add("lfm2.attention.head_count", std::uint32_t{4});
                         keys.add("lfm2.attention.head_count_kv", heads);
                         keys.add("lfm2.shortconv.l_cache", std::uint32_t{3});
                       },
                       {"general.architecture"}),
                   {"m.gguf", "lfm2.attention.head_count_kv", part});
  };
  refused_of_lfm2({0, 2}, "expected 3, one a layer, found 2");
  refused_of_lfm2({0, 2, 1}, "found 1 in layer 2");
  refused_of_lfm2({-1, 0, 0}, "found -1 in layer 0");
  refused("tokenizer.ggml.eos_token_id", std::uint32_t{8}, "below 8");
}

TEST(ImportConfig, FactorWithoutAKind_ScalesLinearly) {
  const auto rope_with = [](const std::function<void(Keys&)>& add) {
    const auto heads = [&](Keys& keys) {
      keys.add("llama.attention.head_count", std::uint32_t{2});
      add(keys);
    };
    const auto file = open_stored_file(file_with(heads, {"llama.attention.head_count"}));
    EXPECT_TRUE(file.ok()) << file.status();
    const auto config = import_config(*file);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->rope : model::RopeConfig{};
  };
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const model::RopeConfig rope = rope_with([&](Keys& keys) { keys.add(key, 4.0F); });
    EXPECT_EQ(rope.kind, model::RopeKind::kLinear) << key;
    EXPECT_EQ(rope.factor, 4.0) << key;
    EXPECT_EQ(rope_with([&](Keys& keys) { keys.add(key, 1.0F); }).kind, model::RopeKind::kDefault) << key;
    expect_refused(read_with([&](Keys& keys) { keys.add(key, 0.5F); }), {key, "at least 1, found 0.5"});
  }
  const auto none = [](Keys& keys) {
    keys.add("llama.rope.scaling.type", "none");
    keys.add("llama.rope.scaling.factor", 4.0F);
  };
  EXPECT_EQ(rope_with(none).kind, model::RopeKind::kDefault);
}

void add_experts(Keys& keys, std::uint32_t used) {
  keys.add("llama.expert_count", std::uint32_t{3});
  keys.add("llama.expert_used_count", used);
}

TEST(ImportConfig, ExpertsThatAreNotThere_AreRefused) {
  expect_refused(read_with([](Keys& keys) { add_experts(keys, 0); }), {"llama.expert_used_count", "1 to 3"});
  expect_refused(read_with([](Keys& keys) { add_experts(keys, 4); }), {"llama.expert_used_count", "1 to 3"});
}

TEST(ImportTensors, GateAndUpOfExpertsInOneTensor_ComeBackApart) {
  const Model m = make_model("qwen3_moe", fresh_folder() / "model");
  const StoredFile stored = *open_stored_file(exported(m, "f32"));
  // The same file but for block 1, whose gates and ups are joined; of its keys those that are needed.
  Keys keys;
  keys.add("general.architecture", "qwen3moe");
  const auto integer = [&](const char* name, std::uint32_t value) { keys.add(std::string("qwen3moe.") + name, value); };
  integer("block_count", 2);
  integer("context_length", 2048);
  integer("embedding_length", 64);
  integer("feed_forward_length", 96);
  integer("expert_feed_forward_length", 96);
  integer("expert_count", 8);
  integer("expert_used_count", 2);
  integer("attention.head_count", 4);
  integer("attention.head_count_kv", 2);
  keys.add("qwen3moe.attention.layer_norm_rms_epsilon", 1e-5F);
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : stored.tensors) {
    if (name == "blk.1.ffn_up_exps.weight") continue;
    std::vector<std::uint64_t> shape = tensor.shape;
    const bool joined = name == "blk.1.ffn_gate_exps.weight";
    if (joined) shape[1] *= 2;
    tensors.push_back({joined ? "blk.1.ffn_gate_up_exps.weight" : name, shape, TensorType::kF32});
  }
  const auto bytes_of = [&](const std::string& name) { return stored.tensors.at(name).data; };
  const fs::path file = fresh_folder() / "m.gguf";
  const auto fill = [&](std::size_t index, std::span<std::byte> out) {
    if (tensors[index].name != "blk.1.ffn_gate_up_exps.weight") {
      std::ranges::copy(bytes_of(tensors[index].name), out.begin());
      return absl::OkStatus();
    }
    constexpr std::size_t kMatrix = 96UL * 64 * sizeof(float);
    for (std::size_t expert = 0; expert < 8; ++expert) {
      const auto gate = bytes_of("blk.1.ffn_gate_exps.weight").subspan(expert * kMatrix, kMatrix);
      const auto up = bytes_of("blk.1.ffn_up_exps.weight").subspan(expert * kMatrix, kMatrix);
      std::ranges::copy(gate, out.subspan(2 * expert * kMatrix).begin());
      std::ranges::copy(up, out.subspan((2 * expert + 1) * kMatrix).begin());
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(write_container(file, keys, tensors, fill).ok());
  const auto found = import_tensors(file);
  ASSERT_TRUE(found.ok()) << found.status();
  for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
    EXPECT_EQ(values_of(*found, spec.name), values_of(m.files, spec.name)) << spec.name;
  }
}

TEST(ImportTensors, ExpertsOfAnotherNumber_AreRefused) {
  const Model m = make_model("mixtral", fresh_folder() / "model");
  const fs::path file = exported(m, "f32");
  std::string bytes = *read_file(file);
  const std::string key = "llama.expert_count";
  const std::size_t place = bytes.find(key);
  ASSERT_NE(place, std::string::npos);
  bytes[place + key.size() + 4] = 5;  // behind the value's type
  test::put(file, bytes);
  expect_refused(import_tensors(file).status(), {"f32.gguf", "blk.0.ffn_", "_exps.weight", "5 experts"});
}

}  // namespace
}  // namespace rondo::gguf
