// The second law: one batch of 8 is 8 batches of 1, and a packed sequence is its samples run apart.
#include <gtest/gtest.h>

#include <cmath>

#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;

class Batches : public testing::Test {
 protected:
  const data::Dataset dataset_ = random_samples(61, 11, 40, 24);
  const model::Architecture model_ = *model::Architecture::make(small_config(), full(DType::kFloat32));

  Job job_of(std::vector<std::vector<schedule::Microbatch>> steps, std::uint32_t group = 16) const {
    Job job;
    job.steps = std::move(steps);
    job.reduction_group = group;
    job.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 4, store); };
    return job;
  }
  /// Four steps of 8 samples, so many of them a microbatch.
  Job in_batches_of(std::uint32_t size, std::uint32_t group = 16) const {
    std::vector<std::vector<schedule::Microbatch>> steps;
    for (std::uint32_t step = 0; step < 4; ++step) {
      std::vector<schedule::Microbatch>& batches = steps.emplace_back();
      for (std::uint32_t i = 0; i < 8; i += size) {
        batches.push_back(microbatch_of(dataset_, step * 8 + i, size, step));
      }
    }
    return job_of(std::move(steps), group);
  }
};

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i;
  }
}

TEST_F(Batches, OneOfEight_IsEightOfOne) {
  const Trace whole = trace_of(model_, in_batches_of(8), {"one of 8"});
  for (const std::uint32_t size : {1U, 2U, 4U}) {
    SCOPED_TRACE(size);
    const Trace apart = trace_of(model_, in_batches_of(size), {"smaller ones"});
    expect_near(apart.loss_sums, whole.loss_sums, kLossTolerance);
    expect_near(apart.norms, whole.norms, kNormTolerance);
  }
}

TEST_F(Batches, ReductionGroups_ChangeNoMoreThanTheOrderOfSums) {
  const Trace whole = trace_of(model_, in_batches_of(1, 16), {"one group"});
  for (const std::uint32_t group : {1U, 3U, 4U}) {
    const Trace grouped = trace_of(model_, in_batches_of(1, group), {"groups"});
    expect_near(grouped.loss_sums, whole.loss_sums, kLossTolerance);
    expect_near(grouped.norms, whole.norms, kNormTolerance);
  }
}

TEST_F(Batches, PackedSequence_IsItsSamplesApart) {
  const Job packed = job_of({{microbatch_of(dataset_, 0, 3, 0)}});
  const Job apart =
      job_of({{microbatch_of(dataset_, 0, 1, 0), microbatch_of(dataset_, 1, 1, 0), microbatch_of(dataset_, 2, 1, 0)}});
  auto together = TinyRun::make(model_, packed, {"packed"});
  auto single = TinyRun::make(model_, apart, {"apart"});
  ASSERT_TRUE(together.ok() && single.ok());
  const auto whole = (*together)->executor().evaluate(packed.steps[0]);
  ASSERT_TRUE(whole.ok()) << whole.status();
  double sum = 0;
  for (const schedule::Microbatch& batch : apart.steps[0]) {
    const auto one = (*single)->executor().evaluate({batch});
    ASSERT_TRUE(one.ok()) << one.status();
    sum += one->loss_sum;
  }
  EXPECT_NEAR(whole->loss_sum, sum, kLossTolerance * sum);
}

TEST_F(Batches, ASampleBeside_DoesNotChangeASamplesLoss) {
  // Sample 6 has no targets (random_samples): beside it, sample 5 must lose what it loses alone.
  const Job job = job_of({{microbatch_of(dataset_, 5, 1, 0)}, {microbatch_of(dataset_, 5, 2, 0)}});
  auto run = TinyRun::make(model_, job, {"beside"});
  ASSERT_TRUE(run.ok()) << run.status();
  const auto alone = (*run)->executor().evaluate(job.steps[0]);
  const auto beside = (*run)->executor().evaluate(job.steps[1]);
  ASSERT_TRUE(alone.ok() && beside.ok());
  ASSERT_GT(alone->target_tokens, 0U);
  EXPECT_EQ(alone->target_tokens, beside->target_tokens);
  EXPECT_NEAR(alone->loss_sum, beside->loss_sum, kLossTolerance * alone->loss_sum);
}

TEST_F(Batches, StepWithoutTargets_IsSkippedAndChangesNothing) {
  const Job job = job_of(
      {{microbatch_of(dataset_, 0, 2, 0)}, {microbatch_of(dataset_, 6, 1, 1)}, {microbatch_of(dataset_, 2, 2, 2)}});
  ASSERT_EQ(job.steps[1][0].target_tokens, 0U);
  const Job without = job_of({job.steps[0], job.steps[2]});
  auto run = TinyRun::make(model_, job, {"with a step without targets"});
  ASSERT_TRUE(run.ok()) << run.status();
  for (std::size_t step = 0; step < 3; ++step) {
    const std::string before = (*run)->bytes();
    const auto result = (*run)->train(step);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->skipped, step == 1);
    EXPECT_EQ((*run)->bytes() == before, step == 1);
  }
  EXPECT_EQ((*run)->executor().updates(), 2U);
  EXPECT_EQ((*run)->bytes(), trace_of(model_, without, {"without it"}).bytes);
}

TEST_F(Batches, MicrobatchWithoutTargets_AddsNothing) {
  const schedule::Microbatch silent = microbatch_of(dataset_, 6, 1, 0);
  ASSERT_EQ(silent.target_tokens, 0U);
  const schedule::Microbatch spoken = microbatch_of(dataset_, 0, 2, 0);
  const Trace alone = trace_of(model_, job_of({{spoken}}), {"alone"});
  const Trace with = trace_of(model_, job_of({{silent, spoken}}), {"with a silent one"});
  EXPECT_EQ(with.loss_sums, alone.loss_sums);
  EXPECT_EQ(with.norms, alone.norms);
}

}  // namespace
}  // namespace rondo::tiny
