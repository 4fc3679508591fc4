// A device that fails, a step that is abandoned: an error, no hang, and the parameters of the step before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "few_threads.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using testing::HasSubstr;

class Failure : public testing::Test {
 protected:
  Failure() {
    job_.steps = steps_of(dataset_, {4, 4, 4, 4});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 2, store); };
    auto run = TinyRun::make(model_, job_, {"reference"});
    EXPECT_TRUE(run.ok()) << run.status();
    after_.push_back((*run)->bytes());
    for (std::size_t step = 0; step < job_.steps.size(); ++step) {
      EXPECT_TRUE((*run)->train(step).ok());
      after_.push_back((*run)->bytes());
    }
  }

  /// Trains until a step fails; the number of steps done.
  std::size_t steps_until_error(TinyRun& run, absl::Status& error) {
    for (std::size_t step = 0; step < job_.steps.size(); ++step) {
      const auto result = run.train(step);
      if (result.ok()) continue;
      error = result.status();
      return step;
    }
    return job_.steps.size();
  }

  Placement with_bad_card(const std::string& fail_at) const {
    const std::string file = card_file(card_entry("bad", 4, 4, fail_at)).string();
    Placement placement{fail_at, "emulated:" + file + "#fast,emulated:" + file + "#bad"};
    placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
    placement.microbatches_per_round = 2;
    return placement;
  }

  void expect_clean_failure(const std::string& fail_at) {
    SCOPED_TRACE(fail_at);
    auto run = TinyRun::make(model_, job_, with_bad_card(fail_at));
    ASSERT_TRUE(run.ok()) << run.status();
    absl::Status error;
    const std::size_t done = steps_until_error(**run, error);
    ASSERT_LT(done, job_.steps.size()) << "nothing failed";
    EXPECT_THAT(std::string(error.message()), HasSubstr("emulated:bad:0"));
    EXPECT_TRUE((*run)->bytes() == after_[done]) << "after " << done << " steps";
    EXPECT_FALSE((*run)->train(done).ok()) << "a failed executor goes on";
    EXPECT_TRUE((*run)->bytes() == after_[done]);
  }

  const data::Dataset dataset_ = random_samples(61, 21, 60, 16);
  const model::Architecture model_ = *model::Architecture::make(small_config(), full(devices::DType::kBfloat16));
  Job job_;
  std::vector<std::string> after_;  // bytes after so many steps
};

TEST_F(Failure, InComputing_IsNamedAndLeavesTheStepBefore) {
  for (const int work : {1, 2, 9, 31, 64, 100, 131}) expect_clean_failure("error@compute:" + std::to_string(work));
}

TEST_F(Failure, OnTheWayUp_IsNamedAndLeavesTheStepBefore) {
  for (const int work : {1, 3, 14, 30, 50, 70, 90}) expect_clean_failure("error@up:" + std::to_string(work));
}

TEST_F(Failure, OnTheWayDown_IsNamedAndLeavesTheStepBefore) {
  for (const int work : {1, 2, 8, 21, 40, 60, 88}) expect_clean_failure("error@down:" + std::to_string(work));
}

TEST_F(Failure, GradientThatIsNotFinite_IsNamedAndLeavesTheStepBefore) {
  Job job = job_;
  job.fill = [](const model::Architecture& model, offload::ParameterStore& store) {
    fill_weights(model, 2, store);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (model.parameters()[id].name != "model.norm.weight") continue;
      for (float& value : store.master(id)) value = 3e38F;
      store.publish_from_master(id, 0);
    }
  };
  auto run = TinyRun::make(model_, job, {"overflow"});
  ASSERT_TRUE(run.ok()) << run.status();
  const std::string before = (*run)->bytes();
  const auto result = (*run)->train(0);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("not finite"));
  EXPECT_TRUE((*run)->bytes() == before);
}

TEST_F(Failure, AbandonedWithWorkEnqueued_LeavesNothingBehindThatRuns) {
  // A program takes about 20 ms on this card: a dozen are enqueued when the user gives up and everything is torn down,
  // long before the step would have ended.
  const std::string file = card_file(card_entry("sluggish", 1, 2e-10)).string();
  for (const std::string& pool : {"emulated:" + file + "#sluggish", "emulated:" + file + "#sluggish*2"}) {
    auto run = TinyRun::make(model_, job_, {pool, pool});
    ASSERT_TRUE(run.ok()) << run.status();
    std::thread user([&run] {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      (*run)->executor().abandon();
    });
    const auto result = (*run)->train(0);
    user.join();
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
    EXPECT_TRUE((*run)->bytes() == after_[0]);
    // Memory that work may still name goes with the executor, before the device: nothing of it may run later.
    const Bytes held = (*run)->device(0).allocated_bytes();
    EXPECT_GT(held, 0U);
    (*run)->destroy_executor();
    EXPECT_EQ((*run)->device(0).allocated_bytes(), 0U);
    (*run)->device(0).observe(nullptr);
  }
}

TEST_F(Failure, AbandonedAtAnyMoment_IsCancelledOrCommitted) {
  const std::string file = card_file().string();
  for (int i = 0; i < 12; ++i) {
    Placement placement{"abandoned", "emulated:" + file + "#fast*2"};
    placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
    auto run = TinyRun::make(model_, job_, placement);
    ASSERT_TRUE(run.ok()) << run.status();
    std::thread user([&run, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * i * 100));
      (*run)->executor().abandon();
    });
    absl::Status error;
    const std::size_t done = steps_until_error(**run, error);
    user.join();
    if (done < job_.steps.size()) {
      EXPECT_EQ(error.code(), absl::StatusCode::kCancelled) << error;
    }
    EXPECT_TRUE((*run)->bytes() == after_[done]) << "after " << done << " steps";
  }
}

TEST_F(Failure, ThreadsThatCannotBeHad_AreAnErrorWhereverTheyEnd) {
  if (!test::kCanHaveFewThreads) GTEST_SKIP() << "a sanitizer's threads are its own";
  Placement placement{"few threads", fast_cards(2)};
  placement.stages = one_layer_each(model_);
  placement.disk_from = 2;
  placement.boundaries_on_disk = 0;
  constexpr std::uint32_t kMost = 100;  // more than there are in all
  std::uint32_t more = 0;
  for (; more < kMost; ++more) {
    const test::FewThreads few(more);
    const absl::Status status = TinyRun::make(model_, job_, placement).status();
    if (status.ok()) break;
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr("no thread for"));
  }
  EXPECT_GT(more, 15U);
  EXPECT_LT(more, kMost);
}

TEST_F(Failure, EvaluationWithoutTargets_IsOfNothing) {
  auto run = TinyRun::make(model_, job_, {"cpu"});
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<schedule::Microbatch> none = job_.steps[0];
  for (schedule::Microbatch& batch : none) {
    std::ranges::fill(batch.targets, -1);
    batch.target_tokens = 0;
  }
  const auto result = (*run)->executor().evaluate(none);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->target_tokens, 0U);
  EXPECT_EQ(result->loss_sum, 0);
  EXPECT_EQ((*run)->executor().last_step().losses, std::vector<double>(none.size(), 0.0));
  ASSERT_TRUE((*run)->train(0).ok());
  EXPECT_TRUE((*run)->bytes() == after_[1]);
}

}  // namespace
}  // namespace rondo::tiny
