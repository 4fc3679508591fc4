// CUDA's cards in one pool with the CPU and with Vulkan's: every member computes, and losses are the CPU's. Linked once
// with the fake card and once without, for a real one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda_card.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"
#include "vulkan_card.h"

namespace rondo::tiny {
namespace {

using devices::DType;

constexpr const char* kCpu = "cpu:0";  // "cpu" alone stands for the card that the program tests

class CudaInMixedPools : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (const std::string why = test::no_cuda_card(); !why.empty()) GTEST_SKIP() << why;
    pools_ = {std::string("cuda:0,") + kCpu};
    const auto vulkan = test::usable_vulkan_card();
    if (!vulkan) return;
    const std::string card = "vulkan:" + std::to_string(vulkan->index);
    pools_.push_back(card + ",cuda:0");
    pools_.push_back("cuda:0," + card + "," + kCpu);
  }

  std::vector<std::string> pools_;
};

TEST_P(CudaInMixedPools, EveryMemberComputes_AndLossesAreTheCpus) {
  // bf16 rounds activations to 2^-9 of themselves; sums that were taken in another order may fall to the other side.
  // An adapter amplifies that: over 24 fills the CPU's third loss in bf16 was 1e-3 from that in fp32, in quadratic
  // mean.
  const double narrow = GetParam().lora ? 4e-3 : 2e-3;
  const double allowed = GetParam().dtype == DType::kFloat32 ? 2e-6 : narrow;
  const model::Architecture model = model_of(GetParam());
  Job job;
  job.steps = steps_of(random_samples(61, 5, 32, 24), {5, 5, 3});
  job.reduction_group = 2;
  job.fill = [](const model::Architecture& filled, offload::ParameterStore& store) { fill_weights(filled, 9, store); };
  const Trace expected = trace_of(model, job, {"the CPU", kCpu});
  ASSERT_EQ(expected.loss_sums.size(), 3U);
  for (const std::string& pool : pools_) {
    SCOPED_TRACE(pool);
    Placement placement{pool, pool};
    placement.stages = one_layer_each(model);
    const auto run = TinyRun::make(model, job, placement);
    ASSERT_EQ(run.status(), absl::OkStatus());
    EXPECT_EQ((*run)->used_devices(), 1U + static_cast<std::size_t>(std::count(pool.begin(), pool.end(), ',')));
    for (std::size_t step = 0; step < job.steps.size(); ++step) {
      const auto result = (*run)->train(step);
      ASSERT_EQ(result.status(), absl::OkStatus());
      EXPECT_NEAR(result->loss_sum, expected.loss_sums[step], allowed * expected.loss_sums[step]) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaInMixedPools,
                         testing::Values(Variant{"full_fp32_tied", false, DType::kFloat32, true},
                                         Variant{"full_bf16", false, DType::kBfloat16},
                                         Variant{"full_fp16", false, DType::kFloat16},
                                         Variant{"lora_fp32", true, DType::kFloat32},
                                         Variant{"lora_bf16", true, DType::kBfloat16}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace rondo::tiny
