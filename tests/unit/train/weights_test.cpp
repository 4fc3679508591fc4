// Weights and adapters from model directories into the store and back into files.
#include "rondo/train/weights.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "files.h"
#include "rondo/base/file.h"
#include "rondo/base/float16.h"
#include "rondo/devices/encoding.h"
#include "rondo/model/init.h"
#include "rondo/model/stored_weights.h"
#include "rondo/schedule/shape.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using devices::DType;
using test::expect_refused;
using test::fresh_folder;
using test::put;

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    model::InitOptions options;
    options.arch = "qwen2";
    options.hidden_size = 32;
    options.weight_type = model::WeightType::kFloat32;
    ASSERT_TRUE(model::init_model(options, base_).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }

  model::Architecture architecture(const model::MethodSpec& method) const {
    return *model::Architecture::make(*model::load_config(base_), method);
  }
  /// A store filled from the model in `folder`, and the adapter in `adapter` where there is one.
  offload::ParameterStore loaded(const model::Architecture& model, const fs::path& folder, const fs::path& adapter = {},
                                 std::uint64_t seed = 42) const {
    auto store = *offload::ParameterStore::make(schedule::parameter_specs(model), model.method().dtype, false);
    const auto files = *model::TensorFiles::open_model(folder);
    std::optional<model::TensorFiles> factors;
    if (!adapter.empty()) factors = *model::TensorFiles::open_file(adapter / "adapter_model.safetensors");
    const absl::Status status = load_weights(model, files, factors ? &*factors : nullptr, store);
    EXPECT_TRUE(status.ok()) << status;
    if (!factors) {
      EXPECT_EQ(init_factors(model, seed, store), absl::OkStatus());
    }
    return store;
  }
  fs::path made(const char* name) const {
    fs::create_directories(folder_ / name);
    return folder_ / name;
  }

  const fs::path folder_ = fresh_folder();
  const fs::path base_ = folder_ / "base";
};

std::vector<float> numbers(offload::ParameterStore& store, model::ParameterId id) {
  const std::span<const float> values = store.master(id);
  return {values.begin(), values.end()};
}

TEST_F(Weights, FullModel_ComesBackFromItsOwnResult) {
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const model::Architecture model = architecture(tiny::full(dtype));
    offload::ParameterStore store = loaded(model, base_);
    tiny::fill_weights(model, 3, store);
    const fs::path out = made(dtype == DType::kFloat32 ? "fp32" : "bf16");
    ASSERT_TRUE(write_result(model, store, Documents(base_), out).ok());
    const auto config = model::load_config(out);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->weight_type,
              dtype == DType::kFloat32 ? model::WeightType::kFloat32 : model::WeightType::kBfloat16);
    EXPECT_EQ(*read_file(out / "generation_config.json"), *read_file(base_ / "generation_config.json"));
    offload::ParameterStore again = loaded(model, out);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      const auto a = store.published(id);
      const auto b = again.published(id);
      ASSERT_EQ(a.size, b.size);
      EXPECT_EQ(std::memcmp(a.host(), b.host(), a.size), 0) << model.parameters()[id].name;
    }
  }
}

TEST_F(Weights, FullModel_IsTheMastersToNearestWhateverIsPublished) {
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16}) {
    const model::Architecture model = architecture(tiny::full(dtype));
    offload::ParameterStore store = loaded(model, base_);
    tiny::fill_weights(model, 3, store);
    const auto nearest = dtype == DType::kFloat16 ? to_float16 : to_bfloat16;
    std::size_t otherwise = 0;
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      store.publish_from_master(id, 7);
      const auto* published = reinterpret_cast<const std::uint16_t*>(store.published(id).host());
      for (const float value : store.master(id)) otherwise += *published++ == nearest(value) ? 0U : 1U;
    }
    EXPECT_GT(otherwise, 1000U) << "published with chance";
    const fs::path out = made(devices::name_of(dtype));
    ASSERT_TRUE(write_result(model, store, Documents(base_), out).ok());
    const auto files = *model::TensorFiles::open_model(out);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      const model::TensorView* tensor = files.find(model.parameters()[id].name);
      ASSERT_NE(tensor, nullptr);
      const std::vector<float> masters = numbers(store, id);
      ASSERT_EQ(tensor->data.size(), 2 * masters.size());
      for (std::size_t i = 0; i < masters.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, tensor->data.data() + 2 * i, sizeof(bits));
        ASSERT_EQ(bits, nearest(masters[i])) << model.parameters()[id].name << " " << i;
      }
    }
  }
}

