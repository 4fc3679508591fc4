// Learning rates are those of transformers' schedules, step by step.
#include "rondo/train/rate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace rondo::train {
namespace {

/// A case of tests/data/rates/rates.json.
RateSchedule schedule_of(const nlohmann::json& known, double peak) {
  RateSchedule schedule;
  schedule.kind = known["kind"].get<std::string>();
  schedule.peak = peak;
  schedule.warmup_steps = known["warmup"].get<std::uint64_t>();
  schedule.total_steps = known["total"].get<std::uint64_t>();
  std::string arguments;
  for (const auto& [name, value] : known["arguments"].items()) {
    arguments +=
        (arguments.empty() ? "" : ", ") + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  const absl::Status set = schedule.set_arguments(arguments);
  EXPECT_TRUE(set.ok()) << set;
  return schedule;
}

TEST(Rate, EveryStepOfEverySchedule_IsThatOfTransformers) {
  std::ifstream file(RONDO_TEST_DATA "/rates/rates.json");
  const nlohmann::json golden = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(golden.is_object());
  const auto peak = golden["learning_rate"].get<double>();
  std::set<std::string> kinds;
  for (const nlohmann::json& known : golden["cases"]) {
    SCOPED_TRACE(known["kind"].dump() + known["arguments"].dump() + " warmup " + known["warmup"].dump());
    kinds.insert(known["kind"].get<std::string>());
    const RateSchedule schedule = schedule_of(known, peak);
    const auto expected = known["rates"].get<std::vector<double>>();
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(schedule.at(step), expected[step], 1e-15 * peak) << "step " << step;
    }
  }
  EXPECT_EQ(kinds.size(), 8U);
}

TEST(Rate, WarmupLongerThanTheRun_StillRises) {
  const RateSchedule schedule{"linear", 1.0, 10, 4};
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.3);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.0);
}

TEST(ResolveWarmup, Ratio_IsRoundedUp) {
  EXPECT_EQ(resolve_warmup(0.0, 0, 100), 0U);
  EXPECT_EQ(resolve_warmup(0.1, 0, 25), 3U);
  EXPECT_EQ(resolve_warmup(0.03, 0, 100), 3U);
  EXPECT_EQ(resolve_warmup(1.0, 0, 7), 7U);
  // transformers multiplies in the same doubles: 0.07 * 100 lies above 7.
  EXPECT_EQ(resolve_warmup(0.07, 0, 100), 8U);
}

TEST(ResolveWarmup, Steps_WinOverTheRatio) {
  EXPECT_EQ(resolve_warmup(0.5, 2, 100), 2U);
  EXPECT_EQ(resolve_warmup(0.5, 0.031, 100), 4U);
}

TEST(ResolveSteps, BelowOne_AreAShareRoundedUp) {
  EXPECT_EQ(resolve_steps(0, 10), 0U);
  EXPECT_EQ(resolve_steps(0.01, 10), 1U);
  EXPECT_EQ(resolve_steps(0.25, 10), 3U);
  EXPECT_EQ(resolve_steps(0.5, 10), 5U);
  EXPECT_EQ(resolve_steps(1, 10), 1U);
  EXPECT_EQ(resolve_steps(500, 10), 500U);
}

}  // namespace
}  // namespace rondo::train
