// The simulation against closed forms, and costs of slots.
#include <gtest/gtest.h>

#include <tuple>

#include "scene.h"

namespace rondo::partition {
namespace {

class RoundSequence : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {};

TEST_P(RoundSequence, Simulate_EqualSlotsFreeLinks_BubbleIsClosedForm) {
  const auto [devices, microbatches] = GetParam();
  constexpr std::uint32_t kRounds = 8;
  Scene scene = make_scene(4, kRounds * microbatches);
  scene.work.reduction_group = microbatches;
  for (std::uint32_t i = 0; i < devices; ++i) add_device(scene, 1e12);
  const Plan plan = single_layers(scene, kRounds, 0.01);
  ASSERT_TRUE(validate(plan, scene.model, scene.work, scene.machine).ok());
  const Simulation simulation = simulate(plan, scene.model, scene.work, scene.machine, 3);
  const double edges = devices * (devices - 1.0);
  const double slots = static_cast<double>(plan.slots.size());
  EXPECT_NEAR(simulation.prediction.bubble, edges / (microbatches * slots + edges), 1e-9);
  EXPECT_NEAR(simulation.prediction.step_seconds, (microbatches * slots + edges) * 0.01 / devices, 1e-9);
  EXPECT_NEAR(simulation.prediction.commit_seconds, 0, 1e-9);
  EXPECT_EQ(simulation.compute.size(), 3 * plan.slots.size() * microbatches);
}

INSTANTIATE_TEST_SUITE_P(LikeDevices, RoundSequence,
                         testing::Combine(testing::Values(1U, 2U, 4U, 8U), testing::Values(8U, 16U)));

TEST(Simulate, SlowLink_StepWaitsForWeights) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  const Plan plan = single_layers(scene, 1, 1e-6);
  DeviceShape& device = scene.machine.devices[0];
  device.profile.link_up = 1e9;
  device.profile.link_down = 1e12;
  double bytes = 0;
  for (const Slot& slot : plan.slots) {
    const double boundaries = (slot.first_layer > 0 ? 1 : 0) + (slot.phase == SlotPhase::kBackward ? 1 : 0);
    bytes += static_cast<double>(slot.last_layer - slot.first_layer + 1) * 2 * kMiB;
    bytes += 8 * (boundaries * static_cast<double>(kMiB) + 4096);
  }
  const Simulation simulation = simulate(plan, scene.model, scene.work, scene.machine, 4);
  EXPECT_GE(simulation.prediction.step_seconds, bytes / 1e9 * 0.95);
  EXPECT_LE(simulation.prediction.step_seconds, bytes / 1e9 * 1.6);
}

TEST(Simulate, SlowOptimizer_NextStepWaitsLayerByLayer) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  const Plan plan = single_layers(scene, 1, 0.001);
  scene.machine.host.optimizer_parameters_per_second = 1e6;  // a second a layer, six layers
  const Prediction prediction = simulate(plan, scene.model, scene.work, scene.machine, 3).prediction;
  // The last layer's update ends after six seconds; its fused slot and what follows come then.
  EXPECT_NEAR(prediction.step_seconds, 6 + 8 * 0.001 * 5, 1e-6);
}

TEST(Simulate, SlowOptimizerOnTheDevicesProcessor_WholeStepWaits) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  scene.machine.devices[0].on_host = true;
  const Plan plan = single_layers(scene, 1, 0.001);
  scene.machine.host.optimizer_parameters_per_second = 1e6;  // a second a layer, six layers
  const Prediction prediction = simulate(plan, scene.model, scene.work, scene.machine, 3).prediction;
  EXPECT_NEAR(prediction.step_seconds, 6 + 8 * 0.001 * static_cast<double>(plan.slots.size()), 1e-6);
}

TEST(Simulate, Norms_AreTakenAsGradientsComeHome) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  const Plan plan = single_layers(scene, 1, 0.01);
  scene.machine.host.memory_bandwidth = 1e9;
  const Prediction hidden = simulate(plan, scene.model, scene.work, scene.machine, 3).prediction;
  // Only that of the lowest layer's gradient and of the lookup table, which are home last; then their update, of 28
  // bytes a parameter, which the next step begins with.
  EXPECT_NEAR(hidden.commit_seconds, (4.0 * kMiB + 4e6 + 2 * 28e6) / 1e9, 1e-9);
  scene.machine.devices[0].on_host = true;  // its processor cannot do both
  const Prediction open = simulate(plan, scene.model, scene.work, scene.machine, 3).prediction;
  EXPECT_NEAR(open.commit_seconds, 6 * (4e6 + 28e6) / 1e9, 1e-9);
}

/// Two devices that copy much and compute nothing.
Scene copying_scene() {
  Scene scene = make_scene(4, 8);
  for (int i = 0; i < 2; ++i) {
    add_device(scene, 1e12);
    devices::DeviceProfile& profile = scene.machine.devices.back().profile;
    profile.link_up = 1e9;
    profile.link_down = 1e12;
  }
  return scene;
}

