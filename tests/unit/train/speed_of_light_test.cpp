// The peak that a run is measured against: measured once, remembered, and never below what was reached.
#include "speed_of_light.h"

#include <cstdlib>

#include "files.h"
#include "rondo/base/file.h"
#include "rondo/devices/pool.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

using devices::DType;
using devices::SpeedCache;

Machine machine(const std::string& pool, std::uint32_t threads = 1) {
  Config config;
  config.devices = pool;
  config.threads = threads;
  config.dtype = "fp32";
  auto opened = open_machine(config);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

const devices::Device& device(const Machine& machine) { return *machine.pool.front().device; }

devices::DeviceProfile speeds(double fp32, double bandwidth = 0) {
  devices::DeviceProfile profile;
  profile.flops[DType::kFloat32] = fp32;
  profile.memory_bandwidth = bandwidth;
  return profile;
}

TEST(SpeedOfLight, Share_IsTheTimeAtThePeakOverTheTimeTaken) {
  SpeedOfLight light(100);
  EXPECT_DOUBLE_EQ(light.share(50, 2), 0.25);
  EXPECT_DOUBLE_EQ(light.peak(), 100);
}

TEST(SpeedOfLight, RateAboveThePeak_RaisesIt) {
  SpeedOfLight light(100);
  EXPECT_DOUBLE_EQ(light.share(300, 2), 1.0);
  EXPECT_DOUBLE_EQ(light.peak(), 150);
  EXPECT_DOUBLE_EQ(light.share(150, 2), 0.5);
}

TEST(SpeedOfLight, WhatIsNotKnown_IsZero) {
  EXPECT_EQ(SpeedOfLight(0).share(1, 1), 0);
  EXPECT_EQ(SpeedOfLight(1).share(0, 1), 0);
  EXPECT_EQ(SpeedOfLight(1).share(1, 0), 0);
}

TEST(SpeedCache, SpeedsOfADevice_ComeBackAndAddUp) {
  const SpeedCache cache(test::fresh_folder() / "deep" / "speeds.json");
  const Machine cpu = machine("cpu");
  EXPECT_FALSE(cache.find(device(cpu)).has_value());
  cache.remember(device(cpu), speeds(3e9, 5e9));
  devices::DeviceProfile more;
  more.flops[DType::kBfloat16] = 7e9;
  cache.remember(device(cpu), more);
  const auto found = cache.find(device(cpu));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->flops.at(DType::kFloat32), 3e9);
  EXPECT_EQ(found->flops.at(DType::kBfloat16), 7e9);
  EXPECT_EQ(found->memory_bandwidth, 5e9);
  EXPECT_EQ(found->link_up, 0);
  // Another number of threads has other speeds.
  EXPECT_FALSE(cache.find(device(machine("cpu", 2))).has_value());
}

TEST(SpeedCache, BrokenFiles_CountAsNothingAndAreReplaced) {
  const auto file = test::fresh_folder() / "speeds.json";
  const SpeedCache cache(file);
  const Machine cpu = machine("cpu");
  cache.remember(device(cpu), speeds(3e9));
  const std::string good = *read_file(file);
  const std::string key = good.substr(good.find("cpu; "), good.find("\",\n") - good.find("cpu; "));
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), std::string("[1]"),
                                  std::string(R"({"speeds": 3})"), std::string(R"({"speeds": [3, {"key": 4}]})")}) {
    test::put(file, text);
    EXPECT_FALSE(cache.find(device(cpu)).has_value()) << text;
  }
  test::put(file, R"({"speeds": [{"key": ")" + key + R"(", "flops": {"fp32": -1, "bf16": "x"}, "link": 3}]})");
  const auto odd = cache.find(device(cpu));
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->flops.at(DType::kFloat32), 0);
  EXPECT_EQ(odd->flops.at(DType::kBfloat16), 0);
  cache.remember(device(cpu), speeds(4e9));
  EXPECT_EQ(cache.find(device(cpu))->flops.at(DType::kFloat32), 4e9);
}

TEST(SpeedCache, NoPlaceForIt_RemembersNothing) {
  const auto folder = test::fresh_folder();
  test::put(folder / "file", "x");
  const Machine cpu = machine("cpu");
  for (const auto& place : {std::filesystem::path(), folder / "file" / "speeds.json"}) {
    const SpeedCache cache(place);
    cache.remember(device(cpu), speeds(3e9));
    EXPECT_FALSE(cache.find(device(cpu)).has_value());
  }
}

TEST(PeakFlops, OfTheCpu_IsMeasuredOnceAndRemembered) {
  const SpeedCache cache(test::fresh_folder() / "speeds.json");
  const Machine cpu = machine("cpu");
  const Bytes before = device(cpu).peak_bytes();
  const double peak = peak_flops(cpu, DType::kFloat32, cache);
  EXPECT_GT(peak, 1e8);
  EXPECT_EQ(device(cpu).peak_bytes(), before);  // the run's account knows nothing of it
  EXPECT_EQ(cache.find(device(cpu))->flops.at(DType::kFloat32), peak);
  EXPECT_EQ(peak_flops(cpu, DType::kFloat32, cache), peak);
  // Two CPU members are one processor.
  const Machine two = machine("cpu*2");
  EXPECT_EQ(peak_flops(two, DType::kFloat32, cache), peak);
}

TEST(PeakFlops, OfDescribedCards_IsTheirEntry) {
  const SpeedCache cache(test::fresh_folder() / "speeds.json");
  const std::string file = tiny::card_file(
                               "half: {flops: {fp32: 2e12}, memory_bytes: 1e9, memory_bandwidth: 1e12,\n"
                               "       link_up: 1e10, link_down: 1e10, efficiency: 0.5}\n")
                               .string();
  EXPECT_DOUBLE_EQ(peak_flops(machine("emulated:" + file + "#half*3"), DType::kFloat32, cache), 6e12);
  EXPECT_DOUBLE_EQ(peak_flops(machine("timed:" + file + "#half*3"), DType::kFloat32, cache), 3e12);
  // A processor beside them adds its own.
  const Machine mixed = machine("emulated:" + file + "#half,cpu");
  cache.remember(*mixed.pool[1].device, speeds(1e12));
  EXPECT_DOUBLE_EQ(peak_flops(mixed, DType::kFloat32, cache), 3e12);
}

TEST(RememberPeak, OfOneRealDevice_IsKept) {
  const SpeedCache cache(test::fresh_folder() / "speeds.json");
  const Machine cpu = machine("cpu");
  remember_peak(cpu, DType::kFloat32, 5e13, cache);
  EXPECT_EQ(peak_flops(cpu, DType::kFloat32, cache), 5e13);
  const Machine two = machine("cpu*2", 2);
  remember_peak(two, DType::kFloat32, 6e13, cache);
  EXPECT_FALSE(cache.find(device(two)).has_value());
}

}  // namespace
}  // namespace rondo::train
