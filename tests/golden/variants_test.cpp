// LoRA by parts and its relatives, DoRA, and training of the last blocks alone, against PEFT and PyTorch: 20 steps in
// fp32.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "golden_case.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "rondo/train/weights.h"
#include "tiny_model.h"

namespace rondo::golden {
namespace {

constexpr double kUpdateTolerance = 2e-4;  // of the length of a tensor's whole update

/// A folder of tests/data/variants.
struct Variant {
  std::filesystem::path folder;
  nlohmann::json records;
  Case golden;  // whose model and batches it trains
  std::optional<model::TensorFiles> adapter;
  std::optional<model::Architecture> model;
};

Variant read_variant(const std::string& name) {
  Variant variant;
  variant.folder = std::filesystem::path(RONDO_TEST_DATA "/variants") / name;
  std::ifstream file(variant.folder / "records.json");
  variant.records = nlohmann::json::parse(file, nullptr, false);
  variant.golden = read_case(variant.records["case"].get<std::string>());
  const auto config = model::load_config(variant.golden.folder / "model");
  EXPECT_TRUE(config.ok()) << config.status();
  model::MethodSpec method;
  method.dtype = devices::DType::kFloat32;
  if (variant.records.contains("freeze")) {
    method.train_weights = true;
    method.trained_blocks = variant.records["freeze"].get<std::uint32_t>();
  } else {
    const auto lora = model::load_adapter_config(variant.folder / "adapter");
    EXPECT_TRUE(lora.ok()) << lora.status();
    method.lora = *lora;
    method.train_lora = true;
    method.lora_b_rate = variant.records.value("loraplus", 1.0);
    auto files = model::open_factors(*config, *lora, variant.folder / "adapter" / "adapter_model.safetensors");
    EXPECT_TRUE(files.ok()) << files.status();
    const absl::Status checked = model::check_adapter_tensors(*config, *lora, *files);
    EXPECT_TRUE(checked.ok()) << checked;
    variant.adapter = *std::move(files);
  }
  variant.model = *model::Architecture::make(*config, method);
  return variant;
}

tiny::Job job_of(const Variant& variant) {
  tiny::Job job;
  for (std::size_t step = 0; step < variant.golden.steps.size(); ++step) {
    job.steps.push_back(microbatches_of(variant.golden.steps[step], step));
  }
  const nlohmann::json& hyper = variant.golden.hyper;
  job.optimizer = {hyper["betas"][0].get<double>(), hyper["betas"][1].get<double>(), hyper["epsilon"].get<double>(),
                   hyper["weight_decay"].get<double>()};
  job.fill = [&variant](const model::Architecture& model, offload::ParameterStore& store) {
    const auto files = model::open_weights(model.config(), variant.golden.folder / "model");
    ASSERT_TRUE(files.ok()) << files.status();
    const absl::Status loaded =
        train::load_weights(model, *files, variant.adapter ? &*variant.adapter : nullptr, store);
    ASSERT_TRUE(loaded.ok()) << loaded;
    if (!variant.adapter) {
      ASSERT_TRUE(train::init_factors(model, 0, store).ok());
    }
  };
  return job;
}

using Tensors = std::map<std::string, std::vector<float>>;

/// Under PEFT's names.
Tensors trained_tensors(const Variant& variant, offload::ParameterStore& store) {
  Tensors tensors;
  for (model::ParameterId id = 0; id < variant.model->parameters().size(); ++id) {
    const model::Parameter& parameter = variant.model->parameters()[id];
    if (!parameter.trained) continue;
    const std::string name = parameter.of_adapter ? model::saved_tensor_name(parameter.name) : parameter.name;
    tensors[name].assign(store.master(id).begin(), store.master(id).end());
  }
  return tensors;
}

class Variants : public testing::TestWithParam<std::string> {};

TEST_P(Variants, TwentySteps_FollowTheReference) {
  const Variant variant = read_variant(GetParam());
  const tiny::Job job = job_of(variant);
  auto run = tiny::TinyRun::make(*variant.model, job, {"cpu", "cpu"});
  ASSERT_TRUE(run.ok()) << run.status();
  const nlohmann::json& hyper = variant.golden.hyper;
  const train::RateSchedule rate{hyper["schedule"].get<std::string>(), hyper["learning_rate"].get<double>(),
                                 hyper["warmup"].get<std::uint64_t>(), job.steps.size()};
  const Tensors before = trained_tensors(variant, (*run)->store());
  ASSERT_EQ(variant.records["steps"].size(), job.steps.size());
  for (std::size_t step = 0; step < job.steps.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step + 1));
    const auto result = (*run)->train(step, rate.at(step));
    ASSERT_TRUE(result.ok()) << result.status();
    const nlohmann::json& expected = variant.records["steps"][step];
    const auto loss = expected["loss"].get<double>();
    const auto norm = expected["grad_norm"].get<double>();
    EXPECT_NEAR(result->loss_sum / static_cast<double>(result->target_tokens), loss, kLossTolerance * loss);
    EXPECT_NEAR(result->grad_norm, norm, kNormTolerance * norm);
  }
  (*run)->executor().drain_and_wait();
  const Tensors after = trained_tensors(variant, (*run)->store());
  EXPECT_EQ(after.size(), variant.records["moved"].size());
  for (const auto& [name, length] : variant.records["moved"].items()) {
    ASSERT_TRUE(after.contains(name)) << name;
    double squares = 0;
    for (std::size_t i = 0; i < after.at(name).size(); ++i) {
      const double moved = static_cast<double>(after.at(name)[i]) - static_cast<double>(before.at(name)[i]);
      squares += moved * moved;
    }
    EXPECT_NEAR(std::sqrt(squares), length.get<double>(), kUpdateTolerance * length.get<double>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Variants,
                         testing::Values("patterns", "some_layers", "loraplus", "saved_modules", "freeze", "dora",
                                         "dora_biases", "dora_loraplus", "dora_fresh", "dora_fused", "dora_delta",
                                         "experts", "experts_down", "experts_inner", "experts_stacked"),
                         [](const auto& one) { return one.param; });

TEST(VariantPlans, LayersBelowTheFirstTrainedOne_HaveNoBackwardAndNoState) {
  for (const char* name : {"freeze", "some_layers"}) {
    SCOPED_TRACE(name);
    const Variant variant = read_variant(name);
    const model::Architecture& model = *variant.model;
    const tiny::Job job = job_of(variant);
    auto run = tiny::TinyRun::make(model, job, {"cards", tiny::fast_cards(2)});
    ASSERT_TRUE(run.ok()) << run.status();
    const model::LayerIndex first = model.first_backward_layer();
    EXPECT_EQ(model.layers()[first].block, model.config().num_layers - 1);
    EXPECT_EQ(model.layers()[first].kind, model::LayerKind::kAttention);
    for (const partition::Slot& slot : (*run)->plan().slots) {
      if (slot.phase == partition::SlotPhase::kBackward) {
        EXPECT_GE(slot.first_layer, first);
      }
    }
    for (model::LayerIndex layer = 0; layer < first; ++layer) {
      for (const model::ParameterUse& use : model.layers()[layer].parameters) {
        EXPECT_FALSE(model.parameters()[use.id].trained);
      }
    }
    // The lowest trained layer gives nothing further down.
    EXPECT_FALSE(model.layers()[first].gives_input_gradient);
  }
}

}  // namespace
}  // namespace rondo::golden
