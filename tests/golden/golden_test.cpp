// Whole training runs against transformers, PEFT and PyTorch: 20 steps of every family, full and LoRA, in fp32.
//
// A tensor's update may differ from the reference's by 2e-4 of its length or, where the reference differs from itself
// by more when it sums in another order (MANIFEST's noise), by four times that noise. The bias of k_proj needs it: what
// is added to all keys alike shifts all scores of a query alike, which softmax does not see. Rotary embedding breaks
// this only in the channels that turn quickly; in the others the gradient is little but rounding, and Adam divides it
// by its own size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "golden_case.h"
#include "rondo/devices/vulkan/vulkan_device.h"
#include "rondo/model/safetensors.h"
#include "rondo/train/generator.h"
#include "rondo/train/weights.h"
#include "shared_card.h"
#include "tiny_model.h"
#include "vulkan_card.h"

namespace rondo::golden {
namespace {

constexpr double kTensorTolerance = 2e-4;

struct Sums {
  double dot = 0;
  double found = 0;
  double expected = 0;
  double difference = 0;
  void add(double f, double e) {
    dot += f * e;
    found += f * f;
    expected += e * e;
    difference += (f - e) * (f - e);
  }
};

/// Updates against the reference's, tensor by tensor and all together.
void compare_updates(const Tensors& before, const Tensors& after, const model::TensorFiles& reference, double noise) {
  ASSERT_EQ(after.size(), reference.tensors().size());
  Sums all;
  for (const auto& [name, final] : after) {
    SCOPED_TRACE(name);
    const model::TensorView* tensor = reference.find(name);
    ASSERT_NE(tensor, nullptr);
    const std::vector<float> expected = values_of(*tensor);
    ASSERT_EQ(final.size(), expected.size());
    Sums one;
    for (std::size_t i = 0; i < final.size(); ++i) {
      const double start = before.at(name)[i];
      one.add(final[i] - start, expected[i] - start);
      all.add(final[i] - start, expected[i] - start);
    }
    EXPECT_LT(std::sqrt(one.difference / one.expected), std::max(kTensorTolerance, 4 * noise));
  }
  EXPECT_GT(all.dot / std::sqrt(all.found * all.expected), 0.9999);
}

/// A folder that the manifest has no noise of would not be run.
TEST(GoldenCases, AreAllThatThereAre) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(RONDO_TEST_DATA "/golden")) {
    if (entry.is_directory()) folders.push_back(entry.path().filename());
  }
  EXPECT_THAT(case_names(), testing::UnorderedElementsAreArray(folders));
}

/// The CPU, and the first Vulkan card where there is one.
std::vector<std::string> devices_under_test() {
  std::vector<std::string> names = {"cpu"};
  // Another pool takes the CPU's place (tests/support): what runs beside it has been run already.
  if (std::getenv("RONDO_TEST_DEVICES") != nullptr) return names;
  if (const auto card = test::usable_vulkan_card(); card) names.push_back("vulkan:" + std::to_string(card->index));
  return names;
}

/// A Vulkan card is the one that all cases of the process share.
tiny::Placement only(const std::string& device) {
  tiny::Placement placement{device, device};
  if (!device.starts_with("vulkan:")) return placement;
  placement.change_pool = [](std::vector<devices::PoolMember>& pool) {
    const auto used = test::usable_vulkan_card();
    ASSERT_TRUE(used.has_value());
    auto card = shared_vulkan_card(used->index);
    ASSERT_EQ(card.status(), absl::OkStatus());
    pool[0].device = *std::move(card);
  };
  return placement;
}

class Golden : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

void expect_to_follow(const std::string& name, const std::string& method, const model::Architecture& model,
                      const tiny::Placement& placement) {
  const Case golden = read_case(name);
  const tiny::Job job = job_of(golden);
  const std::vector<Record> records = read_records(golden.folder / (method + ".json"));
  ASSERT_EQ(records.size(), 20U);
  ASSERT_EQ(job.steps.size(), records.size());
  auto run = tiny::TinyRun::make(model, job, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  const train::RateSchedule rate{golden.hyper["schedule"].get<std::string>(),
                                 golden.hyper["learning_rate"].get<double>(),
                                 golden.hyper["warmup"].get<std::uint64_t>(), records.size()};
  const Tensors before = trained_tensors(model, (*run)->store());
  for (std::size_t step = 0; step < records.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step + 1));
    const Record& expected = records[step];
    EXPECT_NEAR(rate.at(step), expected.learning_rate, 1e-12);
    const auto result = (*run)->train(step, rate.at(step));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->target_tokens, expected.target_tokens);
    const double loss = result->loss_sum / static_cast<double>(result->target_tokens);
    EXPECT_NEAR(loss, expected.loss, kLossTolerance * expected.loss);
    EXPECT_NEAR(result->grad_norm, expected.grad_norm, kNormTolerance * expected.grad_norm);
  }
  (*run)->executor().drain_and_wait();
  compare_updates(before, trained_tensors(model, (*run)->store()),
                  open_file(golden.folder / (method + "_final.safetensors")),
                  noise_of(name, method).worst_tensor_error);
}

