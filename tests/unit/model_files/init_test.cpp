// A random model folder: whole or absent, the same for the same seed. (That transformers loads it is checked by
// tests/reference/files/check_files.py.)
#include "rondo/model/init.h"

#include <cmath>

#include "helpers.h"
#include "rondo/base/file.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

TEST(InitModel, EveryFamily_PassesItsOwnChecks) {
  for (const char* arch : {"llama", "mistral", "qwen2", "qwen3"}) {
    const auto folder = fresh_folder() / "deep" / "model";
    InitOptions options;
    options.arch = arch;
    ASSERT_TRUE(init_model(options, folder).ok()) << arch;
    const auto config = load_config(folder);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->model_type, arch);
    EXPECT_EQ(config->num_kv_heads, 2U);
    const auto files = TensorFiles::open_model(folder);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_TRUE(check_model_tensors(*config, *files).ok());
    EXPECT_THAT(*load_stop_ids(folder, *config), testing::ElementsAre(258, 256));
    EXPECT_EQ(entries_in(folder.parent_path()), 1U);
  }
}

TEST(InitModel, AttentionByALatent_HasAsManyHeadsOfKeysAsOfQueries) {
  for (const char* arch : {"glm4_moe_lite", "deepseek_v3", "deepseek_v2", "youtu"}) {
    const auto folder = fresh_folder() / "model";
    InitOptions options;
    options.arch = arch;
    ASSERT_TRUE(init_model(options, folder).ok()) << arch;
    const auto config = load_config(folder);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->num_kv_heads, 4U);
    ASSERT_TRUE(config->latent_attention);
    EXPECT_EQ(config->latent_attention->plain_size + config->latent_attention->turned_size, 16U);
    const auto weights = open_weights(*config, folder);
    EXPECT_TRUE(weights.ok()) << weights.status();
    options.num_key_value_heads = 2;
    expect_refused(init_model(options, folder / "other"), {"init", "num_key_value_heads", "num_attention_heads (4)"});
  }
}

TEST(InitModel, FamiliesOfOtherLayouts_AreReadAgain) {
  for (const char* arch : {"internlm3",        "helium",     "glm",       "hyperclovax", "granitemoeshared",
                           "granitemoehybrid", "mellum",     "dots1",     "solar_open",  "exaone_moe",
                           "hunyuan_v1_moe",   "minimax_m2", "afmoe",     "nemotron_h",  "bamba",
                           "nemotron",         "cwm",        "ministral", "minicpm3",    "nanochat",
                           "granite_swa",      "vaultgemma", "flex_olmo", "jais2",       "falcon_h1"}) {
    const auto folder = fresh_folder() / "model";
    InitOptions options;
    options.arch = arch;
    ASSERT_TRUE(init_model(options, folder).ok()) << arch;
    const auto config = load_config(folder);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto weights = open_weights(*config, folder);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_TRUE(check_model_tensors(*config, *weights).ok()) << arch;
    // transformers takes no null for it.
    const bool slides = config->family == Family::kExaoneMoe || config->family == Family::kAfmoe ||
                        config->family == Family::kVaultGemma;
    EXPECT_EQ(config->sliding_window[0], slides ? 512U : 0U) << arch;
  }
}

TEST(InitModel, SameSeed_GivesTheSameBytes) {
  const auto folder = fresh_folder();
  InitOptions options;
  ASSERT_TRUE(init_model(options, folder / "a").ok());
  ASSERT_TRUE(init_model(options, folder / "b").ok());
  options.seed = 43;
  ASSERT_TRUE(init_model(options, folder / "c/").ok());
  const auto weights = [&](const char* name) { return *read_file(folder / name / "model.safetensors"); };
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_NE(weights("a"), weights("c"));
}

