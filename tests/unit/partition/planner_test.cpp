// What the planner decides, and that it decides quickly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "rondo/partition/layout.h"
#include "scene.h"

namespace rondo::partition {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

absl::StatusOr<Plan> plan_of(const Scene& scene, PlanRequest request = {}) {
  return make_plan(scene.model, scene.work, scene.machine, request);
}

Scene pool(std::uint32_t blocks, std::uint32_t microbatches, const std::vector<double>& speeds) {
  Scene scene = make_scene(blocks, microbatches);
  for (const double speed : speeds) add_device(scene, speed);
  return scene;
}

/// INTERFACE's rules for slots and devices.
void expect_lawful(const Scene& scene, const Plan& plan) {
  EXPECT_TRUE(validate(plan, scene.model, scene.work, scene.machine).ok());
  const auto layers = static_cast<LayerIndex>(scene.model.layers.size());
  for (std::uint32_t round = 0; round < plan.rounds.size(); ++round) {
    std::vector<int> forward(layers, 0);
    std::vector<int> backward(layers, 0);
    for (const Slot& slot : plan.slots) {
      if (slot.round != round) continue;
      for (LayerIndex i = slot.first_layer; i <= slot.last_layer; ++i) {
        if (slot.phase != SlotPhase::kBackward) ++forward[i];
        if (slot.phase != SlotPhase::kForward) ++backward[i];
        if (slot.phase == SlotPhase::kBackward) {
          EXPECT_GT(scene.model.layers[i].forward.flops(), 0);
        }
      }
      EXPECT_NEAR(slot.seconds,
                  slot_seconds(scene.model, scene.work, scene.machine.devices[slot.device], slot, plan.keep), 1e-12);
    }
    for (LayerIndex i = 0; i < layers; ++i) {
      EXPECT_EQ(forward[i], 1) << "layer " << i;
      if (i > 0 && scene.model.layers[i].has_backward) {
        EXPECT_EQ(backward[i], 1) << "layer " << i;
      }
    }
  }
  ASSERT_EQ(plan.devices.size(), scene.machine.devices.size());
  double speeds = 0;
  double working = 0;
  for (DeviceIndex i = 0; i < plan.devices.size(); ++i) {
    const DevicePlan& device = plan.devices[i];
    EXPECT_LE(device.peak_bytes, device.budget_bytes);
    EXPECT_EQ(device.peak_bytes, total_of(device.memory));
    const bool used = std::ranges::any_of(plan.slots, [&](const Slot& slot) { return slot.device == i; });
    EXPECT_EQ(used, device.unused_because.empty());
    EXPECT_EQ(used, device.busy > 0);
    if (!used) continue;
    const double speed = scene.machine.devices[i].profile.speed(scene.work.dtype);
    speeds += speed;
    working += speed * device.busy;
  }
  EXPECT_NEAR(plan.predicted.bubble, 1 - working / speeds, 1e-9);
}

TEST(Planner, OneDevice_OneFusedSlot) {
  const Scene scene = pool(6, 8, {1e12});
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->slots.size(), 1U);
  EXPECT_EQ(plan->slots[0].phase, SlotPhase::kFused);
  EXPECT_EQ(plan->slots[0].first_layer, 0U);
  EXPECT_EQ(plan->slots[0].last_layer, 7U);
  EXPECT_NEAR(plan->predicted.bubble, 0, 1e-9);
  EXPECT_EQ(plan->predicted.limited_by, "compute");
  expect_lawful(scene, *plan);
}

TEST(Planner, OneDeviceLittleMemory_SeveralSlotsWithinIt) {
  Scene scene = make_scene(6, 8);
  add_device(scene, 1e12, 40 * kMiB);
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->slots.size(), 1U);
  expect_lawful(scene, *plan);
}

