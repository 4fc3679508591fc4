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
    const TimeTable times(scene_.model, scene_.work, scene_.machine, plan.keep, {});
    const auto stages = BoundStages::make(scene_.model, times, schedule().device_of_stage);
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

/// Of backwards in halves: schedule, devices, microbatches, reduction group.
using HalvesCase = std::tuple<Schedule, std::uint32_t, std::uint32_t, std::uint32_t>;

class InHalves : public testing::TestWithParam<HalvesCase> {
 protected:
  InHalves() : scene_(make_scene(kBlocks, microbatches())) {
    scene_.work.reduction_group = group();
    for (std::uint32_t i = 0; i < devices(); ++i) add_device(scene_, 1e12);
    PlanRequest request;
    request.keep = Keep::kSelective;
    request.schedule = std::get<0>(GetParam());
    auto made = make_plan(scene_.model, scene_.work, scene_.machine, request);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) plan_ = *std::move(made);
  }
  static std::uint32_t devices() { return std::get<1>(GetParam()); }
  static std::uint32_t microbatches() { return std::get<2>(GetParam()); }
  static std::uint32_t group() { return std::get<3>(GetParam()); }
  static PipelineSchedule schedule(const std::vector<StageSeconds>& seconds = {}) {
    return std::get<0>(GetParam()) == Schedule::kZeroBubbleH1 ? zb_h1(devices(), microbatches(), seconds)
                                                              : zb_v(devices(), microbatches(), seconds);
  }
  /// The schedule's pieces in the plan's times: in the published order or the one that these times make.
  double alone() const {
    const auto layers = even_stages(scene_.model, schedule().device_of_stage.size());
    std::vector<StageSeconds> seconds(layers.size());
    for (const Slot& slot : plan_.slots) {
      const auto stage = std::ranges::find(layers, slot.last_layer, &StageLayers::last) - layers.begin();
      StageSeconds& of_stage = seconds[static_cast<std::size_t>(stage)];
      if (slot.phase == SlotPhase::kForward) of_stage.forward = slot.seconds;
      if (goes_back(slot)) of_stage.input_gradient = slot.seconds;
      if (catches_up(slot)) of_stage.weight_gradient = slot.seconds;
    }
    const std::vector<double> weights(seconds.size(), 1.0);
    return std::min(run(schedule(), seconds, 0, weights).seconds, run(schedule(seconds), seconds, 0, weights).seconds);
  }

  Scene scene_;
  Plan plan_;
};

TEST_P(InHalves, EveryWeightGradient_ComesOnceAfterItsOtherHalf) {
  std::map<std::pair<LayerIndex, std::uint32_t>, int> waiting;  // last layer, round
  std::size_t deferred = 0;
  for (const Slot& slot : plan_.slots) {
    int& count = waiting[{slot.last_layer, slot.round}];
    if (slot.defers_weights) ++count, ++deferred;
    if (catches_up(slot)) {
      EXPECT_EQ(count--, 1);
    }
  }
  EXPECT_EQ(deferred, schedule().device_of_stage.size() * microbatches());
  for (const auto& [key, count] : waiting) EXPECT_EQ(count, 0);
}

/// Weight gradients at the end of a group delay others, and no more than a few of them a group.
TEST_P(InHalves, SeveralGroups_StepTakesLittleLonger) {
  const double longest = alone() * (1 + 0.5 * static_cast<double>(devices()) / group());
  EXPECT_LT(plan_.predicted.step_seconds, longest);
}

using InHalvesOfOneGroup = InHalves;
TEST_P(InHalvesOfOneGroup, StepTakesTheSchedulesOwnTime) {
  EXPECT_NEAR(plan_.predicted.step_seconds, alone(), 1e-9 * alone());
}

/// What is left for later lies at a place of its own until it is taken.
TEST_P(InHalves, PlacesForWhatIsHeld_AreNeverSharedAndAsFewAsMayBe) {
  const std::vector<std::uint32_t> places = held_places(plan_.slots);
  for (DeviceIndex device = 0; device < devices(); ++device) {
    std::map<std::uint32_t, std::pair<LayerIndex, std::uint32_t>> taken;
    std::size_t most = 0;
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      if (slot.device != device) continue;
      const std::pair<LayerIndex, std::uint32_t> what = {slot.last_layer, slot.round};
      if (slot.defers_weights) {
        EXPECT_TRUE(taken.try_emplace(places[i], what).second);
        most = std::max(most, taken.size());
      } else if (catches_up(slot)) {
        EXPECT_EQ(taken.at(places[i]), what);
        taken.erase(places[i]);
      } else {
        EXPECT_EQ(places[i], kNoSlot);
      }
    }
    EXPECT_EQ(layout_device(scene_.model, scene_.work, scene_.machine.devices[device], device, plan_.slots, plan_.keep)
                  .held_places,
              most);
    EXPECT_LE(most, 2 * devices()) << "the memory of one forward, one backward";
  }
}

std::string name_of_case(const testing::TestParamInfo<HalvesCase>& one) {
  const auto& [schedule, devices, microbatches, group] = one.param;
  return std::string(name_of(schedule)) + "_over_" + std::to_string(devices) + "_devices_" +
         std::to_string(microbatches) + "_microbatches_in_groups_of_" + std::to_string(group);
}