TEST_F(Weights, FrozenBfloat16_IsTheRoundedFile) {
  const model::Architecture model = architecture(tiny::lora(DType::kBfloat16));
  offload::ParameterStore store = loaded(model, base_);
  const auto files = *model::TensorFiles::open_model(base_);
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    if (model.parameters()[id].trained) continue;
    const model::TensorView* tensor = files.find(model.parameters()[id].name);
    ASSERT_NE(tensor, nullptr);
    std::vector<std::uint16_t> bits(tensor->elements());
    model::TensorFiles::read_as_bfloat16(*tensor, bits);
    EXPECT_EQ(std::memcmp(bits.data(), store.published(id).host(), 2 * bits.size()), 0) << tensor->name;
  }
}

/// Rates of linear attention are in fp32 on devices; in files they are as the others.
TEST_F(Weights, FrozenInFp32AmongBfloat16_AreTheRoundedFile) {
  model::InitOptions options;
  options.arch = "qwen3_5_text";
  options.hidden_size = 32;
  options.weight_type = model::WeightType::kBfloat16;
  const fs::path base = folder_ / "linear";
  ASSERT_TRUE(model::init_model(options, base).ok());
  const model::ModelConfig config = *model::load_config(base);
  const model::Architecture model = *model::Architecture::make(config, tiny::last_block(DType::kBfloat16));
  auto store = *offload::ParameterStore::make(schedule::parameter_specs(model), DType::kBfloat16, false);
  ASSERT_EQ(load_weights(model, *model::open_weights(config, base), nullptr, store), absl::OkStatus());
  const fs::path out = made("written");
  ASSERT_EQ(write_result(model, store, Documents(base), out), absl::OkStatus());
  const auto found = *model::TensorFiles::open_model(out);
  const auto expected = *model::TensorFiles::open_model(base);
  for (const char* name : {"A_log", "dt_bias"}) {
    const std::string tensor = std::string("model.layers.0.linear_attn.") + name;
    EXPECT_TRUE(std::ranges::equal(found.find(tensor)->data, expected.find(tensor)->data)) << name;
  }
}

TEST_F(Weights, FreshFactors_AreKaimingUniformAndZero) {
  const model::Architecture model = architecture(tiny::lora(DType::kFloat32));
  offload::ParameterStore store = loaded(model, base_);
  offload::ParameterStore same = loaded(model, base_);
  offload::ParameterStore other = loaded(model, base_, {}, 43);
  std::vector<float> first;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (!parameter.trained) continue;
    const std::vector<float> values = numbers(store, id);
    EXPECT_EQ(values, numbers(same, id));
    if (parameter.kind == model::WeightKind::kLoraB) {
      EXPECT_EQ(values, std::vector<float>(values.size(), 0.0F)) << parameter.name;
      continue;
    }
    ASSERT_EQ(parameter.kind, model::WeightKind::kLoraA);
    const float limit = 1.0F / std::sqrt(static_cast<float>(parameter.shape.back()));
    float largest = 0;
    double sum = 0;
    for (const float value : values) {
      largest = std::max(largest, std::fabs(value));
      sum += static_cast<double>(value);
    }
    EXPECT_LE(largest, limit) << parameter.name;
    EXPECT_GT(largest, 0.9F * limit) << parameter.name;
    // Five standard errors of the mean of numbers uniform within the limit.
    const auto n = static_cast<double>(values.size());
    EXPECT_LT(std::fabs(sum / n), 5 * static_cast<double>(limit) / std::sqrt(3 * n)) << parameter.name;
    EXPECT_NE(values, numbers(other, id)) << parameter.name;
    EXPECT_NE(values, first) << parameter.name;  // the name enters
    if (first.empty()) first = values;
  }
  EXPECT_FALSE(first.empty());
}

