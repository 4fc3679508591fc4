// Attention by a latent in files: keys' and values' matrices by heads, rows that turn, rotary scaling, experts' scores,
// files of older writers, and adapters.
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "container.h"
#include "files.h"
#include "import_latent.h"
#include "names.h"
#include "names_latent.h"
#include "reader.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/adapter.h"
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

constexpr std::uint32_t kHeads = 4;
constexpr std::uint32_t kRank = 32;
constexpr std::uint32_t kTurned = 8;
constexpr std::uint32_t kPlain = 8;

/// Two layers, of which with experts the first has none; `edit` changes its config.json before it is read.
Model make_model(const std::string& arch, const std::function<void(Json&)>& edit = {}) {
  const fs::path folder = fresh_folder() / "model";
  EXPECT_TRUE(model::init_model(options_of(arch, 64, 96), folder).ok());
  Json document = Json::parse(*read_file(folder / "config.json"), nullptr, false);
  if (edit) edit(document);
  test::put(folder / "config.json", document.dump());
  const model::ModelConfig config = *model::load_config(folder);
  return {folder, config, *model::open_weights(config, folder)};
}

fs::path exported(const Model& m, const char* quantization = "f32") {
  fs::path output = m.folder.parent_path() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, quantization, output);
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

/// As the directory has them, and GGUF files too.
std::vector<float> stored_values(const Model& m, const std::string& name) {
  return values_of(*model::TensorFiles::open_file(m.folder / "model.safetensors"), name);
}

/// A yarn whose two scales are even.
void stretch(Json& config, double mscale) {
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 40.0},
                            {"beta_fast", 32},
                            {"beta_slow", 1},
                            {"mscale", mscale},
                            {"mscale_all_dim", mscale},
                            {"original_max_position_embeddings", 64}};
}

TEST(LatentAttention, Keys_DescribeWhatReadersCacheAndHeads) {
  ReadFile file = read_gguf(exported(make_model("deepseek_v3", [](Json& config) { stretch(config, 0.707); })));
  const auto key = [&](const std::string& name) { return file.keys["deepseek2." + name]; };
  EXPECT_EQ(file.keys["general.architecture"], "deepseek2");
  EXPECT_EQ(key("attention.head_count"), kHeads);
  EXPECT_EQ(key("attention.head_count_kv"), 1);
  EXPECT_EQ(key("attention.key_length"), kRank + kTurned);
  EXPECT_EQ(key("attention.value_length"), kRank);
  EXPECT_EQ(key("attention.key_length_mla"), kPlain + kTurned);
  EXPECT_EQ(key("attention.value_length_mla"), kPlain);
  EXPECT_EQ(key("attention.q_lora_rank"), kRank);
  EXPECT_EQ(key("attention.kv_lora_rank"), kRank);
  EXPECT_EQ(key("rope.dimension_count"), kTurned);
  EXPECT_EQ(key("rope.scaling.type"), "yarn");
  EXPECT_EQ(key("rope.scaling.yarn_log_multiplier"), 0.0707F);
  EXPECT_EQ(key("leading_dense_block_count"), 1);
  EXPECT_EQ(key("expert_shared_count"), 1);
  EXPECT_EQ(key("expert_gating_func"), 2);
  EXPECT_EQ(key("expert_weights_norm"), true);
  EXPECT_EQ(key("expert_weights_scale"), 1.0F);
  EXPECT_FALSE(file.keys.contains("deepseek2.expert_group_count"));
  ReadFile softmax = read_gguf(exported(make_model("deepseek_v2")));
  EXPECT_EQ(softmax.keys["deepseek2.expert_gating_func"], 1);
  EXPECT_EQ(softmax.keys["deepseek2.expert_weights_norm"], false);
  EXPECT_FALSE(softmax.keys.contains("deepseek2.rope.scaling.yarn_log_multiplier"));
}

