// Schedules as data: each does all the work in an order that ends, and has the bubble that its paper gives.
#include "rondo/partition/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "scene.h"

namespace rondo::partition {
namespace {

using testing::HasSubstr;

/// Every piece of a stage takes a unit of time: a backward two.
std::vector<StageSeconds> even(const PipelineSchedule& schedule, double forward = 1) {
  return std::vector<StageSeconds>(schedule.device_of_stage.size(), {forward, 2 * forward, forward, forward});
}

PipelineRun run_even(const PipelineSchedule& schedule) {
  return run(schedule, even(schedule), 0, std::vector<double>(schedule.device_of_stage.size(), 1.0));
}

std::vector<PipelineSchedule> all_schedules(std::uint32_t devices, std::uint32_t microbatches) {
  return {gpipe(devices, microbatches),
          one_f_one_b(devices, microbatches),
          interleaved(devices, microbatches, 3),
          looped_breadth_first(devices, microbatches, 3),
          zb_h1(devices, microbatches),
          zb_v(devices, microbatches),
          roundpipe(devices, microbatches, 5, 7, true),
          roundpipe(devices, microbatches, 5, 7, false)};
}

/// p devices, m microbatches.
class LikeDevices : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {
 protected:
  std::uint32_t p() const { return std::get<0>(GetParam()); }
  std::uint32_t m() const { return std::get<0>(GetParam()) * std::get<1>(GetParam()); }
  double edges() const { return p() - 1.0; }
  double count() const { return m(); }
};

TEST_P(LikeDevices, AllSchedules_AreValid) {
  for (const PipelineSchedule& schedule : all_schedules(p(), m())) {
    EXPECT_TRUE(validate(schedule).ok()) << validate(schedule);
  }
}

TEST_P(LikeDevices, GPipe_BubbleIsClosedForm) {
  const PipelineRun result = run_even(gpipe(p(), m()));
  EXPECT_NEAR(result.bubble, edges() / (count() + edges()), 1e-12);
  EXPECT_EQ(result.most_held[0], m());
}

TEST_P(LikeDevices, OneForwardOneBackward_BubbleOfGPipeAndMemoryOfThePipeline) {
  const PipelineRun result = run_even(one_f_one_b(p(), m()));
  EXPECT_NEAR(result.bubble, edges() / (count() + edges()), 1e-12);
  for (std::uint32_t d = 0; d < p(); ++d) EXPECT_EQ(result.most_held[d], std::min(p() - d, m())) << "stage " << d;
}

TEST_P(LikeDevices, Interleaved_BubbleIsDividedByTheChunks) {
  for (const std::uint32_t v : {1U, 2U, 4U}) {
    const PipelineRun result = run_even(interleaved(p(), m(), v));
    EXPECT_NEAR(result.bubble, edges() / (v * count() + edges()), 1e-12) << v << " chunks";
  }
}

TEST_P(LikeDevices, LoopedBreadthFirst_BubbleIsDividedByTheChunksAndAllIsHeld) {
  for (const std::uint32_t v : {2U, 4U}) {
    const PipelineRun result = run_even(looped_breadth_first(p(), m(), v));
    EXPECT_NEAR(result.bubble, edges() / (v * count() + edges()), 1e-12) << v << " chunks";
    EXPECT_EQ(result.most_weighed[0], v * count());
  }
}

TEST_P(LikeDevices, ZeroBubbleH1_ThirdOfTheBubbleInTheMemoryOf1F1B) {
  const PipelineRun result = run_even(zb_h1(p(), m()));
  EXPECT_NEAR(result.bubble, edges() / (3 * count() + edges()), 1e-12);
  for (std::uint32_t d = 0; d < p(); ++d) EXPECT_LE(result.most_held[d], p()) << "stage " << d;
}

TEST_P(LikeDevices, ZeroBubbleV_OnlyTheStartIsIdleInTheMemoryOf1F1B) {
  // Stages are half as large: what 1F1B holds of p microbatches is what 2 p of them take here.
  const PipelineRun result = run_even(zb_v(p(), m()));
  EXPECT_NEAR(result.bubble, edges() / (6 * count() + edges()), 1e-12);
  for (std::uint32_t d = 0; d < p(); ++d) EXPECT_LE(result.most_weighed[d], 2 * p()) << "device " << d;
}

/// Recomputation makes a backward longer than its weight gradients; the deepest stage has the head and no forward of
/// its own. Made for these times, an order is at most 2% behind the one for equal pieces, and in the same memory.
TEST_P(LikeDevices, ZeroBubble_MadeForTheStagesOwnTimes_IsQuicker) {
  const auto unlike = [](std::size_t stages) {
    std::vector<StageSeconds> seconds(stages, {1, 3, 2, 1});
    seconds.back() = {0, 3.5, 2.5, 1};
    return seconds;
  };
  for (const auto& make : {zb_h1, zb_v}) {
    const PipelineSchedule equal = make(p(), m(), {});
    const std::size_t stages = equal.device_of_stage.size();
    const PipelineSchedule fitted = make(p(), m(), unlike(stages));
    EXPECT_TRUE(validate(fitted).ok()) << validate(fitted);
    const std::vector<double> weights(stages, 1.0);
    const PipelineRun of_equal = run(equal, unlike(stages), 0, weights);
    const PipelineRun of_fitted = run(fitted, unlike(stages), 0, weights);
    EXPECT_LE(of_fitted.seconds, of_equal.seconds * 1.02) << fitted.name;
    for (std::uint32_t d = 0; d < p(); ++d) EXPECT_LE(of_fitted.most_weighed[d], stages) << fitted.name;
    if (fitted.name == "zb_v" && p() > 1) {
      EXPECT_LT(of_fitted.bubble, of_equal.bubble);
    }
  }
}

TEST_P(LikeDevices, RoundPipe_BubbleIsThePublishedOne) {
  // A number of visits that the devices share evenly.
  const std::uint32_t forward = p();
  for (const bool fused : {true, false}) {
    const std::uint32_t backward = 2 * p() - (fused ? 1 : 2);
    const PipelineRun result = run_even(roundpipe(p(), m(), forward, backward, fused));
    const double visits = 3.0 * p();
    EXPECT_NEAR(result.bubble, p() * edges() / (count() * visits + p() * edges()), 1e-12) << "fused " << fused;
  }
}

INSTANTIATE_TEST_SUITE_P(Pools, LikeDevices,
                         testing::Combine(testing::Values(1U, 2U, 3U, 4U, 8U), testing::Values(1U, 2U, 5U)));

TEST(PipelineRun, SlowHops_DelayEveryStageButNotTheSameDevice) {
  const PipelineSchedule schedule = gpipe(2, 1);
  EXPECT_DOUBLE_EQ(run(schedule, even(schedule), 0.5, {1, 1}).seconds, 1 + 0.5 + 1 + 2 + 0.5 + 2);
  const PipelineSchedule alone = looped_breadth_first(1, 1, 2);
  EXPECT_DOUBLE_EQ(run(alone, even(alone), 0.5, {1, 1}).seconds, 6);
}

TEST(PipelineRun, UnlikeStages_TheSlowestSetsThePace) {
  const PipelineSchedule schedule = gpipe(2, 10);
  const PipelineRun result = run(schedule, {{1, 2, 1, 1}, {3, 6, 3, 3}}, 0, {1, 1});
  EXPECT_DOUBLE_EQ(result.seconds, 1 + 10 * 9 + 2);
  EXPECT_DOUBLE_EQ(result.busy[0], 30);
}

class BadSchedule : public testing::Test {
 protected:
  std::string message() const { return std::string(validate(schedule_).message()); }
  PipelineSchedule schedule_ = one_f_one_b(2, 4);
};

TEST_F(BadSchedule, PieceMissing_NamesStageAndMicrobatch) {
  schedule_.orders[1].pop_back();
  EXPECT_THAT(message(), HasSubstr("stage 1 does not go through microbatch 3"));
}

TEST_F(BadSchedule, PieceTwice_IsRefused) {
  schedule_.orders[1].push_back(schedule_.orders[1].back());
  EXPECT_THAT(message(), HasSubstr("stage 1 does not go through microbatch 3"));
}

TEST_F(BadSchedule, PieceOfAnotherDevice_IsRefused) {
  schedule_.orders[0][0].stage = 1;
  EXPECT_THAT(message(), HasSubstr("device 0 has a forward of stage 1"));
}

TEST_F(BadSchedule, BackwardBeforeItsForward_WaitsForEver) {
  std::swap(schedule_.orders[1][0], schedule_.orders[1][1]);
  EXPECT_THAT(message(), HasSubstr("waits for ever"));
}

TEST(EvenStages, Blocks_AreNotCutAndDifferByOne) {
  const Scene scene = make_scene(22, 4);  // 11 blocks of two layers
  const auto stages = even_stages(scene.model, 4);
  ASSERT_EQ(stages.size(), 4U);
  EXPECT_EQ(stages.front().first, 0U);
  EXPECT_EQ(stages.back().last, 23U);
  LayerIndex next = 0;
  for (const StageLayers& stage : stages) {
    EXPECT_EQ(stage.first, next);
    next = stage.last + 1;
    const LayerIndex inner = stage.last - stage.first + 1 - (stage.first == 0 ? 1 : 0) - (stage.last == 23 ? 1 : 0);
    EXPECT_TRUE(inner == 4 || inner == 6) << inner;
  }
  EXPECT_TRUE(even_stages(scene.model, 23).empty());
}

class Compare : public testing::Test {
 protected:
  Compare() : scene_(make_scene(30, 16)) {
    for (int i = 0; i < 4; ++i) add_device(scene_, 1e12);
  }
  std::vector<ComparedSchedule> rows() {
    const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return compare(*plan, scene_.model, scene_.work, scene_.machine);
  }
  static const ComparedSchedule& find(const std::vector<ComparedSchedule>& rows, const char* name) {
    return *std::ranges::find(rows, name, &ComparedSchedule::name);
  }
  Scene scene_;
};

TEST_F(Compare, LikeDevices_EveryScheduleIsThereAndFits) {
  const auto rows = this->rows();
  for (const char* name : {"roundpipe", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_v"}) {
    ASSERT_TRUE(std::ranges::count(rows, name, &ComparedSchedule::name) == 1) << name;
    EXPECT_TRUE(find(rows, name).fits) << name;
    EXPECT_GT(find(rows, name).tokens_per_second, 0) << name;
  }
  EXPECT_LT(find(rows, "interleaved").bubble, find(rows, "1f1b").bubble);
  EXPECT_LT(find(rows, "1f1b").peak_bytes, find(rows, "gpipe").peak_bytes);
}

TEST_F(Compare, LittleMemory_PublishedSchedulesDoNotFit) {
  for (DeviceShape& device : scene_.machine.devices) device.budget_bytes = 40 * kMiB;
  const auto rows = this->rows();
  EXPECT_TRUE(find(rows, "roundpipe").fits);
  EXPECT_FALSE(find(rows, "1f1b").fits);
  EXPECT_GT(find(rows, "1f1b").peak_bytes, 40 * kMiB);
}

TEST_F(Compare, UnlikeDevices_EvenStagesWaitForTheSlowest) {
  scene_.machine.devices.clear();
  for (const double speed : {1e12, 1e12, 5e11, 5e11}) add_device(scene_, speed);
  const auto rows = this->rows();
  EXPECT_GT(find(rows, "roundpipe").tokens_per_second, 1.3 * find(rows, "1f1b").tokens_per_second);
}

TEST_F(Compare, FirstStageOnTheOptimizersProcessor_WaitsForEveryUpdate) {
  // Updates of all layers take 20 ms, less than the first microbatch's way through the cards.
  scene_.machine.host.optimizer_parameters_per_second = 50.0 * static_cast<double>(scene_.work.trained_parameters);
  const auto step = [&] {
    return scene_.work.mean_tokens * scene_.work.microbatches / find(rows(), "1f1b").tokens_per_second;
  };
  const double on_cards = step();
  scene_.machine.devices.front().on_host = true;
  const double first = even_stages(scene_.model, 4).front().last + 1;
  EXPECT_NEAR(step() - on_cards, 0.02 * (1 - first / 32), 1e-6);
}

}  // namespace
}  // namespace rondo::partition