/// Drivers give a few gigabytes at once, however much a card has. What stays has a block for each layer.
TEST(Planner, OneDeviceLittleAtOnce_SeveralSlotsOfBlocksThatItGives) {
  Scene scene = pool(6, 8, {1e12});
  const auto whole = plan_of(scene);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->slots.size(), 1U);
  DeviceShape& device = scene.machine.devices[0];
  const auto largest = [&](const Plan& plan) {
    const DeviceLayout layout = layout_device(scene.model, scene.work, device, 0, plan.slots, plan.keep);
    return std::max({layout.weights, layout.workspace, layout.gradients, layout.boundary, layout.batch});
  };
  device.most_block_bytes = largest(*whole) / 2;
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->slots.size(), 1U);
  EXPECT_LE(largest(*plan), device.most_block_bytes);
  expect_lawful(scene, *plan);
  EXPECT_FALSE(validate(*whole, scene.model, scene.work, scene.machine).ok());
  device.most_block_bytes = 1024;
  const auto none = plan_of(scene);
  ASSERT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("device 0"));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("1.00 KiB that the driver gives at once"));
}

TEST(Planner, MemoryBelowOneLayer_RefusalNamesDeviceAndNumbers) {
  Scene scene = make_scene(6, 8);
  add_device(scene, 1e12, 5 * kMiB);
  const auto plan = plan_of(scene);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("device 0"));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("5.00 MiB"));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(" alone needs "));
}

/// Of layers as unlike as a model's halves of blocks and head.
Scene unlike_layers(Bytes budget) {
  Scene scene = make_scene(16, 8);
  for (LayerIndex i = 1; i < scene.model.layers.size(); ++i) {
    LayerShape& layer = scene.model.layers[i];
    const bool head = i + 1 == scene.model.layers.size();
    layer.weight_bytes = head ? 5 * kMiB : i % 2 == 0 ? 6 * kMiB : 2 * kMiB;
    layer.trained_weight_bytes = layer.weight_bytes;
    layer.gradient_bytes = 2 * layer.weight_bytes;
    layer.scratch_bytes = head ? 9 * kMiB : i % 2 == 0 ? 5 * kMiB : 3 * kMiB;
  }
  add_device(scene, 1e12, budget);
  add_device(scene, 4e11, budget);
  return scene;
}

/// Nor is a device given up: the first one alone takes 1.4 times as long as both.
TEST(Planner, MoreMemory_IsNeverRefusedWhereLessSufficed) {
  double quickest = 0;
  for (Bytes budget = 20 * kMiB; budget <= 80 * kMiB; budget += 3 * kMiB / 2) {
    const auto plan = plan_of(unlike_layers(budget));
    if (!plan.ok() && quickest == 0) continue;
    ASSERT_TRUE(plan.ok()) << budget / kMiB << " MiB: " << plan.status();
    const double seconds = plan->predicted.step_seconds;
    EXPECT_LT(seconds, 1.25 * (quickest > 0 ? quickest : seconds)) << budget / kMiB << " MiB";
    quickest = quickest > 0 ? std::min(quickest, seconds) : seconds;
  }
  EXPECT_GT(quickest, 0);
}

TEST(Planner, HostMemoryTooSmall_RefusalNamesIt) {
  Scene scene = pool(6, 8, {1e12});
  scene.machine.host_budget_bytes = 8 * kMiB;
  const auto plan = plan_of(scene);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("host memory"));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("8.00 MiB"));
}

/// Nothing is searched for, and nothing advised that would not help: neither the batch nor a disk takes weights.
TEST(Planner, HostMemoryBelowWhatEveryPlanKeepsThere_RefusalSaysWhatTakesIt) {
  Scene scene = pool(6, 8, {1e12});
  scene.model.host_bytes = {{"weights", 16 * kMiB}, {kMasterWeights, 32 * kMiB}, {kMoments, 64 * kMiB}};
  for (LayerShape& layer : scene.model.layers) {
    layer.trained_parameters = kMiB;
    layer.moment_bytes = 8 * kMiB;
    layer.state_disk_bytes = 12 * kMiB;
  }
  const auto message = [&](Bytes budget, Bytes disk) {
    scene.machine.host_budget_bytes = budget;
    scene.machine.disk_budget_bytes = disk;
    return std::string(plan_of(scene).status().message());
  };
  EXPECT_THAT(message(12 * kMiB, 0),
              AllOf(HasSubstr("host memory: the plan needs 112.03 MiB at least, 64.00 MiB of it for optimizer moments"),
                    HasSubstr("12.00 MiB may be used"), Not(HasSubstr("nvme_path")), Not(HasSubstr("cutoff_len"))));
  EXPECT_THAT(message(12 * kMiB, 1024 * kMiB), HasSubstr("needs 16.03 MiB at least, 16.00 MiB of it for weights"));
  EXPECT_THAT(message(40 * kMiB, 0), HasSubstr("name a folder on a disk with nvme_path"));
  EXPECT_THAT(message(40 * kMiB, 48 * kMiB),
              HasSubstr("free space in nvme_path, where the state takes 96.00 MiB and 48.00 MiB may be used"));
  EXPECT_EQ(message(40 * kMiB, 1024 * kMiB), "");
}

