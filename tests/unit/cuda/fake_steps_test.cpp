// Whole steps on the fake card, as the driver sees them: what recurs from step to step is replayed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fake_driver.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::cuda::testing::calls_of;
using partition::Keep;

TEST(CudaSteps, Experiment) {
  const data::Dataset dataset = random_samples(61, 5, 400, 16);
  for (const bool with_lora : {false, true}) {
    const model::Architecture model =
        *model::Architecture::make(small_config(true), with_lora ? lora(DType::kBfloat16) : full(DType::kBfloat16));
    Job job;
    job.steps = steps_of(dataset, std::vector<std::uint32_t>(12, 5));
    job.reduction_group = 2;
    job.fill = [](const model::Architecture& filled, offload::ParameterStore& store) {
      fill_weights(filled, 9, store);
    };
    for (const bool each : {false, true}) {
      for (const std::uint32_t stays : {0U, 1U}) {
        devices::cuda::testing::reset_fake();
        Placement placement{"x", "cuda:0"};
        if (each) {
          placement.keep = Keep::kNothing;
          placement.stages = one_layer_each(model);
          placement.stays = stays;
        } else if (stays) {
          continue;
        }
        auto run = TinyRun::make(model, job, placement);
        ASSERT_EQ(run.status(), absl::OkStatus());
        for (std::size_t step = 0; step < job.steps.size(); ++step) {
          const int launches = calls_of("cuLaunchKernel");
          const int sets = calls_of("cuMemsetD8Async");
          const int graphs = calls_of("cuGraphLaunch");
          const int captures = calls_of("cuStreamBeginCapture");
          ASSERT_EQ((*run)->train(step).status(), absl::OkStatus());
          fmt::print(
              "lora {} each {} stays {} step {}: micro {} kernels {} clears {} graph launches {} captures {} records "
              "{} waits {}\n",
              with_lora, each, stays, step, job.steps[step].size(), calls_of("cuLaunchKernel") - launches,
              calls_of("cuMemsetD8Async") - sets, calls_of("cuGraphLaunch") - graphs,
              calls_of("cuStreamBeginCapture") - captures, calls_of("cuEventRecord"), calls_of("cuStreamWaitEvent"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rondo::tiny
