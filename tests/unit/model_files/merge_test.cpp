// Merging adapters, held against PEFT's merge_and_unload() on small models (tests/data/merge), and what it refuses.
#include "rondo/model/merge.h"

#include <cmath>
#include <limits>
#include <map>

#include "helpers.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;

struct Case {
  ModelConfig config;
  LoraConfig lora;
  TensorFiles base;
  TensorFiles adapter;
};

Case open_case(const std::string& name) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "merge" / name;
  return {*load_config(folder / "base"), *load_adapter_config(folder / "adapter"),
          *TensorFiles::open_model(folder / "base"),
          *TensorFiles::open_file(folder / "adapter" / "adapter_model.safetensors")};
}

double rounding_unit(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return 0x1p-24;
    case WeightType::kFloat16:
      return 0x1p-11;
    case WeightType::kBfloat16:
      return 0x1p-8;
  }
  return 0;
}

/// |scale| sum |b| |a| for each element: what rounding errors of the product are measured by. Zero without an adapter.
std::vector<double> magnitudes(const Case& c, const std::string& name, std::size_t elements) {
  const std::string module = name.substr(0, name.rfind('.'));
  std::vector<double> sums(elements, 0.0);
  if (c.adapter.find(adapter_tensor_name(module, 'A')) == nullptr) return sums;
  const std::vector<float> a = numbers_of(c.adapter, adapter_tensor_name(module, 'A'));
  const std::vector<float> b = numbers_of(c.adapter, adapter_tensor_name(module, 'B'));
  const std::size_t rank = c.lora.rank;
  const std::size_t in = a.size() / rank;
  for (std::size_t i = 0; i < elements; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      sums[i] += c.lora.scale_of("model.layers.0.self_attn.q_proj") *
                 std::abs(double{b[i / in * rank + k]} * double{a[k * in + i % in]});
    }
  }
  return sums;
}

class MergeGolden : public testing::TestWithParam<const char*> {};

TEST_P(MergeGolden, Weights_ArePeftsWithinRounding) {
  const Case c = open_case(GetParam());
  const fs::path folder = fresh_folder();
  ASSERT_TRUE(write_merged_weights(c.config, c.base, c.lora, c.adapter, folder).ok());
  const TensorFiles merged = *TensorFiles::open_model(folder);
  const TensorFiles expected =
      *TensorFiles::open_file(fs::path(RONDO_TEST_DATA) / "merge" / GetParam() / "merged.safetensors");
  EXPECT_TRUE(check_model_tensors(c.config, merged).ok());
  EXPECT_EQ(merged.tensors().size(), expected.tensors().size());
  std::size_t changed = 0;
  for (const auto& [name, tensor] : merged.tensors()) {
    EXPECT_EQ(tensor.type, c.base.find(name)->type) << name;
    const std::vector<float> ours = numbers_of(merged, name);
    const std::vector<float> theirs = numbers_of(expected, name);
    const std::vector<float> before = numbers_of(c.base, name);
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    const std::vector<double> product = magnitudes(c, name, ours.size());
    changed += ours != before ? 1U : 0U;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      // Each side: r products and additions, the scale and the last addition, every one rounded in fp32.
      double sums = 2.0 * (c.lora.rank + 3.0) * 0x1p-24 * (std::abs(double{before[i]}) + product[i]);
      // DoRA: the magnitude over the length, whose root mean square error is far below its worst, and a product with
      // it.
      if (c.lora.use_dora) sums = 1.5 * sums + 4 * 0x1p-24 * std::abs(double{theirs[i]});
      const double stored = rounding_unit(tensor.type) * std::abs(double{theirs[i]});
      EXPECT_NEAR(ours[i], theirs[i], sums + stored) << name << " " << i;
    }
  }
  EXPECT_EQ(changed, c.lora.paths.empty() ? c.lora.targets.size() * c.config.num_layers : c.lora.paths.size());
}

