// Text parts of Qwen's VL in files: what a reader that sees pictures wants to know comes back, or is refused.
#include <cstring>
#include <nlohmann/json.hpp>

#include "files.h"
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

/// The text part of a Qwen's VL, of which nothing else is there.
Model make_seeing_model(const std::string& arch, const fs::path& folder) {
  EXPECT_TRUE(model::init_model(options_of(arch, 64, 96), folder).ok());
  Json config = Json::parse(*read_file(folder / "config.json"));
  config["mrope_section"] = {3, 2, 2};
  if (arch != "qwen2") config["num_deepstack_layers"] = 2;
  test::put(folder / "config.json", config.dump());
  return {folder, *model::load_config(folder), *model::open_weights(*model::load_config(folder), folder)};
}

fs::path exported(const Model& m) {
  fs::path file = m.folder.parent_path() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, "f32", file);
  EXPECT_TRUE(status.ok()) << status;
  return file;
}

TEST(PictureTurns, Exported_ComeBack) {
  for (const auto& [arch, name] :
       {std::pair("qwen2", "qwen2vl"), std::pair("qwen3", "qwen3vl"), std::pair("qwen3_moe", "qwen3vlmoe")}) {
    const Model m = make_seeing_model(arch, fresh_folder() / "model");
    ASSERT_TRUE(m.config.picture_turns);
    const fs::path file = exported(m);
    ReadFile read = read_gguf(file);
    EXPECT_EQ(read.keys["general.architecture"], name);
    EXPECT_EQ(read.keys[std::string(name) + ".rope.dimension_sections"], (Json{3, 2, 2, 0}));
    EXPECT_EQ(read.keys[std::string(name) + ".n_deepstack_layers"], arch == std::string("qwen2") ? Json() : Json(2));
    const auto documents = import_documents(file);
    ASSERT_TRUE(documents.ok()) << documents.status();
    const model::ModelConfig config = *model::load_config(*documents);
    EXPECT_EQ(config.model_type, arch);
    ASSERT_TRUE(config.picture_turns);
    EXPECT_EQ(config.picture_turns->pairs, m.config.picture_turns->pairs);
    EXPECT_EQ(config.picture_turns->deep_blocks, m.config.picture_turns->deep_blocks);
    const auto tensors = import_tensors(file);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok());
  }
}

TEST(PictureTurns, ThatCannotBe_AreRefused) {
  const Model m = make_seeing_model("qwen3", fresh_folder() / "model");
  const fs::path file = exported(m);
  const std::string good = *read_file(file);
  const std::string key = "qwen3vl.rope.dimension_sections";
  // Behind the key: the types of a list and of its numbers, how many there are, and these.
  const auto refused = [&](std::size_t place, std::int32_t number, const char* part) {
    std::string bytes = good;
    std::memcpy(bytes.data() + bytes.find(key) + key.size() + 16 + place * sizeof number, &number, sizeof number);
    test::put(file, bytes);
    expect_refused(import_documents(file).status(), {key.c_str(), part});
  };
  refused(1, -1, "expected 3 numbers from 0 to 65536");
  refused(0, 65537, "expected 3 numbers from 0 to 65536");
  refused(3, 1, "fourth coordinate");
  std::string bytes = good;
  bytes[bytes.find(key) + 8] = 'X';
  test::put(file, bytes);
  expect_refused(import_documents(file).status(), {key.c_str(), "expected 3 numbers"});
}

}  // namespace
}  // namespace rondo::gguf
