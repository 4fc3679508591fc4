// The executor on timed pools: it does the plan's work in the plan's order. How fast is a measurement (timed_pools),
// not a test; the bounds here only catch an executor that does not overlap at all.
#include "timed_pool.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace rondo::timed {
namespace {

PoolSetup small(std::uint32_t devices) {
  PoolSetup setup;
  setup.devices = devices;
  setup.rounds = 2;
  setup.microbatches_per_round = 8;
  setup.steps = 3;
  setup.slot_seconds = 0.004;
  return setup;
}

class TimedPool : public testing::TestWithParam<std::uint32_t> {};

TEST_P(TimedPool, Simulate_EqualSlots_BubbleIsClosedFormAndCommit) {
  PoolSetup setup;
  setup.devices = GetParam();
  const auto scene = make_scene(setup);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const auto prediction = partition::simulate(scene->plan, scene->shape, scene->work, scene->machine, 3).prediction;
  const auto slots = static_cast<std::uint32_t>(scene->plan.slots.size());
  const double expected = closed_form(setup.devices, slots, setup.microbatches_per_round) +
                          prediction.commit_seconds / prediction.step_seconds;
  EXPECT_NEAR(prediction.bubble, expected, 0.003);
}

TEST_P(TimedPool, Run_EqualSlots_EverySlotRunsItsMicrobatchesInOrderOnItsDevice) {
  PoolSetup setup = small(GetParam());
  setup.trace = std::filesystem::path(testing::TempDir()) / ("timed" + std::to_string(GetParam()) + ".json");
  const auto scene = make_scene(setup);
  ASSERT_TRUE(scene.ok()) << scene.status();
  const auto outcome = run(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.status();

  std::ifstream file(setup.trace);
  const nlohmann::json trace = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(trace.is_object());
  std::map<std::size_t, std::string> names;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, double> begins;  // step, slot, microbatch
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["ph"] != "X" || event["tid"] != 0 || event["name"] == "clear") continue;
    const std::uint32_t slot = event["args"]["slot"];
    ASSERT_LT(slot, scene->plan.slots.size());
    EXPECT_EQ(names[event["pid"]], scene->plan.devices[scene->plan.slots[slot].device].name);
    begins.try_emplace({event["args"]["step"], slot, event["args"]["microbatch"]}, event["ts"]);
  }
  ASSERT_EQ(begins.size(), std::size_t{setup.steps} * outcome->slots * setup.microbatches_per_round);
  double before = -1;
  std::tuple<std::uint32_t, std::uint32_t> visit;
  for (const auto& [key, begin] : begins) {
    const auto [step, slot, microbatch] = key;
    if (visit == std::tuple(step, slot)) {
      EXPECT_GT(begin, before) << "step " << step << " slot " << slot << " microbatch " << microbatch;
    }
    visit = {step, slot};
    before = begin;
  }
}

TEST_P(TimedPool, Run_EqualSlots_SharesOfTheStepMakeUpItsBubble) {
  const auto outcome = run(small(GetParam()));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const Measured& measured = outcome->measured;
  EXPECT_NEAR(measured.bubble, measured.commit + measured.edges + measured.stalls, 1e-9);
  EXPECT_GT(measured.edges, 0);
  // Cards keep an ideal clock: nothing can be quicker than the work and the rotation's fill and drain.
  EXPECT_GT(measured.bubble, outcome->closed_form - 0.01);
}

INSTANTIATE_TEST_SUITE_P(LikeCards, TimedPool, testing::Values(2U, 4U, 8U));

}  // namespace
}  // namespace rondo::timed
