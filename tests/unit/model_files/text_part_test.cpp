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
