// The text part of models that read pictures too and are built as another family's: what their files say and call it.
#include <fstream>

#include "config_json.h"
#include "helpers.h"
#include "rondo/model/config.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A small Qwen2 as part of a Qwen2.5-VL as that was published: keys and tensors have the names of a text model.
fs::path published() {
  const fs::path qwen = fs::path(RONDO_TEST_DATA) / "golden" / "qwen2" / "model";
  const fs::path folder = fresh_folder();
  std::ifstream file(qwen / "config.json");
  Json config = Json::parse(file);
  config["model_type"] = "qwen2_5_vl";
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 2, 2}}};
  config["rope_theta"] = config["rope_parameters"]["rope_theta"];
  config.erase("rope_parameters");
  put(folder / "config.json", config.dump());
  fs::copy_file(qwen / "model.safetensors", folder / "model.safetensors");
  return folder;
}

TEST(TextPart, Published_IsTheModelItIsBuiltAs) {
  const fs::path folder = published();
  const auto config = load_config(folder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->text_part);
  EXPECT_EQ(config->model_type, "qwen2");
  EXPECT_EQ(config->rope.kind, RopeKind::kDefault);
  const auto files = open_weights(*config, folder);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_model_tensors(*config, *files).ok()) << check_model_tensors(*config, *files);
  const auto plain = *TensorFiles::open_model(folder);
  EXPECT_EQ(numbers_of(*files, "model.language_model.layers.1.mlp.up_proj.weight"),
            numbers_of(plain, "model.layers.1.mlp.up_proj.weight"));
}

TEST(TextPart, OfQwenVl_KnowsWhichChannelsTurnByWhichCoordinate) {
  const ModelConfig config = *load_config(published());
  ASSERT_TRUE(config.picture_turns);
  EXPECT_EQ(config.picture_turns->pairs, (std::array<std::uint32_t, 3>{2, 2, 2}));
  EXPECT_EQ(config.picture_turns->deep_blocks, 0U);
  // As a model of its own.
  const ModelConfig alone = *parse_config(format_config(config), "alone");
  EXPECT_FALSE(alone.text_part);
  ASSERT_TRUE(alone.picture_turns);
  EXPECT_EQ(alone.picture_turns->pairs, config.picture_turns->pairs);
  Json json = {{"model_type", "qwen3_vl"}, {"text_config", good_config("qwen3")}};
  const auto turns = [&] { return *parse_config(json.dump(), "c")->picture_turns; };
  EXPECT_EQ(turns().pairs, (std::array<std::uint32_t, 3>{24, 20, 20}));
  EXPECT_EQ(turns().deep_blocks, 3U);
  json["vision_config"]["deepstack_visual_indexes"] = {5, 11};
  json["text_config"]["rope_scaling"] = {{"rope_type", "default"}, {"mrope_section", {3, 2, 1}}};
  EXPECT_EQ(turns().pairs, (std::array<std::uint32_t, 3>{3, 2, 1}));
  EXPECT_EQ(turns().deep_blocks, 2U);
  json["text_config"]["rope_scaling"]["mrope_section"] = {3, 2};
  expect_refused(parse_config(json.dump(), "c").status(), {"mrope_section", "3 numbers"});
  EXPECT_FALSE(parse_config(good_config("qwen2").dump(), "c")->picture_turns);
}

TEST(TextPart, OfTensorsForPictures_HasNone) {
  const fs::path folder = published();
  const ModelConfig config = *load_config(folder);
  for (const char* name : {"visual.merger.ln_q.weight", "model.visual.merger.ln_q.weight"}) {
    EXPECT_TRUE(is_passed_over(config, name)) << name;
  }
  EXPECT_FALSE(is_passed_over(config, "model.layers.1.mlp.up_proj.weight"));
}

TEST(TextPart, OfQwenVl_IsTiedWhereEitherSaysSo) {
  for (const bool outside : {false, true}) {
    for (const bool inside : {false, true}) {
      Json config = {{"model_type", "qwen2_5_vl"}, {"text_config", good_config("qwen2")}};
      config["text_config"]["tie_word_embeddings"] = inside;
      config["tie_word_embeddings"] = outside;
      EXPECT_EQ(parse_config(config.dump(), "c")->tie_word_embeddings, inside || outside);
      // Of Qwen3-VL the whole alone says it.
      config["model_type"] = "qwen3_vl";
      EXPECT_EQ(parse_config(config.dump(), "c")->tie_word_embeddings, outside);
    }
  }
}

TEST(TextPart, OfWrongTypes_IsRefusedByItsKey) {
  Json config = good_config("qwen2");
  config["model_type"] = "qwen2_vl";
  config["tie_word_embeddings"] = 3;
  expect_refused(parse_config(config.dump(), "c").status(), {"c", "tie_word_embeddings"});
  config["tie_word_embeddings"] = true;
  config["rope_scaling"] = "mrope";
  expect_refused(parse_config(config.dump(), "c").status(), {"c", "rope_scaling"});
  config["rope_scaling"] = {{"type", 5}};
  expect_refused(parse_config(config.dump(), "c").status(), {"c", "rope_scaling"});
  config = {{"model_type", "qwen3_vl"}, {"text_config", {{"hidden_size", "wide"}}}};
  expect_refused(parse_config(config.dump(), "c").status(), {"c", "text_config.hidden_size"});
}

}  // namespace
}  // namespace rondo::model
