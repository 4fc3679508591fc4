// Steps that overflow in fp16: skipped with nothing changed but the scale, the same on every pool, through a lost
// device and an interruption, at either staleness.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "rondo/devices/vulkan/vulkan_device.h"
#include "rondo/train/checkpoint.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"
#include "vulkan_card.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using schedule::RunCourse;
using schedule::StepResult;

std::string first_card() {
  const auto card = test::usable_vulkan_card();
  return card ? "vulkan:" + std::to_string(card->index) : "";
}

class LossScale : public testing::TestWithParam<Variant> {
 protected:
  LossScale() {
    job_.steps = steps_of(dataset_, {4, 5, 5, 4, 3});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 8, store); };
  }
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// The least scale at which the first step overflows.
  double overflowing(const std::string& pool = "cpu") const {
    Job job = job_;
    for (job.loss_scale = 4096; job.loss_scale < 0x1p60; job.loss_scale *= 2) {
      auto run = TinyRun::make(model_, job, {"probe", pool});
      if (!run.ok() || (*run)->train(0).value().overflowed) return job.loss_scale;
    }
    return 0;
  }
  void expect_same(const Trace& trace, const Trace& reference) const {
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.norms, reference.norms);
    EXPECT_TRUE(trace.bytes == reference.bytes);
  }
  std::vector<Placement> pools() const {
    std::vector<Placement> placements;
    placements.push_back({"three cards", fast_cards(3)});
    placements.push_back({"layer by layer", fast_cards(2) + "," + slow_cards(1)});
    placements.back().stages = one_layer_each(model_);
    placements.push_back({"rounds", fast_cards(2)});
    placements.back().stages = one_layer_each(model_);
    placements.back().microbatches_per_round = 2;
    placements.push_back({"residents with the CPU", fast_cards(2) + ",cpu"});
    placements.back().stages = Stages{{0, 2, 3}, 6, {4, 1}};
    placements.back().stays = 1;
    if (!GetParam().lora) {
      placements.push_back({"disk", fast_cards(2)});
      placements.back().disk_from = 2;
    }
    for (const char* fail_at : {"error@compute:9", "error@compute:60", "hang@compute:70"}) {
      const std::string file = card_file(card_entry("bad", 4, 4, fail_at)).string();
      placements.push_back({fail_at, "emulated:" + file + "#bad,emulated:" + file + "#fast*2"});
      placements.back().stages = Stages{{0, 2, 3}, 6, {4, 1}};
      placements.back().recover = true;
      placements.back().hang_seconds = hang_seconds_for(fail_at);
    }
    return placements;
  }
  void expect_skipped(const std::string& pool);
  void expect_resumed();

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_scale_" + std::to_string(::getpid()));
  const data::Dataset dataset_ = random_samples(61, 7, 60, 24);
  const model::Architecture model_ = model_of(GetParam());
  Job job_;
};

/// The run as it was before, and goes on as one that began with half the scale.
void LossScale::expect_skipped(const std::string& pool) {
  job_.loss_scale = 2 * overflowing(pool);
  ASSERT_GT(job_.loss_scale, 0);
  auto run = TinyRun::make(model_, job_, {pool, pool});
  ASSERT_TRUE(run.ok()) << run.status();
  const std::string before = (*run)->bytes();
  for (double scale = job_.loss_scale; scale > job_.loss_scale / 4; scale /= 2) {
    const StepResult result = (*run)->train(0).value();
    EXPECT_TRUE(result.skipped);
    EXPECT_TRUE(result.overflowed);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_TRUE(std::isfinite(result.loss_sum) && result.loss_sum > 0) << result.loss_sum;
    EXPECT_EQ((*run)->executor().course().now.loss_scale, scale / 2);
    EXPECT_EQ((*run)->executor().updates(), 0U);
    EXPECT_TRUE((*run)->bytes() == before);
  }
  job_.loss_scale /= 4;
  auto fresh = TinyRun::make(model_, job_, {pool, pool});
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  for (const std::size_t step : {0U, 1U, 2U}) {
    const StepResult found = (*run)->train(step).value();
    const StepResult want = (*fresh)->train(step).value();
    EXPECT_TRUE(!found.skipped || step > 0);
    EXPECT_EQ(found.skipped, want.skipped);
    EXPECT_EQ(found.loss_sum, want.loss_sum);
    EXPECT_EQ(found.grad_norm, want.grad_norm);
  }
  EXPECT_TRUE((*run)->executor().course().now == (*fresh)->executor().course().now);
  EXPECT_TRUE((*run)->bytes() == (*fresh)->bytes());
}

TEST_P(LossScale, StepThatOverflows_IsSkippedAndHalvesTheScale) {
  for (const std::string& pool : {std::string("cpu"), fast_cards(3), "cpu," + fast_cards(1)}) {
    SCOPED_TRACE(pool);
    ASSERT_NO_FATAL_FAILURE(expect_skipped(pool));
  }
}

TEST_P(LossScale, OnVulkan_StepThatOverflowsIsSkippedAndHalvesTheScale) {
  const std::string card = first_card();
  if (card.empty()) GTEST_SKIP() << test::kNoVulkanCard;
  ASSERT_NO_FATAL_FAILURE(expect_skipped(card));
}

TEST_P(LossScale, AnyPool_SkipsTheSameSteps) {
  job_.loss_scale = overflowing();
  const Trace reference = trace_of(model_, job_, {"reference"});
  ASSERT_EQ(reference.norms.size(), 5U);
  EXPECT_EQ(reference.norms[0], 0) << "skipped";
  EXPECT_GT(reference.norms[4], 0);
  for (const Placement& placement : pools()) {
    SCOPED_TRACE(placement.name);
    expect_same(trace_of(model_, job_, placement), reference);
  }
}

