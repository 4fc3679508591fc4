// What validate() lets pass and what it refuses; where layouts put things.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rondo/partition/layout.h"
#include "scene.h"

namespace rondo::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Validate : public testing::Test {
 protected:
  Validate() : scene_(make_scene(3, 8)) {
    add_device(scene_, 1e12);
    add_device(scene_, 1e12);
    plan_ = single_layers(scene_, 1, 0.01);
  }
  absl::Status check() const { return validate(plan_, scene_.model, scene_.work, scene_.machine); }
  std::string message() const { return std::string(check().message()); }

  Scene scene_;
  Plan plan_;  // forward 0-1, 2, 3; fused 4; backward 3, 2, 1
};

TEST_F(Validate, WholePlan_Passes) { EXPECT_TRUE(check().ok()) << check(); }

TEST_F(Validate, GapInForward_NamesTheSlot) {
  plan_.slots.erase(plan_.slots.begin() + 1);
  EXPECT_THAT(message(), HasSubstr("slot 1 begins at layer 3, expected 2"));
}

TEST_F(Validate, ForwardSlotsSwapped_NamesTheSlot) {
  std::swap(plan_.slots[1], plan_.slots[2]);
  EXPECT_THAT(message(), HasSubstr("slot 1 begins at layer 3, expected 2"));
}

TEST_F(Validate, BackwardBeforeFused_NamesTheSlot) {
  std::swap(plan_.slots[3], plan_.slots[4]);
  EXPECT_THAT(message(), HasSubstr("slot 3 goes back through layers 3 to 3"));
}

TEST_F(Validate, BackwardOutOfOrder_NamesTheSlot) {
  std::swap(plan_.slots[4], plan_.slots[5]);
  EXPECT_THAT(message(), HasSubstr("slot 4 goes back through layers 2 to 2, expected to end at 4"));
}

TEST_F(Validate, BackwardMissing_NamesTheLayers) {
  plan_.slots.pop_back();
  EXPECT_THAT(message(), HasSubstr("no backward slot for layers 1 to 1"));
}

TEST_F(Validate, BackwardThroughTheLookupTable_IsRefused) {
  plan_.slots.back().first_layer = 0;
  EXPECT_FALSE(check().ok());
}

TEST_F(Validate, BackwardThroughFrozenLayers_IsRefused) {
  for (LayerIndex i = 0; i < 2; ++i) scene_.model.layers[i].has_backward = false;
  EXPECT_THAT(message(), HasSubstr("slot 6"));
  plan_.slots.pop_back();
  EXPECT_TRUE(check().ok()) << check();
}

TEST_F(Validate, FusedSlotMissing_NamesTheRound) {
  plan_.slots.resize(3);
  EXPECT_THAT(message(), HasSubstr("round 0 has no fused slot"));
}

TEST_F(Validate, HeadInAForwardSlot_IsRefused) {
  plan_.slots[3].phase = SlotPhase::kForward;
  EXPECT_THAT(message(), HasSubstr("head without its loss"));
}

TEST_F(Validate, DeviceOutsideThePool_NamesTheSlot) {
  plan_.slots[2].device = 2;
  EXPECT_THAT(message(), HasSubstr("slot 2 names a device"));
}

TEST_F(Validate, RoundsLeaveMicrobatchesOut_SaysHowMany) {
  plan_.rounds[0].microbatches = 7;
  scene_.work.reduction_group = plan_.reduction_group = 1;
  EXPECT_THAT(message(), HasSubstr("rounds hold 7 microbatches, the step has 8"));
}

TEST_F(Validate, RoundSplitsAGroup_IsRefused) {
  plan_.rounds = {{0, 3}, {3, 5}};
  scene_.work.reduction_group = plan_.reduction_group = 2;
  EXPECT_THAT(message(),
              HasSubstr("a round of 3 microbatches holds neither whole reduction groups of 2 nor a part of one"));
}

TEST_F(Validate, AnotherReductionGroup_IsRefused) {
  plan_.reduction_group = 4;
  EXPECT_THAT(message(), HasSubstr("reduction_group is 4, the run's is 8"));
}

TEST_F(Validate, RoundsOutOfOrder_AreRefused) {
  scene_ = make_scene(3, 8);
  scene_.work.reduction_group = 4;
  add_device(scene_, 1e12);
  plan_ = single_layers(scene_, 2, 0.01);
  EXPECT_TRUE(check().ok()) << check();
  std::rotate(plan_.slots.begin(), plan_.slots.begin() + 7, plan_.slots.end());
  EXPECT_THAT(message(), HasSubstr("adds gradients of layer 4 after those of a later round"));
}

TEST_F(Validate, DeviceBudgetTooSmall_NamesDeviceAndNumbers) {
  scene_.machine.devices[1].budget_bytes = 3 * kMiB;
  EXPECT_EQ(check().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message(), HasSubstr("device 1: the plan needs"));
  EXPECT_THAT(message(), HasSubstr("3.00 MiB"));
}

TEST_F(Validate, HostBudgetTooSmall_NamesHostMemory) {
  scene_.machine.host_budget_bytes = 10 * kMiB;
  EXPECT_EQ(check().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message(), HasSubstr("host memory"));
}