/// Advice names no setting that is as it should be already.
TEST(Planner, DeviceMemoryTooSmallForASchedule_RefusalNamesTheOneThatNeedsLess) {
  Scene scene = make_scene(24, 8);
  add_device(scene, 1e12, 48 * kMiB);
  PlanRequest request;
  request.schedule = Schedule::kGPipe;
  request.keep = Keep::kNothing;
  const auto message = [&] {
    return std::string(make_plan(scene.model, scene.work, scene.machine, request).status().message());
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("schedule: roundpipe"), Not(HasSubstr("recompute"))));
  request.keep = Keep::kAll;
  EXPECT_THAT(message(), AllOf(HasSubstr("schedule: roundpipe"), HasSubstr("recompute: full")));
  request = {};
  EXPECT_EQ(message(), "");
}

TEST(Planner, HostMemoryTooSmallForWhatFitsTheDevices_RefusalNamesTheHost) {
  int fitting = 0;
  for (Bytes budget = 8 * kMiB; budget <= 80 * kMiB; budget += 2 * kMiB) {
    Scene scene = make_scene(6, 8);
    for (int i = 0; i < 2; ++i) add_device(scene, 1e12, budget);
    if (!plan_of(scene).ok()) continue;
    ++fitting;
    scene.machine.host_budget_bytes = 8 * kMiB;
    EXPECT_THAT(std::string(plan_of(scene).status().message()), HasSubstr("host memory")) << budget;
  }
  EXPECT_GT(fitting, 5);
}

TEST(Planner, HostTooSmallForTheQuickestPlan_TakesOneThatFits) {
  Scene scene = make_scene(6, 16);
  scene.work.reduction_group = 4;
  for (int i = 0; i < 2; ++i) add_device(scene, 1e12, 40 * kMiB);
  const auto roomy = plan_of(scene);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  ASSERT_EQ(roomy->rounds.size(), 1U);
  scene.machine.host_budget_bytes = roomy->host_peak_bytes - kMiB;
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->host_peak_bytes, scene.machine.host_budget_bytes);
  expect_lawful(scene, *plan);
}

TEST(Planner, LikeDevicesFreeLinks_StepIsThePublishedObjective) {
  for (const std::size_t devices : {2U, 3U, 4U}) {
    const Scene scene = pool(22, 16, std::vector<double>(devices, 1e12));
    const auto plan = plan_of(scene);
    ASSERT_TRUE(plan.ok()) << plan.status();
    expect_lawful(scene, *plan);
    double longest = 0;
    double work = 0;
    for (const Slot& slot : plan->slots) {
      longest = std::max(longest, slot.seconds);
      work += slot.seconds;
    }
    const auto count = static_cast<double>(devices);
    const double objective = (16.0 * static_cast<double>(plan->slots.size()) + count * (count - 1)) * longest / count;
    // Slots are not all equal and their number need not be a multiple of the devices'.
    EXPECT_LE(plan->predicted.step_seconds, objective + 16 * longest);
    EXPECT_GE(plan->predicted.step_seconds, 16 * work / count);
    EXPECT_LT(plan->predicted.bubble, 0.25);
  }
}

TEST(Planner, UnlikeDevices_ShareLayersBySpeed) {
  const Scene scene = pool(46, 64, {4e12, 1e12});
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  double flops[2] = {0, 0};
  for (const Slot& slot : plan->slots) {
    flops[slot.device] += slot.seconds * scene.machine.devices[slot.device].profile.speed(scene.work.dtype);
  }
  ASSERT_GT(flops[1], 0);
  EXPECT_GT(flops[0] / flops[1], 2.5);
  EXPECT_LT(flops[0] / flops[1], 6.0);
  EXPECT_LT(plan->predicted.step_seconds, step_of(pool(46, 64, {4e12})));
}