TEST(Simulate, CardsOfOneRoot_ShareItsBandwidth) {
  Scene scene = copying_scene();
  const Plan plan = single_layers(scene, 1, 1e-9);
  const double apart = simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds;
  for (DeviceShape& device : scene.machine.devices) device.profile.root = "a";
  const double together = simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds;
  scene.machine.devices[1].profile.root = "b";
  const double own_roots = simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds;
  EXPECT_DOUBLE_EQ(own_roots, apart);
  EXPECT_GT(together, 1.1 * apart);
  // All bytes over one link of 1 GB/s.
  double bytes = 0;
  for (const Slot& slot : plan.slots) {
    const double boundaries = (slot.first_layer > 0 ? 1 : 0) + (slot.phase == SlotPhase::kBackward ? 1 : 0);
    bytes += static_cast<double>(slot.last_layer - slot.first_layer + 1) * 2 * kMiB;
    bytes += 8 * (boundaries * static_cast<double>(kMiB) + 4096);
  }
  EXPECT_GE(together, bytes / 1e9 * (1 - 1e-9));
}

TEST(Simulate, NarrowHostMemory_SlowsCopiesOnlyWhereTheyShareIt) {
  Scene scene = copying_scene();
  const Plan plan = single_layers(scene, 1, 1e-9);
  scene.machine.host.memory_bandwidth = 1e9;
  const double alone = simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds;
  scene.machine.copies_use_host_memory = true;
  EXPECT_GT(simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds, 1.1 * alone);
  scene.machine.host.memory_bandwidth = 1e15;
  const double roomy = simulate(plan, scene.model, scene.work, scene.machine, 1).prediction.step_seconds;
  EXPECT_LE(roomy, alone);
}

TEST(Simulate, ActivationsGoBeforeWeights_ShortInputsDoNotWaitForLongUploads) {
  // Slot 1 of device 0 has weights of a second; while they arrive, the inputs of slot 0's microbatches come in time.
  Scene scene = make_scene(2, 8);
  add_device(scene, 1e12);
  DeviceShape& device = scene.machine.devices[0];
  device.profile.link_up = 1e9;
  scene.model.layers[3].weight_bytes = 1000000000;
  Plan plan;
  plan.reduction_group = 8;
  plan.rounds = {{0, 8}};
  plan.slots = {{SlotPhase::kForward, 0, 2, 0, 0, 0.01},
                {SlotPhase::kFused, 3, 3, 0, 0, 0.01},
                {SlotPhase::kBackward, 1, 2, 0, 0, 0.01}};
  ASSERT_TRUE(validate(plan, scene.model, scene.work, scene.machine).ok());
  const Simulation simulation = simulate(plan, scene.model, scene.work, scene.machine, 1);
  for (std::size_t m = 1; m < 8; ++m) {
    EXPECT_NEAR(simulation.compute[m].begin, simulation.compute[m - 1].end, 1e-9) << "microbatch " << m;
  }
  EXPECT_GT(simulation.compute[8].begin, 1.0);
}

TEST(Simulate, Twice_IsTheSame) {
  Scene scene = copying_scene();
  for (DeviceShape& device : scene.machine.devices) device.profile.root = "a";
  scene.machine.host.memory_bandwidth = 5e9;
  scene.machine.host.optimizer_parameters_per_second = 1e8;
  scene.machine.copies_use_host_memory = true;
  const Plan plan = single_layers(scene, 1, 1e-3);
  const Simulation one = simulate(plan, scene.model, scene.work, scene.machine, 3);
  const Simulation other = simulate(plan, scene.model, scene.work, scene.machine, 3);
  EXPECT_EQ(one.prediction.step_seconds, other.prediction.step_seconds);
  EXPECT_EQ(one.events, other.events);
  ASSERT_EQ(one.compute.size(), other.compute.size());
  for (std::size_t i = 0; i < one.compute.size(); ++i) EXPECT_EQ(one.compute[i].begin, other.compute[i].begin);
}

TEST(Simulate, StalenessOne_NothingDrains) {
  Scene scene = make_scene(4, 8);
  for (int i = 0; i < 3; ++i) add_device(scene, 1e12);
  const Plan plan = single_layers(scene, 1, 0.01);
  ASSERT_EQ(plan.slots.size(), 9U);
  const double work = 0.01 * 8 * 3;
  const double drained = simulate(plan, scene.model, scene.work, scene.machine, 2).prediction.step_seconds;
  Workload lagging = scene.work;
  lagging.staleness = 1;
  const double stale = simulate(plan, scene.model, lagging, scene.machine, 8).prediction.step_seconds;
  EXPECT_NEAR(stale, work, 1e-6);
  EXPECT_GT(drained, stale * 1.05);
}

