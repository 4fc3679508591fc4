// Whole steps on the fake card, as the driver sees them: what recurs from step to step is replayed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fake_driver.h"
#include "rondo/devices/pool.h"
#include "rondo/train/generator.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "vulkan_card.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::cuda::testing::all_calls;
using devices::cuda::testing::calls_of;
using partition::Keep;

struct Recurring {
  const char* name;
  bool lora;
  bool each_layer_a_stage;
  std::uint32_t stays;
};

class CudaSteps : public testing::TestWithParam<Recurring> {
 protected:
  void TearDown() override { unsetenv("RONDO_CUDA_GRAPHS"); }
};

/// The same microbatches in every step, as far as their lengths go.
TEST_P(CudaSteps, ThatRecur_AreReplayedByLaunchesOfGraphs) {
  constexpr int kSteps = 10;
  constexpr int kLast = 2;
  const Recurring& how = GetParam();
  const data::Dataset dataset = random_samples(61, 5, 40, 16);
  const model::Architecture model =
      *model::Architecture::make(small_config(true), how.lora ? lora(DType::kBfloat16) : full(DType::kBfloat16));
  Job job;
  job.steps.assign(1, steps_of(dataset, {5}).front());
  job.reduction_group = 2;
  job.fill = [](const model::Architecture& filled, offload::ParameterStore& store) { fill_weights(filled, 9, store); };
  Placement placement{how.name, "cuda:0"};
  if (how.each_layer_a_stage) {
    placement.keep = Keep::kNothing;
    placement.stages = one_layer_each(model);
    placement.stays = how.stays;
  }
  setenv("RONDO_CUDA_GRAPHS", "off", 1);
  devices::cuda::testing::reset_fake();
  {
    auto run = TinyRun::make(model, job, placement);
    ASSERT_EQ(run.status(), absl::OkStatus());
    ASSERT_EQ((*run)->train(0).status(), absl::OkStatus());
  }
  const int kernels_without = calls_of("cuLaunchKernel");
  EXPECT_EQ(calls_of("cuGraphLaunch"), 0);
  setenv("RONDO_CUDA_GRAPHS", "on", 1);
  devices::cuda::testing::reset_fake();
  auto run = TinyRun::make(model, job, placement);
  ASSERT_EQ(run.status(), absl::OkStatus());
  std::map<std::string, int> before;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - kLast) before = all_calls();
    ASSERT_EQ((*run)->train(0).status(), absl::OkStatus());
  }
  std::map<std::string, int> last = all_calls();
  for (auto& [name, count] : last) count -= before[name];
  for (const char* never : {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuStreamSynchronize", "cuGraphExecDestroy"}) {
    EXPECT_EQ(last[never], 0) << never;
  }
  EXPECT_GT(last["cuGraphLaunch"], 0);
  // Which of the two buffers for gradients is free is the threads' affair: now and then one meets a layer anew.
  EXPECT_LT(last["cuLaunchKernel"], kLast * kernels_without / 10);
  // For a layer and phase: two buffers of weights, two of gradients, two of what lies at a stage's borders.
  const int made = calls_of("cuGraphInstantiateWithFlags");
  EXPECT_LE(made, static_cast<int>(model.layers().size()) * 2 * 8);
  RecordProperty("graphs", made);
  RecordProperty("kernels_of_a_step_without", kernels_without);
  RecordProperty("kernels_of_a_step_with", last["cuLaunchKernel"] / kLast);
  RecordProperty("graph_launches_of_a_step", last["cuGraphLaunch"] / kLast);
}

INSTANTIATE_TEST_SUITE_P(, CudaSteps,
                         testing::Values(Recurring{"full_one_stage", false, false, 0},
                                         Recurring{"full_each_layer_a_stage", false, true, 0},
                                         Recurring{"full_each_layer_a_stage_that_stays", false, true, 1},
                                         Recurring{"lora_one_stage", true, false, 0},
                                         Recurring{"lora_each_layer_a_stage", true, true, 0}),
                         [](const auto& one) { return one.param.name; });

