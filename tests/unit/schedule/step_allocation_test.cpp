// No thread allocates while a step runs, once the first one has: neither the caller's, a worker's, a link's nor the
// optimizer's.
#include <gtest/gtest.h>

#include "allocation_count.h"
#include "rondo/devices/pool.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using rondo::allocation::allocations_so_far;

/// oneDNN allocates in every call of a bf16 primitive, which is what processors run that multiply bf16 themselves.
devices::DType dtype_without_primitives() {
  devices::ThreadPool threads(1);
  const auto pool = devices::open_pool({"cpu", ""}, threads);
  const bool primitives = pool.ok() && pool->front().device->caps().multiplies_by_units(devices::DType::kBfloat16);
  return primitives ? devices::DType::kFloat32 : devices::DType::kBfloat16;
}

class StepAllocation : public testing::TestWithParam<Placement> {};

TEST_P(StepAllocation, StepsAfterTheFirst_AllocateNothing) {
  const data::Dataset dataset = random_samples(61, 8, 80, 20);
  model::ModelConfig config = small_config(true);
  // Blocks with one MLP and blocks with several.
  config.experts = {5, 2, 24, true, {false, true, false}, true, model::ClampedSwiglu{1.702, 0.5}};
  config.attention_sinks = true;
  const model::Architecture model = *model::Architecture::make(config, full(dtype_without_primitives()));
  Job job;
  job.steps = steps_of(dataset, {5, 5, 5, 3, 5, 5});
  job.reduction_group = 2;
  job.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 1, store); };
  Placement placement = GetParam();
  if (placement.devices != "cpu") placement.devices = "emulated:" + card_file().string() + placement.devices;
  placement.trace_spans = 4096;
  placement.threads = 2;
  auto run = TinyRun::make(model, job, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_GT(allocations_so_far(), 0U) << "nothing is counted";
  for (std::size_t step = 0; step < job.steps.size(); ++step) {
    (*run)->executor().drain_and_wait();
    const std::uint64_t before = allocations_so_far();
    const auto result = (*run)->train(step);
    (*run)->executor().drain_and_wait();
    const std::uint64_t taken = allocations_so_far() - before;
    ASSERT_TRUE(result.ok()) << result.status();
    if (step > 0) {
      EXPECT_EQ(taken, 0U) << "in step " << step + 1;
    }
  }
}

const Stages kStages = {{0, 2, 3}, 6, {4, 1}};
INSTANTIATE_TEST_SUITE_P(Pools, StepAllocation,
                         testing::Values(Placement{"cpu", "cpu"}, Placement{"cpu_stages", "cpu", 1, {}, kStages, 2},
                                         Placement{"card", "#fast"},
                                         Placement{"card_stages", "#fast", 1, {}, kStages, 2},
                                         Placement{"cards", "#fast*3", 1, {}, kStages, 4},
                                         Placement{"cpu_on_disk", "cpu", 1, {}, kStages, 2, {}, 0},
                                         Placement{"cards_on_disk", "#fast*3", 1, {}, kStages, 4, {}, 3}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace rondo::tiny