/// The first steps' commits still draw together here, by less than what the first device works.
TEST(Simulate, StalenessOne_NoDeviceWorksLongerThanAStepTakes) {
  Scene scene = make_scene(2, 4);
  for (const double link_up : {0.889e9, 3.45e9, 3.64e9}) {
    add_device(scene, 1e12);
    devices::DeviceProfile& profile = scene.machine.devices.back().profile;
    profile.link_up = link_up;
    profile.link_down = 1e10;
    profile.link_latency_seconds = 8e-5;
  }
  scene.work.staleness = 1;
  Plan plan = single_layers(scene, 1, 1e-3);
  const std::vector<double> seconds = {3.74e-3, 0.588e-3, 0.378e-3, 5.76e-3, 3.414e-3};
  ASSERT_EQ(plan.slots.size(), seconds.size());
  for (std::size_t i = 0; i < seconds.size(); ++i) plan.slots[i].seconds = seconds[i];
  const Simulation simulation = simulate(plan, scene.model, scene.work, scene.machine, 6);
  EXPECT_NEAR(simulation.busy[0], 1, 1e-9);
  EXPECT_NEAR(simulation.prediction.step_seconds, 4 * (seconds[0] + seconds[3]), 1e-9);
  EXPECT_LT(simulation.prediction.bubble, 1);
}

TEST(PredictShortSteps, FewerMicrobatches_TakeTheirShareOfTheStep) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  scene.work.reduction_group = 4;
  PlanRequest request;
  request.microbatches_per_round = 4;
  const auto plan = make_plan(scene.model, scene.work, scene.machine, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->rounds.size(), 2U);
  const auto seconds_of = [&](std::uint32_t microbatches) {
    return predict_short_steps(*plan, scene.model, scene.work, scene.machine, microbatches).step_seconds;
  };
  const double whole = plan->predicted.step_seconds;
  EXPECT_EQ(seconds_of(8), whole);
  EXPECT_EQ(seconds_of(9), whole);
  for (const std::uint32_t microbatches : {1U, 3U, 4U, 6U}) {
    EXPECT_NEAR(seconds_of(microbatches), whole * microbatches / 8, 1e-9) << microbatches;
  }
  const Prediction short_step = predict_short_steps(*plan, scene.model, scene.work, scene.machine, 2);
  EXPECT_NEAR(short_step.tokens_per_second, plan->predicted.tokens_per_second, 1e-6);
}

TEST(SlotSeconds, EveryPhase_AddsForwardsAndGradients) {
  Scene scene = make_scene(4, 8);
  add_device(scene, 1e12);
  const DeviceShape& device = scene.machine.devices[0];
  const auto units = [&](SlotPhase phase, LayerIndex first, LayerIndex last, Keep keep) {
    return slot_seconds(scene.model, scene.work, device, {phase, first, last}, keep) / (kLayerFlops / 1e12);
  };
  EXPECT_DOUBLE_EQ(units(SlotPhase::kForward, 0, 3, Keep::kNothing), 3);
  // The last layer is recomputed whole (3), the one before runs forward and then back from what it kept.
  EXPECT_DOUBLE_EQ(units(SlotPhase::kBackward, 2, 3, Keep::kAll), 1 + 2 + 3);
  EXPECT_DOUBLE_EQ(units(SlotPhase::kBackward, 2, 3, Keep::kNothing), 1 + 3 + 3);
  EXPECT_DOUBLE_EQ(units(SlotPhase::kFused, 4, 5, Keep::kSelective), 1 + 2.5 + 3);
  // A layer's weights take a third of its gradients' way without recomputation; the head's are never deferred.
  EXPECT_DOUBLE_EQ(units(SlotPhase::kWeightGradient, 4, 5, Keep::kAll), 1);
  Slot half{SlotPhase::kFused, 4, 5};
  half.defers_weights = true;
  EXPECT_DOUBLE_EQ(slot_seconds(scene.model, scene.work, device, half, Keep::kAll) / (kLayerFlops / 1e12), 1 + 1 + 3);
  scene.work.mean_tokens = 256;
  EXPECT_DOUBLE_EQ(units(SlotPhase::kForward, 0, 3, Keep::kNothing), 1.5);
}

TEST(SlotSeconds, FrozenLayersAtTheBottom_CostNoBackward) {
  Scene scene = make_scene(4, 8, kLayerFlops, 3);
  add_device(scene, 1e12);
  const double seconds =
      slot_seconds(scene.model, scene.work, scene.machine.devices[0], {SlotPhase::kFused, 0, 5}, Keep::kAll);
  EXPECT_DOUBLE_EQ(seconds, (4 + 2 + 2 + 3) * 1e-3);
}

TEST(PhaseCost, OpsBoundByMemoryAndByArithmetic_TakeTheLargerEach) {
  DeviceShape device;
  device.profile.flops = {{devices::DType::kBfloat16, 1e12}};
  device.profile.memory_bandwidth = 1e9;
  device.profile.efficiency = 0.5;
  PhaseCost cost;
  cost.ops = {{1e12, 1e6}, {1e6, 1e9}};
  EXPECT_DOUBLE_EQ(cost.seconds(device, devices::DType::kBfloat16), 2 + 1);
  EXPECT_DOUBLE_EQ(cost.flops(), 1e12 + 1e6);
}

}  // namespace
}  // namespace rondo::partition
