// Experts in stacks, as GPT-OSS's files have them, against what transformers makes of the same files.
#include "rondo/model/stacked_experts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "helpers.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kFolder = fs::path(RONDO_TEST_DATA) / "mxfp4";

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values(view.elements());
  TensorFiles::read_as_float32(view, values);
  return values;
}

TensorFiles weights_of(const fs::path& folder) {
  const auto config = load_config(folder);
  EXPECT_TRUE(config.ok()) << config.status();
  auto files = open_weights(*config, folder);
  EXPECT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_model_tensors(*config, *files).ok()) << check_model_tensors(*config, *files);
  return *std::move(files);
}

TEST(StackedExperts, OfMxfp4_HaveTheNumbersThatTransformersExpandsThemTo) {
  const TensorFiles stored = weights_of(kFolder / "stored");
  const TensorFiles expanded = weights_of(kFolder / "expanded");
  ASSERT_EQ(stored.tensors().size(), expanded.tensors().size());
  for (const auto& [name, want] : expanded.tensors()) {
    const TensorView* got = stored.find(name);
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->shape, want.shape) << name;
    EXPECT_EQ(got->type, WeightType::kBfloat16) << name;
    EXPECT_EQ(values_of(*got), values_of(want)) << name;
  }
}

/// Gate and up take turns in the columns of a row-by-row transpose.
TEST(StackedExperts, OfFloats_AreTransposedInTurns) {
  const TensorFiles files = weights_of(kFolder / "expanded");
  const auto plain = *TensorFiles::open_model(kFolder / "expanded");
  const std::string experts = "model.layers.0.mlp.experts.";
  const std::vector<float> stack = values_of(*plain.find(experts + "gate_up_proj"));
  const std::vector<float> biases = values_of(*plain.find(experts + "gate_up_proj_bias"));
  const std::uint64_t hidden = 64;
  const std::uint64_t width = 32;
  for (const std::uint64_t turn : {0U, 1U}) {
    const std::string word = turn == 0 ? "gate_proj" : "up_proj";
    for (std::uint64_t e = 0; e < 3; ++e) {
      const std::vector<float> part = values_of(*files.find(experts + std::to_string(e) + "." + word + ".weight"));
      for (std::uint64_t i = 0; i < width; ++i) {
        for (std::uint64_t c = 0; c < hidden; ++c) {
          ASSERT_EQ(part[i * hidden + c], stack[(e * hidden + c) * 2 * width + 2 * i + turn]) << word << e;
        }
      }
    }
    const std::vector<float> bias = values_of(*files.find(experts + word + ".bias"));
    for (std::uint64_t i = 0; i < bias.size(); ++i) ASSERT_EQ(bias[i], biases[2 * i + turn]) << word;
  }
}

/// As transformers 5 saves a model that it has expanded.
TEST(StackedExperts, OfFloatsUnderTheNamesOfCodes_AreTheSame) {
  const fs::path folder = fresh_folder();
  std::string bytes = *read_file(kFolder / "expanded" / "model.safetensors");
  for (const std::string name : {"gate_up_proj\"", "down_proj\""}) {
    const std::size_t place = bytes.find(name);
    ASSERT_NE(place, std::string::npos);
    bytes.insert(place + name.size() - 1, "_blocks");
  }
  // The header is longer by as much, a multiple of 8 with the blanks behind it.
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.insert(8 + size + 14, 2, ' ');
  size += 16;
  std::memcpy(bytes.data(), &size, sizeof(size));
  put(folder / "model.safetensors", bytes);
  const ModelConfig config = *load_config(kFolder / "expanded");
  const auto files = open_weights(config, folder);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(check_model_tensors(config, *files).ok()) << check_model_tensors(config, *files);
  const TensorFiles expanded = weights_of(kFolder / "expanded");
  for (const auto& [name, want] : expanded.tensors()) {
    EXPECT_EQ(values_of(*files->find(name)), values_of(want)) << name;
  }
}

