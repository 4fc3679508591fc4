// What stays on a device, and what that saves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rondo/partition/layout.h"
#include "scene.h"

namespace rondo::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Four frozen blocks between table and head, one layer a slot, all on one device: every layer but the head is visited
/// up; nothing is trained but the head's neighbours from `first_trained` on.
class Residency : public testing::Test {
 protected:
  void prepare(LayerIndex first_trained, Bytes budget = Bytes{1} << 34U) {
    scene_ = make_scene(4, 8, kLayerFlops, first_trained);
    add_device(scene_, 1e12, budget);
    plan_ = single_layers(scene_, 1, 0.001);
    std::erase_if(plan_.slots, [&](const Slot& slot) {
      return slot.phase == SlotPhase::kBackward && slot.first_layer < first_trained;
    });
  }
  std::vector<LayerIndex> chosen() const {
    return choose_residents(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing);
  }
  Bytes needed(const std::vector<LayerIndex>& resident) const {
    return total_of(
        device_memory(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing, resident));
  }
  double step_seconds() const {
    return simulate(plan_, scene_.model, scene_.work, scene_.machine, 4).prediction.step_seconds;
  }

  Scene scene_;
  Plan plan_;
};

TEST_F(Residency, RoomForAll_FrozenLayersStayAndNoBufferIsLeft) {
  prepare(5);  // the head alone is trained, and visited once a step: nothing is won by keeping it
  scene_.model.layers[5].weight_bytes = 0;
  scene_.model.layers[5].trained_weight_bytes = 0;
  EXPECT_THAT(chosen(), ElementsAre(0, 1, 2, 3, 4));
  const DeviceLayout layout =
      layout_device(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing, chosen());
  EXPECT_EQ(layout.resident, 10 * kMiB);
  EXPECT_EQ(layout.weight_buffers, 0U);
  EXPECT_EQ(layout.total(), total_of(layout.table()));
}

