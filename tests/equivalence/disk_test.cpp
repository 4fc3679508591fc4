// Masters and moments on disk give the bits of those in memory, on any pool; a disk that fails ends the run and nothing
// else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using testing::HasSubstr;

class OnDisk : public testing::TestWithParam<Variant> {
 protected:
  OnDisk() {
    job_.steps = steps_of(dataset_, {5, 5, 3, 5});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }

  const data::Dataset dataset_ = random_samples(61, 5, 60, 24);
  const model::Architecture model_ = model_of(GetParam());
  Job job_;
};

TEST_P(OnDisk, AnyLayersOnAnyPool_GiveTheBitsOfMemory) {
  const Trace reference = trace_of(model_, job_, {"memory"});
  for (const partition::LayerIndex first : {0U, 1U, 4U, 7U}) {
    for (const std::string& pool : {std::string("cpu"), fast_cards(2)}) {
      Placement placement{pool + " with layers from " + std::to_string(first) + " on disk", pool};
      placement.disk_from = first;
      placement.threads = 2;
      SCOPED_TRACE(placement.name);
      const Trace trace = trace_of(model_, job_, placement);
      EXPECT_EQ(trace.loss_sums, reference.loss_sums);
      EXPECT_EQ(trace.norms, reference.norms);
      EXPECT_EQ(trace.bytes == reference.bytes, true);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(disk_folder()));
}

TEST_P(OnDisk, Plan_StatesWhatLiesThere) {
  Placement placement{"cpu"};
  placement.disk_from = 3;
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  if ((*run)->plan().disk_bytes == 0) GTEST_SKIP() << "never: nothing is trained there";
  EXPECT_EQ((*run)->store().disk()->disk_bytes(), (*run)->plan().disk_bytes);
}

TEST_P(OnDisk, DiskFails_RunEndsWithItsError) {
  Placement placement{"cpu"};
  placement.disk_from = 0;
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->train(0).ok());
  (*run)->executor().drain_and_wait();
  ASSERT_TRUE((*run)->executor().update_status().ok());
  ASSERT_EQ(::truncate((*run)->store().disk()->file().path().c_str(), 0), 0);
  absl::Status status;
  for (std::size_t step = 1; step < 4 && status.ok(); ++step) status = (*run)->train(step).status();
  (*run)->executor().drain_and_wait();
  if (status.ok()) status = (*run)->executor().update_status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the file ends there"));
}

INSTANTIATE_TEST_SUITE_P(Methods, OnDisk, usual_variants(),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
