// When the optimizer's state goes to disk, how much of it, and what that costs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "disk_choice.h"
#include "rondo/partition/layout.h"
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

/// Eight microbatches of 1 MiB over six layers, one a slot: 9 cuts, 72 places.
class BoundaryPlan : public DiskPlan {
 protected:
  BoundaryPlan()
      : plan_(single_layers(scene_, 1, 0.01)), layout_(layout_boundaries(scene_.model, plan_.slots, plan_.rounds)) {}
  DiskChoice choice() const {
    return choose_disk(scene_.model, scene_.work, scene_.machine, plan_.slots, plan_.rounds, host());
  }
  Bytes with(const DiskChoice& choice) const {
    return total_of(host_memory(scene_.model, scene_.work, scene_.machine, plan_.slots, plan_.rounds, plan_.keep,
                                choice.first_layer, choice.boundary_buffers));
  }
  Bytes least_total() const { return with({0, least_boundary_buffers(scene_.machine, scene_.model, plan_.slots)}); }

  Plan plan_;
  BoundaryLayout layout_;
};

TEST_F(BoundaryPlan, StateGoesFirst_BoundariesOnlyWhenItIsNotEnough) {
  const Bytes state_on_disk = with({0, 0});
  scene_.machine.host_budget_bytes = state_on_disk;
  EXPECT_EQ(choice().first_layer, 0U);
  EXPECT_EQ(choice().boundary_buffers, 0U);
  scene_.machine.host_budget_bytes = state_on_disk - kMiB;
  EXPECT_EQ(choice().first_layer, 0U);
  EXPECT_GT(choice().boundary_buffers, 0U);
  EXPECT_LE(with(choice()), scene_.machine.host_budget_bytes);
}

TEST_F(BoundaryPlan, MemoryIsUsed_DownToTheFewestBuffers) {
  const std::uint32_t least = least_boundary_buffers(scene_.machine, scene_.model, plan_.slots);
  scene_.machine.host_budget_bytes = least_total();
  EXPECT_EQ(choice().boundary_buffers, least);
  for (std::uint32_t more : {7U, 20U, 30U}) {
    scene_.machine.host_budget_bytes = least_total() + more * kMiB;
    const Bytes budget = scene_.machine.host_budget_bytes;
    EXPECT_GT(choice().boundary_buffers, least);
    EXPECT_LE(with(choice()), budget - budget / 32) << "a little stays free";
    EXPECT_GT(with(choice()), budget - budget / 32 - kMiB) << "and no more";
  }
  scene_.machine.host_budget_bytes = least_total() - 1;
  EXPECT_EQ(choice().boundary_buffers, 0U) << "too few";
}

TEST_F(BoundaryPlan, StateTooSmallForItsOwnBuffers_StaysInMemory) {
  scene_.model.disk_buffer_bytes = 100 * kMiB;  // more than all state
  scene_.machine.host_budget_bytes = whole_ - 20 * kMiB;
  EXPECT_EQ(choice().first_layer, kNoLayer);
  EXPECT_GT(choice().boundary_buffers, 0U);
}

TEST_F(BoundaryPlan, DiskWithRoomForThemAlone_TakesThem) {
  const Bytes boundaries = layout_.disk_bytes(scene_.work);
  for (LayerShape& layer : scene_.model.layers) layer.state_disk_bytes = 30'000'000;
  scene_.machine.host_budget_bytes = whole_ - 40 * kMiB;
  scene_.machine.disk_budget_bytes = boundaries;
  EXPECT_EQ(choice().first_layer, kNoLayer);
  EXPECT_GT(choice().boundary_buffers, 0U);
  scene_.machine.disk_budget_bytes = boundaries - 1;
  EXPECT_EQ(choice().boundary_buffers, 0U);
}

