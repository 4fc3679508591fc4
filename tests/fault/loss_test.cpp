// A device that is lost in the middle of a step: another takes over what it left, the answer stays the same.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "fault_case.h"

namespace rondo::tiny {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Losing : public Fault {
 protected:
  void expect_lost_and_same(const Placement& placement) {
    SCOPED_TRACE(placement.name);
    auto run = TinyRun::make(model_, job_, placement);
    ASSERT_TRUE(run.ok()) << run.status();
    expect_course(**run);
    EXPECT_THAT((*run)->executor().lost_devices(), ElementsAre(0U));
    const std::vector<std::string> notes = (*run)->executor().take_notes();
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_THAT(notes[0], AllOf(HasSubstr("emulated:bad0:0 is lost"), HasSubstr("devices left")));
    for (const partition::Slot& slot : (*run)->executor().plan().slots) EXPECT_NE(slot.device, 0U);
  }
};

TEST_F(Losing, ByAnError_AnotherTakesOver) {
  for (const char* fail_at :
       {"error@compute:1", "error@compute:9", "error@compute:40", "error@compute:36", "error@up:1", "error@up:23",
        "error@up:40", "error@down:1", "error@down:9", "error@down:30"}) {
    expect_lost_and_same(pool({fail_at}, 1));
    expect_lost_and_same(pool({fail_at}, 2));
  }
}

TEST_F(Losing, ByAHang_AnotherTakesOver) {
  for (const char* fail_at :
       {"hang@compute:1", "hang@compute:33", "hang@up:1", "hang@up:31", "hang@down:1", "hang@down:14"}) {
    expect_lost_and_same(pool({fail_at}, 2));
  }
}

TEST_F(Losing, WithOneCpuLeft_TheCpuTakesOver) {
  for (const char* fail_at : {"error@compute:12", "error@down:7", "error@up:29", "hang@down:11", "hang@compute:30"}) {
    Placement placement = pool({fail_at}, 0);
    placement.devices += ",cpu";
    placement.name += " and the CPU";
    expect_lost_and_same(placement);
  }
}

/// Frozen weights of the next step come while no step is under way: a device that is lost then has no part in it.
TEST_F(Losing, BetweenTwoSteps_TheNextOneDoesWithoutIt) {
  const model::Architecture adapted = *model::Architecture::make(small_config(), lora(devices::DType::kBfloat16));
  job_.steps = steps_of(dataset_, {1, 1});
  job_.reduction_group = 1;
  const Course expected(adapted, job_);
  // They come so slowly that the step has ended long before.
  const auto beside_one_that = [](const std::string& fails) {
    const std::string file = card_file(
                                 "bad0: {flops: {fp32: 4e16, bf16: 4e16}, memory_bytes: 1e9, memory_bandwidth: 4e16, "
                                 "link_up: 2e5, link_down: "
                                 "4e13, link_latency: 0, jitter: 0" +
                                 fails + "}\n")
                                 .string();
    Placement placement = pool({}, 1);
    placement.devices = "emulated:" + file + "#bad0,emulated:" + file + "#fast";
    placement.stages = Stages{{0, 5}, 6, {4, 1}};
    placement.microbatches_per_round = 1;
    placement.trace_spans = 4096;
    return placement;
  };
  const auto copies_after_a_step = [&](TinyRun& run) {
    EXPECT_EQ(run.train(0)->loss_sum, expected.loss_sums[0]);
    std::ptrdiff_t count = 0;
    for (std::ptrdiff_t before = -1; count > before;) {
      before = count;
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      const std::vector<schedule::TraceSpan> spans = run.executor().traces().front()->spans();
      count = std::ranges::count(spans, devices::QueueRole::kUp, &schedule::TraceSpan::role);
    }
    return count;
  };
  auto whole = TinyRun::make(adapted, job_, beside_one_that(""));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::string last = std::to_string(copies_after_a_step(**whole));
  auto run = TinyRun::make(adapted, job_, beside_one_that(", fail_at: 'error@up:" + last + "'"));
  ASSERT_TRUE(run.ok()) << run.status();
  copies_after_a_step(**run);
  EXPECT_THAT((*run)->executor().take_notes(), IsEmpty());
  EXPECT_EQ((*run)->train(1)->loss_sum, expected.loss_sums[1]);
  EXPECT_THAT((*run)->executor().lost_devices(), ElementsAre(0U));
  EXPECT_THAT((*run)->executor().take_notes(),
              ElementsAre(AllOf(HasSubstr("emulated:bad0:0 is lost"), HasSubstr("1 of 2 devices left"))));
  for (const partition::Slot& slot : (*run)->executor().plan().slots) EXPECT_NE(slot.device, 0U);
}

/// Sums of a reduction group grow over several visits: all of them are run again.
TEST_F(Losing, BetweenVisitsOfAGroup_AnotherTakesOver) {
  job_.steps = steps_of(dataset_, {8, 8, 5});
  job_.reduction_group = 4;
  using partition::Schedule;
  for (const Schedule schedule :
       {Schedule::kOneFOneB, Schedule::kInterleaved, Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV}) {
    for (const char* fail_at :
         {"error@compute:3", "error@compute:17", "error@compute:31", "error@compute:58", "error@compute:90",
          "error@up:29", "error@up:66", "error@down:9", "error@down:26", "hang@compute:40", "hang@down:14"}) {
      const std::string file = card_file(card_entry("bad0", 50, 1e-4, fail_at) + card_entry("busy", 50, 1e-4)).string();
      Placement placement = pool({fail_at}, 0);
      placement.name.append(" under ").append(partition::name_of(schedule));
      placement.devices = "emulated:" + file + "#bad0,emulated:" + file + "#busy*2";
      placement.stages.reset();
      placement.schedule = schedule;
      placement.microbatches_per_round = 1;
      {
        auto run = TinyRun::make(model_, job_, placement);
        ASSERT_TRUE(run.ok()) << run.status();
        const auto& slots = (*run)->executor().plan().slots;
        EXPECT_GT((*run)->used_devices(), 1U);
        EXPECT_TRUE(std::ranges::any_of(slots, &partition::Slot::group_goes_on));
      }
      expect_lost_and_same(placement);
    }
  }
}

TEST_F(Losing, WithBoundariesOnDisk_AnotherReadsThemAgain) {
  job_.steps = steps_of(dataset_, {8, 8, 8});
  for (const char* fail_at : {"error@compute:30", "error@up:40", "error@down:33", "hang@compute:60", "hang@down:20"}) {
    for (const char* more : {"", ",cpu"}) {
      Placement placement = pool({fail_at}, 1);
      placement.devices += more;
      placement.name += more;
      placement.stages = one_layer_each(model_);
      placement.microbatches_per_round = 0;
      placement.boundaries_on_disk = 0;
      SCOPED_TRACE(placement.name);
      {
        auto run = TinyRun::make(model_, job_, placement);
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_TRUE((*run)->train(0).ok());
        EXPECT_GT((*run)->executor().boundary_traffic().read, 0U) << "nothing came from the disk";
      }
      expect_lost_and_same(placement);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(disk_folder()));
}

TEST_F(Losing, OneAfterTheOther_TheRunGoesOnToTheLast) {
  auto run = TinyRun::make(model_, job_, pool({"error@compute:20", "hang@down:20", "error@up:50"}, 1));
  ASSERT_TRUE(run.ok()) << run.status();
  expect_course(**run);
  EXPECT_EQ((*run)->executor().lost_devices().size(), 3U);
  EXPECT_GT((*run)->executor().retries(), 0U);
}

TEST_F(Losing, TheLast_EndsTheRunWithTheStepBefore) {
  for (const char* fail_at : {"error@compute:100", "hang@down:40"}) {
    auto run = TinyRun::make(model_, job_, pool({fail_at}, 0));
    ASSERT_TRUE(run.ok()) << run.status();
    std::size_t step = 0;
    absl::StatusOr<schedule::StepResult> result = (*run)->train(step);
    while (result.ok() && step + 1 < job_.steps.size()) result = (*run)->train(++step);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("emulated:bad0:0 is lost"), HasSubstr("no device is left")));
    EXPECT_TRUE((*run)->bytes() == course().bytes[step]) << "after " << step << " steps";
    EXPECT_FALSE((*run)->train(step).ok()) << "it goes on without a device";
    EXPECT_TRUE((*run)->bytes() == course().bytes[step]);
  }
}