TEST(CudaPool, WorkersOnOneCard_AreGivenNoMoreThanItHas) {
  const devices::cuda::testing::FakeScript script;
  devices::cuda::testing::reset_fake(script);
  devices::ThreadPool threads(1);
  const auto pool = devices::open_pool({"cuda:0*4", ""}, threads);
  ASSERT_EQ(pool.status(), absl::OkStatus());
  ASSERT_EQ(pool->size(), 4U);
  Bytes together = 0;
  for (const devices::PoolMember& member : *pool) {
    EXPECT_GT(member.device->caps().memory_bytes, 0U);
    together += member.device->caps().memory_bytes;
  }
  EXPECT_LE(together, script.memory);
}

/// What both drivers show is one memory.
TEST(CudaPool, CardThatVulkanShowsToo_IsSharedOut) {
  const auto vulkan = test::usable_vulkan_card();
  if (!vulkan) GTEST_SKIP() << test::kNoVulkanCard;
  devices::cuda::testing::FakeScript script;
  devices::ThreadPool threads(1);
  const std::string both = "cuda:0,vulkan:" + std::to_string(vulkan->index);
  std::vector<Bytes> memory;
  for (const bool same : {false, true}) {
    if (same) script.uuid = vulkan->uuid;
    devices::cuda::testing::reset_fake(script);
    const auto pool = devices::open_pool({both, ""}, threads);
    ASSERT_EQ(pool.status(), absl::OkStatus());
    for (const devices::PoolMember& member : *pool) memory.push_back(member.device->caps().memory_bytes);
  }
  ASSERT_EQ(memory.size(), 4U);
  EXPECT_LE(memory[2], memory[0] / 2);
  EXPECT_GT(memory[2], memory[0] / 3);      // each keeps room for its workspace
  EXPECT_LT(memory[3], memory[1] * 3 / 4);  // of the host's memory, which others take from meanwhile
}

/// Tokens of an answer differ by what lies in their buffers alone.
TEST(CudaGeneration, OfMoreTokens_IsReplayedByLaunchesOfGraphs) {
  const model::Architecture model = *model::Architecture::make(small_config(false), full(DType::kBfloat16));
  Job job;
  job.steps = steps_of(random_samples(61, 5, 40, 16), {2});
  job.fill = [](const model::Architecture& filled, offload::ParameterStore& store) { fill_weights(filled, 9, store); };
  const std::vector<std::int32_t> prompt = {3, 14, 15, 9, 26};
  train::SamplingOptions options;
  options.max_new_tokens = 9;
  std::vector<std::int32_t> expected;
  for (const char* graphs : {"off", "on"}) {
    setenv("RONDO_CUDA_GRAPHS", graphs, 1);
    devices::cuda::testing::reset_fake();
    auto run = TinyRun::make(model, job, {"generation", "cuda:0"});
    ASSERT_EQ(run.status(), absl::OkStatus());
    auto generator = train::Generator::make(model, (*run)->store(), (*run)->device(0), 5, 16);
    ASSERT_EQ(generator.status(), absl::OkStatus());
    for (int time = 0; time < 3; ++time) {
      (*generator)->forget();
      const int kernels = calls_of("cuLaunchKernel");
      const auto answer = (*generator)->generate(prompt, options, nullptr);
      ASSERT_EQ(answer.status(), absl::OkStatus());
      if (expected.empty()) expected = *answer;
      EXPECT_EQ(*answer, expected);
      const bool replayed = std::string_view(graphs) == "on" && time == 2;
      EXPECT_EQ(calls_of("cuLaunchKernel") == kernels, replayed) << graphs << ", answer " << time + 1;
    }
  }
  unsetenv("RONDO_CUDA_GRAPHS");
}

}  // namespace
}  // namespace rondo::tiny