TEST_F(BoundaryPlan, Traffic_IsNothingWithEnoughBuffers_AndGrowsAsTheyBecomeFewer) {
  Bytes before = 0;
  for (const std::uint32_t buffers : {72U, 60U, 50U, 40U, 30U, 20U, 16U}) {
    plan_.boundary_buffers = buffers;
    const DiskTraffic traffic = disk_traffic(plan_, scene_.model, scene_.work);
    EXPECT_GE(traffic.boundaries_written, before) << buffers;
    EXPECT_LE(traffic.boundaries_written, layout_.places() * kMiB);
    EXPECT_LE(traffic.boundaries_read, 2 * layout_.places() * kMiB);
    if (buffers == 72) {
      EXPECT_EQ(traffic.total(), 0U);
    }
    before = traffic.boundaries_written;
  }
  EXPECT_GT(before, 20 * kMiB);
}

TEST_F(BoundaryPlan, MakePlan_PromisesBoth_AndASlowDiskTakesItsTime) {
  const auto in_memory = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  // Two devices, memory for few layers in each: stages, and boundaries between them.
  scene_.machine.devices[0].budget_bytes = 40 * kMiB;
  const auto staged = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(staged.ok()) << staged.status();
  ASSERT_GT(layout_boundaries(scene_.model, staged->slots, staged->rounds).places(), 30U);
  scene_.machine.host_budget_bytes = staged->host_peak_bytes - 72'000'000 - 8 * kMiB;
  scene_.machine.host.disk_bandwidth = 20e6;
  const auto plan = make_plan(scene_.model, scene_.work, scene_.machine, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(validate(*plan, scene_.model, scene_.work, scene_.machine).ok());
  EXPECT_LE(plan->host_peak_bytes, scene_.machine.host_budget_bytes);
  EXPECT_EQ(plan->disk_bytes, total_of(plan->disk));
  ASSERT_GT(plan->boundary_buffers, 0U);
  EXPECT_EQ(plan->disk.back().first, kBoundaries);
  EXPECT_GE(plan->predicted.step_seconds, 0.999 * static_cast<double>(plan->disk_traffic.total()) / 20e6);
  Plan tight = *plan;
  tight.boundary_buffers = least_boundary_buffers(scene_.machine, scene_.model, plan->slots) - 1;
  tight.disk = disk_memory(tight, scene_.model, scene_.work);
  EXPECT_THAT(std::string(validate(tight, scene_.model, scene_.work, scene_.machine).message()), HasSubstr("buffers"));
}

/// With state and boundaries on disk, as far as its room goes.
TEST_F(BoundaryPlan, LeastHostBytes_AreThoseThatSuffice) {
  const auto least = [&] {
    return least_host_bytes(scene_.model, scene_.work, scene_.machine, plan_.slots, plan_.rounds, host());
  };
  EXPECT_EQ(least(), least_total());
  scene_.machine.disk_budget_bytes = disk_bytes_from(scene_.model, 0);
  EXPECT_EQ(least(), with({0, 0})) << "no room for the boundaries beside it";
  scene_.machine.disk_budget_bytes = 0;
  EXPECT_EQ(least(), whole_);
}

TEST_F(BoundaryPlan, TooLittleMemoryDespiteTheDisk_RefusalSaysWhatSuffices) {
  scene_.machine.devices[0].budget_bytes = 40 * kMiB;
  const auto refusal = [&](Bytes budget) {
    scene_.machine.host_budget_bytes = budget;
    return std::string(make_plan(scene_.model, scene_.work, scene_.machine, {}).status().message());
  };
  const Bytes before = total_of(least_host_memory(scene_.model, scene_.work, scene_.machine, Bytes{1} << 40U));
  const std::string message = refusal(before);
  const std::string words = "host memory: the plan needs ";
  ASSERT_THAT(message, testing::StartsWith(words));
  const double needed = std::stod(message.substr(words.size()));  // MiB, to a hundredth
  ASSERT_THAT(message, HasSubstr(fmt::format("{:.2f} MiB and ", needed)));
  EXPECT_EQ(refusal(static_cast<Bytes>((needed + 0.01) * kMiB)), "");
  EXPECT_NE(refusal(static_cast<Bytes>((needed - 0.01) * kMiB)), "");
}

}  // namespace
}  // namespace rondo::partition
