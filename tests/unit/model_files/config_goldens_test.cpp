// config.json in every spelling gives what transformers 5.23 makes of it
// (tests/reference/files/make_config_goldens.py).
#include <algorithm>
#include <fstream>

#include "helpers.h"
#include "rondo/model/config.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

Json load_cases() {
  std::ifstream file(std::string(RONDO_TEST_DATA) + "/files/config_goldens.json");
  const Json document = Json::parse(file, nullptr, false);
  return document.is_object() ? document["cases"] : Json::array();
}

template <typename Number>
Json or_null(const std::optional<Number>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json rope_of(const RopeConfig& rope) {
  return {{"kind", static_cast<int>(rope.kind)},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"low", rope.low_frequency_factor},
          {"high", rope.high_frequency_factor},
          {"original", rope.original_max_positions},
          {"attention_factor", or_null(rope.attention_factor)},
          {"beta_fast", rope.beta_fast},
          {"beta_slow", rope.beta_slow},
          {"mscale", or_null(rope.mscale)},
          {"mscale_all_dim", or_null(rope.mscale_all_dim)},
          {"truncate", rope.truncate}};
}

/// In the words of the goldens.
Json describe(const ModelConfig& config) {
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> parameters;
  for (const ParameterSpec& spec : model_parameters(config)) parameters.emplace_back(spec.name, spec.shape);
  std::sort(parameters.begin(), parameters.end());
  return {{"model_type", config.model_type},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_layers", config.num_layers},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_positions", config.max_positions},
          {"rms_norm_eps", config.rms_norm_eps},
          {"activation", static_cast<int>(config.activation)},
          {"rope", rope_of(config.rope)},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"initializer_range", config.initializer_range},
          {"dtype", static_cast<int>(config.weight_type)},
          {"sliding_window", config.sliding_window},
          {"bos", or_null(config.bos_token_id)},
          {"eos", config.eos_token_ids},
          {"pad", or_null(config.pad_token_id)},
          {"parameters", parameters}};
}

TEST(ConfigGoldens, Cases_CoverEveryFamily) {
  std::set<std::string> families;
  for (const Json& golden : load_cases()) families.insert(golden["expected"]["model_type"].get<std::string>());
  EXPECT_THAT(families, testing::ElementsAre("llama", "mistral", "qwen2", "qwen3"));
}

TEST(ConfigGoldens, EverySpelling_GivesWhatTransformersMakesOfIt) {
  for (const Json& golden : load_cases()) {
    const auto config = parse_config(golden["config"].dump(), "config.json");
    ASSERT_TRUE(config.ok()) << golden["name"] << config.status();
    EXPECT_EQ(Json::diff(golden["expected"], describe(*config)), Json::array()) << golden["name"];
  }
}

TEST(ConfigGoldens, WrittenAndReadAgain_IsTheSame) {
  for (const Json& golden : load_cases()) {
    const auto config = parse_config(golden["config"].dump(), "config.json");
    ASSERT_TRUE(config.ok()) << golden["name"];
    const auto again = parse_config(format_config(*config), "written");
    ASSERT_TRUE(again.ok()) << golden["name"] << again.status();
    EXPECT_EQ(Json::diff(describe(*config), describe(*again)), Json::array()) << golden["name"];
  }
}

}  // namespace
}  // namespace rondo::model