TEST_F(Residency, TrainedLayerVisitedOnce_IsStreamed) {
  prepare(5);
  EXPECT_THAT(chosen(), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(Residency, TrainedLayersVisitedTwice_Stay) {
  prepare(0);
  EXPECT_THAT(chosen(), ElementsAre(1, 2, 3, 4));  // the table and the head are read in one slot each
}

TEST_F(Residency, RoomForSome_WithinTheBudgetAndNothingMoreFits) {
  prepare(5);
  const Bytes streamed = needed({});
  for (const Bytes spare : {Bytes{0}, 1 * kMiB, 2 * kMiB, 3 * kMiB, 5 * kMiB, 9 * kMiB}) {
    SCOPED_TRACE(spare);
    scene_.machine.devices[0].budget_bytes = streamed + spare;
    const std::vector<LayerIndex> resident = chosen();
    EXPECT_LE(needed(resident), streamed + spare);
    EXPECT_FALSE(resident.empty());  // two layers of the first slot: its buffers shrink by twice what one keeps
    for (LayerIndex layer = 0; layer < 5; ++layer) {
      if (std::ranges::binary_search(resident, layer)) continue;
      std::vector<LayerIndex> more = resident;
      more.insert(std::ranges::upper_bound(more, layer), layer);
      EXPECT_GT(needed(more), streamed + spare) << "layer " << layer << " would fit too";
    }
  }
}

TEST_F(Residency, OneSlotOfAllLayers_StaysThoughItFillsMoreThanHalf) {
  prepare(5);
  plan_.slots = {{SlotPhase::kFused, 0, 5, 0, 0, 0.001}};
  scene_.machine.devices[0].budget_bytes = needed({});
  EXPECT_THAT(chosen(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_LT(needed(chosen()), needed({}));
}

TEST_F(Residency, MostVisitedLayersFirst_ThenWhatMakesRoomForThem) {
  prepare(3);
  for (LayerShape& layer : scene_.model.layers) layer.trained_weight_bytes = 0;  // factors beside frozen weights
  scene_.machine.devices[0].budget_bytes = needed({}) + 2 * kMiB;
  EXPECT_THAT(chosen(), ElementsAre(0, 3, 4));  // 3 and 4 are visited twice; without 0 the buffers are too large
}

TEST_F(Residency, UnifiedDevice_KeepsNothingApart) {
  prepare(5);
  scene_.machine.devices[0].unified_memory = true;
  EXPECT_THAT(chosen(), IsEmpty());
}

TEST_F(Residency, NotWanted_NothingStaysThoughThereIsRoom) {
  prepare(5);
  EXPECT_THAT(chosen(), Not(IsEmpty()));
  scene_.work.resident_weights = false;
  EXPECT_THAT(chosen(), IsEmpty());
}

TEST_F(Residency, WeightsInPlace_NeedNotStayAndAreNotCarried) {
  prepare(5);
  for (Slot& slot : plan_.slots) slot.seconds = 1e-6;
  scene_.machine.devices[0].profile.link_up = 1e9;
  const double streamed = step_seconds();
  scene_.machine.devices[0].weights_in_place = true;
  EXPECT_THAT(chosen(), IsEmpty());
  // Seven visits of 2 MiB, of which the last carries the head's for forward and back.
  EXPECT_NEAR(streamed - step_seconds(), 6 * 2.0 * kMiB / 1e9, 0.5 * kMiB / 1e9);
  plan_.resident = {{1}};
  EXPECT_THAT(std::string(validate(plan_, scene_.model, scene_.work, scene_.machine).message()),
              HasSubstr("reads them in main memory"));
}

TEST_F(Residency, Simulate_ResidentWeightsAreNotCarriedAgain) {
  prepare(5);
  for (Slot& slot : plan_.slots) slot.seconds = 1e-6;
  scene_.machine.devices[0].profile.link_up = 1e9;
  const double streamed = step_seconds();
  plan_.resident = {chosen()};
  const double resident = step_seconds();
  // Six layers of 2 MiB are visited once; the head's weights remain to be carried.
  EXPECT_NEAR(streamed - resident, 5 * 2.0 * kMiB / 1e9, 0.5 * kMiB / 1e9);
}

TEST_F(Residency, Simulate_WhatNoUpdateChangesComesToTheFirstVisitDuringTheStepBefore) {
  prepare(3);
  for (Slot& slot : plan_.slots) slot.seconds = 0.001;
  scene_.machine.devices[0].profile.link_up = 1e9;           // a layer in 2.1 ms, eight microbatches of a slot in 8
  scene_.work.boundary_bytes = scene_.work.batch_bytes = 0;  // which would go first
  const double ahead = step_seconds();
  scene_.model.layers[0].trained_weight_bytes = scene_.model.layers[0].weight_bytes;
  EXPECT_NEAR(step_seconds() - ahead, 2.0 * kMiB / 1e9, 1e-6);
  scene_.model.layers[0].trained_weight_bytes = scene_.model.layers[0].weight_bytes / 2;
  EXPECT_NEAR(step_seconds() - ahead, 1.0 * kMiB / 1e9, 1e-6);
}

TEST_F(Residency, Validate_RefusesWhatDoesNotExistOrFit) {
  prepare(5);
  const auto message = [&] {
    return std::string(validate(plan_, scene_.model, scene_.work, scene_.machine).message());
  };
  plan_.resident = {chosen()};
  EXPECT_EQ(message(), "");
  plan_.resident = {{3, 2}};
  EXPECT_THAT(message(), HasSubstr("rising order"));
  plan_.resident = {{6}};
  EXPECT_THAT(message(), HasSubstr("rising order"));
  plan_.resident = {{}, {1}};
  EXPECT_THAT(message(), HasSubstr("device 1"));
  plan_.resident = {chosen()};
  scene_.machine.devices[0].budget_bytes = needed(chosen()) - 1;
  EXPECT_THAT(message(), HasSubstr("device 0: the plan needs"));
}

TEST_F(Residency, MakePlan_FillsFreeMemoryAndSaysSo) {
  prepare(5);
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(residents_of(*plan, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(plan->devices[0].memory[0], (std::pair<std::string, Bytes>("resident weights", 10 * kMiB)));
  EXPECT_EQ(plan->devices[0].peak_bytes, total_of(plan->devices[0].memory));
}

}  // namespace
}  // namespace rondo::partition
