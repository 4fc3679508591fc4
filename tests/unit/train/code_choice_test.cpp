// Codes of a whole model's frozen base, chosen for data.
#include "rondo/train/code_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "files.h"
#include "rondo/devices/encoding.h"
#include "rondo/model/init.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/weights.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using devices::DType;
using devices::Encoding;
using test::fresh_folder;

constexpr std::uint32_t kWords = 40;

class CodeChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    model::InitOptions options;
    options.arch = "qwen3";
    options.hidden_size = 96;
    options.weight_type = model::WeightType::kFloat32;
    ASSERT_TRUE(model::init_model(options, folder_).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }

  model::Architecture architecture(DType dtype) const {
    model::MethodSpec method = tiny::lora(dtype);
    method.base_encoding = Encoding::kNf4;
    return *model::Architecture::make(*model::load_config(folder_), method);
  }
  model::TensorFiles files() const { return *model::TensorFiles::open_model(folder_); }

  offload::ParameterStore loaded(const model::Architecture& model) const {
    auto store = *offload::ParameterStore::make(schedule::parameter_specs(model), model.method().dtype, false);
    EXPECT_EQ(load_weights(model, files(), nullptr, store), absl::OkStatus());
    return store;
  }
  offload::ParameterStore chosen(const model::Architecture& model, std::uint32_t threads) const {
    offload::ParameterStore store = loaded(model);
    devices::ThreadPool pool(threads);
    std::vector<std::uint64_t> layers;
    const Progress progress = [&](std::string_view, std::uint64_t done, std::uint64_t of) {
      layers.push_back(done);
      EXPECT_EQ(of, model.first_head_layer() - 1);
    };
    EXPECT_EQ(choose_codes(model, files(), batches(), pool, store, progress), absl::OkStatus());
    EXPECT_EQ(layers.size(), model.first_head_layer() - 1);
    EXPECT_EQ(layers.back(), model.first_head_layer() - 1);
    return store;
  }
  /// Few words: what reads the embedding sees fewer different inputs than it has columns.
  std::vector<schedule::Microbatch> batches() const {
    Loader loader(data_, {.batch_size = 3});
    return first_microbatches(loader, 600);
  }
  static std::vector<double> numbers(const model::Parameter& parameter, const offload::ParameterStore& store,
                                     model::ParameterId id) {
    const auto elements = static_cast<std::int64_t>(parameter.elements());
    const devices::EncodedLayout layout(parameter.encoding, elements);
    std::vector<double> values;
    for (std::int64_t i = 0; i < elements; ++i) {
      values.push_back(
          static_cast<double>(devices::decoded_element(parameter.encoding, layout, store.published(id).host(), i)));
    }
    return values;
  }
  static model::ParameterId id_of(const model::Architecture& model, const std::string& name) {
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (model.parameters()[id].name == name) return id;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }
  std::vector<float> plain(const std::string& name) const {
    const model::TensorFiles all = files();
    std::vector<float> values(all.find(name)->elements());
    model::TensorFiles::read_as_float32(*all.find(name), values);
    return values;
  }

  const fs::path folder_ = fresh_folder();
  const data::Dataset data_ = tiny::random_samples(kWords, 5, 80, 24);
};

