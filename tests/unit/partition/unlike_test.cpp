// Pools of unlike devices: the optimum of small cases, the share of all speeds that mixed pools reach, and that no
// device ever does harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "rondo/devices/profile.h"
#include "rondo/partition/layout.h"
#include "scene.h"

namespace rondo::partition {
namespace {

/// Every way to cut one round into slots and to give them to devices; calls `take` with each.
class AllPlans {
 public:
  AllPlans(const Scene& scene, Keep keep, const std::function<void(const Plan&)>& take)
      : scene_(scene), take_(take), layers_(static_cast<LayerIndex>(scene.model.layers.size())) {
    plan_.keep = keep;
    plan_.reduction_group = scene.work.reduction_group;
    plan_.rounds = {{0, scene.work.microbatches}};
  }
  void run() { forward(0); }

 private:
  void with(SlotPhase phase, LayerIndex first, LayerIndex last, const std::function<void()>& go_on) {
    for (DeviceIndex device = 0; device < scene_.machine.devices.size(); ++device) {
      plan_.slots.push_back(
          {phase, first, last, device, 0,
           slot_seconds(scene_.model, scene_.work, scene_.machine.devices[device], {phase, first, last}, plan_.keep)});
      go_on();
      plan_.slots.pop_back();
    }
  }
  void forward(LayerIndex first) {
    if (first != 1) with(SlotPhase::kFused, first, layers_ - 1, [&] { backward(first); });
    for (LayerIndex last = first; last + 1 < layers_; ++last) {
      if (last > 0) with(SlotPhase::kForward, first, last, [&] { forward(last + 1); });
    }
  }
  void backward(LayerIndex end) {
    if (end <= 1) return take_(plan_);
    for (LayerIndex first = 1; first < end; ++first) {
      with(SlotPhase::kBackward, first, end - 1, [&] { backward(first); });
    }
  }