TEST(Merge, TextPartOfAModelThatReadsPictures_IsAModelOfItsOwn) {
  const fs::path golden = fs::path(RONDO_TEST_DATA) / "golden" / "gemma3_pictures";
  ModelConfig config = *load_config(golden / "model");
  ASSERT_TRUE(config.text_part);
  const TensorFiles base = *TensorFiles::open_model(golden / "model");
  EXPECT_TRUE(check_model_tensors(config, base).ok());
  const LoraConfig lora = *load_adapter_config(golden / "adapter");
  EXPECT_EQ(lora.exclude_modules, kPicturesExcluded);
  const TensorFiles adapter = *TensorFiles::open_file(golden / "adapter" / "adapter_model.safetensors");
  EXPECT_TRUE(check_adapter_tensors(config, lora, adapter).ok());
  const fs::path folder = fresh_folder();
  ASSERT_TRUE(write_merged_weights(config, base, lora, adapter, folder).ok());
  const TensorFiles merged = *TensorFiles::open_model(folder);
  config.text_part = false;
  EXPECT_TRUE(check_model_tensors(config, merged).ok());
  const std::string tail = "layers.1.mlp.down_proj.weight";
  EXPECT_NE(numbers_of(merged, "model." + tail), numbers_of(base, "model.language_model." + tail));
  EXPECT_EQ(numbers_of(merged, "model.norm.weight"), numbers_of(base, "model.language_model.norm.weight"));
}

INSTANTIATE_TEST_SUITE_P(Cases, MergeGolden, testing::Values("plain", "rslora", "dora", "chosen"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST(Merge, SmallShards_HoldTheSameWeights) {
  const Case c = open_case("plain");
  const fs::path folder = fresh_folder();
  fs::create_directories(folder / "one");
  fs::create_directories(folder / "many");
  ASSERT_TRUE(write_merged_weights(c.config, c.base, c.lora, c.adapter, folder / "one").ok());
  ASSERT_TRUE(write_merged_weights(c.config, c.base, c.lora, c.adapter, folder / "many", 2000).ok());
  EXPECT_GT(entries_in(folder / "many"), 3U);
  const TensorFiles one = *TensorFiles::open_model(folder / "one");
  const TensorFiles many = *TensorFiles::open_model(folder / "many");
  for (const auto& [name, tensor] : one.tensors()) EXPECT_EQ(numbers_of(many, name), numbers_of(one, name)) << name;
}

/// A file with the tensors of `from`, where `change` may alter the numbers of one.
TensorFiles altered(const TensorFiles& from, const fs::path& file, WeightType type, const std::string& name,
                    float value) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [key, tensor] : from.tensors()) tensors.push_back({key, type, tensor.shape});
  const auto fill = [&](std::size_t i, std::span<std::byte> out) {
    std::vector<float> values = numbers_of(from, tensors[i].name);
    if (tensors[i].name == name) values[1] = value;
    store_float32(values, type, out);
    return absl::OkStatus();
  };
  EXPECT_TRUE(write_safetensors(file, tensors, {}, produce_whole(tensors, fill)).ok());
  return *TensorFiles::open_file(file);
}

TEST(Merge, NumberThatIsNotFinite_IsRefusedWithItsTensor) {
  const Case c = open_case("rslora");
  const fs::path folder = fresh_folder();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string weight = "model.layers.1.self_attn.q_proj.weight";
  const TensorFiles base = altered(c.base, folder / "base", WeightType::kFloat32, weight, nan);
  expect_refused(write_merged_weights(c.config, base, c.lora, c.adapter, folder), {weight, "not finite"});
  const std::string factor = adapter_tensor_name("model.layers.0.mlp.down_proj", 'B');
  const TensorFiles adapter = altered(c.adapter, folder / "adapter", WeightType::kFloat32, factor, nan);
  expect_refused(write_merged_weights(c.config, c.base, c.lora, adapter, folder), {factor, "not finite"});
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
}

TEST(Merge, ResultTooLargeForItsType_IsRefused) {
  const Case c = open_case("rslora");
  const fs::path folder = fresh_folder();
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  const TensorFiles base = altered(c.base, folder / "base", WeightType::kFloat16, weight, 65504.0F);
  const TensorFiles large = altered(c.adapter, folder / "adapter", WeightType::kFloat32,
                                    adapter_tensor_name("model.layers.0.self_attn.q_proj", 'A'), 1e7F);
  expect_refused(write_merged_weights(c.config, base, c.lora, large, folder), {weight, "cannot hold"});
}

}  // namespace
}  // namespace rondo::model
