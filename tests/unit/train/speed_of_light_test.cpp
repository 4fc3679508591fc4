// The peak that a run is measured against: measured once, remembered, and never below what was reached.
#include "rondo/train/speed_of_light.h"

#include <cstdlib>

#include "files.h"
#include "rondo/devices/pool.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

using devices::CalibrationStore;
using devices::DeviceKey;
using devices::DType;

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

/// FLOP/s in fp32; 0: not known.
double remembered(const devices::Device& device, CalibrationStore& store) {
  const auto profile = devices::profile_of(device, store.find(DeviceKey::of(device)));
  return profile ? profile->flops.at(DType::kFloat32) : 0;
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

TEST(PeakFlops, OfTheCpu_IsMeasuredOnceAndRemembered) {
  CalibrationStore store(test::fresh_folder() / "calibration.sqlite");
  const Machine cpu = machine("cpu");
  const Bytes before = device(cpu).peak_bytes();
  const double peak = peak_flops(cpu, DType::kFloat32, store);
  EXPECT_GT(peak, 1e8);
  EXPECT_EQ(device(cpu).peak_bytes(), before);  // the run's account knows nothing of it
  EXPECT_EQ(remembered(device(cpu), store), peak);
  EXPECT_EQ(peak_flops(cpu, DType::kFloat32, store), peak);
  // Two CPU members are one processor.
  const Machine two = machine("cpu*2");
  EXPECT_EQ(peak_flops(two, DType::kFloat32, store), peak);
}

TEST(PeakFlops, OfDescribedCards_IsTheirEntry) {
  CalibrationStore store(test::fresh_folder() / "calibration.sqlite");
  const std::string file = tiny::card_file(
                               "half: {flops: {fp32: 2e12}, memory_bytes: 1e9, memory_bandwidth: 1e12,\n"
                               "       link_up: 1e10, link_down: 1e10, efficiency: 0.5}\n")
                               .string();
  EXPECT_DOUBLE_EQ(peak_flops(machine("emulated:" + file + "#half*3"), DType::kFloat32, store), 6e12);
  EXPECT_DOUBLE_EQ(peak_flops(machine("timed:" + file + "#half*3"), DType::kFloat32, store), 3e12);
  // A processor beside them adds its own.
  const Machine mixed = machine("emulated:" + file + "#half,cpu");
  store.put(DeviceKey::of(*mixed.pool[1].device), {{{"product", "fp32"}, 1e12}});
  EXPECT_DOUBLE_EQ(peak_flops(mixed, DType::kFloat32, store), 3e12);
}

TEST(RememberPeak, OfOneRealDevice_IsKept) {
  CalibrationStore store(test::fresh_folder() / "calibration.sqlite");
  const Machine cpu = machine("cpu");
  remember_peak(cpu, DType::kFloat32, 5e13, store);
  EXPECT_EQ(peak_flops(cpu, DType::kFloat32, store), 5e13);
  const Machine two = machine("cpu*2", 2);
  remember_peak(two, DType::kFloat32, 6e13, store);
  EXPECT_EQ(remembered(device(two), store), 0);
}

}  // namespace
}  // namespace rondo::train