  const Scene& scene_;
  const std::function<void(const Plan&)>& take_;
  const LayerIndex layers_;
  Plan plan_;
};

/// The best step of all plans, or of those that can be better than `known`.
double best_of_all(const Scene& scene, Keep keep, double known) {
  double best = known;
  std::size_t plans = 0;
  const std::function<void(const Plan&)> take = [&](const Plan& plan) {
    ++plans;
    std::vector<double> work(scene.machine.devices.size(), 0);
    for (const Slot& slot : plan.slots) work[slot.device] += slot.seconds * scene.work.microbatches;
    if (*std::ranges::max_element(work) >= best) return;  // a device cannot be quicker than its own work
    if (!validate(plan, scene.model, scene.work, scene.machine).ok()) return;
    Plan kept = plan;
    for (DeviceIndex i = 0; i < scene.machine.devices.size(); ++i) {
      kept.resident.push_back(
          choose_residents(scene.model, scene.work, scene.machine.devices[i], i, plan.slots, plan.keep));
    }
    const Simulation simulation = simulate(kept, scene.model, scene.work, scene.machine, 1);
    best = std::min(best, simulation.prediction.step_seconds);
  };
  AllPlans(scene, keep, take).run();
  EXPECT_GT(plans, 100U);
  return best;
}

struct SmallCase {
  const char* name;
  std::uint32_t blocks;
  std::uint32_t microbatches;
  double head;  // forward FLOPs, in layers
  std::vector<double> speeds;
  bool links = false;
  Bytes little_memory = 0;  // of the last device
};

class SmallPools : public testing::TestWithParam<SmallCase> {};

TEST_P(SmallPools, MakePlan_FindsTheOptimum) {
  const SmallCase& small = GetParam();
  Scene scene = make_scene(small.blocks, small.microbatches, small.head * kLayerFlops);
  for (const double speed : small.speeds) {
    add_device(scene, speed);
    if (!small.links) continue;
    devices::DeviceProfile& profile = scene.machine.devices.back().profile;
    profile.link_up = profile.link_down = 3e9;
    scene.machine.host.memory_bandwidth = 1e11;
    scene.machine.host.optimizer_parameters_per_second = 2e9;
  }
  if (small.little_memory > 0) scene.machine.devices.back().budget_bytes = small.little_memory;
  for (const Keep keep : {Keep::kNothing, Keep::kAll}) {
    PlanRequest request;
    request.keep = keep;
    const auto plan = make_plan(scene.model, scene.work, scene.machine, request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const double found = plan->predicted.step_seconds;
    const double best = best_of_all(scene, keep, found);
    EXPECT_NEAR(found, best, 1e-6 * found);
    EXPECT_LE(plan->predicted.least_step_seconds, best * (1 + 1e-9));
    EXPECT_GT(plan->predicted.least_step_seconds, 0.3 * best);
  }
}

INSTANTIATE_TEST_SUITE_P(Exhaustive, SmallPools,
                         testing::Values(SmallCase{"TwoLike", 4, 4, 1, {1e12, 1e12}},
                                         SmallCase{"TwoUnlike", 4, 4, 2, {1e12, 4e11}},
                                         SmallCase{"ThreeUnlike", 3, 4, 1, {1e12, 5e11, 2.5e11}},
                                         SmallCase{"SixLayersThreeUnlike", 4, 6, 3, {1e12, 7e11, 3e11}},
                                         SmallCase{"OneQuickTwoSlow", 3, 8, 1, {2e12, 5e11, 5e11}},
                                         SmallCase{"SlowLinks", 3, 4, 1, {1e12, 6e11}, true},
                                         SmallCase{"LittleMemory", 3, 4, 1, {5e11, 1e12}, false, 28 * kMiB}),
                         [](const auto& test) { return std::string(test.param.name); });

/// Share of all devices' speeds that works, unused ones counted in.
double share_of_speeds(const Scene& scene, const Plan& plan) {
  double speeds = 0;
  double working = 0;
  for (DeviceIndex i = 0; i < plan.devices.size(); ++i) {
    const double speed = scene.machine.devices[i].profile.speed(scene.work.dtype);
    speeds += speed;
    working += speed * plan.devices[i].busy;
  }
  return working / speeds;
}

/// The work of a pipeline that recomputes each layer's forward once, as published, over the sum of all speeds. (A plan
/// may do with less work: what a fused slot keeps is not recomputed.)
double pipeline_seconds(const Scene& scene) {
  double flops = 0;
  for (const LayerShape& layer : scene.model.layers) {
    const bool head = &layer == &scene.model.layers.back();
    flops += (head ? 0 : 2 * layer.forward.flops()) + layer.backward[2].flops();
  }
  double speeds = 0;
  for (const DeviceShape& device : scene.machine.devices) speeds += device.profile.speed(scene.work.dtype);
  return flops * scene.work.microbatches / speeds;
}

struct MixedPool {
  const char* name;
  std::vector<double> speeds;
};
class MixedPools : public testing::TestWithParam<MixedPool> {};

TEST_P(MixedPools, FineUnitsAndTwiceAsManyMicrobatches_NineTenthsOfTheSpeedsWork) {
  const auto devices = static_cast<std::uint32_t>(GetParam().speeds.size());
  for (const std::uint32_t microbatches : {2 * devices, 4 * devices}) {
    Scene scene = make_scene(128, microbatches);
    for (const double speed : GetParam().speeds) add_device(scene, speed * 1e12);
    const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const double share = pipeline_seconds(scene) / plan->predicted.step_seconds;
    RecordProperty("percent_of_speeds_" + std::to_string(microbatches), static_cast<int>(100 * share));
    EXPECT_GE(share, 0.90) << microbatches << " microbatches, " << share_of_speeds(scene, *plan) << " busy";
    Scene best = make_scene(128, microbatches);
    add_device(best, *std::ranges::max_element(GetParam().speeds) * 1e12);
    EXPECT_LT(plan->predicted.step_seconds, step_of(best));
  }
}

INSTANTIATE_TEST_SUITE_P(Speeds, MixedPools,
                         testing::Values(MixedPool{"TwoAndTwoHalves", {1, 1, 0.5, 0.5}},
                                         MixedPool{"HalvesOfHalves", {1, 0.5, 0.25}},
                                         MixedPool{"OneSlow", {1, 1, 1, 0.3}}, MixedPool{"Pair", {1, 0.6}}),
                         [](const auto& test) { return std::string(test.param.name); });

/// Cards of the catalogue with their own links and memory, and a model whose work outweighs its bytes as in an
/// 8-billion-parameter model at 4,096 tokens.
Scene card_scene(const std::vector<std::string>& cards, std::uint32_t microbatches) {
  Scene scene = make_scene(64, microbatches, 2.4e12 * 1.7);
  for (std::size_t i = 1; i < scene.model.layers.size(); ++i) {
    LayerShape& layer = scene.model.layers[i];
    const double flops = i + 1 == scene.model.layers.size() ? 2.4e12 * 1.7 : 2.4e12 * 0.38;
    const double shape[] = {3, 2.1, 2};
    layer.forward.ops = {{flops, 0}};
    const bool head = i + 1 == scene.model.layers.size();
    for (std::size_t k = 0; k < kKeeps; ++k) layer.backward[k].ops = {{(head ? 3 : shape[k]) * flops, 0}};
    layer.weight_bytes = (head ? 1050 : 220) * 1000000ULL;
    layer.trained_weight_bytes = layer.weight_bytes;
    layer.gradient_bytes = 2 * layer.weight_bytes;
    if (!head) layer.saved_bytes = {0, 200 * kMiB, 400 * kMiB};
  }
  scene.work.boundary_bytes = 32 * kMiB;
  for (const std::string& name : cards) {
    const auto card = devices::find_card(name);
    DeviceShape device{name, *card, card->memory_bytes * 9 / 10, false, 0};
    scene.machine.devices.push_back(device);
  }
  scene.machine.host = {Bytes{1} << 40U, 200e9, 5e9, 0};
  return scene;
}

TEST(MixedCards, FourUnlikeCards_ReachNineTenthsOfTheirSpeeds) {
  const std::vector<std::string> cards = {"rtx4090", "rtx3060", "rx7600", "radeon-780m"};
  const Scene scene = card_scene(cards, 32);
  const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE(share_of_speeds(scene, *plan), 0.90) << plan->predicted.bubble;
  for (const std::string& card : cards)
    EXPECT_LT(plan->predicted.step_seconds, step_of(card_scene({card}, 32))) << card;
}

class RandomPools : public testing::TestWithParam<std::tuple<unsigned, std::uint32_t>> {};

TEST_P(RandomPools, AddingADevice_NeverLengthensTheStep) {
  const auto [seed, staleness] = GetParam();
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-1.2, 0.7);
  std::uniform_int_distribution<int> coin(0, 2);
  Scene scene = make_scene(10, 6, 3 * kLayerFlops);
  scene.work.reduction_group = 3;
  scene.work.staleness = staleness;
  scene.machine.host.memory_bandwidth = 2e11;
  scene.machine.host.optimizer_parameters_per_second = 5e9;
  double before = 0;
  for (int i = 0; i < 4; ++i) {
    const double speed = 1e12 * std::pow(10.0, exponent(random));
    add_device(scene, speed, coin(random) == 0 ? 40 * kMiB : Bytes{1} << 34U);
    devices::DeviceProfile& profile = scene.machine.devices.back().profile;
    profile.link_up = profile.link_down = 3e9 * std::pow(10.0, exponent(random));
    profile.link_latency_seconds = 1e-5;
    if (coin(random) == 0) scene.machine.devices.back().unified_memory = true;
    if (coin(random) == 0) scene.machine.devices.back().weights_in_place = true;
    const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (DeviceIndex device = 0; device < plan->devices.size(); ++device) {
      const bool used = std::ranges::any_of(plan->slots, [&](const Slot& slot) { return slot.device == device; });
      EXPECT_EQ(used, plan->devices[device].unused_because.empty()) << device;
      EXPECT_LE(plan->devices[device].busy, 1 + 1e-9) << device << ": no device works longer than a step takes";
    }
    const double step = plan->predicted.step_seconds;
    if (before > 0) {
      EXPECT_LE(step, before * (1 + 1e-5)) << scene.machine.devices.size() << " devices";
    }
    before = step;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPools, testing::Combine(testing::Range(1U, 9U), testing::Values(0U, 1U)));

/// The step cannot be shorter than the work over all speeds; how far the plan is from it is known.
TEST(LargePools, NinetyFourBlocksOnEightUnlikeDevices_GapIsBounded) {
  Scene scene = make_scene(188, 32, 6 * kLayerFlops);
  for (int i = 0; i < 8; ++i) add_device(scene, 1e12 * (1 + 0.3 * i));
  const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  double speeds = 0;
  for (const DeviceShape& device : scene.machine.devices) speeds += device.profile.speed(scene.work.dtype);
  // A forward and a backward from what is kept, at least.
  const double least = 32 * (188 * 3 * kLayerFlops + 3 * 6 * kLayerFlops) / speeds;
  EXPECT_GE(plan->predicted.least_step_seconds, least * (1 - 1e-9));
  EXPECT_LT(plan->predicted.step_seconds, 1.2 * plan->predicted.least_step_seconds);
  EXPECT_LT(plan->predicted.bubble, 0.08);
}

}  // namespace
}  // namespace rondo::partition