/// Qwen3.5-MoE's as published: rows as those of the parameters, gate before up.
TEST(StackedExperts, OfOtherFamilies_AreCutInPlace) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "golden" / "qwen3_5_moe_pictures" / "model";
  const TensorFiles files = weights_of(folder);
  const auto plain = *TensorFiles::open_model(folder);
  const std::string experts = "model.language_model.layers.1.mlp.experts.";
  std::vector<float> inner;
  std::vector<float> outer;
  for (const std::string expert : {"0.", "1.", "2.", "3.", "4."}) {
    for (const std::string word : {"gate_proj", "up_proj"}) {
      const std::vector<float> part = values_of(*files.find(experts + expert + word + ".weight"));
      inner.insert(inner.end(), part.begin(), part.end());
    }
    const std::vector<float> part = values_of(*files.find(experts + expert + "down_proj.weight"));
    outer.insert(outer.end(), part.begin(), part.end());
  }
  EXPECT_EQ(inner, values_of(*plain.find(experts + "gate_up_proj")));
  EXPECT_EQ(outer, values_of(*plain.find(experts + "down_proj")));
}

TEST(StackedExperts, OfOtherFamiliesInAnotherShape_AreNamedWithBoth) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "golden" / "qwen3_5_moe_pictures" / "model";
  ModelConfig config = *load_config(folder);
  config.experts->width = 25;
  expect_refused(open_weights(config, folder).status(),
                 {"model.language_model.layers.0.mlp.experts.gate_up_proj", "[5, 50, 44]", "[5, 52, 44]"});
}

/// A small Qwen3-MoE as part of a Qwen3-VL: of all experts of a block a tensor, each expert's part of it transposed.
fs::path transposed_stacks(const TensorFiles& files, Json config) {
  const fs::path folder = fresh_folder();
  std::map<std::string, std::vector<float>> numbers;
  std::map<std::string, std::vector<std::uint64_t>> shapes;
  const std::uint64_t experts = config["num_local_experts"];
  for (const auto& [name, view] : files.tensors()) {
    const std::size_t expert = name.find("experts.");
    const std::string stored = name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
    if (expert == std::string::npos) {
      numbers[stored] = values_of(view);
      shapes[stored] = view.shape;
      continue;
    }
    const bool down = name.find("down_proj") != std::string::npos;
    const std::string stack =
        "model.language_model." + name.substr(6, expert + 2) + (down ? "down_proj" : "gate_up_proj");
    const std::uint64_t rows = view.shape[0];
    const std::uint64_t columns = view.shape[1];
    const std::uint64_t all = down ? rows : 2 * rows;
    const std::uint64_t first = name.find("up_proj") != std::string::npos ? rows : 0;
    shapes[stack] = {experts, columns, all};
    std::vector<float>& out = numbers[stack];
    out.resize(experts * columns * all);
    const std::vector<float> values = values_of(view);
    const std::uint64_t which = std::stoul(name.substr(expert + 8));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      out[(which * columns + i % columns) * all + first + i / columns] = values[i];
    }
  }
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, values] : numbers) tensors.push_back({name, WeightType::kFloat32, shapes[name]});
  const auto fill = [&](std::size_t index, std::span<std::byte> out) {
    store_float32(numbers[tensors[index].name], WeightType::kFloat32, out);
    return absl::OkStatus();
  };
  EXPECT_TRUE(write_safetensors(folder / "model.safetensors", tensors, {}, produce_whole(tensors, fill)).ok());
  put(folder / "config.json", Json{{"model_type", "qwen3_vl_moe"}, {"text_config", std::move(config)}}.dump());
  return folder;
}

TEST(StackedExperts, OfQwen3Vl_AreTransposed) {
  const fs::path plain = fs::path(RONDO_TEST_DATA) / "golden" / "qwen3_moe" / "model";
  const TensorFiles want = weights_of(plain);
  const fs::path folder = transposed_stacks(want, Json::parse(*read_file(plain / "config.json")));
  const TensorFiles files = weights_of(folder);
  ASSERT_EQ(files.tensors().size(), want.tensors().size());
  for (const auto& [name, view] : want.tensors()) {
    const std::string inside = name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
    const TensorView* got = files.find(inside);
    ASSERT_NE(got, nullptr) << inside;
    EXPECT_EQ(got->shape, view.shape) << name;
    EXPECT_EQ(values_of(*got), values_of(view)) << name;
    std::vector<float> end(view.elements() / 3);
    TensorFiles::read_as_float32(*got, view.elements() - end.size(), end);
    const std::vector<float> whole = values_of(view);
    EXPECT_TRUE(std::ranges::equal(end, std::span(whole).last(end.size()))) << name;
  }
  // Files of a text model have none.
  const ModelConfig text = *load_config(plain);
  auto renamed = *TensorFiles::open_model(folder);
  TensorView stack = *renamed.find("model.language_model.layers.0.mlp.experts.gate_up_proj");
  stack.name = "model.layers.0.mlp.experts.gate_up_proj";
  renamed.add(stack);
  expect_refused(unstack_experts(text, renamed),
                 {"model.layers.0.mlp.experts.gate_up_proj", "[11, 52, 48]", "[11, 48, 52]"});
}

