// Models and machines of round numbers for the partitioner's tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

inline constexpr double kLayerFlops = 1e9;  // forward, of one microbatch
inline constexpr Bytes kMiB = Bytes{1} << 20U;

struct Scene {
  ModelShape model;
  Workload work;
  MachineShape machine;
};

/// A lookup table without FLOPs, `blocks` layers and a head of `head_flops`; gradients cost twice the forward, and
/// recomputation once more, and of the head alone they do not come in halves. Frozen below `first_trained`.
inline Scene make_scene(std::uint32_t blocks, std::uint32_t microbatches, double head_flops = kLayerFlops,
                        LayerIndex first_trained = 0) {
  Scene scene;
  for (LayerIndex i = 0; i < blocks + 2; ++i) {
    const double flops = i == 0 ? 0 : i == blocks + 1 ? head_flops : kLayerFlops;
    LayerShape layer;
    layer.name = "layer " + std::to_string(i);
    layer.parameters = 1000000;
    layer.weight_bytes = 2 * kMiB;
    layer.scratch_bytes = kMiB;
    layer.has_backward = i >= first_trained;
    layer.forward.ops = {{flops, 0}};
    if (layer.has_backward) {
      layer.trained_parameters = 1000000;
      layer.trained_weight_bytes = layer.weight_bytes;
      layer.gradient_bytes = i == 0 ? 0 : 4 * kMiB;
      layer.row_gradient_bytes = i == 0 ? kMiB : 0;
      const bool head = i == blocks + 1;
      layer.backward[0].ops = {{3 * flops, 0}};
      layer.backward[1].ops = {{(head ? 3 : 2.5) * flops, 0}};
      layer.backward[2].ops = {{(head ? 3 : 2) * flops, 0}};
      if (!head && i > 0) {
        layer.saved_bytes = {0, 2 * kMiB, 4 * kMiB};
        layer.weight_gradients.ops = {{flops, 0}};
        for (std::size_t keep = 0; keep < kKeeps; ++keep) {
          layer.input_gradient[keep].ops = {{layer.backward[keep].flops() - flops, 0}};
        }
        layer.held_bytes = 3 * kMiB;
        layer.saved_and_held_bytes = {0, kMiB, kMiB};
        layer.holds_gradient = true;
      }
      scene.work.trained_parameters += layer.trained_parameters;
    }
    scene.model.layers.push_back(layer);
  }
  scene.model.host_bytes = {{"weights", 2 * kMiB * (blocks + 2)}};
  scene.work.microbatches = microbatches;
  scene.work.microbatch_tokens = 512;
  scene.work.mean_tokens = 512;
  scene.work.reduction_group = microbatches;
  scene.work.boundary_bytes = kMiB;
  scene.work.batch_bytes = 4096;
  scene.machine.host_budget_bytes = Bytes{1} << 40U;
  return scene;
}

/// Links and the host take no time unless a test says so.
inline void add_device(Scene& scene, double flops, Bytes budget = Bytes{1} << 34U) {
  DeviceShape device;
  device.name = "device " + std::to_string(scene.machine.devices.size());
  device.profile.flops = {{devices::DType::kFloat32, flops}, {devices::DType::kBfloat16, flops}};
  device.profile.memory_bandwidth = 1e18;
  device.profile.link_latency_seconds = 0;
  device.budget_bytes = budget;
  scene.machine.devices.push_back(device);
}

/// One layer a slot, `rounds` rounds of all microbatches of the scene over them, dealt in rotation, every slot
/// `seconds`.
inline Plan single_layers(const Scene& scene, std::uint32_t rounds, double seconds) {
  Plan plan;
  plan.reduction_group = scene.work.reduction_group;
  const auto head = static_cast<LayerIndex>(scene.model.layers.size() - 1);
  const std::uint32_t microbatches = scene.work.microbatches / rounds;
  std::uint32_t cursor = 0;
  const auto add = [&](SlotPhase phase, LayerIndex first, LayerIndex last, std::uint32_t round) {
    const auto devices = static_cast<std::uint32_t>(scene.machine.devices.size());
    plan.slots.push_back({phase, first, last, cursor++ % devices, round, seconds});
  };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    plan.rounds.push_back({round * microbatches, microbatches});
    add(SlotPhase::kForward, 0, 1, round);
    for (LayerIndex i = 2; i < head; ++i) add(SlotPhase::kForward, i, i, round);
    add(SlotPhase::kFused, head, head, round);
    for (LayerIndex i = head; i-- > 1;) add(SlotPhase::kBackward, i, i, round);
  }
  return plan;
}

/// Seconds of a step of its plan.
inline double step_of(const Scene& scene, const PlanRequest& request = {}) {
  const auto plan = make_plan(scene.model, scene.work, scene.machine, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->predicted.step_seconds : 0;
}

}  // namespace rondo::partition
