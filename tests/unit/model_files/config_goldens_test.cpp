// config.json in every spelling gives what transformers 5.23 makes of it
// (tests/reference/files/make_config_goldens.py).
#include <fstream>

#include "config_json.h"
#include "helpers.h"
#include "rondo/model/config.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

Json load_cases() {
  std::ifstream file(std::string(RONDO_TEST_DATA) + "/files/config_goldens.json");
  const Json document = Json::parse(file, nullptr, false);
  return document.is_object() ? document["cases"] : Json::array();
}

TEST(ConfigGoldens, Cases_CoverEveryFamily) {
  std::set<std::string> families;
  for (const Json& golden : load_cases()) families.insert(golden["expected"]["model_type"].get<std::string>());
  EXPECT_THAT(families,
              testing::ElementsAre(
                  "afmoe", "arcee", "bamba", "cohere", "cohere2", "cwm", "deepseek_v2", "deepseek_v3", "dots1",
                  "ernie4_5", "ernie4_5_moe", "exaone4", "exaone_moe", "falcon_h1", "flex_olmo", "gemma", "gemma2",
                  "gemma3_text", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt_neox", "gpt_oss",
                  "granite", "granite_swa", "granitemoe", "granitemoehybrid", "granitemoeshared", "helium",
                  "hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax", "internlm3", "iquestcoder", "jais2", "lfm2",
                  "lfm2_moe", "llama", "mellum", "minicpm3", "minimax_m2", "ministral", "ministral3", "mistral",
                  "mixtral", "nanochat", "nemotron", "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "phi3", "qwen2",
                  "qwen2_moe", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "seed_oss",
                  "smollm3", "solar_open", "stablelm", "starcoder2", "vaultgemma", "youtu"));
}

TEST(ConfigGoldens, EverySpelling_GivesWhatTransformersMakesOfIt) {
  for (const Json& golden : load_cases()) {
    const auto config = parse_config(golden["config"].dump(), "config.json");
    ASSERT_TRUE(config.ok()) << golden["name"] << config.status();
    EXPECT_EQ(Json::diff(golden["expected"], to_json(*config)), Json::array()) << golden["name"];
  }
}

TEST(ConfigGoldens, WrittenAndReadAgain_IsTheSame) {
  for (const Json& golden : load_cases()) {
    auto config = parse_config(golden["config"].dump(), "config.json");
    ASSERT_TRUE(config.ok()) << golden["name"];
    config->text_part = false;  // of what is written there is nothing else
    const auto again = parse_config(format_config(*config), "written");
    ASSERT_TRUE(again.ok()) << golden["name"] << again.status();
    EXPECT_EQ(Json::diff(to_json(*config), to_json(*again)), Json::array()) << golden["name"];
  }
}

}  // namespace
}  // namespace rondo::model