TEST_F(Weights, Adapter_ComesBackFromItsOwnResult) {
  const model::Architecture model = architecture(tiny::lora(DType::kBfloat16));
  offload::ParameterStore store = loaded(model, base_);
  tiny::fill_weights(model, 3, store);
  const fs::path out = made("adapter");
  ASSERT_TRUE(write_result(model, store, Documents(base_), out).ok());
  const auto config = model::load_adapter_config(out);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->base_model, base_.string());
  EXPECT_EQ(config->rank, model.method().lora->rank);
  EXPECT_EQ(config->alpha, model.method().lora->alpha);
  EXPECT_EQ(config->targets, model.method().lora->targets);
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
  offload::ParameterStore again = loaded(model, base_, out);
  std::size_t factors = 0;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    if (!model.parameters()[id].trained) continue;
    EXPECT_EQ(numbers(store, id), numbers(again, id)) << model.parameters()[id].name;
    ++factors;
  }
  const auto files = *model::TensorFiles::open_file(out / "adapter_model.safetensors");
  EXPECT_EQ(files.tensors().size(), factors);
  EXPECT_NE(files.find("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"), nullptr);
}

/// A GPT-OSS as published: experts stay in their codes, which stand for the numbers that the files stand for.
TEST(PublishedMxfp4, IsKeptCodeByCode) {
  const fs::path folder = fs::path(RONDO_TEST_DATA) / "mxfp4" / "stored";
  const model::ModelConfig config = *model::load_config(folder);
  const model::TensorFiles files = *model::open_weights(config, folder);
  model::MethodSpec method = tiny::lora(DType::kBfloat16);
  method.lora->targets = {"q_proj"};
  method.keeps_mxfp4 = true;
  const model::Architecture model = *model::Architecture::make(config, method);
  auto store = *offload::ParameterStore::make(schedule::parameter_specs(model), DType::kBfloat16, false);
  ASSERT_EQ(load_weights(model, files, nullptr, store), absl::OkStatus());
  int kept = 0;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (parameter.encoding != devices::Encoding::kMxfp4) continue;
    ++kept;
    const auto elements = static_cast<std::int64_t>(parameter.elements());
    const devices::EncodedLayout layout(parameter.encoding, elements);
    std::vector<float> want(parameter.elements());
    model::TensorFiles::read_as_float32(*files.find(parameter.name), want);
    for (std::int64_t i = 0; i < elements; ++i) {
      ASSERT_EQ(devices::decoded_element(parameter.encoding, layout, store.published(id).host(), i),
                want[static_cast<std::size_t>(i)])
          << parameter.name << " " << i;
    }
  }
  EXPECT_EQ(kept, 9);
  // In fp16 a scale of these is too large; and numbers that are in no codes are refused where codes are promised.
  method.dtype = DType::kFloat16;
  const model::Architecture half = *model::Architecture::make(config, method);
  auto halves = *offload::ParameterStore::make(schedule::parameter_specs(half), DType::kFloat16, false);
  expect_refused(load_weights(half, files, nullptr, halves), {"up_proj", "2^123", "fp16"});
  const model::TensorFiles expanded = *model::open_weights(config, folder.parent_path() / "expanded");
  expect_refused(load_weights(model, expanded, nullptr, store), {"gate_proj", "expected MXFP4"});
}