TEST_P(LossScale, AtStaleness1AnyPool_SkipsTheSameStepsWhetherTheyOverlapOrNot) {
  job_.staleness = 1;
  job_.loss_scale = overflowing();
  const Trace reference = trace_of(model_, job_, {"reference"});
  ASSERT_EQ(reference.norms.size(), 5U);
  EXPECT_EQ(reference.norms[0], 0) << "skipped";
  EXPECT_GT(reference.norms[4], 0);
  std::vector<Placement> placements = pools();
  placements.push_back({"cpu, overlapping"});
  for (Placement& placement : placements) {
    SCOPED_TRACE(placement.name);
    placement.ahead = true;
    expect_same(trace_of(model_, job_, placement), reference);
  }
}

/// The step after one that was skipped was begun with its scale: it may overflow too, and the scale halves once.
TEST_P(LossScale, AtStaleness1_TheScaleOfAStepIsThatOfTheStepsButOneBefore) {
  job_.staleness = 1;
  job_.loss_scale = overflowing();
  auto run = TinyRun::make(model_, job_, {"scales"});
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<double> scales;
  for (int i = 0; i < 3; ++i) {
    const StepResult result = (*run)->train(0).value();
    EXPECT_EQ(result.overflowed, i < 2);
    scales.push_back(result.loss_scale);
  }
  EXPECT_EQ(scales, (std::vector<double>{job_.loss_scale, job_.loss_scale, job_.loss_scale / 2}));
  EXPECT_EQ((*run)->executor().updates(), 1U);
}

/// After steps 1 to 5, of which the first ones overflow: in the middle of them, and after them.
void LossScale::expect_resumed() {
  const Trace whole = trace_of(model_, job_, {"uninterrupted"});
  for (const std::size_t steps : {1U, 2U, 3U, 4U}) {
    SCOPED_TRACE(steps);
    std::filesystem::remove_all(folder_);
    ASSERT_NO_FATAL_FAILURE(run_to_checkpoint(model_, job_, {"before", fast_cards(2)}, steps, folder_));
    auto second = TinyRun::make(model_, job_, {"after"});
    ASSERT_TRUE(second.ok()) << second.status();
    const auto state = train::read_checkpoint(*train::newest_checkpoint(folder_), model_, (*second)->store());
    ASSERT_TRUE(state.ok()) << state.status();
    (*second)->executor().set_course(state->course);
    for (std::size_t step = steps; step < job_.steps.size(); ++step) {
      const auto result = (*second)->train(step);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, whole.loss_sums[step]) << step;
      EXPECT_EQ(result->grad_norm, whole.norms[step]) << step;
    }
    EXPECT_TRUE((*second)->bytes() == whole.bytes);
  }
}

TEST_P(LossScale, Resumed_GoesOnBitForBit) {
  job_.loss_scale = overflowing();
  expect_resumed();
}

TEST_P(LossScale, ResumedAtStaleness1_GoesOnBitForBit) {
  job_.staleness = 1;
  job_.loss_scale = overflowing();
  expect_resumed();
}

TEST_P(LossScale, AtItsLeast_TheRunEndsAndNamesWhatIsNotFinite) {
  job_.loss_scale = 2 * schedule::kLeastLossScale;
  job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) {
    fill_weights(model, 8, store);
    // What the model computes overflows whatever the gradients are multiplied by.
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (!model.parameters()[id].trained) continue;
      for (float& value : store.master(id)) value *= 60000;
      store.publish_from_master(id, 0);
    }
  };
  for (const std::string& pool : {std::string("cpu"), fast_cards(2)}) {
    auto run = TinyRun::make(model_, job_, {pool, pool});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_TRUE((*run)->train(0).value().skipped);
    const auto result = (*run)->train(0);
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInternal) << result.status();
    EXPECT_NE(result.status().message().find("is not finite"), std::string::npos) << result.status();
    EXPECT_FALSE((*run)->executor().last_step().finite);
  }
}

TEST(LossScaleCourse, AfterGoodSteps_DoublesUpToItsCap) {
  schedule::Course course;
  for (std::uint32_t i = 1; i < schedule::kGoodSteps; ++i) course = after_update(course);
  EXPECT_EQ(course.loss_scale, 65536);
  course = after_update(course);
  EXPECT_EQ(course.loss_scale, 131072);
  EXPECT_EQ(course.good_steps, 0U);
  EXPECT_EQ(course.updates, schedule::kGoodSteps);
  course = after_overflow(after_update(course), 131072);
  EXPECT_EQ(course.loss_scale, 65536);
  EXPECT_EQ(course.good_steps, 0U);
  EXPECT_EQ(course.updates, schedule::kGoodSteps + 1);
  course = {0, schedule::kLargestLossScale, schedule::kGoodSteps - 1};
  EXPECT_EQ(after_update(course).loss_scale, schedule::kLargestLossScale);
}

TEST(LossScaleCourse, Multiplier_IsAPowerOfTwoOverTheTargets) {
  EXPECT_EQ(schedule::multiplier_of(65536, 1), 65536);
  EXPECT_EQ(schedule::multiplier_of(65536, 1000), 128);
  EXPECT_EQ(schedule::multiplier_of(65536, 1024), 64);
}

INSTANTIATE_TEST_SUITE_P(Methods, LossScale,
                         testing::Values(Variant{"full_tied", false, DType::kFloat16, true},
                                         Variant{"full", false, DType::kFloat16, false},
                                         Variant{"full_head_in_parts", false, DType::kFloat16, false, 16, false,
                                                 devices::Encoding::kPlain, 13},
                                         Variant{"lora", true, DType::kFloat16, false}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