TEST(StackedExperts, ReadInPieces_AreTheSame) {
  for (const char* folder : {"stored", "expanded"}) {
    const TensorFiles files = weights_of(kFolder / folder);
    for (const auto& [name, view] : files.tensors()) {
      const std::vector<float> whole = values_of(view);
      std::vector<float> pieces(whole.size());
      for (std::size_t first = 0, size = 1; first < whole.size(); first += size, size = size % 97 + 13) {
        size = std::min(size, whole.size() - first);
        TensorFiles::read_as_float32(view, first, std::span(pieces).subspan(first, size));
      }
      EXPECT_EQ(pieces, whole) << name;
    }
  }
}

/// What is read from stacks and written into them again is the file that was read.
TEST(StackedExperts, WrittenAgain_AreTheSameFile) {
  const fs::path folder = fresh_folder();
  const ModelConfig config = *load_config(kFolder / "expanded");
  const TensorFiles files = weights_of(kFolder / "expanded");
  WritePlan plan;
  std::vector<const TensorView*> views;
  for (const ParameterSpec& spec : model_parameters(config)) {
    plan.tensors.push_back({spec.name, WeightType::kBfloat16, spec.shape});
    views.push_back(files.find(spec.name));
  }
  plan.produce = produce_whole(plan.tensors, [&](std::size_t index, std::span<std::byte> out) {
    store_float32(values_of(*views[index]), WeightType::kBfloat16, out);
    return absl::OkStatus();
  });
  plan = stored_weights(config, std::move(plan));
  // An expert's gate and up in turns, and one of them before.
  EXPECT_EQ(plan.held, 3 * 2 * files.find("model.layers.0.mlp.experts.0.gate_proj.weight")->elements());
  const absl::Status written = write_sharded_safetensors(folder, plan.tensors, plan.produce);
  ASSERT_TRUE(written.ok()) << written;
  const auto again = *TensorFiles::open_model(folder);
  const auto original = *TensorFiles::open_model(kFolder / "expanded");
  ASSERT_EQ(again.tensors().size(), original.tensors().size());
  for (const auto& [name, want] : original.tensors()) {
    const TensorView* got = again.find(name);
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->shape, want.shape) << name;
    EXPECT_TRUE(std::ranges::equal(got->data, want.data)) << name;
  }
}

/// A copy of a folder with another number in its configuration.
fs::path with_setting(const char* folder, const char* key, int value) {
  const fs::path copy = fresh_folder();
  Json config = Json::parse(*read_file(kFolder / folder / "config.json"));
  config[key] = value;
  put(copy / "config.json", config.dump());
  fs::copy_file(kFolder / folder / "model.safetensors", copy / "model.safetensors");
  return copy;
}

TEST(StackedExperts, OfAnotherShape_AreRefused) {
  for (const auto& [folder, key, value, name, part] :
       {std::tuple("stored", "intermediate_size", 64, "gate_up_proj_blocks", "[3, 128, 2, 16]"),
        std::tuple("expanded", "intermediate_size", 48, "gate_up_proj", "[3, 64, 96]"),
        std::tuple("expanded", "num_local_experts", 4, "gate_up_proj", "[4, 64, 64]")}) {
    const fs::path copy = with_setting(folder, key, value);
    expect_refused(open_weights(*load_config(copy), copy).status(), {name, part});
  }
}

TEST(StackedExperts, OfRowsThatNoBlockDivides_AreRefused) {
  const fs::path copy = with_setting("stored", "hidden_size", 72);
  expect_refused(open_weights(*load_config(copy), copy).status(), {"gate_up_proj_blocks", "32", "72"});
}

/// Bytes are no numbers, in whichever model they stand.
TEST(StackedExperts, CodesWhereNumbersAreExpected_AreRefused) {
  const fs::path folder = fresh_folder();
  put(folder / "model.safetensors",
      safetensors_bytes(R"({"lm_head.weight":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})", "abcd"));
  const auto files = TensorFiles::open_model(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  ModelConfig config;
  config.vocab_size = config.hidden_size = 2;
  expect_refused(check_model_tensors(config, *files), {"lm_head.weight", "U8"});
  expect_refused(TensorFiles::open_file(folder / "model.safetensors").status(), {"lm_head.weight", "U8"});
}

}  // namespace
}  // namespace rondo::model