TEST_P(Golden, TwentySteps_FollowTheReference) {
  const auto& [name, method, device] = GetParam();
  expect_to_follow(name, method, architecture_of(read_case(name), method, devices::DType::kFloat32), only(device));
}

/// Of families whose heads differ.
class GoldenHeads : public Golden {};

/// Each part a visit of its own.
TEST_P(GoldenHeads, TwentyStepsInParts_FollowTheReference) {
  const auto& [name, method, device] = GetParam();
  const model::Architecture model = architecture_of(read_case(name), method, devices::DType::kFloat32, 4);
  ASSERT_GE(model.layers().size(), model.first_head_layer() + 4);
  tiny::Placement placement = only(device);
  placement.stages = tiny::one_layer_each(model);
  expect_to_follow(name, method, model, placement);
}

std::string name_of(const testing::TestParamInfo<Golden::ParamType>& info) {
  const std::string& device = std::get<2>(info.param);
  const std::string method = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  return device == "cpu" ? method : method + "_" + device.substr(0, device.find(':'));
}
INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Combine(testing::ValuesIn(case_names()), testing::Values("full", "lora"),
                                          testing::ValuesIn(devices_under_test())),
                         name_of);
// By itself, tied to the embedding, with scaled or capped logits, behind a norm that multiplies by 1 + weight, below a
// stream beside which others come.
INSTANTIATE_TEST_SUITE_P(Families, GoldenHeads,
                         testing::Combine(testing::Values("llama", "qwen3_tied", "granite", "gemma2", "gemma3",
                                                          "gemma4_small"),
                                          testing::Values("full", "lora"), testing::ValuesIn(devices_under_test())),
                         name_of);

class GoldenInference : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(GoldenInference, LossOfOneSequence_IsTheReferences) {
  const auto& [name, device] = GetParam();
  const Case golden = read_case(name);
  tiny::Job job = job_of(golden);
  job.steps = {microbatches_of({{{golden.inference["ids"].get<std::vector<std::int32_t>>(),
                                  golden.inference["labels"].get<std::vector<std::int32_t>>(), 0}}},
                               0)};
  for (const std::uint32_t parts : {1U, 3U}) {
    const model::Architecture model = architecture_of(golden, "full", devices::DType::kFloat32, parts);
    tiny::Placement placement = only(device);
    if (parts > 1) placement.stages = tiny::one_layer_each(model);
    auto run = tiny::TinyRun::make(model, job, placement);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto result = (*run)->executor().evaluate(job.steps[0]);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->target_tokens, golden.inference["target_tokens"].get<std::uint64_t>());
    const double expected = golden.inference["loss"].get<double>();
    EXPECT_NEAR(result->loss_sum / static_cast<double>(result->target_tokens), expected, kLossTolerance * expected);
  }
}

TEST_P(GoldenInference, GreedyAnswer_IsTheReferences) {
  const auto& [name, device] = GetParam();
  const Case golden = read_case(name);
  const model::Architecture model = architecture_of(golden, "full", devices::DType::kFloat32, 3);
  const tiny::Job job = job_of(golden);
  auto run = tiny::TinyRun::make(model, job, only(device));
  ASSERT_TRUE(run.ok()) << run.status();
  const nlohmann::json& greedy = golden.inference["greedy"];
  const auto prompt = greedy["prompt_ids"].get<std::vector<std::int32_t>>();
  const auto expected = greedy["new_ids"].get<std::vector<std::int32_t>>();
  const auto length = static_cast<std::uint32_t>(prompt.size());
  auto generator = train::Generator::make(model, (*run)->store(), (*run)->device(0), length,
                                          length + static_cast<std::uint32_t>(expected.size()));
  ASSERT_TRUE(generator.ok()) << generator.status();
  train::SamplingOptions options;
  options.max_new_tokens = static_cast<std::uint32_t>(expected.size());
  const auto answer = (*generator)->generate(prompt, options, nullptr);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(*answer, testing::ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenInference,
                         testing::Combine(testing::ValuesIn(case_names()), testing::ValuesIn(devices_under_test())),
                         [](const auto& one) {
                           const std::string& device = std::get<1>(one.param);
                           const std::string& name = std::get<0>(one.param);
                           return device == "cpu" ? name : name + "_" + device.substr(0, device.find(':'));
                         });

}  // namespace
}  // namespace rondo::golden
