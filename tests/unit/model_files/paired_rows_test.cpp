// Rows of queries and keys of a model whose neighbouring channels turn: read in the devices' order, written as they
// were.
#include "rondo/model/paired_rows.h"

#include <filesystem>
#include <map>

#include "helpers.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;

const fs::path kErnie = fs::path(RONDO_TEST_DATA) / "golden" / "ernie4_5";
constexpr std::size_t kHead = 18;

/// The even rows of each head, then the odd ones.
std::vector<float> parted(const std::vector<float>& stored, std::size_t width) {
  std::vector<float> out;
  for (std::size_t head = 0; head < stored.size() / width / kHead; ++head) {
    for (std::size_t i = 0; i < kHead; ++i) {
      const std::size_t row = head * kHead + (i < kHead / 2 ? 2 * i : 2 * (i - kHead / 2) + 1);
      const auto first = stored.begin() + static_cast<std::ptrdiff_t>(row * width);
      out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
  }
  return out;
}

TEST(PairedRows, OfAModel_AreReadEvenOnesFirst) {
  const ModelConfig config = *load_config(kErnie / "model");
  const TensorFiles stored = *TensorFiles::open_model(kErnie / "model");
  const TensorFiles files = *open_weights(config, kErnie / "model");
  EXPECT_TRUE(check_model_tensors(config, files).ok()) << check_model_tensors(config, files);
  for (const ParameterSpec& spec : model_parameters(config)) {
    const bool moves =
        spec.name.find(".q_proj.") != std::string::npos || spec.name.find(".k_proj.") != std::string::npos;
    const std::vector<float> theirs = numbers_of(stored, spec.name);
    EXPECT_EQ(numbers_of(files, spec.name), moves ? parted(theirs, spec.elements() / spec.shape[0]) : theirs)
        << spec.name;
  }
  const TensorView& view = *files.find("model.layers.1.self_attn.k_proj.weight");
  std::vector<float> middle(200);  // from amid one row to amid another
  TensorFiles::read_as_float32(view, 101, middle);
  const std::vector<float> all = numbers_of(files, view.name);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + 101));
}

/// Biases, and an adapter's factors and magnitudes.
TEST(PairedRows, Written_AreAsTheyWere) {
  const ModelConfig config = *load_config(kErnie / "model");
  LoraConfig lora = *load_adapter_config(kErnie / "adapter");
  const auto numbers_in_plan = [](const WritePlan& plan) {
    std::map<std::string, std::vector<float>> out;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      TensorView view;
      view.type = plan.tensors[i].type;
      view.shape = plan.tensors[i].shape;
      std::vector<std::byte> all;
      EXPECT_TRUE(plan.produce(i,
                               [&](std::span<const std::byte> bytes) {
                                 all.insert(all.end(), bytes.begin(), bytes.end());
                                 return absl::OkStatus();
                               })
                      .ok());
      view.data = all;
      std::vector<float>& values = out[plan.tensors[i].name];
      values.resize(view.elements());
      TensorFiles::read_as_float32(view, values);
    }
    return out;
  };
  const auto plan_of = [](const TensorFiles& files) {
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, view] : files.tensors()) tensors.push_back({name, WeightType::kFloat32, view.shape});
    return WritePlan{tensors, produce_whole(tensors, [&files, tensors](std::size_t i, std::span<std::byte> out) {
                       store_float32(numbers_of(files, tensors[i].name), WeightType::kFloat32, out);
                       return absl::OkStatus();
                     })};
  };
  const TensorFiles weights = *open_weights(config, kErnie / "model");
  const TensorFiles stored = *TensorFiles::open_model(kErnie / "model");
  const WritePlan plan = stored_weights(config, plan_of(weights));
  for (const auto& [name, values] : numbers_in_plan(plan)) EXPECT_EQ(values, numbers_of(stored, name)) << name;
  // As it comes, and in order.
  EXPECT_EQ(plan.held, 2 * sizeof(float) * weights.find("model.layers.0.self_attn.q_proj.weight")->elements());
  const fs::path file = kErnie / "adapter" / "adapter_model.safetensors";
  const TensorFiles factors = *open_factors(config, lora, file);
  const TensorFiles stored_ones = *TensorFiles::open_file(file);
  const std::string b = adapter_tensor_name("model.layers.0.self_attn.q_proj", 'B');
  EXPECT_EQ(numbers_of(factors, b), parted(numbers_of(stored_ones, b), 4));
  for (const auto& [name, values] : numbers_in_plan(stored_factors(config, lora, plan_of(factors)))) {
    EXPECT_EQ(values, numbers_of(stored_ones, name)) << name;
  }
  lora.use_dora = true;
  const std::vector<PairedTensor> paired = paired_factors(config, lora);
  EXPECT_EQ(std::ranges::count(paired, magnitude_tensor_name("model.layers.1.self_attn.k_proj"), &PairedTensor::name),
            1);
}

}  // namespace
}  // namespace rondo::model
