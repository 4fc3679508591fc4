// A device that holds the state of what is trained: what travels, what it takes, and how long a step is.
#include <gmock/gmock.h>

#include "rondo/partition/layout.h"
#include "scene.h"

namespace rondo::partition {
namespace {

using testing::HasSubstr;

/// Two frozen blocks and two trained ones, on a device whose links and host are slow.
class HoldState : public testing::Test {
 protected:
  HoldState() : scene_(make_scene(4, 4, kLayerFlops, 3)) {
    scene_.model.state_bytes = 60 * kMiB;
    scene_.model.update_bytes = 50 * kMiB;
    scene_.model.host_bytes.emplace_back(kGradients, 12 * kMiB);
    scene_.machine.host = {Bytes{1} << 40U, 1e9, 1e9, 0};
    add_device(scene_, 1e12);
    scene_.machine.devices[0].profile.link_up = scene_.machine.devices[0].profile.link_down = 1e9;
  }
  void hold() { scene_.model = hold_state(scene_.model); }

  Scene scene_;
};

TEST_F(HoldState, TrainedWeightsAndGradients_DoNotTravel) {
  const ModelShape before = scene_.model;
  hold();
  for (LayerIndex i = 0; i < scene_.model.layers.size(); ++i) {
    const LayerShape& layer = scene_.model.layers[i];
    EXPECT_EQ(layer.weight_bytes, i < 3 ? 2 * kMiB : 0) << i;
    EXPECT_EQ(layer.weight_bytes + layer.held_weight_bytes, before.layers[i].weight_bytes) << i;
    EXPECT_EQ(layer.gradient_bytes, 0U) << i;
    EXPECT_EQ(layer.trained_parameters, 0U) << i;
  }
  for (const auto& [purpose, bytes] : scene_.model.host_bytes) EXPECT_NE(purpose, kGradients);
}

TEST_F(HoldState, Memory_HoldsTheStateAndNoSumsOfGradients) {
  hold();
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const DeviceLayout layout = layout_device(scene_.model, scene_.work, scene_.machine.devices[0], 0, plan->slots,
                                            plan->keep, residents_of(*plan, 0));
  EXPECT_EQ(layout.state, 60 * kMiB);
  EXPECT_EQ(layout.gradient_buffers, 0U);
  EXPECT_EQ(layout.total(), total_of(layout.table()));
  EXPECT_EQ(plan->devices[0].peak_bytes, layout.total());
}

TEST_F(HoldState, ArrayThatNoBlockHolds_IsRefused) {
  scene_.model.largest_state_bytes = 20 * kMiB;
  scene_.machine.devices[0].most_block_bytes = 16 * kMiB;
  EXPECT_TRUE(make_plan(scene_.model, scene_.work, scene_.machine, {}).ok());
  hold();
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("16.00 MiB that the driver gives at once"));
  scene_.machine.devices[0].most_block_bytes = 20 * kMiB;
  EXPECT_TRUE(make_plan(scene_.model, scene_.work, scene_.machine, {}).ok());
}

TEST_F(HoldState, RowsOfATable_HaveAPlaceOfTheirOwn) {
  scene_ = make_scene(2, 4);
  scene_.model.state_bytes = 60 * kMiB;
  hold();
  EXPECT_EQ(scene_.model.row_place_bytes, kMiB);
  EXPECT_EQ(scene_.model.state_bytes, 61 * kMiB);
  EXPECT_EQ(scene_.model.layers[0].row_gradient_bytes, 0U);
}

/// Four microbatches of a fused visit, and the update; nothing waits for links or host.
TEST_F(HoldState, Step_IsComputingAndTheUpdateInTheDevicesMemory) {
  const double before = step_of(scene_);
  hold();
  const double instant = step_of(scene_);
  scene_.machine.devices[0].profile.memory_bandwidth = 1e10;
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(instant, before);
  EXPECT_NEAR(plan->predicted.step_seconds - instant, 50 * kMiB / 1e10, 1e-9);
  scene_.model.update_shape = devices::OpShape{.kind = devices::OpKind::kAdamW, .rows = 1000};
  OpRates rates;
  rates.set(*scene_.model.update_shape, 1e9);
  scene_.machine.devices[0].rates = std::make_shared<const OpRates>(rates);
  const auto measured = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_NEAR(measured->predicted.step_seconds - instant, 50 * kMiB / 1e9, 1e-9);
}

TEST_F(HoldState, TooLittleMemory_IsRefusedWithTheNumbers) {
  scene_.machine.devices[0].budget_bytes = 50 * kMiB;
  EXPECT_TRUE(make_plan(scene_.model, scene_.work, scene_.machine, {}).ok());
  hold();
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("device 0"));
}

/// Where main memory is short, boundaries go to disk: it is the state's home.
TEST_F(HoldState, WithADisk_StateStaysInMemory) {
  hold();
  const Plan plan = single_layers(scene_, 1, 0.001);
  const MemoryTable host =
      host_memory(scene_.model, scene_.work, scene_.machine, plan.slots, plan.rounds, Keep::kNothing);
  scene_.machine.host_budget_bytes = total_of(host) - 10 * kMiB;
  scene_.machine.disk_budget_bytes = Bytes{1} << 40U;
  const DiskChoice choice = choose_disk(scene_.model, scene_.work, scene_.machine, plan.slots, plan.rounds, host);
  EXPECT_EQ(choice.first_layer, kNoLayer);
  EXPECT_GT(choice.boundary_buffers, 0U);
}

TEST_F(HoldState, PlansThatCannotHoldIt_AreNotValid) {
  hold();
  auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto refused = [&](const Scene& scene) {
    const absl::Status status = validate(*plan, scene.model, scene.work, scene.machine);
    return status.code() == absl::StatusCode::kInvalidArgument &&
           std::string(status.message()).find("state of what is trained") != std::string::npos;
  };
  EXPECT_FALSE(refused(scene_));
  Scene other = scene_;
  other.work.staleness = 1;
  EXPECT_TRUE(refused(other));
  other = scene_;
  other.machine.devices[0].unified_memory = true;
  EXPECT_TRUE(refused(other));
  other = scene_;
  add_device(other, 1e12);
  EXPECT_TRUE(refused(other));
  plan->first_layer_on_disk = 0;
  EXPECT_TRUE(refused(scene_));
}

}  // namespace
}  // namespace rondo::partition