TEST_F(Losing, WithoutMemoryToTakeOver_TheStepIsRepeated) {
  // Each slot on a card of its own that holds just that: the rest of the pool must be planned anew.
  Placement placement = pool({"error@compute:25"}, 1);
  auto roomy = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  const Bytes needed = (*roomy)->device(1).peak_bytes();
  (*roomy).reset();
  placement.memory_limit = "emulated:fast:0=" + std::to_string(needed + 4096) + "B";
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  expect_course(**run);
  const std::vector<std::string> notes = (*run)->executor().take_notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], HasSubstr("the step is repeated"));
}

TEST_F(Losing, NumberThatIsNotFinite_HasTheStepRepeated) {
  for (const int work : {3, 8, 15, 22, 31, 36, 47}) {
    for (const int whole : {0, 1}) {
      expect_step_repeated(pool({"corrupt@compute:" + std::to_string(work)}, whole));
    }
  }
}

TEST_F(Losing, NumberThatIsNotFiniteAgain_EndsTheRunAndNamesTheTensor) {
  Job job = job_;
  job.fill = [](const model::Architecture& model, offload::ParameterStore& store) {
    fill_weights(model, 2, store);
    for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
      if (model.parameters()[id].name != "model.norm.weight") continue;
      for (float& value : store.master(id)) value = 3e38F;
      store.publish_from_master(id, 0);
    }
  };
  auto run = TinyRun::make(model_, job, pool({}, 2));
  ASSERT_TRUE(run.ok()) << run.status();
  const std::string before = (*run)->bytes();
  const auto result = (*run)->train(0);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), AllOf(HasSubstr("not finite"), HasSubstr("gradient of ")));
  EXPECT_TRUE((*run)->bytes() == before);
  EXPECT_FALSE((*run)->train(0).ok());
}

