// fp16 against PyTorch's autocast and GradScaler: twenty steps of three families, and what steps that overflow do to
// the scale and the learning rate.
//
// A number may differ from the reference's by four times what fp16 moved that one away from fp32 (MANIFEST's noise); of
// losses and gradient norms the worst step counts, of updates each tensor's own. One element in 200 of a tensor is left
// out: where a gradient is smaller than what fp16 rounds away its sign is left to chance, and Adam, which divides by
// its size, moves the weight by as much as any other. So it is with rows of an embedding that hardly occur.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "golden_case.h"
#include "rondo/schedule/loss_scale.h"

namespace rondo::golden {
namespace {

constexpr double kTimesNoise = 4;
constexpr std::size_t kOneIn = 200;

nlohmann::json read_half(const std::string& file) {
  std::ifstream stream(std::filesystem::path(RONDO_TEST_DATA "/half") / file);
  nlohmann::json value = nlohmann::json::parse(stream, nullptr, false);
  EXPECT_TRUE(value.is_object()) << file;
  return value;
}

class Half : public testing::TestWithParam<std::tuple<std::string, std::string, std::uint32_t>> {};

TEST_P(Half, TwentySteps_FollowAutocast) {
  const auto& [name, method, parts] = GetParam();
  const nlohmann::json reference = read_half(name + "_" + method + ".json");
  const nlohmann::json noise = read_half("MANIFEST.json")["noise"][name + "_" + method];
  const Case golden = read_case(name);
  const model::Architecture model = architecture_of(golden, method, devices::DType::kFloat16, parts);
  tiny::Job job = job_of(golden);
  job.loss_scale = reference["steps"][0]["loss_scale"].get<double>();
  tiny::Placement placement{"cpu"};
  if (parts > 1) placement.stages = tiny::one_layer_each(model);
  auto run = tiny::TinyRun::make(model, job, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  const Tensors before = trained_tensors(model, (*run)->store());
  ASSERT_EQ(reference["steps"].size(), job.steps.size());
  for (std::size_t step = 0; step < job.steps.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step + 1));
    const nlohmann::json& expected = reference["steps"][step];
    const auto result = (*run)->train(step, expected["learning_rate"].get<double>());
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_FALSE(result->skipped);
    EXPECT_EQ(result->loss_scale, expected["loss_scale"].get<double>());
    const auto loss = expected["loss"].get<double>();
    const auto norm = expected["grad_norm"].get<double>();
    EXPECT_NEAR(result->loss_sum / static_cast<double>(result->target_tokens), loss,
                kTimesNoise * noise["loss"].get<double>() * loss);
    EXPECT_NEAR(result->grad_norm, norm, kTimesNoise * noise["grad_norm"].get<double>() * norm);
  }
  (*run)->executor().drain_and_wait();
  const Tensors after = trained_tensors(model, (*run)->store());
  const std::string file = name + "_" + method + "_final.safetensors";
  const model::TensorFiles final = open_file(std::filesystem::path(RONDO_TEST_DATA "/half") / file);
  ASSERT_EQ(after.size(), final.tensors().size());
  for (const auto& [tensor, found] : after) {
    ASSERT_NE(final.find(tensor), nullptr) << tensor;
    const std::vector<float> expected = values_of(*final.find(tensor));
    ASSERT_EQ(found.size(), expected.size());
    std::vector<double> squares;
    double length = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      squares.push_back(std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2));
      length += std::pow(static_cast<double>(expected[i]) - static_cast<double>(before.at(tensor)[i]), 2);
    }
    std::ranges::sort(squares);
    squares.resize(squares.size() - squares.size() / kOneIn);
    const double difference = std::accumulate(squares.begin(), squares.end(), 0.0);
    EXPECT_LT(std::sqrt(difference / length), kTimesNoise * noise["tensors"][tensor].get<double>()) << tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Half,
                         testing::Combine(testing::Values("llama", "qwen2_tied_window", "qwen3"),
                                          testing::Values("full", "lora"), testing::Values(1U, 4U)),
                         [](const auto& one) {
                           return std::get<0>(one.param) + "_" + std::get<1>(one.param) + "_" +
                                  std::to_string(std::get<2>(one.param));
                         });

TEST(HalfCourse, ScaleAndRate_AreThoseOfGradScalerAndTrainer) {
  const nlohmann::json golden = read_half("course.json");
  const auto steps = golden["steps"].get<std::uint64_t>();
  const auto list = golden["overflows"].get<std::vector<std::uint64_t>>();
  const std::set<std::uint64_t> overflows(list.begin(), list.end());
  std::map<std::uint64_t, double> scales;
  for (const nlohmann::json& one : golden["scales"]) scales[one["step"]] = one["loss_scale"];
  std::map<std::uint64_t, double> rates;
  for (const nlohmann::json& one : golden["rates"]) rates[one["step"]] = one["learning_rate"];
  const train::RateSchedule rate{golden["schedule"].get<std::string>(), golden["learning_rate"].get<double>(),
                                 golden["warmup"].get<std::uint64_t>(), steps};
  schedule::Course course;
  double expected = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (const auto found = scales.find(step); found != scales.end()) expected = found->second;
    ASSERT_EQ(course.loss_scale, expected) << "step " << step;
    // As Trainer::loop() has it: the schedule goes on with updates alone.
    if (const auto found = rates.find(step); found != rates.end()) {
      EXPECT_NEAR(rate.at(course.updates), found->second, 1e-15 * rate.peak) << "step " << step;
    }
    course = overflows.contains(step) ? after_overflow(course, course.loss_scale) : after_update(course);
  }
  EXPECT_EQ(course.updates, steps - overflows.size());
}

}  // namespace
}  // namespace rondo::golden