TEST(Planner, UselessDevice_StaysUnusedAndSaysWhy) {
  const Scene scene = pool(6, 8, {1e12, 1e7});
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  EXPECT_THAT(plan->devices[1].unused_because, HasSubstr("a step with it takes"));
  EXPECT_EQ(plan->devices[1].peak_bytes, 0U);
}

TEST(Planner, DeviceWithoutRoom_StaysUnusedAndSaysWhy) {
  Scene scene = pool(6, 8, {1e12});
  add_device(scene, 4e12, kMiB);
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  EXPECT_THAT(plan->devices[1].unused_because, HasSubstr("fits its memory of 1.00 MiB"));
}

TEST(Planner, QuickDeviceWithLittleMemory_StillGetsSlots) {
  Scene scene = pool(30, 32, {1e12});
  add_device(scene, 4e12, 30 * kMiB);
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  EXPECT_GT(plan->devices[1].busy, 0.3);
  EXPECT_LT(plan->predicted.step_seconds, step_of(pool(30, 32, {1e12})) / 2);
}

TEST(Planner, AddingAnyDevice_NeverLengthensTheStep) {
  const std::vector<double> speeds = {1e12, 3e11, 2e12, 1e12, 5e10, 1.5e12};
  for (const bool slow_links : {false, true}) {
    Scene scene = make_scene(14, 8, 4 * kLayerFlops);
    scene.machine.host.memory_bandwidth = 1e11;
    double before = 0;
    for (const double speed : speeds) {
      add_device(scene, speed);
      if (slow_links) {
        devices::DeviceProfile& profile = scene.machine.devices.back().profile;
        profile.link_up = profile.link_down = speed > 1e12 ? 2e8 : 4e9;  // the quick ones hang on bad links
        profile.link_latency_seconds = 1e-5;
      }
      const double step = step_of(scene);
      if (before > 0) {
        EXPECT_LE(step, before * (1 + 1e-4)) << scene.machine.devices.size() << " devices";
      }
      before = step;
    }
    // In front of the others as well.
    std::rotate(scene.machine.devices.begin(), scene.machine.devices.end() - 1, scene.machine.devices.end());
    EXPECT_NEAR(step_of(scene), before, before * 1e-4);
  }
}

TEST(Planner, FrozenLayersAtTheBottom_GetNoBackwardSlot) {
  Scene scene = make_scene(14, 8, kLayerFlops, 9);
  for (int i = 0; i < 4; ++i) add_device(scene, 1e12);
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  for (const Slot& slot : plan->slots) {
    if (slot.phase == SlotPhase::kBackward) {
      EXPECT_GE(slot.first_layer, 9U);
    }
  }
}

TEST(Planner, LimitedBy_NamesWhatAStepWouldGainMostFrom) {
  Scene link = pool(6, 4, {1e15, 1e15});
  for (DeviceShape& device : link.machine.devices) device.profile.link_up = device.profile.link_down = 1e9;
  Scene optimizer = pool(6, 4, {1e12});
  optimizer.machine.host.optimizer_parameters_per_second = 1e6;
  Scene starved = pool(6, 4, {1e12});
  starved.machine.host.optimizer_parameters_per_second = 1e12;
  starved.machine.host.memory_bandwidth = 28e6;
  EXPECT_EQ(plan_of(link)->predicted.limited_by, "link");
  EXPECT_EQ(plan_of(optimizer)->predicted.limited_by, "optimizer");
  EXPECT_EQ(plan_of(starved)->predicted.limited_by, "host_memory");
}

TEST(Planner, LinksLimit_AdviceNamesTheBatchThatFreesThem) {
  Scene scene = pool(14, 4, {1e13, 1e13});
  scene.work.microbatch_sequences = 3;
  for (DeviceShape& device : scene.machine.devices) {
    device.profile.link_up = device.profile.link_down = 2e9;
    device.budget_bytes = 64 * kMiB;
  }
  scene.work.boundary_bytes = 64 * 1024;
  for (LayerShape& layer : scene.model.layers) layer.gradient_bytes = 4096;
  const auto plan = plan_of(scene);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->predicted.limited_by, "link");
  ASSERT_FALSE(plan->predicted.advice.empty());
  EXPECT_THAT(plan->predicted.advice[0], HasSubstr("with a global batch of "));
  EXPECT_THAT(plan->predicted.advice[0], HasSubstr("the links no longer limit"));
}

