// The laws on one card: whatever the stages, rounds and what is recomputed, losses, norms, weights and moments are the
// same bits. Linked once with the fake card and once without, for a real one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda_card.h"
#include "rondo/devices/cuda/cuda_device.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::Fp8Format;
using partition::Keep;

class CudaLaws : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (const std::string why = test::no_cuda_card(); !why.empty()) GTEST_SKIP() << why;
    if (GetParam().fp8 == Fp8Format::kNone) return;
    const auto card = devices::cuda::open_cuda({});
    ASSERT_EQ(card.status(), absl::OkStatus());
    if (!(*card)->caps().fp8) GTEST_SKIP() << "the card is of an earlier compute capability than 8.9";
  }
};

Job job_of(const std::vector<std::uint32_t>& microbatches) {
  Job job;
  job.steps = steps_of(random_samples(61, 5, 40, 16), microbatches);
  job.reduction_group = 2;
  job.fill = [](const model::Architecture& filled, offload::ParameterStore& store) { fill_weights(filled, 9, store); };
  return job;
}

TEST_P(CudaLaws, StagesRoundsAndRecomputation_GiveTheSameBits) {
  const model::Architecture model = model_of(GetParam());
  const Job job = job_of({3, 2});
  const Trace reference = trace_of(model, job, {"reference", "cuda:0"});
  ASSERT_EQ(reference.norms.size(), 2U);
  EXPECT_GT(reference.norms[0], 0);
  for (const Keep keep : {Keep::kNothing, Keep::kAll}) {
    for (const std::uint32_t round : {0U, 2U}) {
      Placement placement{"each layer a stage", "cuda:0"};
      placement.keep = keep;
      placement.microbatches_per_round = round;
      placement.stages = one_layer_each(model);
      const Trace trace = trace_of(model, job, placement);
      EXPECT_EQ(trace.loss_sums, reference.loss_sums);
      EXPECT_EQ(trace.norms, reference.norms);
      EXPECT_TRUE(trace.bytes == reference.bytes) << "keep " << static_cast<int>(keep) << ", rounds of " << round;
    }
  }
}

/// They share its memory and take turns there, each with streams and graphs of its own.
TEST_P(CudaLaws, FourWorkersOnOneCard_GiveTheBitsOfOne) {
  const model::Architecture model = model_of(GetParam());
  const Job job = job_of({4, 3, 4});
  const Trace one = trace_of(model, job, {"one", "cuda:0"});
  Placement placement{"four", "cuda:0*4"};
  placement.stages = one_layer_each(model);
  const Trace four = trace_of(model, job, placement);
  ASSERT_EQ(one.norms.size(), 3U);
  EXPECT_GT(one.norms[0], 0);
  EXPECT_EQ(four.loss_sums, one.loss_sums);
  EXPECT_EQ(four.norms, one.norms);
  EXPECT_TRUE(four.bytes == one.bytes);
}

/// Norms and updates on the card are the host's: the same sums in the same order, products fused with sums where it
/// fuses them, the same random numbers.
TEST_P(CudaLaws, StateOnTheCard_GivesTheBitsOfTheHostsUpdates) {
  const model::Architecture model = model_of(GetParam());
  Job job = job_of({3, 2, 3, 3});
  job.reduction_group = 16;
  for (const auto kind : {offload::OptimizerKind::kAdamW, offload::OptimizerKind::kAdamW8Bit}) {
    job.optimizer.kind = kind;
    const Trace reference = trace_of(model, job, {"on the host", "cuda:0"});
    ASSERT_EQ(reference.norms.size(), 4U);
    Placement placement{"on the card", "cuda:0"};
    placement.holds_state = true;
    const Trace trace = trace_of(model, job, placement);
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.norms, reference.norms);
    EXPECT_TRUE(trace.bytes == reference.bytes);
  }
}

/// Long enough for runs to recur: what is replayed is what would have been sent step by step.
TEST_P(CudaLaws, WithGraphsAndWithout_GiveTheSameBits) {
  const model::Architecture model = model_of(GetParam());
  const Job job = job_of({3, 3, 3, 3});
  setenv("RONDO_CUDA_GRAPHS", "off", 1);
  const Trace without = trace_of(model, job, {"without graphs", "cuda:0"});
  unsetenv("RONDO_CUDA_GRAPHS");
  const Trace with = trace_of(model, job, {"with graphs", "cuda:0"});
  ASSERT_EQ(without.norms.size(), 4U);
  EXPECT_GT(without.norms[0], 0);
  EXPECT_EQ(with.loss_sums, without.loss_sums);
  EXPECT_EQ(with.norms, without.norms);
  EXPECT_TRUE(with.bytes == without.bytes);
}

/// Eight bits cost digits, and only these.
TEST_P(CudaLaws, Fp8_FollowsBf16) {
  if (GetParam().fp8 == Fp8Format::kNone) GTEST_SKIP() << "of the variants in fp8";
  Variant plain = GetParam();
  plain.fp8 = Fp8Format::kNone;
  const Job job = job_of({3, 3, 3, 3});
  const Trace narrow = trace_of(model_of(GetParam()), job, {"fp8", "cuda:0"});
  const Trace wide = trace_of(model_of(plain), job, {"bf16", "cuda:0"});
  ASSERT_EQ(narrow.loss_sums.size(), 4U);
  EXPECT_NE(narrow.loss_sums, wide.loss_sums);
  for (std::size_t i = 0; i < narrow.loss_sums.size(); ++i) {
    EXPECT_NEAR(narrow.loss_sums[i] / wide.loss_sums[i], 1.0, 0.02) << i;
    EXPECT_NEAR(narrow.norms[i] / wide.norms[i], 1.0, 0.1) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaLaws,
                         testing::Values(Variant{"full_fp32_tied", false, DType::kFloat32, true},
                                         Variant{"full_bf16", false, DType::kBfloat16, false},
                                         Variant{"full_fp16", false, DType::kFloat16, false},
                                         Variant{"lora_bf16", true, DType::kBfloat16, true},
                                         Variant{.name = "full_fp8", .fp8 = Fp8Format::kHybrid},
                                         Variant{
                                             .name = "lora_fp8", .lora = true, .tied = true, .fp8 = Fp8Format::kE4m3}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace rondo::tiny
