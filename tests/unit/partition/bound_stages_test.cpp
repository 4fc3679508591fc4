// Published schedules carried out by visits: each device follows its order, the step takes the schedule's own time, and
// reduction groups that go on from visit to visit have memory for their sums.
#include "bound_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "rondo/partition/layout.h"
#include "rondo/partition/schedules.h"
#include "scene.h"

namespace rondo::partition {
namespace {

using testing::HasSubstr;

constexpr LayerIndex kBlocks = 24;

/// Devices, microbatches, reduction group, stages a device.
using Case = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

class OneAfterTheOther : public testing::TestWithParam<Case> {
 protected:
  OneAfterTheOther() : scene_(make_scene(kBlocks, microbatches())) {
    scene_.work.reduction_group = std::get<2>(GetParam());
    for (std::uint32_t i = 0; i < devices(); ++i) add_device(scene_, 1e12);
  }
  static std::uint32_t devices() { return std::get<0>(GetParam()); }
  static std::uint32_t microbatches() { return std::get<1>(GetParam()); }
  static std::uint32_t chunks() { return std::get<3>(GetParam()); }

  static PipelineSchedule schedule() {
    return chunks() == 1 ? one_f_one_b(devices(), microbatches()) : interleaved(devices(), microbatches(), chunks());
  }

  /// One microbatch a round.
  Plan plan() const {
    Plan plan;
    plan.reduction_group = scene_.work.reduction_group;
    for (std::uint32_t m = 0; m < microbatches(); ++m) plan.rounds.push_back({m, 1});
    std::vector<DeviceIndex> order(devices());
    std::iota(order.begin(), order.end(), 0U);
    const TimeTable times(scene_.model, scene_.work, scene_.machine, plan.keep, {});
    const auto stages = BoundStages::make(scene_.model, times, order, chunks());
    EXPECT_TRUE(stages.has_value());
    if (stages) plan.slots = stages->following(schedule(), plan.rounds, scene_.work);
    return plan;
  }