TEST_F(Weights, Dora_StartsAtTheLengthsOfRowsAndComesBack) {
  model::MethodSpec method = tiny::lora(DType::kBfloat16);
  method.lora->use_dora = true;
  for (const devices::Encoding encoding :
       {devices::Encoding::kPlain, devices::Encoding::kInt8, devices::Encoding::kNf4}) {
    method.base_encoding = encoding;
    const model::Architecture model = architecture(method);
    offload::ParameterStore store = loaded(model, base_);
    const auto files = *model::TensorFiles::open_model(base_);
    const model::TensorView& weight = *files.find("model.layers.1.mlp.down_proj.weight");
    std::vector<float> rows(weight.elements());
    model::TensorFiles::read_as_float32(weight, 0, rows);
    const auto width = static_cast<std::size_t>(weight.shape[1]);
    // Rounding to bf16 and to codes moves a row's length by far less than the numbers of the row.
    const double allowed = encoding == devices::Encoding::kNf4 ? 0.05 : 0.005;
    const std::string name = "base_model.model.model.layers.1.mlp.down_proj.lora_magnitude_vector";
    bool found = false;
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (model.parameters()[id].name != name) continue;
      found = true;
      const std::vector<float> magnitudes = numbers(store, id);
      ASSERT_EQ(magnitudes.size(), weight.shape[0]);
      for (std::size_t i = 0; i < magnitudes.size(); ++i) {
        double squares = 0;
        for (std::size_t k = 0; k < width; ++k) squares += std::pow(static_cast<double>(rows[i * width + k]), 2);
        EXPECT_NEAR(magnitudes[i], std::sqrt(squares), allowed * std::sqrt(squares)) << i;
      }
    }
    EXPECT_TRUE(found);
    tiny::fill_weights(model, 3, store);
    const fs::path out = made(devices::name_of(encoding));
    ASSERT_TRUE(write_result(model, store, Documents(base_), out).ok());
    EXPECT_TRUE(model::load_adapter_config(out)->use_dora);
    offload::ParameterStore again = loaded(model, base_, out);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (model.parameters()[id].trained) {
        EXPECT_EQ(numbers(store, id), numbers(again, id)) << model.parameters()[id].name;
      }
    }
  }
}

TEST_F(Weights, NumberThatIsNotFinite_NamesFileAndTensor) {
  const auto files = *model::TensorFiles::open_model(base_);
  const std::string name = "model.embed_tokens.weight";
  const model::TensorView& tensor = *files.find(name);
  std::string bytes = *read_file(tensor.file);
  const std::size_t at = bytes.find({reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
  ASSERT_NE(at, std::string::npos);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::memcpy(bytes.data() + at + tensor.data.size() - sizeof wrong, &wrong, sizeof wrong);
    put(tensor.file, bytes);
    const auto broken = *model::TensorFiles::open_model(base_);
    for (const model::MethodSpec& method :
         {tiny::full(DType::kFloat32), tiny::full(DType::kBfloat16), tiny::lora(DType::kBfloat16)}) {
      const model::Architecture model = architecture(method);
      auto store = *offload::ParameterStore::make(schedule::parameter_specs(model), method.dtype, false);
      expect_refused(load_weights(model, broken, nullptr, store), {"model.safetensors", name, "not finite"});
    }
  }
}

TEST_F(Weights, TokenizerFiles_AreCopiedUnchanged) {
  const std::string odd("{ \"a\" :1}\r\n\0\xff", 14);
  put(base_ / "special_tokens_map.json", odd);
  put(base_ / "merges.txt", "");
  put(base_ / "README.md", "not a tokenizer");
  fs::create_directories(base_ / "additional_chat_templates");
  put(base_ / "additional_chat_templates" / "tool_use.jinja", "{{ tools }}");
  put(base_ / "additional_chat_templates" / "README.md", "not a template");
  const fs::path out = made("out");
  ASSERT_TRUE(copy_tokenizer_files(Documents(base_), out).ok());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "merges.txt"}) {
    EXPECT_EQ(*read_file(out / name), *read_file(base_ / name)) << name;
  }
  EXPECT_EQ(*read_file(out / "special_tokens_map.json"), odd);
  EXPECT_EQ(*read_file(out / "additional_chat_templates" / "tool_use.jinja"), "{{ tools }}");
  EXPECT_EQ(test::entries_in(out / "additional_chat_templates"), 1U);
  EXPECT_EQ(test::entries_in(out), 6U);
}

TEST_F(Weights, FolderThatIsNotThere_IsAnErrorNamingIt) {
  const model::Architecture model = architecture(tiny::full(DType::kBfloat16));
  offload::ParameterStore store = loaded(model, base_);
  const absl::Status status = write_result(model, store, Documents(base_), folder_ / "nowhere");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nowhere"));
}

}  // namespace
}  // namespace rondo::train
