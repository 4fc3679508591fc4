// Boundaries on disk give the bits of those in memory: on any pool, under any plan, with state on disk beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

/// While it lives every write to a file fails, whoever runs the test.
class NoWriting {
 public:
  NoWriting() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoWriting() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoWriting(const NoWriting&) = delete;
  NoWriting& operator=(const NoWriting&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

class BoundariesOnDisk : public testing::TestWithParam<Variant> {
 protected:
  BoundariesOnDisk() {
    job_.steps = steps_of(dataset_, {8, 8, 5});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }
  const Trace& reference() {
    if (reference_.loss_sums.empty()) reference_ = trace_of(model_, job_, {"memory"});
    return reference_;
  }
  /// What the run has moved.
  offload::BoundaryTier::Stats expect_same(Placement placement, std::uint32_t more_buffers = 0) {
    placement.name += ", " + std::to_string(placement.microbatches_per_round) + " a round, " +
                      std::to_string(more_buffers) + " more buffers";
    placement.boundaries_on_disk = more_buffers;
    placement.threads = 2;
    SCOPED_TRACE(placement.name);
    const Trace trace = trace_of(model_, job_, placement);
    EXPECT_EQ(trace.loss_sums, reference().loss_sums);
    EXPECT_EQ(trace.norms, reference().norms);
    EXPECT_TRUE(trace.bytes == reference().bytes) << "other bytes";
    EXPECT_FALSE(std::filesystem::exists(disk_folder()));
    return trace.boundary_traffic;
  }

  const data::Dataset dataset_ = random_samples(61, 5, 60, 24);
  const model::Architecture model_ = model_of(GetParam());
  Job job_;
  Trace reference_;
};

TEST_P(BoundariesOnDisk, OneLayerAStage_GivesTheBitsOfMemory_ThroughTheDisk) {
  for (const std::string& pool :
       {std::string("cpu"), fast_cards(1), fast_cards(3), std::string("cpu,") + slow_cards(1)}) {
    Placement placement{pool, pool};
    placement.stages = one_layer_each(model_);
    const offload::BoundaryTier::Stats moved = expect_same(placement);
    EXPECT_GT(moved.written, 0U) << pool;
    EXPECT_GT(moved.read, 0U) << pool;
  }
}

TEST_P(BoundariesOnDisk, UnlikeCardsAndRounds_GiveTheBitsOfMemory) {
  for (const std::uint32_t size : {2U, 4U}) {
    for (const std::string& pool :
         {std::string("cpu*2"), fast_cards(1) + "," + slow_cards(2), std::string("cpu,") + slow_cards(2)}) {
      Placement placement{pool, pool};
      placement.stages = one_layer_each(model_);
      placement.microbatches_per_round = size;
      expect_same(placement);
      placement.stages = Stages{{0, 2, 3}, 6, {4, 1}};
      expect_same(placement, 5);
    }
  }
}

TEST_P(BoundariesOnDisk, EverySchedule_GivesTheBitsOfMemory) {
  using partition::Schedule;
  for (const Schedule schedule : {Schedule::kRoundPipe, Schedule::kGPipe, Schedule::kLoopedBreadthFirst,
                                  Schedule::kOneFOneB, Schedule::kInterleaved}) {
    for (const int cards : {2, 4}) {
      Placement placement{std::string(partition::name_of(schedule)) + " on " + fast_cards(cards), fast_cards(cards)};
      placement.schedule = schedule;
      expect_same(placement);
    }
  }
}

TEST_P(BoundariesOnDisk, StateOnDiskToo_GivesTheBitsOfMemory) {
  Placement placement{"both", fast_cards(2)};
  placement.stages = one_layer_each(model_);
  placement.disk_from = 2;
  EXPECT_GT(expect_same(placement).written, 0U);
}

TEST_P(BoundariesOnDisk, TwoStepsUnderWay_GiveTheBitsOfMemory) {
  job_.staleness = 1;
  for (const std::string& pool : {std::string("cpu"), fast_cards(3)}) {
    Placement placement{pool + " ahead", pool};
    placement.stages = one_layer_each(model_);
    placement.ahead = true;
    EXPECT_GT(expect_same(placement).written, 0U);
  }
}

TEST_P(BoundariesOnDisk, Evaluation_LeavesNoTrace) {
  Placement placement{"evaluated", fast_cards(2)};
  placement.stages = one_layer_each(model_);
  placement.boundaries_on_disk = 0;
  auto whole = TinyRun::make(model_, job_, {"memory"});
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(whole.ok() && run.ok()) << run.status();
  for (std::size_t step = 0; step < job_.steps.size(); ++step) {
    const auto expected = (*whole)->executor().evaluate(job_.steps[0]);
    const auto found = (*run)->executor().evaluate(job_.steps[0]);
    ASSERT_TRUE(expected.ok() && found.ok()) << found.status();
    EXPECT_EQ(found->loss_sum, expected->loss_sum);
    ASSERT_TRUE((*whole)->train(step).ok() && (*run)->train(step).ok());
  }
  EXPECT_TRUE((*run)->bytes() == (*whole)->bytes());
}

/// The plan takes every microbatch for as long as the longest; many here have half its tokens.
TEST_P(BoundariesOnDisk, Traffic_IsAboutWhatThePlanSays) {
  job_.steps = steps_of(dataset_, {24});
  job_.reduction_group = 8;
  for (const std::uint32_t more : {0U, 16U}) {
    Placement placement{"cpu"};
    placement.stages = one_layer_each(model_);
    placement.boundaries_on_disk = more;
    auto run = TinyRun::make(model_, job_, placement);
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_TRUE((*run)->train(0).ok());
    const offload::BoundaryTier::Stats moved = (*run)->executor().boundary_traffic();
    const partition::DiskTraffic promised = (*run)->plan().disk_traffic;
    for (const auto& [found, expected] :
         {std::pair(moved.written, promised.boundaries_written), std::pair(moved.read, promised.boundaries_read)}) {
      const double of = static_cast<double>(found) / static_cast<double>(expected);
      EXPECT_GT(of, 0.4) << found << " for " << expected;
      EXPECT_LT(of, 1.3) << found << " for " << expected;
    }
  }
}

TEST_P(BoundariesOnDisk, DiskFails_RunEndsWithItsError) {
  Placement placement{"failing disk", fast_cards(2)};
  placement.stages = one_layer_each(model_);
  placement.boundaries_on_disk = 0;
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->train(0).ok());
  const std::string before = (*run)->bytes();
  absl::StatusOr<schedule::StepResult> result;
  {
    const NoWriting disk;
    result = (*run)->train(1);
  }
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << result.status();
  EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr(disk_folder().string()));
  EXPECT_TRUE((*run)->bytes() == before) << "half a step was committed";
}

INSTANTIATE_TEST_SUITE_P(Methods, BoundariesOnDisk, usual_variants(),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
