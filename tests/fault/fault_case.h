// A small job, its undisturbed course, and runs of it on pools with cards that are told to fail.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {

/// Losses, norms and bytes after each step of a run that nothing disturbs.
class Course {
 public:
  Course(const model::Architecture& model, const Job& job) {
    auto run = TinyRun::make(model, job, {"undisturbed"});
    EXPECT_TRUE(run.ok()) << run.status();
    bytes.push_back((*run)->bytes());
    for (std::size_t step = 0; step < job.steps.size(); ++step) {
      const auto result = (*run)->train(step);
      EXPECT_TRUE(result.ok()) << result.status();
      loss_sums.push_back(result->loss_sum);
      norms.push_back(result->grad_norm);
      bytes.push_back((*run)->bytes());
    }
  }
  std::vector<double> loss_sums;
  std::vector<double> norms;
  std::vector<std::string> bytes;  // after so many steps
};

class Fault : public testing::Test {
 protected:
  Fault() : model_(*model::Architecture::make(small_config(), full(devices::DType::kBfloat16))) {
    job_.steps = steps_of(dataset_, {4, 4, 4});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 2, store); };
  }

  /// Cards that fail as told, one after the other, then `whole` ones that do not. `in_place`: they read weights in main
  /// memory.
  static Placement pool(const std::vector<std::string>& fail_at, int whole, bool in_place = false) {
    std::string cards;
    std::string devices;
    std::string name;
    for (std::size_t i = 0; i < fail_at.size(); ++i) {
      cards += card_entry("bad" + std::to_string(i), 4, 4, fail_at[i], in_place);
      name += fail_at[i] + " ";
    }
    if (in_place) cards += card_entry("whole", 4, 4, "", true);
    const std::string file = card_file(cards).string();
    for (std::size_t i = 0; i < fail_at.size(); ++i) devices += "emulated:" + file + "#bad" + std::to_string(i) + ",";
    if (whole > 0) devices += "emulated:" + file + (in_place ? "#whole*" : "#fast*") + std::to_string(whole);
    if (whole == 0 && !devices.empty()) devices.pop_back();
    Placement placement{name + "and " + std::to_string(whole) + " whole", devices};
    placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
    placement.microbatches_per_round = 2;
    placement.recover = true;
    placement.hang_seconds = hang_seconds_for(name);
    return placement;
  }

  const Course& course() {
    if (!course_) course_ = std::make_unique<Course>(model_, job_);
    return *course_;
  }

  /// Trains to the end and holds every step to the undisturbed course. The executor is alive after it.
  void expect_course(TinyRun& run) {
    for (std::size_t step = 0; step < job_.steps.size(); ++step) {
      const auto result = run.train(step);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, course().loss_sums[step]) << "step " << step;
      EXPECT_EQ(result->grad_norm, course().norms[step]) << "step " << step;
    }
    EXPECT_TRUE(run.bytes() == course().bytes.back()) << "other bytes";
  }

  /// One number that is not finite: the step is repeated, and nothing is lost.
  void expect_step_repeated(const Placement& placement) {
    SCOPED_TRACE(placement.name);
    auto run = TinyRun::make(model_, job_, placement);
    ASSERT_TRUE(run.ok()) << run.status();
    expect_course(**run);
    EXPECT_THAT((*run)->executor().take_notes(),
                testing::ElementsAre(testing::AllOf(testing::HasSubstr("not finite"), testing::HasSubstr("repeated"))));
    EXPECT_TRUE((*run)->executor().lost_devices().empty());
    EXPECT_GT((*run)->executor().retries(), 0U);
  }

  const data::Dataset dataset_ = random_samples(61, 21, 60, 16);
  const model::Architecture model_;
  Job job_;
  std::unique_ptr<Course> course_;
};

}  // namespace rondo::tiny