TEST_F(Losing, InEvaluation_GivesTheSameLoss) {
  auto whole = TinyRun::make(model_, job_, {"whole"});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto expected = (*whole)->executor().evaluate(job_.steps[0]);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* fail_at : {"error@compute:3", "error@up:8", "error@down:2", "hang@compute:5"}) {
    SCOPED_TRACE(fail_at);
    auto run = TinyRun::make(model_, job_, pool({fail_at}, 1));
    ASSERT_TRUE(run.ok()) << run.status();
    for (int i = 0; i < 2; ++i) {
      const auto found = (*run)->executor().evaluate(job_.steps[0]);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->loss_sum, expected->loss_sum);
    }
    EXPECT_EQ((*run)->executor().lost_devices().size(), 1U);
    expect_course(**run);
  }
}

TEST_F(Losing, SlowDevice_IsNotTakenForAHungOne) {
  // A microbatch takes longer than the bound, but its programs, some 20 ms each, go on ending.
  Placement placement = pool({}, 0);
  const std::string file = card_file(card_entry("sluggish", 1, 2e-10)).string();
  placement.devices = "emulated:" + file + "#sluggish*2";
  placement.hang_seconds = 0.4;
  job_.steps.resize(1);
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto begin = std::chrono::steady_clock::now();
  expect_course(**run);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(placement.hang_seconds));
  EXPECT_TRUE((*run)->executor().lost_devices().empty());
}

}  // namespace
}  // namespace rondo::tiny