TEST(InitModel, LargeTensor_DrawnInPartsHasTheNumbersOfOneDraw) {
  const auto folder = fresh_folder() / "m";
  InitOptions options;
  options.vocab_size = 140'000;  // an embedding of two pieces
  options.num_hidden_layers = 1;
  options.weight_type = WeightType::kFloat32;
  ASSERT_TRUE(init_model(options, folder).ok());
  const auto files = TensorFiles::open_model(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string name = "model.embed_tokens.weight";
  const TensorView* embedding = files->find(name);
  ASSERT_NE(embedding, nullptr);
  std::vector<float> read(embedding->elements());
  TensorFiles::read_as_float32(*embedding, read);
  std::vector<float> expected(read.size());
  fill_normal(options.seed, name, 0, options.initializer_range, expected);
  EXPECT_EQ(read, expected);
}

TEST(InitModel, Tokenizer_HasEveryByteAndTheSpecialTokens) {
  const auto folder = fresh_folder() / "m";
  ASSERT_TRUE(init_model({}, folder).ok());
  const Json tokenizer = Json::parse(*read_file(folder / "tokenizer.json"), nullptr, false);
  const Json& vocabulary = tokenizer["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), kInitTokenizerSize);
  EXPECT_EQ(vocabulary["a"], 0x61);
  EXPECT_EQ(vocabulary["\u0120"], 0x20);  // GPT-2's stand-in for the space
  EXPECT_EQ(vocabulary["\u010a"], 0x0a);
  EXPECT_EQ(vocabulary["\u00ff"], 0xff);
  EXPECT_EQ(vocabulary["\u0143"], 0xad);  // the last of those that do not print
  EXPECT_EQ(tokenizer["added_tokens"][2]["content"], "<|im_end|>");
}

TEST(InitModel, FolderInUse_IsRefusedAndUntouched) {
  const auto folder = fresh_folder();
  std::filesystem::create_directories(folder / "full");
  put(folder / "full" / "mine", "x");
  put(folder / "file", "x");
  expect_refused(init_model({}, folder / "full"), {"full", "not empty"});
  expect_refused(init_model({}, folder / "file"), {"file", "no folder"});
  EXPECT_EQ(entries_in(folder / "full"), 1U);
  EXPECT_EQ(entries_in(folder), 2U);
  std::filesystem::create_directories(folder / "empty");
  EXPECT_TRUE(init_model({}, folder / "empty").ok());
}

TEST(InitModel, FailsHalfWay_LeavesNothing) {
  const auto folder = fresh_folder();
  put(folder / "file", "x");
  expect_refused(init_model({}, folder / "file" / "model"), {"output_dir", (folder / "file" / "model").string()});
  EXPECT_EQ(entries_in(folder), 1U);
}

TEST(InitModel, WrongOptions_AreRefusedByName) {
  const auto folder = fresh_folder() / "m";
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    InitOptions options;
    change(options);
    expect_refused(init_model(options, folder), parts);
  };
  refused([](auto& o) { o.arch = "gpt2"; }, {"arch", "gpt2", "llama"});
  refused([](auto& o) { o.vocab_size = 259; }, {"vocab_size", "260", "259"});
  refused([](auto& o) { o.hidden_size = 66; }, {"hidden_size", "num_attention_heads (4)", "66"});
  refused([](auto& o) { o.num_attention_heads = 0; }, {"num_attention_heads", "found 0"});
  refused([](auto& o) { o.num_key_value_heads = 3; }, {"num_key_value_heads"});
  refused([](auto& o) { o.num_hidden_layers = 0; }, {"num_hidden_layers"});
  refused([](auto& o) { o.head_dim = 7; }, {"head_dim", "7"});
  refused([](auto& o) { o.rope_theta = 0.0; }, {"rope_theta"});
  refused([](auto& o) { o.rope_theta = std::nan(""); }, {"rope_theta"});
  refused([](auto& o) { o.initializer_range = -1.0; }, {"initializer_range"});
  refused([](auto& o) { o.initializer_range = std::nan(""); }, {"initializer_range"});
  expect_refused(init_model({}, ""), {"output_dir"});
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(FillNormal, Numbers_DependOnTheIndexAlone) {
  std::vector<float> whole(100);
  fill_normal(1, "w", 0, 1.0, whole);
  std::vector<float> part(10);
  fill_normal(1, "w", 90, 1.0, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 90));
  fill_normal(1, "v", 90, 1.0, part);
  EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin() + 90));
}

TEST(FillNormal, Moments_AreThoseOfTheNormalDistribution) {
  std::vector<float> values(1'000'000);
  fill_normal(3, "w", 0, 2.0, values);
  double sum = 0.0;
  double squares = 0.0;
  double fourths = 0.0;
  double products = 0.0;  // of neighbours
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(values[i]) / 2.0;
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    if (i > 0) products += x * static_cast<double>(values[i - 1]) / 2.0;
  }
  const auto n = static_cast<double>(values.size());
  // Five standard errors of each estimate: 1, sqrt(2), sqrt(96), 1 over sqrt(n) = 0.001.
  EXPECT_NEAR(sum / n, 0.0, 0.005);
  EXPECT_NEAR(squares / n, 1.0, 0.0071);
  EXPECT_NEAR(fourths / n, 3.0, 0.049);
  EXPECT_NEAR(products / n, 0.0, 0.005);
}

}  // namespace
}  // namespace rondo::model
