// The `devices` key: what it opens, under which names, and how it refuses.
#include "rondo/devices/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "patience.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Pool : public testing::Test {
 protected:
  std::vector<PoolMember> open(const std::string& devices, const std::string& limit = "") {
    auto pool = open_pool({devices, limit}, threads_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return pool.ok() ? *std::move(pool) : std::vector<PoolMember>();
  }
  std::vector<std::string> names(const std::string& devices) {
    std::vector<std::string> found;
    for (const PoolMember& member : open(devices)) found.push_back(member.device->caps().name);
    return found;
  }
  std::string refusal(const std::string& devices, const std::string& limit = "") {
    const auto pool = open_pool({devices, limit}, threads_);
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(pool.status().message());
  }
  ThreadPool threads_{1};
};

TEST_F(Pool, Lists_GiveUniqueNamesInOrder) {
  EXPECT_THAT(names("cpu:0"), ElementsAre("cpu:0"));
  EXPECT_THAT(names("cpu*2"), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_THAT(
      names("emulated:rtx4090*2, cpu ,emulated:rtx3060,emulated:rtx4090"),
      ElementsAre("emulated:rtx4090:0", "emulated:rtx4090:1", "cpu:0", "emulated:rtx3060:0", "emulated:rtx4090:2"));
  EXPECT_THAT(names("timed:h100-sxm*3"), ElementsAre("timed:h100-sxm:0", "timed:h100-sxm:1", "timed:h100-sxm:2"));
}

TEST_F(Pool, CardsOfAFile_CarryItsProfile) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("rondo_pool_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path)
      << "toy: {flops: {fp32: 1e12}, memory_bytes: 1e9, memory_bandwidth: 1e11, link_up: 1e9, link_down: 1e9}\n";
  const auto pool = open("timed:" + path.string() + "#toy*2");
  ASSERT_EQ(pool.size(), 2U);
  EXPECT_EQ(pool[1].device->caps().name, "timed:toy:1");
  EXPECT_EQ(pool[1].profile.flops.at(DType::kFloat32), 1e12);
  EXPECT_EQ(pool[1].device->caps().memory_bytes, 1000000000U);
}

TEST_F(Pool, BadEntries_AreNamedWithWhatIsPossible) {
  if (!cuda::has_kernels()) {
    EXPECT_THAT(refusal("cuda:0"), AllOf(HasSubstr("'cuda:0'"), HasSubstr("no cuda backend"), HasSubstr("timed:CARD")));
  }
  EXPECT_THAT(refusal("cpu,vulkan:99"), HasSubstr("'vulkan:99'"));  // no such card, or no Vulkan at all
  EXPECT_THAT(refusal("vulkan:x"), HasSubstr("vulkan:N"));
  EXPECT_THAT(refusal("gpu"), AllOf(HasSubstr("'gpu'"), HasSubstr("emulated:CARD")));
  EXPECT_THAT(refusal("emulated:rtx409"), AllOf(HasSubstr("rtx4090"), HasSubstr("devices")));
  EXPECT_THAT(refusal("timed:rtx4090,cpu"), HasSubstr("mixed"));
  EXPECT_THAT(refusal("cpu:1"), HasSubstr("one CPU"));
  EXPECT_THAT(refusal("cpu:0,cpu:0"), HasSubstr("already"));
  EXPECT_THAT(refusal("cpu*0"), HasSubstr("count"));
  EXPECT_THAT(refusal("cpu*x"), HasSubstr("count"));
  EXPECT_THAT(refusal("cpu,,cpu"), HasSubstr("''"));
  EXPECT_THAT(refusal(""), HasSubstr("''"));
}

TEST_F(Pool, MemoryLimit_LowersTheNamedMember) {
  const auto pool = open("emulated:rtx4090*2", "emulated:rtx4090:1=8GiB");
  ASSERT_EQ(pool.size(), 2U);
  EXPECT_EQ(pool[0].device->caps().memory_bytes, 24_GiB);
  EXPECT_EQ(pool[1].device->caps().memory_bytes, 8_GiB);
  EXPECT_EQ(pool[1].profile.memory_bytes, 8_GiB);
  EXPECT_EQ(open("emulated:rtx4090", "emulated:rtx4090:0=100GiB")[0].device->caps().memory_bytes, 24_GiB);
  EXPECT_THAT(refusal("cpu", "cuda:0=8GiB"), AllOf(HasSubstr("'cuda:0'"), HasSubstr("cpu:0")));
  EXPECT_THAT(refusal("cpu", "8GiB"), HasSubstr("NAME=BYTES"));
  EXPECT_THAT(refusal("cpu", "cpu:0=lots"), AllOf(HasSubstr("cpu:0"), HasSubstr("'lots'")));
}

TEST(ParseBytes, GoodTexts_AreUnderstood) {
  EXPECT_EQ(*parse_bytes("8GiB"), 8_GiB);
  EXPECT_EQ(*parse_bytes("512MiB"), 512_MiB);
  EXPECT_EQ(*parse_bytes("24e9"), 24000000000U);
  EXPECT_EQ(*parse_bytes("1.5 GB"), 1500000000U);
  EXPECT_EQ(*parse_bytes("8g"), 8_GiB);
  EXPECT_EQ(*parse_bytes("123"), 123U);
  EXPECT_EQ(*parse_bytes(".5kib"), 512U);
}

TEST(ParseBytes, BadTexts_AreRefused) {
  for (const char* text : {"", "GiB", "-1GiB", "8 GiX", "8GiBs", "nan", "inf", "0", "1e40", "+3", " 8GiB", "0x10"}) {
    const auto bytes = parse_bytes(text);
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_F(Pool, MeasuredCpu_HasEverySpeedAndFreesItsMemory) {
  const auto pool = open("cpu", "cpu:0=256MiB");
  ASSERT_EQ(pool.size(), 1U);
  const auto measured = measure_device(*pool[0].device);
  ASSERT_TRUE(measured.ok()) << measured.status();
  // Far below any processor's, and what a sanitizer leaves of it.
  constexpr double kLeast = 1e8 / test::kSlowdown;
  for (const DType dtype : pool[0].device->caps().compute_dtypes) EXPECT_GT(measured->flops.at(dtype), kLeast);
  EXPECT_GT(measured->memory_bandwidth, kLeast);
  EXPECT_GT(measured->link_up, kLeast);
  EXPECT_GT(measured->link_down, kLeast);
  EXPECT_GT(measured->link_down, 0.1 * measured->link_up) << "what the first write to fresh pages takes is no copying";
  EXPECT_EQ(pool[0].device->allocated_bytes(), 0U);
}

TEST_F(Pool, MeasuredTimedCard_ShowsItsProfile) {
  const auto pool = open("timed:rtx3060");
  ASSERT_EQ(pool.size(), 1U);
  const DeviceProfile& truth = pool[0].profile;
  // Nothing is ever faster than the card, but for its jitter; how much slower depends on how soon the host wakes up, so
  // that a busy one needs several attempts.
  std::array<bool, 5> shown = {};
  for (int attempt = 0; attempt < 50 && !std::ranges::all_of(shown, std::identity()); ++attempt) {
    const auto measured = measure_device(*pool[0].device);
    ASSERT_TRUE(measured.ok()) << measured.status();
    const auto look = [&shown](std::size_t which, double found, double described, double allowed) {
      EXPECT_LE(found, allowed * described) << which;
      shown[which] = shown[which] || found >= 0.5 * described;
    };
    look(0, measured->flops.at(DType::kFloat32), truth.speed(DType::kFloat32), 1.03);
    look(1, measured->memory_bandwidth, truth.memory_bandwidth, 1.03);
    look(2, measured->link_up, truth.link_up, 1.15);
    look(3, measured->link_down, truth.link_down, 1.15);
    EXPECT_GE(measured->link_latency_seconds, truth.link_latency_seconds);
    shown[4] = shown[4] || measured->link_latency_seconds < 5e-3;
  }
  EXPECT_THAT(shown, Each(true));
}

}  // namespace
}  // namespace rondo::devices
