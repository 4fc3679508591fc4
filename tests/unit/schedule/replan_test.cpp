// Plans made in the midst of a run keep to what was announced before it.
#include "replan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/schedule/shape.h"
#include "tiny_model.h"

namespace rondo::schedule {
namespace {

using devices::DType;

constexpr std::uint32_t kTokens = 128;
constexpr std::uint32_t kMicrobatches = 6;

/// A quick card and two that are not: the plan uses two, and all three once the quick one has become slow.
class Replan : public testing::Test {
 protected:
  Replan() : model_(*model::Architecture::make(tiny::small_config(), tiny::full(DType::kFloat32))) {
    shape_ = describe_model(model_, kTokens, kTokens, 0, {}, std::vector<std::uint32_t>{kTokens});
    parts_.shape = &shape_;
    parts_.plan = &plan_;
    parts_.work = describe_workload(model_, kTokens, kTokens, kMicrobatches, kMicrobatches);
    partition::MachineShape& machine = parts_.recovery.machine;
    machine.host = {8_GiB, 1e10, 1e9, 0};
    machine.host_budget_bytes = 1_GiB;
    for (const double flops : {4e9, 1e9, 1e9}) {
      partition::DeviceShape device;
      device.name = "card" + std::to_string(machine.devices.size());
      device.profile.flops[DType::kFloat32] = flops;
      device.profile.memory_bytes = device.budget_bytes = 1_GiB;
      device.profile.memory_bandwidth = 1e12;
      device.profile.link_up = device.profile.link_down = 1e11;
      device.profile.link_latency_seconds = 0;
      machine.devices.push_back(device);
    }
    plan_ = *partition::make_plan(shape_, parts_.work, machine, {});
    slow_ = at_pace(parts_, {8, 1, 1});
  }

  model::Architecture model_;
  partition::ModelShape shape_;
  partition::Plan plan_;
  ExecutorParts parts_;
  partition::MachineShape slow_;
};

TEST_F(Replan, AtAnotherPace_StaysWithinWhatWasAnnounced) {
  const std::vector<bool> none(3, false);
  const auto any = plan_over_rest(parts_, slow_, none, 1_GiB);
  ASSERT_TRUE(any.ok()) << any.status();
  ASSERT_GT(any->host_peak_bytes, plan_.host_peak_bytes) << "nothing is tested";
  const auto kept = plan_over_rest(parts_, slow_, none, promised_host(parts_));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_LE(kept->host_peak_bytes, plan_.host_peak_bytes);
}

TEST_F(Replan, AfterALoss_StaysWithinWhatWasAnnouncedWhereAPlanDoes) {
  std::string note;
  const auto kept = plan_after_loss(parts_, parts_.recovery.machine, {true, false, false}, note);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_LE(kept->host_peak_bytes, plan_.host_peak_bytes);
  EXPECT_EQ(note, "");
  plan_.host_peak_bytes = 1;  // no plan does
  const auto more = plan_after_loss(parts_, parts_.recovery.machine, {true, false, false}, note);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_NE(note.find("of main memory, 1 B were announced"), std::string::npos) << note;
}

}  // namespace
}  // namespace rondo::schedule