TEST(Planner, FewMicrobatchesOnManyDevices_AdviceNamesTheEdges) {
  const Scene scene = pool(30, 4, std::vector<double>(8, 1e12));
  PlanRequest request;
  request.schedule = Schedule::kGPipe;
  const auto plan = plan_of(scene, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->predicted.advice.empty());
  EXPECT_THAT(plan->predicted.advice[0], HasSubstr("fill and drain"));
  EXPECT_THAT(plan->predicted.advice[0], HasSubstr("gradient_accumulation_steps: 8"));
}

TEST(Planner, NothingToGain_GivesNoAdvice) { EXPECT_TRUE(plan_of(pool(6, 8, {1e12}))->predicted.advice.empty()); }

TEST(Planner, GPipeAndLoops_KeepStagesOnTheirDevices) {
  const Scene scene = pool(30, 16, {1e12, 1e12, 1e12});
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::kLoopedBreadthFirst}) {
    PlanRequest request;
    request.schedule = schedule;
    const auto plan = plan_of(scene, request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    expect_lawful(scene, *plan);
    EXPECT_EQ(plan->schedule, schedule);
    std::map<LayerIndex, DeviceIndex> home;
    for (const Slot& slot : plan->slots) {
      for (LayerIndex i = slot.first_layer; i <= slot.last_layer; ++i) {
        EXPECT_EQ(home.try_emplace(i, slot.device).first->second, slot.device) << "layer " << i;
      }
    }
    const auto forward = std::ranges::count(plan->slots, SlotPhase::kForward, &Slot::phase);
    EXPECT_EQ((forward + 1) % 3, 0);
    if (schedule == Schedule::kGPipe) {
      EXPECT_EQ(forward, 2);
    }
    EXPECT_LE(plan_of(scene)->predicted.step_seconds, plan->predicted.step_seconds * (1 + 1e-9));
  }
}

TEST(Planner, RequestedKeep_IsKept) {
  const Scene scene = pool(6, 8, {1e12, 1e12});
  PlanRequest request;
  request.keep = Keep::kNothing;
  const auto plan = plan_of(scene, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->keep, Keep::kNothing);
}

TEST(Planner, OneDevice_KeepsAllOnlyWhereItSavesAHundredth) {
  const auto keep_of = [](const std::vector<double>& speeds, double recomputed) {
    Scene scene = pool(6, 8, speeds);
    for (LayerShape& layer : scene.model.layers) {
      layer.backward[1].ops = {{layer.backward[2].flops() + recomputed * layer.forward.flops(), 0}};
    }
    const auto plan = plan_of(scene);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->keep : Keep::kNothing;
  };
  EXPECT_EQ(keep_of({1e12}, 0.01), Keep::kSelective);
  EXPECT_EQ(keep_of({1e12}, 0.1), Keep::kAll);
  EXPECT_EQ(keep_of({1e12, 1e12}, 0.01), Keep::kAll);  // time alone decides: adding a device never costs any
}

TEST(Planner, RequestedRounds_HoldWholeGroupsAndShareTheWorkOut) {
  Scene scene = pool(6, 12, {1e12, 1e12});
  scene.work.reduction_group = 2;
  PlanRequest request;
  request.microbatches_per_round = 3;
  const auto plan = plan_of(scene, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  expect_lawful(scene, *plan);
  ASSERT_EQ(plan->rounds.size(), 3U);
  for (const Round& round : plan->rounds) EXPECT_EQ(round.microbatches, 4U);
  double work[2] = {0, 0};
  for (const Slot& slot : plan->slots) work[slot.device] += slot.seconds;
  EXPECT_NEAR(work[0] / work[1], 1, 0.1);
}

TEST(Planner, EmptyPool_IsBadInput) {
  EXPECT_EQ(plan_of(make_scene(2, 2)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rondo::partition
