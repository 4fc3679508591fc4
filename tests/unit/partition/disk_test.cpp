// When the optimizer's state goes to disk, how much of it, and what that costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scene.h"

namespace rondo::partition {
namespace {

using testing::HasSubstr;

/// Six trained layers of a million parameters each: 12 MB of masters and moments a layer.
class DiskPlan : public testing::Test {
 protected:
  DiskPlan() {
    add_device(scene_, 1e12);
    for (LayerShape& layer : scene_.model.layers) {
      layer.moment_bytes = 8'000'000;
      layer.state_disk_bytes = 12'001'280;
    }
    scene_.model.host_bytes.emplace_back(kMasterWeights, 24'000'000);
    scene_.model.host_bytes.emplace_back(kMoments, 48'000'000);
    scene_.model.disk_buffer_bytes = kMiB;
    scene_.machine.disk_budget_bytes = Bytes{1} << 40U;
    whole_ = total_of(host());
  }
  MemoryTable host(LayerIndex first = kNoLayer) const {
    const Plan plan = single_layers(scene_, 1, 0.01);
    return host_memory(scene_.model, scene_.work, scene_.machine, plan.slots, plan.rounds, plan.keep, first);
  }
  LayerIndex chosen() const { return choose_disk_layers(scene_.model, scene_.machine, host()); }

  Scene scene_ = make_scene(4, 8);
  Bytes whole_ = 0;
};

TEST_F(DiskPlan, EnoughMemory_NothingOnDisk) {
  scene_.machine.host_budget_bytes = whole_;
  EXPECT_EQ(chosen(), kNoLayer);
}

TEST_F(DiskPlan, LittleTooMuch_TheDeepestLayerGoes) {
  scene_.machine.host_budget_bytes = whole_ - 1;
  EXPECT_EQ(chosen(), 5U);
  EXPECT_EQ(total_of(host(5)), whole_ - 12'000'000 + kMiB);
  EXPECT_EQ(disk_bytes_from(scene_.model, 5), 12'001'280U);
}

TEST_F(DiskPlan, HalfTheStateTooMuch_HalfTheLayersGo) {
  scene_.machine.host_budget_bytes = whole_ - 36'000'000 + kMiB;
  EXPECT_EQ(chosen(), 3U);
  scene_.machine.host_budget_bytes -= 1;
  EXPECT_EQ(chosen(), 2U);
}

TEST_F(DiskPlan, NoDisk_OrTooSmallAOne_DoesNotHelp) {
  scene_.machine.host_budget_bytes = whole_ - 1;
  scene_.machine.disk_budget_bytes = 0;
  EXPECT_EQ(chosen(), kNoLayer);
  scene_.machine.disk_budget_bytes = 12'000'000;
  EXPECT_EQ(chosen(), 0U);
}

TEST_F(DiskPlan, MakePlan_StatesMemoryAndDisk_AndNamesTheKeyWhereThereIsNone) {
  const auto in_memory = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  EXPECT_EQ(in_memory->disk_bytes, 0U);
  scene_.machine.host_budget_bytes = in_memory->host_peak_bytes - 60'000'000;
  const auto on_disk = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(on_disk.ok()) << on_disk.status();
  EXPECT_LE(on_disk->host_peak_bytes, scene_.machine.host_budget_bytes);
  EXPECT_EQ(on_disk->disk_bytes, disk_bytes_from(scene_.model, on_disk->first_layer_on_disk));
  EXPECT_GT(on_disk->disk_bytes, 0U);
  scene_.machine.disk_budget_bytes = 0;
  const auto refused = make_plan(scene_.model, scene_.work, scene_.machine, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("nvme_path"));
}

TEST_F(DiskPlan, SlowDisk_LimitsTheStep) {
  const auto in_memory = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  scene_.machine.host_budget_bytes = in_memory->host_peak_bytes - 60'000'000;
  scene_.machine.host.disk_bandwidth = 12e6;
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GT(plan->disk_bytes, 0U);
  EXPECT_EQ(plan->predicted.limited_by, "disk");
  EXPECT_GT(plan->predicted.step_seconds, 2.0 * static_cast<double>(plan->disk_bytes) / 12e6);
}

}  // namespace
}  // namespace rondo::partition
