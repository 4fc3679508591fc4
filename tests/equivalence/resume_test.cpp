// Interrupted and resumed is uninterrupted, bit for bit, on any pool.
#include <gtest/gtest.h>
#include <unistd.h>

#include "rondo/train/checkpoint.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;

class Resume : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Job job() const {
    Job job;
    job.steps = steps_of(dataset_, {3, 3, 3, 2});
    job.reduction_group = 2;
    job.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 6, store); };
    return job;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_resume_" + std::to_string(::getpid()));
  const data::Dataset dataset_ = random_samples(61, 3, 40, 20);
  const model::Architecture model_ =
      *model::Architecture::make(small_config(true), GetParam() ? lora(DType::kBfloat16) : full(DType::kBfloat16));
};

TEST_P(Resume, OnAnotherPool_GoesOnBitForBit) {
  const Job job = this->job();
  const Trace whole = trace_of(model_, job, {"uninterrupted"});
  const std::string fast = fast_cards(2);
  ASSERT_NO_FATAL_FAILURE(run_to_checkpoint(model_, job, {"before", fast}, 2, folder_));
  Job cold = job;
  // What a run starts from must not matter, save for weights that are not trained: a checkpoint does not hold them.
  cold.fill = [](const model::Architecture& model, offload::ParameterStore& store) {
    fill_weights(model, 6, store);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (!model.parameters()[id].trained) continue;
      for (float& value : store.master(id)) value = 77;
      store.publish_from_master(id, 0);
    }
  };
  Placement placement{"after", "cpu"};
  placement.stages = one_layer_each(model_);
  auto second = TinyRun::make(model_, cold, placement);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto checkpoint = train::newest_checkpoint(folder_);
  ASSERT_TRUE(checkpoint.has_value());
  const auto state = train::read_checkpoint(*checkpoint, model_, (*second)->store());
  ASSERT_TRUE(state.ok()) << state.status();
  (*second)->executor().set_course(state->course);
  for (std::size_t step = state->global_step; step < job.steps.size(); ++step) {
    const auto result = (*second)->train(step);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss_sum, whole.loss_sums[step]);
    EXPECT_EQ(result->grad_norm, whole.norms[step]);
  }
  EXPECT_EQ((*second)->bytes(), whole.bytes);
}

INSTANTIATE_TEST_SUITE_P(Methods, Resume, testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "lora" : "full"); });

}  // namespace
}  // namespace rondo::tiny