TEST(LatentAttention, WithoutExperts_ReadersAreToldSo) {
  ReadFile file = read_gguf(exported(make_model("youtu")));
  EXPECT_FALSE(file.keys.contains("deepseek2.expert_count"));
  EXPECT_EQ(file.keys["deepseek2.leading_dense_block_count"], 2);
  EXPECT_EQ(file.keys["deepseek2.expert_feed_forward_length"], 96);
  EXPECT_EQ(file.keys["deepseek2.expert_shared_count"], 0);
}

TEST(LatentAttention, QueriesWithoutALatent_AreSaidToHaveNoneWhereReadersWouldNotKnow) {
  const auto key_at = [](std::uint32_t layers) {
    model::ModelConfig config =
        make_model("deepseek_v3", [](Json& document) { document["q_lora_rank"] = nullptr; }).config;
    config.num_layers = layers;
    Keys keys;
    add_latent_attention_keys("deepseek2.", config, keys);
    return keys.bytes().find("q_lora_rank") != std::string::npos;
  };
  EXPECT_TRUE(key_at(2));
  EXPECT_FALSE(key_at(27));
}

TEST(LatentAttention, Tensors_LieByHeadsAndAsInTheDirectory) {
  const Model m = make_model("deepseek_v3");
  const ReadFile file = read_gguf(exported(m));
  const auto ours = [&](const char* name) { return floats_of(file.tensors.at(std::string("blk.1.") + name)); };
  for (const auto& [theirs, own] :
       {std::pair("q_a_proj.weight", "attn_q_a.weight"), std::pair("q_a_layernorm.weight", "attn_q_a_norm.weight"),
        std::pair("q_b_proj.weight", "attn_q_b.weight"), std::pair("kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),
        std::pair("kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
        std::pair("o_proj.weight", "attn_output.weight")}) {
    EXPECT_EQ(ours(own), stored_values(m, std::string("model.layers.1.self_attn.") + theirs)) << theirs;
  }
  const std::vector<float> both = stored_values(m, "model.layers.1.self_attn.kv_b_proj.weight");
  const std::vector<float> keys = ours("attn_k_b.weight");
  const std::vector<float> values = ours("attn_v_b.weight");
  EXPECT_EQ(file.tensors.at("blk.1.attn_k_b.weight").sizes, (std::vector<std::uint64_t>{kPlain, kRank, kHeads}));
  EXPECT_EQ(file.tensors.at("blk.1.attn_v_b.weight").sizes, (std::vector<std::uint64_t>{kRank, kPlain, kHeads}));
  for (std::size_t head = 0; head < kHeads; ++head) {
    for (std::size_t row = 0; row < kPlain; ++row) {
      for (std::size_t column = 0; column < kRank; ++column) {
        const std::size_t of_key = (head * 2 * kPlain + row) * kRank + column;
        ASSERT_EQ(keys[(head * kRank + column) * kPlain + row], both[of_key]);
        ASSERT_EQ(values[(head * kPlain + row) * kRank + column], both[of_key + kPlain * kRank]);
      }
    }
  }
}

TEST(LatentAttention, PiecesOfTransposedMatrices_AreTheWhole) {
  const Model m = make_model("deepseek_v3");
  const std::string name = "model.layers.0.self_attn.key_proj.weight";
  const auto tensors = *import_tensors(exported(m));
  const std::vector<float> whole = values_of(m.files, name);
  for (const std::uint64_t first : {0U, 1U, 31U, 32U, 250U, 256U, 700U}) {
    for (const std::size_t count : {1U, 7U, 33U, 300U}) {
      std::vector<float> piece(count);
      model::TensorFiles::read_as_float32(*tensors.find(name), first, piece);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
          << first << " " << count;
    }
  }
}

TEST(LatentAttention, ScalingGroupsAndScores_ComeBack) {
  for (const std::string arch : {"deepseek_v2", "deepseek_v3"}) {
    const bool groups = arch == "deepseek_v3";
    const Model m = make_model(arch, [&](Json& config) {
      stretch(config, 0.707);
      config["routed_scaling_factor"] = 2.446;
      if (groups) config["n_group"] = 4;
      if (groups) config["topk_group"] = 2;
    });
    const auto documents = import_documents(exported(m));
    ASSERT_TRUE(documents.ok()) << documents.status();
    model::ModelConfig config = *model::load_config(*documents);
    EXPECT_EQ(config.rope.mscale, 0.707);
    EXPECT_EQ(config.experts->groups, groups ? 4U : 1U);
    EXPECT_EQ(config.experts->chosen_groups, groups ? 2U : 1U);
    config.eos_token_ids = m.config.eos_token_ids;  // those of the tokenizer, too
    EXPECT_EQ(model::format_config(config), model::format_config(m.config));
  }
}

TEST(LatentAttention, FamiliesThatShareTheName_FollowFromScoresAndVocabulary) {
  model::ModelConfig config;
  EXPECT_EQ(family_by_scores(config), model::Family::kYoutu);
  config.experts.emplace();
  EXPECT_EQ(family_by_scores(config), model::Family::kDeepseekV2);
  config.experts->sigmoid = true;
  EXPECT_EQ(family_by_scores(config), model::Family::kDeepseekV3);
  config.latent_attention.emplace();
  config.num_layers = 47;
  EXPECT_EQ(usual_scores(config), kSoftmax);
  config.vocab_size = 154880;
  EXPECT_EQ(family_by_scores(config), model::Family::kGlm4MoeLite);
  EXPECT_EQ(usual_scores(config), kSigmoids);
}

/// A file as writers made them before keys and values were apart: of a model without experts, whose tensors are those
/// of the directory. `both`: also the two that came later, filled with nonsense.
fs::path old_file(const Model& m, bool both = false) {
  const std::string prefix = "deepseek2.";
  Keys keys;
  keys.add("general.architecture", "deepseek2");
  const std::map<std::string, std::uint32_t> numbers = {{"block_count", 2},
                                                        {"context_length", 2048},
                                                        {"embedding_length", 64},
                                                        {"feed_forward_length", 96},
                                                        {"attention.head_count", kHeads},
                                                        {"attention.head_count_kv", kHeads},
                                                        {"attention.key_length", kPlain + kTurned},
                                                        {"attention.value_length", kPlain},
                                                        {"attention.q_lora_rank", kRank},
                                                        {"attention.kv_lora_rank", kRank},
                                                        {"rope.dimension_count", kTurned}};
  for (const auto& [name, number] : numbers) keys.add(prefix + name, number);
  keys.add(prefix + "attention.layer_norm_rms_epsilon", 1e-6F);
  const auto files = *model::TensorFiles::open_file(m.folder / "model.safetensors");
  std::vector<Tensor> tensors;
  std::vector<std::vector<float>> values;
  for (const auto& [name, view] : files.tensors()) {
    tensors.push_back({tensor_name(m.config, name), view.shape, TensorType::kF32});
    values.push_back(values_of(files, name));
  }
  for (const char* name : {"blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"}) {
    if (both) tensors.push_back({name, {1, 2}, TensorType::kF32});
    if (both) values.push_back({7.0F, 7.0F});
  }
  fs::path path = m.folder.parent_path() / (both ? "both.gguf" : "old.gguf");
  const absl::Status status = write_container(path, keys, tensors, [&](std::size_t i, std::span<std::byte> out) {
    std::memcpy(out.data(), values[i].data(), out.size());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

TEST(LatentAttention, FilesOfOlderWriters_HaveKeysAndValuesInOne) {
  const Model m = make_model("youtu");
  for (const bool both : {false, true}) {
    const fs::path file = old_file(m, both);
    const auto documents = import_documents(file);
    ASSERT_TRUE(documents.ok()) << documents.status();
    const model::ModelConfig config = *model::load_config(*documents);
    EXPECT_EQ(config.family, model::Family::kYoutu);
    EXPECT_EQ(config.latent_attention->plain_size, kPlain);
    EXPECT_EQ(config.latent_attention->value_size, kPlain);
    const auto tensors = import_tensors(file);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok());
    for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
      EXPECT_EQ(values_of(*tensors, spec.name), values_of(m.files, spec.name)) << spec.name;
    }
  }
}

/// The same number in the place of that behind the first `name`.
template <typename Number>
fs::path with_number(const fs::path& file, const std::string& name, Number number) {
  std::string bytes = *read_file(file);
  const std::size_t place = bytes.find(name);
  EXPECT_NE(place, std::string::npos) << name;
  std::memcpy(bytes.data() + place + name.size() + sizeof(std::uint32_t), &number, sizeof number);
  test::put(file.parent_path() / "changed.gguf", bytes);
  return file.parent_path() / "changed.gguf";
}

TEST(LatentAttention, FilesThatContradictThemselves_AreRefusedByKeyOrTensor) {
  const fs::path file = exported(make_model("deepseek_v3", [](Json& config) { stretch(config, 1.0); }));
  const auto refused = [&](const char* key, auto number, std::vector<std::string> parts) {
    parts.insert(parts.begin(), {"changed.gguf", key});
    expect_refused(import_documents(with_number(file, std::string("deepseek2.") + key, number)).status(), parts);
  };
  refused("attention.head_count_kv", 4U, {"expected 1"});
  refused("attention.key_length_mla", kTurned, {"rope.dimension_count"});
  refused("attention.value_length", 31U, {"expected 32"});
  refused("rope.scaling.yarn_log_multiplier", 0.0F, {"mscale_all_dim"});
  refused("expert_gating_func", 3U, {"softmax", "sigmoids"});
  const fs::path narrow = with_number(file, "deepseek2.attention.value_length_mla", kPlain - 1);
  expect_refused(import_tensors(narrow).status(), {"changed.gguf", "attn_v_b.weight", "[4, 7, 32]", "[4, 8, 32]"});
  const fs::path softmax = with_number(file, "deepseek2.expert_gating_func", kSoftmax);
  expect_refused(import_documents(softmax).status(), {"expert_weights_norm", "softmax"});
}

TEST(LatentAttention, WhatReadersHaveOtherwise_IsRefusedByKey) {
  const auto refused = [](const char* key, const std::function<void(model::ModelConfig&)>& change) {
    model::ModelConfig config = make_model("deepseek_v3").config;
    EXPECT_TRUE(check_expressible(config, "config.json").ok());
    change(config);
    expect_refused(check_expressible(config, "config.json"), {"config.json", key});
  };
  refused("rope_interleave", [](auto& config) { config.turns_neighbours = false; });
  refused("q_lora_rank", [](auto& config) { config.num_layers = 27; });
  refused("attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("n_group", [](auto& config) {
    config.experts->sigmoid = false;
    config.experts->groups = 2;
  });
  refused("rope_scaling", [](auto& config) { config.rope.kind = model::RopeKind::kLlama3; });
  refused("rope_scaling", [](auto& config) {
    config.rope.kind = model::RopeKind::kYarn;
    config.rope.mscale = 1.0;
    config.rope.mscale_all_dim = 0.707;
  });
}

TEST(LatentAttention, AdaptersThatReadersPassOver_AreRefusedByLayer) {
  const Model m = make_model("deepseek_v3");
  const auto exported_with = [&](const std::string& target) {
    model::LoraConfig lora;
    lora.targets = {target};
    lora.rank = 2;
    return export_adapter(Documents(m.folder), m.config, lora, m.files, "f32", m.folder / "a.gguf");
  };
  for (const char* target : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}) {
    expect_refused(exported_with(target), {"model.layers.0.self_attn", target, "merge", "o_proj"});
  }
  EXPECT_EQ(std::string(exported_with("o_proj").message()).find("merge"), std::string::npos);
}

}  // namespace
}  // namespace rondo::gguf