constexpr Schedule kInHalves[] = {Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV};
INSTANTIATE_TEST_SUITE_P(Cases, InHalves,
                         testing::Combine(testing::ValuesIn(kInHalves), testing::Values(1U, 2U, 4U, 6U),
                                          testing::Values(12U, 16U), testing::Values(4U, 16U)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Cases, InHalvesOfOneGroup,
                         testing::Combine(testing::ValuesIn(kInHalves), testing::Values(1U, 2U, 4U, 6U),
                                          testing::Values(12U, 16U), testing::Values(16U)),
                         name_of_case);

class BoundStagesPlan : public testing::Test {
 protected:
  BoundStagesPlan() {
    request_.schedule = Schedule::kOneFOneB;
    use(8, 1);
  }
  void use(std::uint32_t microbatches, std::uint32_t group) {
    scene_ = make_scene(kBlocks, microbatches);
    scene_.work.reduction_group = group;
    for (int i = 0; i < 4; ++i) add_device(scene_, 1e12);
    auto made = make_plan(scene_.model, scene_.work, scene_.machine, request_);
    ASSERT_TRUE(made.ok()) << made.status();
    plan_ = *std::move(made);
  }
  std::string refusal() const {
    return std::string(validate(plan_, scene_.model, scene_.work, scene_.machine).message());
  }
  std::uint32_t rounds_under_way() const { return layout_boundaries(scene_.model, plan_.slots, plan_.rounds).rounds; }

  using Slots = std::vector<Slot>::iterator;
  /// The first slot of a device that catches up with a round.
  Slots catching_up(DeviceIndex device, std::uint32_t round) {
    return std::ranges::find_if(plan_.slots, [&](const Slot& slot) {
      return catches_up(slot) && slot.device == device && slot.round == round;
    });
  }

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

TEST_F(BoundStagesPlan, BackwardInHalves_IsQuickerThanInOne) {
  use(16, 16);
  const double whole = plan_.predicted.step_seconds;
  request_.schedule = Schedule::kZeroBubbleH1;
  use(16, 16);
  EXPECT_LT(plan_.predicted.step_seconds, whole);
  EXPECT_LT(plan_.predicted.bubble, 0.7 * (1 - 16.0 / (16 + 3)));
}

/// A frozen stage has nothing to defer, and goes back in one.
TEST_F(BoundStagesPlan, NothingToDefer_GoesBackInOne) {
  request_.schedule = Schedule::kZeroBubbleH1;
  scene_ = make_scene(kBlocks, 8);
  scene_.work.reduction_group = 8;
  for (LayerIndex i = 1; i <= 6; ++i) scene_.model.layers[i].weight_gradients.ops.clear();
  for (int i = 0; i < 4; ++i) add_device(scene_, 1e12);
  const auto made = make_plan(scene_.model, scene_.work, scene_.machine, request_);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const Slot& slot : made->slots) {
    if (goes_back(slot)) {
      EXPECT_EQ(slot.defers_weights, slot.first_layer > 1) << slot.first_layer;
    }
  }
}

TEST_F(BoundStagesPlan, DeferredAndForgotten_IsRefused) {
  request_.schedule = Schedule::kZeroBubbleH1;
  use(8, 8);
  plan_.slots.erase(catching_up(2, 7));
  EXPECT_THAT(refusal(), HasSubstr("the weight gradients of layers 13 to 18 in round 7 are never added"));
}

TEST_F(BoundStagesPlan, CaughtUpTwice_IsRefused) {
  request_.schedule = Schedule::kZeroBubbleH1;
  use(8, 8);
  const Slot slot = *catching_up(1, 4);
  plan_.slots.push_back(slot);
  EXPECT_THAT(refusal(), HasSubstr("has weight gradients of round 4 to add that no slot of its device left"));
}

TEST_F(BoundStagesPlan, CaughtUpElsewhere_IsRefused) {
  request_.schedule = Schedule::kZeroBubbleH1;
  use(8, 8);
  catching_up(1, 4)->device = 2;
  EXPECT_THAT(refusal(), HasSubstr("has weight gradients of round 4 to add that no slot of its device left"));
}

TEST_F(BoundStagesPlan, NextGroupBeforeTheWeights_IsRefused) {
  request_.schedule = Schedule::kZeroBubbleH1;
  use(8, 4);
  const auto late = catching_up(3, 3);
  ASSERT_NE(late, plan_.slots.end());
  std::rotate(late, late + 1, plan_.slots.end());
  EXPECT_THAT(refusal(), HasSubstr("adds gradients before the weight gradients of round 3 are added"));
}

/// Link bytes a second.
class SlotsDealtFreely : public testing::TestWithParam<double> {};

/// They include the stages that stay on their devices, whose weights come once a step.
TEST_P(SlotsDealtFreely, TakeNoLongerThanStagesBoundToDevices) {
  for (const std::uint32_t devices : {2U, 3U, 4U}) {
    Scene scene = make_scene(kBlocks, 16, 4 * kLayerFlops);
    scene.work.reduction_group = 16;
    for (std::uint32_t i = 0; i < devices; ++i) {
      add_device(scene, 1e12);
      scene.machine.devices[i].profile.link_up = scene.machine.devices[i].profile.link_down = GetParam();
    }
    const auto step_seconds = [&](Schedule schedule) {
      PlanRequest request;
      request.schedule = schedule;
      const auto plan = make_plan(scene.model, scene.work, scene.machine, request);
      EXPECT_TRUE(plan.ok()) << plan.status();
      return plan.ok() ? plan->predicted.step_seconds : 0;
    };
    const double freely = step_seconds(Schedule::kRoundPipe);
    EXPECT_GT(freely, 0);
    for (const Schedule bound : {Schedule::kGPipe, Schedule::kLoopedBreadthFirst}) {
      EXPECT_LE(freely, step_seconds(bound)) << name_of(bound) << " of " << devices;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Links, SlotsDealtFreely, testing::Values(1e8, 3e8, 1e9, 3e9, 1e10));

}  // namespace
}  // namespace rondo::partition