  Scene scene_;
};

TEST_P(OneAfterTheOther, Plan_IsLawful) {
  const absl::Status status = validate(plan(), scene_.model, scene_.work, scene_.machine);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(OneAfterTheOther, EveryDevice_FollowsTheSchedule) {
  const auto layers = even_stages(scene_.model, std::size_t{devices()} * chunks());
  using Visit = std::tuple<SlotPhase, LayerIndex, std::uint32_t>;  // last layer, round
  std::vector<std::vector<Visit>> orders(devices());
  for (const Slot& slot : plan().slots) orders[slot.device].emplace_back(slot.phase, slot.last_layer, slot.round);
  const PipelineSchedule wanted = schedule();
  for (DeviceIndex device = 0; device < devices(); ++device) {
    std::vector<Visit> order;
    for (const PipelineOp& piece : wanted.orders[device]) {
      const bool deepest = piece.stage + 1 == layers.size();
      const bool forward = piece.work == Work::kForward;
      if (deepest && forward) continue;
      const SlotPhase phase = deepest ? SlotPhase::kFused : forward ? SlotPhase::kForward : SlotPhase::kBackward;
      order.emplace_back(phase, layers[piece.stage].last, piece.microbatch);
    }
    EXPECT_EQ(orders[device], order) << "device " << device;
  }
}

TEST_P(OneAfterTheOther, StepTakesTheSchedulesOwnTime) {
  const Plan plan = this->plan();
  const auto layers = even_stages(scene_.model, std::size_t{devices()} * chunks());
  std::vector<StageSeconds> seconds(layers.size());
  for (const Slot& slot : plan.slots) {
    const auto stage = std::ranges::find(layers, slot.last_layer, &StageLayers::last) - layers.begin();
    StageSeconds& of_stage = seconds[static_cast<std::size_t>(stage)];
    (slot.phase == SlotPhase::kForward ? of_stage.forward : of_stage.backward) = slot.seconds;
  }
  const double alone = run(schedule(), seconds, 0, std::vector<double>(seconds.size(), 1.0)).seconds;
  const double step = simulate(plan, scene_.model, scene_.work, scene_.machine, 3).prediction.step_seconds;
  EXPECT_NEAR(step, alone, 1e-9 * alone);
}

TEST_P(OneAfterTheOther, SumsOfGroupsUnderWay_HaveMemory) {
  const Plan plan = this->plan();
  for (DeviceIndex device = 0; device < devices(); ++device) {
    std::map<std::pair<SlotPhase, LayerIndex>, std::uint32_t> seen;  // microbatches of the stage
    std::uint32_t growing = 0;
    std::uint32_t most = 1;
    for (const Slot& slot : plan.slots) {
      if (slot.device != device || slot.phase == SlotPhase::kForward) continue;
      std::uint32_t& count = seen[{slot.phase, slot.first_layer}];
      if (count++ % scene_.work.reduction_group == 0) ++growing;
      most = std::max(most, growing);
      if (count % scene_.work.reduction_group == 0 || count == microbatches()) --growing;
    }
    EXPECT_EQ(groups_at_a_time(plan.slots, device), most + 1) << "device " << device;
    EXPECT_EQ(layout_device(scene_.model, scene_.work, scene_.machine.devices[device], device, plan.slots, plan.keep)
                  .gradient_buffers,
              most + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OneAfterTheOther,
                         testing::Values(Case{2, 6, 1, 1}, Case{2, 6, 6, 1}, Case{3, 7, 4, 1}, Case{4, 16, 16, 1},
                                         Case{4, 3, 1, 1}, Case{8, 24, 4, 1}, Case{2, 6, 1, 2}, Case{2, 8, 4, 2},
                                         Case{4, 8, 8, 2}, Case{4, 16, 2, 3}, Case{3, 12, 12, 4}),
                         [](const testing::TestParamInfo<Case>& one) {
                           return std::to_string(std::get<0>(one.param)) + "_devices_" +
                                  std::to_string(std::get<1>(one.param)) + "_microbatches_in_groups_of_" +
                                  std::to_string(std::get<2>(one.param)) + "_over_" +
                                  std::to_string(std::get<3>(one.param)) + "_stages";
                         });

class BoundStagesPlan : public testing::Test {
 protected:
  BoundStagesPlan() { use(8, 1); }
  void use(std::uint32_t microbatches, std::uint32_t group) {
    scene_ = make_scene(kBlocks, microbatches);
    scene_.work.reduction_group = group;
    for (int i = 0; i < 4; ++i) add_device(scene_, 1e12);
    request_.schedule = Schedule::kOneFOneB;
    auto made = make_plan(scene_.model, scene_.work, scene_.machine, request_);
    ASSERT_TRUE(made.ok()) << made.status();
    plan_ = *std::move(made);
  }
  std::string refusal() const {
    return std::string(validate(plan_, scene_.model, scene_.work, scene_.machine).message());
  }
  std::uint32_t rounds_under_way() const { return layout_boundaries(scene_.model, plan_.slots, plan_.rounds).rounds; }

  Scene scene_;
  PlanRequest request_;
  Plan plan_;
};

TEST_F(BoundStagesPlan, WithoutAWish_RoundsAreAsShortAsTheyGo) {
  use(16, 16);
  EXPECT_EQ(plan_.rounds.size(), 16U);
}

/// The promise of one forward, one backward: boundaries of as many microbatches as devices, and one in reserve.
TEST_F(BoundStagesPlan, GroupsOfOne_KeepBoundariesOfTheDevicesInFlight) {
  use(16, 1);
  EXPECT_EQ(rounds_under_way(), 5U);
}

/// Until its gradients are home, any of its microbatches may have to be run again.
TEST_F(BoundStagesPlan, LongGroups_KeepBoundariesUntilTheyAreHome) {
  use(16, 4);
  EXPECT_EQ(rounds_under_way(), 8U);
  use(16, 16);
  EXPECT_EQ(rounds_under_way(), 16U);
}

TEST_F(BoundStagesPlan, MoreWeightsThanMemory_MakesRoundsLonger) {
  use(16, 16);
  for (DeviceShape& device : scene_.machine.devices) {
    device.budget_bytes = total_of(device_memory(scene_.model, scene_.work, device, 1, plan_.slots, plan_.keep)) + kMiB;
    device.profile.link_up = device.profile.link_down = 5e8;
  }
  const auto made = make_plan(scene_.model, scene_.work, scene_.machine, request_);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_LT(made->rounds.size(), 16U);
}

TEST_F(BoundStagesPlan, InterleavedWithAnOddNumber_TakesDevicesThatDivideIt) {
  request_.schedule = Schedule::kInterleaved;
  scene_ = make_scene(kBlocks, 6);
  scene_.work.reduction_group = 1;
  for (int i = 0; i < 4; ++i) add_device(scene_, 1e12);
  request_.microbatches_per_round = 1;
  const auto made = make_plan(scene_.model, scene_.work, scene_.machine, request_);
  ASSERT_TRUE(made.ok()) << made.status();
  std::map<DeviceIndex, int> used;
  for (const Slot& slot : made->slots) ++used[slot.device];
  EXPECT_EQ(used.size(), 3U);
}

TEST_F(BoundStagesPlan, GroupThatGoesOnElsewhere_IsRefused) {
  use(8, 8);
  const auto back = std::ranges::find_if(
      plan_.slots, [](const Slot& slot) { return slot.phase == SlotPhase::kBackward && slot.round == 3; });
  ASSERT_NE(back, plan_.slots.end());
  back->device = (back->device + 1) % 4;
  EXPECT_THAT(refusal(), HasSubstr("goes on with a reduction group of other layers or of another device"));
}

TEST_F(BoundStagesPlan, GroupThatEndsInItsMiddle_IsRefused) {
  use(8, 8);
  const auto back =
      std::ranges::find_if(plan_.slots, [](const Slot& slot) { return slot.phase == SlotPhase::kBackward; });
  back->group_goes_on = false;
  EXPECT_THAT(refusal(), HasSubstr("ends its reduction group though its round ends at microbatch 1"));
}

TEST_F(BoundStagesPlan, BackwardsOutOfOrder_AreRefused) {
  // The last piece of a round, to the end of the step: nothing waits for it but the sum.
  const auto last = std::ranges::find_if(plan_.slots, [](const Slot& slot) {
    return slot.phase == SlotPhase::kBackward && slot.device == 0 && slot.round == 3;
  });
  ASSERT_NE(last, plan_.slots.end());
  std::rotate(last, last + 1, plan_.slots.end());
  EXPECT_THAT(refusal(), HasSubstr("after those of a later round"));
}

}  // namespace
}  // namespace rondo::partition
