// What the search takes a change to come to, beside the estimate of the whole plan.
#include "remainder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rounds.h"
#include "scene.h"
#include "search.h"

namespace rondo::partition {
namespace {

class RemainderTest : public testing::TestWithParam<LayerIndex> {
 protected:
  RemainderTest() : scene_(make_scene(14, 6, 3 * kLayerFlops, GetParam())) {
    scene_.work.reduction_group = 2;
    for (const double speed : {1.0, 0.6, 0.35, 0.6}) {
      add_device(scene_, speed * 1e12);
      devices::DeviceProfile& profile = scene_.machine.devices.back().profile;
      profile.link_up = profile.link_down = speed * 4e9;
      profile.link_latency_seconds = 1e-5;
    }
    scene_.machine.devices[3].on_host = true;
    scene_.machine.host.memory_bandwidth = 2e10;
    scene_.machine.host.optimizer_parameters_per_second = 4e9;
    rounds_ = rounds_of(scene_.work, 2);
  }

  /// The end of the step by what is placed of the estimate and what lies behind slot `at` of `slots`.
  double end_of(const StepEstimate& estimate, const Remainder& remainder, std::size_t at) const {
    double end = std::max(estimate.seconds(), remainder.end_of_updates(at));
    if (at > 0) {
      end = std::max(end, remainder.end_of_boundary(estimate.first_out(), estimate.last_out(), at));
    }
    for (const DeviceIndex device : order_) {
      end = std::max(end, remainder.end_of_device(estimate.state_of(device), remainder.next_of(device, at)));
    }
    return end;
  }

  Scene scene_;
  const std::vector<DeviceIndex> order_ = {0, 1, 2, 3};
  std::vector<Round> rounds_;
};

TEST_P(RemainderTest, AnyChange_EndsAsTheWholePlanDoes) {
  const TimeTable times(scene_.model, scene_.work, scene_.machine, Keep::kSelective, {});
  StepEstimate estimate(scene_.model, scene_.work, scene_.machine, StepEstimate::What::kEstimate);
  for (const double limit : {0.013, 0.02, 0.05}) {
    const auto dealt = deal_by_load(times, order_, rounds_, limit, 14, 1e9, 1e9);
    ASSERT_TRUE(dealt) << limit;
    const std::vector<Slot>& slots = *dealt;
    for (std::size_t at = 0; at < slots.size(); ++at) {
      for (const DeviceIndex device : order_) {
        std::vector<Slot> changed = slots;
        Slot& slot = changed[at];
        slot.device = device;
        slot.seconds = times.seconds(device, slot.phase, slot.first_layer, slot.last_layer);
        const double whole = estimate.seconds_of(changed, rounds_);
        Remainder remainder;
        remainder.look_back(estimate, slots, rounds_, at, order_.size());
        estimate.begin();
        for (std::size_t i = 0; i <= at; ++i) estimate.place(changed[i], rounds_[changed[i].round].microbatches);
        EXPECT_NEAR(end_of(estimate, remainder, at + 1), whole, 1e-12 * whole) << at << " on " << device;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FirstTrained, RemainderTest, testing::Values(0, 5));

}  // namespace
}  // namespace rondo::partition
