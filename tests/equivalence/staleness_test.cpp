// Staleness 1: the published scheme's numbers, the same bits on every pool whether steps overlap or not, through a lost
// device and through an interruption.
#include <gtest/gtest.h>
#include <unistd.h>

#include "rondo/train/checkpoint.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using devices::DType;

class Staleness : public testing::TestWithParam<Variant> {
 protected:
  Staleness() {
    job_.steps = steps_of(dataset_, {5, 5, 5, 5, 3});
    job_.reduction_group = 2;
    job_.staleness = 1;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 8, store); };
    exact_ = job_;
    exact_.staleness = 0;
  }
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void expect_same(const Trace& trace, const Trace& reference) const {
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.norms, reference.norms);
    EXPECT_TRUE(trace.bytes == reference.bytes);
  }
  Placement cards(const std::string& name, int count) const {
    Placement placement{name, fast_cards(count)};
    placement.ahead = true;
    return placement;
  }
  /// Loss and norm of the last of these batches after exact updates with the others.
  schedule::StepResult exact(const std::vector<std::size_t>& steps) const {
    auto run = TinyRun::make(model_, exact_, {"exact"});
    EXPECT_TRUE(run.ok()) << run.status();
    schedule::StepResult last;
    for (const std::size_t step : steps) last = (*run)->train(step).value();
    return last;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_stale_" + std::to_string(::getpid()));
  const data::Dataset dataset_ = random_samples(61, 7, 50, 24);
  const model::Architecture model_ = model_of(GetParam());
  Job job_;
  Job exact_;
};

TEST_P(Staleness, Steps_ComputeOnTheWeightsOfTheStepBeforeLast) {
  const Trace stale = trace_of(model_, job_, {"stale"});
  ASSERT_EQ(stale.norms.size(), 5U);
  // Steps 1 and 2 see what the run started from, step 3 sees the first update, which is an exact one.
  const std::vector<schedule::StepResult> wanted = {exact({0}), exact({1}), exact({0, 2})};
  for (std::size_t step = 0; step < wanted.size(); ++step) {
    EXPECT_EQ(stale.loss_sums[step], wanted[step].loss_sum) << step;
    EXPECT_EQ(stale.norms[step], wanted[step].grad_norm) << step;
  }
  EXPECT_NE(stale.loss_sums[1], exact({0, 1}).loss_sum) << "the second step has seen the first one's update";
}

TEST_P(Staleness, AnyPool_GivesTheSameBitsWhetherStepsOverlapOrNot) {
  const Trace reference = trace_of(model_, job_, {"reference"});
  std::vector<Placement> placements;
  placements.push_back({"cpu, overlapping"});
  placements.back().ahead = true;
  placements.push_back(cards("one card", 1));
  placements.push_back(cards("three cards", 3));
  placements.push_back(cards("apart", 2));
  placements.back().ahead = false;
  placements.push_back(cards("layer by layer", 3));
  placements.back().stages = one_layer_each(model_);
  placements.push_back(cards("rounds", 2));
  placements.back().stages = one_layer_each(model_);
  placements.back().microbatches_per_round = 2;
  placements.push_back(cards("residents", 2));
  placements.back().stages = Stages{{0, 2, 3}, 6, {4, 1}};
  placements.back().stays = 1;
  placements.push_back(cards("with the CPU", 1));
  placements.back().devices += ",cpu";
  placements.back().stages = Stages{{0, 2, 3}, 6, {4, 1}};
  if (!GetParam().lora) {
    placements.push_back(cards("disk", 2));
    placements.back().disk_from = 2;
  }
  for (const Placement& placement : placements) {
    SCOPED_TRACE(placement.name);
    expect_same(trace_of(model_, job_, placement), reference);
  }
}

TEST_P(Staleness, LostDevice_LeavesTheAnswer) {
  const Trace reference = trace_of(model_, job_, {"reference"});
  for (const char* fail_at : {"error@compute:9", "error@compute:60", "error@up:70", "error@down:50", "hang@compute:70",
                              "corrupt@compute:70"}) {
    SCOPED_TRACE(fail_at);
    const std::string file = card_file(card_entry("bad", 4, 4, fail_at)).string();
    Placement placement{fail_at, "emulated:" + file + "#bad,emulated:" + file + "#fast*2"};
    placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
    placement.recover = true;
    placement.hang_seconds = hang_seconds_for(fail_at);
    placement.ahead = true;
    expect_same(trace_of(model_, job_, placement), reference);
  }
}

TEST_P(Staleness, Resumed_GoesOnBitForBit) {
  const Trace whole = trace_of(model_, job_, {"uninterrupted"});
  ASSERT_NO_FATAL_FAILURE(run_to_checkpoint(model_, job_, cards("before", 2), 3, folder_));
  auto second = TinyRun::make(model_, job_, {"after"});
  ASSERT_TRUE(second.ok()) << second.status();
  const auto state = train::read_checkpoint(*train::newest_checkpoint(folder_), model_, (*second)->store());
  ASSERT_TRUE(state.ok()) << state.status();
  (*second)->executor().set_course(state->course);
  for (std::size_t step = state->global_step; step < job_.steps.size(); ++step) {
    const auto result = (*second)->train(step);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss_sum, whole.loss_sums[step]);
    EXPECT_EQ(result->grad_norm, whole.norms[step]);
  }
  EXPECT_TRUE((*second)->bytes() == whole.bytes);
}

TEST_P(Staleness, CheckpointOfAnExactRun_IsRefusedByName) {
  auto exact = TinyRun::make(model_, exact_, {"exact"});
  ASSERT_TRUE(exact.ok()) << exact.status();
  ASSERT_TRUE((*exact)->train(0).ok());
  (*exact)->executor().drain_and_wait();
  train::TrainerState written;
  written.global_step = written.course.now.updates = 1;
  ASSERT_TRUE(train::write_checkpoint(folder_, written, model_, (*exact)->store(), Documents(folder_)).ok());
  auto stale = TinyRun::make(model_, job_, {"stale"});
  ASSERT_TRUE(stale.ok()) << stale.status();
  const auto state = train::read_checkpoint(*train::newest_checkpoint(folder_), model_, (*stale)->store());
  EXPECT_EQ(state.status().code(), absl::StatusCode::kInvalidArgument) << state.status();
  EXPECT_NE(std::string(state.status().message()).find("staleness: 0"), std::string::npos) << state.status();
}

INSTANTIATE_TEST_SUITE_P(Methods, Staleness,
                         testing::Values(Variant{"full_bf16"}, Variant{"full_bf16_tied", false, DType::kBfloat16, true},
                                         Variant{"full_fp32", false, DType::kFloat32, true},
                                         Variant{"lora_bf16", true, DType::kBfloat16, true},
                                         Variant{"full_fp16_tied", false, DType::kFloat16, true}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