TEST_F(CodeChoiceTest, Codes_AreOthersUnderTheSameScales) {
  const model::Architecture model = architecture(DType::kBfloat16);
  const offload::ParameterStore before = loaded(model);
  const offload::ParameterStore after = chosen(model, 2);
  std::size_t encoded = 0;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& one = model.parameters()[id];
    const std::span<const std::byte> old(before.published(id).host(), before.published(id).size);
    const std::span<const std::byte> now(after.published(id).host(), after.published(id).size);
    if (one.encoding == Encoding::kPlain) {
      EXPECT_TRUE(std::ranges::equal(old, now)) << one.name;
      continue;
    }
    ++encoded;
    const devices::EncodedLayout layout(one.encoding, static_cast<std::int64_t>(one.elements()));
    EXPECT_TRUE(std::ranges::equal(old.subspan(layout.block_codes), now.subspan(layout.block_codes))) << one.name;
    EXPECT_FALSE(std::ranges::equal(old.first(layout.block_codes), now.first(layout.block_codes))) << one.name;
    const std::vector<double> numbers_before = numbers(one, before, id);
    const std::vector<double> numbers_after = numbers(one, after, id);
    double change = 0;
    double size = 0;
    for (std::size_t i = 0; i < numbers_before.size(); ++i) {
      change += std::pow(numbers_after[i] - numbers_before[i], 2);
      size += std::pow(numbers_before[i], 2);
    }
    EXPECT_LT(change, 0.1 * size) << one.name;
  }
  EXPECT_EQ(encoded, 7U * model.config().num_layers);
}

/// The first products read the normed rows of the embedding: what they give is known without running the model.
TEST_F(CodeChoiceTest, FirstProducts_AreNearerToThoseOfThePlainModel) {
  const model::Architecture model = architecture(DType::kFloat32);
  const auto width = static_cast<std::size_t>(model.config().hidden_size);
  const std::vector<float> table = plain("model.embed_tokens.weight");
  const std::vector<float> norm = plain("model.layers.0.input_layernorm.weight");
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const std::vector<float> weights = plain(name);
  const model::ParameterId id = id_of(model, name);
  std::set<std::int32_t> words;
  for (const schedule::Microbatch& batch : batches()) words.insert(batch.ids.begin(), batch.ids.end());
  const auto error_of = [&](const offload::ParameterStore& store) {
    const std::vector<double> codes = numbers(model.parameters()[id], store, id);
    double sum = 0;
    for (const std::int32_t word : words) {
      const float* row = table.data() + static_cast<std::size_t>(word) * width;
      double squares = 0;
      for (std::size_t k = 0; k < width; ++k) squares += static_cast<double>(row[k]) * static_cast<double>(row[k]);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + model.config().rms_norm_eps);
      for (std::size_t i = 0; i < weights.size() / width; ++i) {
        double difference = 0;
        for (std::size_t k = 0; k < width; ++k) {
          const double input = static_cast<double>(row[k]) * scale * static_cast<double>(norm[k]);
          difference += input * (static_cast<double>(weights[i * width + k]) - codes[i * width + k]);
        }
        sum += difference * difference;
      }
    }
    return sum;
  };
  EXPECT_LT(error_of(chosen(model, 2)), 0.5 * error_of(loaded(model)));
}

TEST_F(CodeChoiceTest, Codes_DoNotDependOnThreads) {
  const model::Architecture model = architecture(DType::kBfloat16);
  const offload::ParameterStore one = chosen(model, 1);
  const offload::ParameterStore three = chosen(model, 3);
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const std::span<const std::byte> a(one.published(id).host(), one.published(id).size);
    const std::span<const std::byte> b(three.published(id).host(), three.published(id).size);
    EXPECT_TRUE(std::ranges::equal(a, b)) << model.parameters()[id].name;
  }
}

TEST_F(CodeChoiceTest, Microbatches_AreTheFirstOfTheRunAndEndWithTheData) {
  Loader loader(data_, {.batch_size = 3, .accumulation = 2});
  EXPECT_TRUE(first_microbatches(loader, 0).empty());
  const auto one = first_microbatches(loader, 1);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].ids, loader.step(0)[0].ids);
  std::uint64_t tokens = 0;
  const auto several = first_microbatches(loader, 100);
  for (const schedule::Microbatch& batch : several) tokens += batch.ids.size();
  EXPECT_GE(tokens, 100U);
  EXPECT_LT(tokens - several.back().ids.size(), 100U);
  const auto all = first_microbatches(loader, ~std::uint64_t{0});
  std::size_t samples = 0;
  for (const schedule::Microbatch& batch : all) samples += batch.bounds.size() - 1;
  EXPECT_EQ(samples, data_.samples.size());
}

}  // namespace
}  // namespace rondo::train
