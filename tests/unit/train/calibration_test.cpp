// Plans by what was measured: unknown shapes are measured once, and a run's times move the next plan to the truth.
#include "rondo/train/calibration.h"

#include <gmock/gmock.h>

#include "files.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"
#include "tiny_model.h"
#include "vulkan_card.h"

namespace rondo::train {
namespace {

using devices::CalibrationStore;
using devices::DeviceKey;
using devices::DType;

class Calibration : public testing::Test {
 protected:
  Calibration() {
    auto made = model::Architecture::make(tiny::small_config(), tiny::lora(DType::kFloat32));
    EXPECT_TRUE(made.ok()) << made.status();
    model_.emplace(*std::move(made));
  }

  static Config config(const std::string& devices) {
    Config config;
    config.devices = devices;
    config.threads = 1;
    config.dtype = "fp32";
    config.cutoff_len = 32;
    config.per_device_train_batch_size = 1;
    config.gradient_accumulation_steps = 2;
    return config;
  }
  static Machine open(const std::string& devices) {
    auto opened = open_machine(config(devices));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  Machine calibrated(const std::string& devices) {
    Machine machine = open(devices);
    machine.shape.host = {};  // the optimizer's part is measured anew each time
    said_.clear();
    calibrate(*model_, assumed_lengths(config(devices)), {}, machine, store_,
              [this](const std::string& note) { said_.push_back(note); });
    return machine;
  }
  PlannedRun plan(const Machine& machine) {
    auto run = plan_on_known(config("cpu"), *model_, machine, assumed_lengths(config("cpu")), Purpose::kTrain);
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  devices::Speeds known(const Machine& machine) { return store_.find(DeviceKey::of(*machine.pool.front().device)); }
  /// Programs of a visit of all layers.
  std::size_t programs(const PlannedRun& run) const {
    std::size_t count = run.shape.layers.size();
    for (std::size_t i = 0; i + 1 < run.shape.layers.size(); ++i) {
      count += run.shape.layers[i].has_backward ? 1U : 0U;
    }
    return count;
  }
  /// A step of two microbatches in which each program took `seconds`.
  std::vector<schedule::TraceSpan> spans(const PlannedRun& run, std::uint32_t step, double seconds) const {
    std::vector<schedule::TraceSpan> spans;
    std::chrono::steady_clock::time_point now;
    const auto long_ =
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    for (std::uint32_t microbatch = 0; microbatch < 2; ++microbatch) {
      for (std::size_t i = 0; i < programs(run); ++i, now += 2 * long_) {
        const char* phase = name_of(run.plan.slots[0].phase);
        spans.push_back({now, now + long_, devices::QueueRole::kCompute, {phase, step, 0, microbatch}});
      }
    }
    return spans;
  }
  std::vector<std::uint32_t> buckets(const PlannedRun& run) const {
    return {run.work.microbatch_tokens, run.work.microbatch_tokens};
  }
  void watch(ProgramWatch& programs, const PlannedRun& run, double seconds) const {
    for (std::uint32_t step = 1; step <= 4; ++step) {
      // The first one is always slow.
      const auto seen = spans(run, step, step == 1 ? 100 * seconds : seconds);
      programs.step(run.plan, "cpu:0", seen, buckets(run), step);
    }
  }

  std::optional<model::Architecture> model_;
  CalibrationStore store_{test::fresh_folder() / "calibration.sqlite"};
  std::vector<std::string> said_;
};

TEST_F(Calibration, UnknownDevice_IsMeasuredOnceAndSaidOnce) {
  const Machine first = calibrated("cpu");
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_THAT(said_[0], testing::HasSubstr("cpu:0: its speeds on this model's shapes were measured"));
  ASSERT_NE(first.shape.devices[0].rates, nullptr);
  EXPECT_EQ(first.shape.devices[0].profile.source, first.pool[0].profile.source);
  EXPECT_GT(first.pool[0].profile.speed(DType::kFloat32), 0);
  EXPECT_EQ(first.pool[0].device->peak_bytes(), 0U);  // the run's account knows nothing of it
  const devices::Speeds before = known(first);
  const Machine second = calibrated("cpu");
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(known(second).size(), before.size());
  for (const auto& [key, speed] : known(second)) EXPECT_EQ(speed.rate, before.at(key).rate);
  EXPECT_EQ(second.shape.devices[0].rates->list(), first.shape.devices[0].rates->list());
}

TEST_F(Calibration, EveryOpOfTheModel_HasARate) {
  const Machine machine = calibrated("cpu");
  const PlannedRun run = plan(machine);
  for (const partition::LayerShape& layer : run.shape.layers) {
    for (const auto& op : layer.forward.ops) EXPECT_TRUE(machine.shape.devices[0].rates->rate(op.shape)) << layer.name;
    for (const auto& cost : layer.backward) {
      for (const auto& op : cost.ops) EXPECT_TRUE(machine.shape.devices[0].rates->rate(op.shape)) << layer.name;
    }
  }
}

TEST_F(Calibration, OtherLengths_AreMeasuredToo) {
  calibrated("cpu");
  Machine machine = open("cpu");
  Config longer = config("cpu");
  longer.cutoff_len = 512;
  std::size_t said = 0;
  const auto tell = [&](const std::string&) { ++said; };
  calibrate(*model_, assumed_lengths(longer), {}, machine, store_, tell);
  EXPECT_EQ(said, 1U);
  calibrate(*model_, assumed_lengths(longer), {}, machine, store_, tell);
  EXPECT_EQ(said, 1U);
}

/// Of a device that has updates, when it is alone; where moments are codes it is not asked for.
TEST_F(Calibration, UpdateOnTheCard_HasARate) {
  const auto card = test::usable_vulkan_card();
  if (!card) GTEST_SKIP() << test::kNoVulkanCard;
  const std::string name = "vulkan:" + std::to_string(card->index);
  const Machine machine = calibrated(name);
  const PlannedRun run = plan(machine);
  ASSERT_TRUE(run.shape.update_shape);
  ASSERT_NE(machine.shape.devices[0].rates, nullptr);
  const auto rate = machine.shape.devices[0].rates->rate(*run.shape.update_shape);
  ASSERT_TRUE(rate);
  EXPECT_GT(*rate, 1e6);
  EXPECT_LT(*rate, 1e14);
  EXPECT_FALSE(calibrated("cpu").shape.devices[0].rates->rate(*run.shape.update_shape));
  offload::OptimizerSettings coded;
  coded.kind = offload::OptimizerKind::kAdamW8Bit;
  EXPECT_TRUE(schedule::update_probe(*model_, coded).ops.empty());
}

TEST_F(Calibration, DescribedCards_AreLeftAsTheyAre) {
  const std::string card = "emulated:" + tiny::card_file().string() + "#fast";
  const Machine machine = calibrated(card);
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(machine.shape.devices[0].rates, nullptr);
  EXPECT_EQ(machine.shape.devices[0].profile.flops, open(card).shape.devices[0].profile.flops);
  EXPECT_TRUE(known(machine).empty());
}

TEST_F(Calibration, SeveralOnOneProcessor_ShareIt) {
  const Machine one = calibrated("cpu");
  const Machine two = calibrated("cpu*2");
  EXPECT_TRUE(said_.empty());
  const auto rates = one.shape.devices[0].rates->list();
  for (const auto& device : two.shape.devices) {
    ASSERT_NE(device.rates, nullptr);
    for (const auto& [shape, rate] : rates) EXPECT_NEAR(device.rates->rate(shape).value_or(0), rate / 2, 1e-9 * rate);
  }
}

TEST_F(Calibration, StoreThatForgets_HarmsNothing) {
  store_ = CalibrationStore(std::filesystem::path());
  const Machine machine = calibrated("cpu");
  EXPECT_EQ(said_.size(), 1U);
  EXPECT_NE(machine.shape.devices[0].rates, nullptr);
  EXPECT_GT(plan(machine).plan.predicted.step_seconds, 0);
}

TEST_F(Calibration, WhatARunHasSeen_IsWhatTheNextPlanSays) {
  Machine machine = calibrated("cpu");
  PlannedRun run = plan(machine);
  ASSERT_EQ(run.plan.slots.size(), 1U);
  // The run takes 16 times as long as the plan says, every program the same, however fast this machine is.
  const partition::Prediction& first = run.plan.predicted;
  const double truth = 16 * (first.step_seconds - first.commit_seconds);
  const double seconds = truth / (2 * static_cast<double>(programs(run)));
  const auto error_of = [truth](const PlannedRun& planned) {  // the commit is the host's, and is not told
    const partition::Prediction& predicted = planned.plan.predicted;
    return std::abs((predicted.step_seconds - predicted.commit_seconds) / truth - 1);
  };
  double error = error_of(run);
  EXPECT_GT(error, 0.5);
  // A run moves a rate by a quarter of a doubling: 64 of them cover 16.
  for (int i = 0; i < 64; ++i) {
    ProgramWatch watched(*model_, run, machine);
    watch(watched, run, seconds);
    watched.fold_back(store_);
    machine = calibrated("cpu");
    EXPECT_TRUE(said_.empty());
    run = plan(machine);
    const double now = error_of(run);
    EXPECT_LT(now, error + 0.02);
    error = now;
  }
  EXPECT_LT(error, 0.05);
}

TEST_F(Calibration, TooLittleSeen_FoldsNothingBack) {
  const Machine machine = calibrated("cpu");
  const PlannedRun run = plan(machine);
  ProgramWatch watched(*model_, run, machine);
  EXPECT_TRUE(watched.watches());
  watched.step(run.plan, "cpu:0", spans(run, 1, 0.01), buckets(run), 1);
  watched.step(run.plan, "cpu:0", spans(run, 2, 0.01), buckets(run), 2);
  EXPECT_TRUE(watched.rates(0).empty());
  watched.step(run.plan, "cpu:0", spans(run, 3, 0.01), buckets(run), 3);
  EXPECT_FALSE(watched.rates(0).empty());
  EXPECT_TRUE(watched.rates(1).empty());
}

TEST_F(Calibration, VisitsThatAreNotWhole_DoNotCount) {
  const Machine machine = calibrated("cpu");
  const PlannedRun run = plan(machine);
  ProgramWatch watched(*model_, run, machine);
  for (std::uint32_t step = 2; step < 6; ++step) {
    auto seen = spans(run, step, 0.01);
    seen.erase(seen.begin());
    seen.pop_back();
    watched.step(run.plan, "cpu:0", seen, buckets(run), step);
    watched.step(run.plan, "cpu:0", spans(run, step + 1, 0.01), buckets(run), step);  // of another step
  }
  EXPECT_TRUE(watched.rates(0).empty());
}

TEST_F(Calibration, SeveralOnOneProcessor_AreNotWatched) {
  const Machine machine = calibrated("cpu*2");
  PlannedRun run = plan(machine);
  run.plan.slots.push_back(run.plan.slots[0]);
  run.plan.slots[0].device = 0;
  run.plan.slots[1].device = 1;
  EXPECT_FALSE(ProgramWatch(*model_, run, machine).watches());
}

}  // namespace
}  // namespace rondo::train
