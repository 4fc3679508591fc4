// A plan that is dealt once more on a machine whose speeds are known otherwise.
#include "rondo/partition/repeat.h"

#include <gmock/gmock.h>

#include "scene.h"

namespace rondo::partition {
namespace {

using testing::HasSubstr;

std::string places_of(const Plan& plan) {
  std::string all;
  for (const Slot& slot : plan.slots) {
    all += std::string(name_of(slot.phase)) + " " + std::to_string(slot.first_layer) + "-" +
           std::to_string(slot.last_layer) + " on " + std::to_string(slot.device) + " in " +
           std::to_string(slot.round) + "\n";
  }
  return all;
}

class RepeatPlan : public testing::TestWithParam<Schedule> {
 protected:
  RepeatPlan() {
    add_device(scene_, 1e12);
    add_device(scene_, 4e11);
    scene_.work.reduction_group = 2;
    request_.schedule = GetParam();
  }
  Plan made() const {
    auto plan = make_plan(scene_.model, scene_.work, scene_.machine, request_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : Plan();
  }
  absl::StatusOr<Plan> repeated(const Plan& plan) const {
    return repeat_plan(plan, scene_.model, scene_.work, scene_.machine);
  }

  Scene scene_ = make_scene(8, 8);
  PlanRequest request_;
};

TEST_P(RepeatPlan, OnTheSameMachine_IsThePlan) {
  const Plan plan = made();
  const auto again = repeated(plan);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(places_of(*again), places_of(plan));
  EXPECT_DOUBLE_EQ(again->predicted.step_seconds, plan.predicted.step_seconds);
  EXPECT_EQ(again->host_peak_bytes, plan.host_peak_bytes);
  EXPECT_EQ(again->resident, plan.resident);
  for (DeviceIndex i = 0; i < 2; ++i) EXPECT_EQ(again->devices[i].peak_bytes, plan.devices[i].peak_bytes);
}

TEST_P(RepeatPlan, WithOtherSpeeds_KeepsEverySlotAndPredictsAnew) {
  const Plan plan = made();
  for (auto& [dtype, flops] : scene_.machine.devices[0].profile.flops) flops /= 20;
  EXPECT_NE(places_of(made()), places_of(plan)) << "the speeds make no difference";
  const auto again = repeated(plan);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(places_of(*again), places_of(plan));
  EXPECT_GT(again->predicted.step_seconds, 2 * plan.predicted.step_seconds);
}

TEST_P(RepeatPlan, WhatIsNoPlan_IsRefused) {
  const Plan plan = made();
  const auto refused = [&](const auto& change) {
    Plan other = plan;
    change(other);
    return !repeated(other).ok();
  };
  EXPECT_TRUE(refused([](Plan& other) { other.slots.pop_back(); }));
  EXPECT_TRUE(refused([](Plan& other) { other.slots[0].device = 2; }));
  EXPECT_TRUE(refused([](Plan& other) { other.slots.back().last_layer = 1000; }));
  EXPECT_TRUE(refused([](Plan& other) { other.slots.back().round = 1000; }));
  EXPECT_TRUE(refused([](Plan& other) { other.rounds.pop_back(); }));
  EXPECT_TRUE(refused([](Plan& other) { other = {}; }));
}

TEST_P(RepeatPlan, WithoutRoomForIt_NamesTheDevice) {
  const Plan plan = made();
  scene_.machine.devices[0].budget_bytes = kMiB;
  const auto again = repeated(plan);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(again.status().message(), HasSubstr("device 0"));
}

INSTANTIATE_TEST_SUITE_P(Schedules, RepeatPlan,
                         testing::Values(Schedule::kRoundPipe, Schedule::kOneFOneB, Schedule::kInterleaved,
                                         Schedule::kZeroBubbleV));

}  // namespace
}  // namespace rondo::partition
