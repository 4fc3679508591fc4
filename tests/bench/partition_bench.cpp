// How quickly plans are made and simulated: 94 blocks (188 layers, table and head) on eight unlike devices.
#include <benchmark/benchmark.h>

#include "scene.h"

namespace rondo::partition {
namespace {

Scene large_pool(bool like, std::uint32_t microbatches) {
  Scene scene = make_scene(188, microbatches, 6 * kLayerFlops);
  scene.work.reduction_group = 16;
  for (int i = 0; i < 8; ++i) {
    add_device(scene, like ? 1e12 : 1e12 * (1 + 0.3 * i));
    devices::DeviceProfile& profile = scene.machine.devices.back().profile;
    profile.link_up = profile.link_down = 4e9;
    profile.link_latency_seconds = 1e-5;
  }
  scene.machine.host.memory_bandwidth = 2e11;
  scene.machine.host.optimizer_parameters_per_second = 5e9;
  return scene;
}

void make_plan_of(benchmark::State& state, bool like) {
  const Scene scene = large_pool(like, static_cast<std::uint32_t>(state.range(0)));
  double bubble = 0;
  for (auto _ : state) {
    const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
    bubble = plan.ok() ? plan->predicted.bubble : 1;
  }
  state.counters["bubble"] = bubble;
}
void BM_MakePlan_LikeDevices(benchmark::State& state) { make_plan_of(state, true); }
void BM_MakePlan_UnlikeDevices(benchmark::State& state) { make_plan_of(state, false); }
BENCHMARK(BM_MakePlan_LikeDevices)->Arg(32)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MakePlan_UnlikeDevices)->Arg(32)->Arg(256)->Unit(benchmark::kMillisecond);

/// `shared`: all links hang on one root.
void simulate_plan(benchmark::State& state, bool shared) {
  Scene scene = large_pool(false, 256);
  for (DeviceShape& device : scene.machine.devices) device.profile.root = shared ? "root" : "";
  const auto plan = make_plan(scene.model, scene.work, scene.machine, {});
  if (!plan.ok()) return state.SkipWithError("no plan");
  std::uint64_t events = 0;
  for (auto _ : state) events += simulate(*plan, scene.model, scene.work, scene.machine, 4).events;
  state.counters["events"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
void BM_Simulate_OwnLinks(benchmark::State& state) { simulate_plan(state, false); }
void BM_Simulate_SharedRoot(benchmark::State& state) { simulate_plan(state, true); }
BENCHMARK(BM_Simulate_OwnLinks)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Simulate_SharedRoot)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rondo::partition
