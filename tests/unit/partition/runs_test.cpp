// Plans of steps that overlap: slots that a device has one behind the other.
#include "runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "rounds.h"
#include "scene.h"

namespace rondo::partition {
namespace {

/// Forward from the lookup table to the fused slot, and back to the lowest layer that has a gradient.
void expect_complete(const std::vector<Slot>& slots, const TimeTable& times) {
  LayerIndex next = 0;
  std::size_t i = 0;
  for (; i < slots.size() && slots[i].phase == SlotPhase::kForward; ++i) {
    EXPECT_EQ(slots[i].first_layer, next);
    EXPECT_GT(slots[i].last_layer, 0U) << "a visit without FLOPs";
    next = slots[i].last_layer + 1;
  }
  ASSERT_LT(i, slots.size());
  const LayerIndex lowest =
      std::min(next, times.lowest_backward());  // a fused slot of all layers goes back to the table
  EXPECT_EQ(slots[i].phase, SlotPhase::kFused);
  EXPECT_EQ(slots[i].first_layer, next);
  EXPECT_EQ(slots[i].last_layer, times.layers() - 1);
  for (++i; i < slots.size(); ++i) {
    EXPECT_EQ(slots[i].phase, SlotPhase::kBackward);
    EXPECT_EQ(slots[i].last_layer + 1, next);
    next = slots[i].first_layer;
  }
  EXPECT_EQ(next, lowest);
}

TEST(DealInRuns, EachDevice_HasItsSlotsOneBehindTheOtherWithinTheLimit) {
  Scene scene = make_scene(14, 1, 3 * kLayerFlops);
  add_device(scene, 1e12);
  add_device(scene, 6e11);
  add_device(scene, 4e11, 12 * kMiB);  // holds a layer or two
  const TimeTable times(scene.model, scene.work, scene.machine, Keep::kSelective, {});
  for (const double limit : {0.05, 0.06, 0.08}) {
    const auto rounds = deal_in_runs(times, {0, 1, 2}, limit);
    ASSERT_FALSE(rounds.empty()) << limit;
    for (const std::vector<Slot>& slots : rounds) {
      expect_complete(slots, times);
      std::vector<double> seconds(3, 0.0);
      std::set<DeviceIndex> ended;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const DeviceIndex device = slots[i].device;
        seconds[device] += slots[i].seconds;
        EXPECT_TRUE(times.fits_memory(device, slots[i].phase, slots[i].first_layer, slots[i].last_layer));
        EXPECT_FALSE(ended.contains(device)) << "slot " << i << " of device " << device;
        if (i + 1 < slots.size() && slots[i + 1].device != device) ended.insert(device);
      }
      EXPECT_LE(*std::ranges::max_element(seconds), limit * kSlack);
    }
  }
  EXPECT_TRUE(deal_in_runs(times, {0, 1, 2}, 0.01).empty());
}

TEST(DealInRuns, OfLikeDevices_ThereIsOne) {
  Scene scene = make_scene(8, 1);
  for (int i = 0; i < 3; ++i) add_device(scene, 1e12);
  const TimeTable times(scene.model, scene.work, scene.machine, Keep::kSelective, {});
  EXPECT_EQ(deal_in_runs(times, {0, 1, 2}, 0.03).size(), 1U);
  add_device(scene, 7e11);
  const TimeTable unlike(scene.model, scene.work, scene.machine, Keep::kSelective, {});
  EXPECT_EQ(deal_in_runs(unlike, {0, 1, 2, 3}, 0.03).size(), 4U);
}

/// Of a device that holds all layers but the lookup table in its fused slot.
TEST(DealInRuns, LookupTable_IsNoVisitByItself) {
  for (Bytes budget = 8 * kMiB; budget < 200 * kMiB; budget += kMiB / 4) {
    Scene scene = make_scene(6, 1);
    for (int i = 0; i < 2; ++i) add_device(scene, 1e12, budget);
    const TimeTable times(scene.model, scene.work, scene.machine, Keep::kSelective, {});
    const LayerIndex last = times.layers() - 1;
    if (!times.fits_memory(0, SlotPhase::kFused, 1, last) || times.fits_memory(0, SlotPhase::kFused, 0, last)) continue;
    const auto rounds = deal_in_runs(times, {0, 1}, 1.0);
    ASSERT_EQ(rounds.size(), 1U);
    expect_complete(rounds[0], times);
    return;
  }
  FAIL() << "no budget is such";
}

TEST(Period, DeviceThatWaitsForAnotherOneBetweenItsSlots_TakesThatLong) {
  Scene scene = make_scene(2, 1);
  scene.work.boundary_bytes = scene.work.batch_bytes = 0;
  for (int i = 0; i < 2; ++i) add_device(scene, 1e12);
  StepEstimate estimate(scene.model, scene.work, scene.machine, StepEstimate::What::kEstimate);
  const std::vector<Round> rounds = rounds_of(scene.work, 1);
  const auto slots = [](DeviceIndex fused, DeviceIndex backward) {
    return std::vector<Slot>{{SlotPhase::kForward, 0, 1, 0, 0, 2.0},
                             {SlotPhase::kFused, 2, 3, fused, 0, 3.0},
                             {SlotPhase::kBackward, 1, 1, backward, 0, 4.0}};
  };
  EXPECT_NEAR(estimate.period_of(slots(1, 0), rounds), 9.0, 1e-6);
  EXPECT_NEAR(estimate.period_of(slots(0, 1), rounds), 5.0, 1e-6);
  EXPECT_NEAR(estimate.period_of(slots(1, 1), rounds), 7.0, 1e-6);
}

/// Where a step has one microbatch, devices have something to do at once only because steps overlap.
TEST(OverlappingSteps, OfOneMicrobatch_AreSharedOut) {
  for (const double second : {1.0, 0.5}) {
    Scene scene = make_scene(20, 1, 2 * kLayerFlops);
    scene.work.staleness = 1;
    add_device(scene, 1e12);
    add_device(scene, second * 1e12);
    const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Scene alone = [&] {
      Scene one = scene;
      one.machine.devices.pop_back();
      return one;
    }();
    const double step = plan->predicted.step_seconds;
    EXPECT_LT(step, step_of(alone) * 1.25 / (1 + second)) << "the second device of " << second;
  }
}

}  // namespace
}  // namespace rondo::partition