TEST_F(Validate, PublishedCuts_EndOfTheSlotAndBeginningsOfBackwardSlotsWithin) {
  std::vector<Slot> slots = {{SlotPhase::kForward, 0, 3, 0, 0, 0},
                             {SlotPhase::kFused, 4, 4, 0, 0, 0},
                             {SlotPhase::kBackward, 2, 3, 0, 0, 0},
                             {SlotPhase::kBackward, 1, 1, 0, 0, 0},
                             {SlotPhase::kBackward, 3, 3, 0, 1, 0}};  // of another round
  EXPECT_THAT(published_cuts(slots[0], slots), ElementsAre(4, 2, 1));
  EXPECT_TRUE(published_cuts(slots[1], slots).empty());
  EXPECT_TRUE(published_cuts(slots[2], slots).empty());
}

TEST_F(Validate, SendsGradient_OnlyToTrainedLayersAboveTheTable) {
  EXPECT_TRUE(sends_gradient(scene_.model, {SlotPhase::kBackward, 2, 3, 0, 0, 0}));
  EXPECT_FALSE(sends_gradient(scene_.model, {SlotPhase::kBackward, 1, 1, 0, 0, 0}));
  EXPECT_FALSE(sends_gradient(scene_.model, {SlotPhase::kForward, 2, 3, 0, 0, 0}));
  scene_.model.layers[1].has_backward = false;
  EXPECT_FALSE(sends_gradient(scene_.model, {SlotPhase::kBackward, 2, 3, 0, 0, 0}));
}

TEST_F(Validate, Workspace_PlacesDoNotOverlap) {
  const Slot slot{SlotPhase::kBackward, 1, 3, 0, 0, 0};
  const WorkspaceLayout layout = layout_workspace(scene_.model, scene_.work, slot, Keep::kAll);
  std::vector<std::pair<Bytes, Bytes>> places;  // offset, size
  for (std::size_t i = 1; i < 3; ++i) places.emplace_back(layout.activations[i], kMiB);
  for (std::size_t i = 0; i < 2; ++i) places.emplace_back(layout.saved[i], 4 * kMiB);  // the last is recomputed whole
  for (const Bytes gradient : layout.gradients) places.emplace_back(gradient, kMiB);
  places.emplace_back(layout.rows, kMiB);
  places.emplace_back(layout.scratch, kMiB);
  std::ranges::sort(places);
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    EXPECT_LE(places[i].first + places[i].second, places[i + 1].first) << "place " << i;
  }
  EXPECT_LE(places.back().first + places.back().second, layout.size);
}

TEST_F(Validate, DeviceLayout_SumsUpToItsTable) {
  const DeviceLayout layout =
      layout_device(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing);
  EXPECT_EQ(layout.total(), total_of(layout.table()));
  EXPECT_EQ(layout.weights, 4 * kMiB);  // of the slot with table and first layer
  EXPECT_EQ(layout.weight_buffers, 2U);
  EXPECT_EQ(layout.gradients, 4 * kMiB);
  EXPECT_EQ(layout.gradient_buffers, 2U);
}

TEST_F(Validate, LayoutWithWeightsInPlace_LacksThemAlone) {
  const auto layout = [this] {
    return layout_device(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing);
  };
  const DeviceLayout copied = layout();
  scene_.machine.devices[0].weights_in_place = true;
  const DeviceLayout in_place = layout();
  EXPECT_EQ(in_place.weight_buffers, 0U);
  EXPECT_EQ(in_place.weights, 0U);
  EXPECT_EQ(in_place.total(), copied.total() - copied.weights * copied.weight_buffers);
  EXPECT_EQ(in_place.total(), total_of(in_place.table()));
}

TEST_F(Validate, UnifiedDeviceLayout_HoldsNoCopies) {
  scene_.machine.devices[0].unified_memory = true;
  const DeviceLayout layout =
      layout_device(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan_.slots, Keep::kNothing);
  EXPECT_EQ(layout.total(), layout.workspace);
  EXPECT_GT(layout.workspace, 0U);
}

TEST_F(Validate, PinnedMemory_IsNoLongerThanWhatTravels) {
  const auto pinned = [&] {
    const MemoryTable table =
        host_memory(scene_.model, scene_.work, scene_.machine, plan_.slots, plan_.rounds, plan_.keep);
    return std::ranges::find(table, "pinned", &std::pair<std::string, Bytes>::first)->second;
  };
  EXPECT_EQ(pinned(), 0U);
  scene_.machine.devices[0].staging_bytes = 8 * kMiB;
  scene_.machine.devices[0].staging_pieces = {1, 2};
  EXPECT_EQ(pinned(), 24 * kMiB);
  scene_.model.longest_transfer = {kMiB, 5000};
  EXPECT_EQ(pinned(), kMiB + 2 * 8192);
}

TEST_F(Validate, Boundaries_OnePerCutAndMicrobatch) {
  const BoundaryLayout layout = layout_boundaries(scene_.model, plan_.slots, plan_.rounds);
  EXPECT_THAT(layout.activation_cuts, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(layout.gradient_cuts, ElementsAre(2, 3, 4));
  EXPECT_EQ(layout.bytes(scene_.work), 7U * 8 * kMiB);
}

}  // namespace
}  // namespace rondo::partition
