// The store of measured speeds: what is written comes back to who may have it, and no file harms a run.
#include "rondo/devices/calibration_store.h"

#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "files.h"
#include "rondo/base/file.h"
#include "rondo/devices/pool.h"

namespace rondo::devices {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const DeviceKey kDevice{"card; fast", "driver 1", "build 1"};

SpeedKey product_of(std::int64_t rows) {
  OpShape shape;
  shape.kind = OpKind::kMatMul;
  shape.dtype = DType::kBfloat16;
  shape.reads = 2;
  shape.writes = 1;
  shape.rows = rows;
  shape.columns = 96;
  shape.inner = 64;
  return SpeedKey::of(shape);
}

double rate_of(CalibrationStore& store, const SpeedKey& key, const DeviceKey& device = kDevice) {
  const Speeds speeds = store.find(device);
  const auto found = speeds.find(key);
  return found == speeds.end() ? 0 : found->second.rate;
}

class Store : public testing::Test {
 protected:
  void run_sql(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  /// The file is put aside as it is and a new store works in its place.
  void expect_begun_anew(const std::string& why) const {
    const std::string before = *read_file(file_);
    CalibrationStore store(file_);
    EXPECT_THAT(store.note(), HasSubstr(file_.string()));
    EXPECT_THAT(store.note(), HasSubstr(why));
    EXPECT_EQ(store.note().find('\n'), std::string::npos);
    EXPECT_TRUE(store.find(kDevice).empty());
    store.put(kDevice, {{product_of(16), 5e9}});
    EXPECT_EQ(rate_of(store, product_of(16)), 5e9);
    EXPECT_EQ(*read_file(file_.string() + ".aside"), before);
    CalibrationStore again(file_);
    EXPECT_EQ(again.note(), "");
    EXPECT_EQ(rate_of(again, product_of(16)), 5e9);
  }

  const fs::path folder_ = test::fresh_folder();
  const fs::path file_ = folder_ / "deep" / "calibration.sqlite";
};

TEST_F(Store, Speeds_ComeBackInTheNextProcess) {
  {
    CalibrationStore store(file_);
    EXPECT_TRUE(store.find(kDevice).empty());
    store.put(kDevice, {{product_of(16), 3e9}, {{"memory", ""}, 2e10}});
    store.put(kDevice, {{product_of(32), 4e9}});
  }
  CalibrationStore store(file_);
  EXPECT_EQ(store.note(), "");
  EXPECT_EQ(store.find(kDevice).size(), 3U);
  EXPECT_EQ(rate_of(store, product_of(16)), 3e9);
  EXPECT_EQ(rate_of(store, product_of(32)), 4e9);
  const Speed memory = store.find(kDevice).at({"memory", ""});
  EXPECT_EQ(memory.rate, 2e10);
  EXPECT_EQ(memory.samples, 1);
  EXPECT_GT(memory.seen, 1700000000);
}

TEST_F(Store, AnotherDeviceDriverOrBuild_KnowsNothingOfIt) {
  CalibrationStore store(file_);
  store.put(kDevice, {{product_of(16), 3e9}});
  for (const DeviceKey& other :
       {DeviceKey{"card; slow", "driver 1", "build 1"}, DeviceKey{"card; fast", "driver 2", "build 1"},
        DeviceKey{"card; fast", "driver 1", "build 2"}}) {
    EXPECT_TRUE(store.find(other).empty());
    store.put(other, {{product_of(16), 1e9}});
    EXPECT_EQ(rate_of(store, product_of(16), other), 1e9);
  }
  EXPECT_EQ(rate_of(store, product_of(16)), 3e9);
}

TEST_F(Store, ManyBuilds_TheOldestAreForgotten) {
  CalibrationStore store(file_);
  for (int build = 0; build < 40; ++build) {
    store.put({"card", "driver", std::to_string(build)}, {{product_of(16), 1e9}});
  }
  EXPECT_TRUE(store.find({"card", "driver", "0"}).empty());
  EXPECT_FALSE(store.find({"card", "driver", "39"}).empty());
}

TEST_F(Store, Shapes_ComeBackFromTheirKeys) {
  const SpeedKey key = product_of(16);
  const auto shape = key.shape();
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(SpeedKey::of(*shape), key);
  OpShape eight_bits = *shape;
  eight_bits.fp8 = true;
  EXPECT_FALSE(SpeedKey::of(eight_bits) == key);
  ASSERT_TRUE(SpeedKey::of(eight_bits).shape().has_value());
  EXPECT_TRUE(*SpeedKey::of(eight_bits).shape() == eight_bits);
  EXPECT_FALSE((SpeedKey{"memory", ""}.shape().has_value()));
  EXPECT_FALSE((SpeedKey{"an op of another version", "bf16", 2, 1}.shape().has_value()));
}

TEST_F(Store, ForgetOps_LeavesThePlainSpeeds) {
  CalibrationStore store(file_);
  store.put(kDevice, {{product_of(16), 3e9}, {{"memory", ""}, 2e10}});
  store.forget_ops(kDevice);
  EXPECT_EQ(rate_of(store, product_of(16)), 0);
  EXPECT_EQ(rate_of(store, {"memory", ""}), 2e10);
}

TEST_F(Store, RatesThatAreNone_AreNotKept) {
  CalibrationStore store(file_);
  store.put(kDevice, {{product_of(16), 3e9}});
  store.put(kDevice, {{product_of(16), 0}, {product_of(32), -1}, {product_of(64), std::nan("")}});
  EXPECT_EQ(store.find(kDevice).size(), 1U);
  run_sql("UPDATE speeds SET rate = -5");
  EXPECT_TRUE(store.find(kDevice).empty());
}

TEST_F(Store, BrokenFile_IsPutAsideAndBegunAnew) {
  fs::create_directories(file_.parent_path());
  test::put(file_, std::string(8192, 'x'));
  expect_begun_anew("no SQLite file");
}

TEST_F(Store, DamagedPages_ArePutAside) {
  {
    CalibrationStore store(file_);
    for (std::int64_t rows = 1; rows < 400; ++rows) store.put(kDevice, {{product_of(rows), 3e9}});
  }
  std::string text = *read_file(file_);
  ASSERT_GT(text.size(), 12288U);
  for (std::size_t i = 4096; i < text.size(); ++i) text[i] = 'y';
  test::put(file_, text);
  expect_begun_anew("broken");
}

TEST_F(Store, FileOfAnotherProgram_IsPutAside) {
  fs::create_directories(file_.parent_path());
  run_sql("CREATE TABLE speeds(mine TEXT); PRAGMA application_id = 7");
  expect_begun_anew("another program");
}

TEST_F(Store, AnotherVersion_IsPutAside) {
  { CalibrationStore(file_).put(kDevice, {{product_of(16), 3e9}}); }
  run_sql("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)");
  expect_begun_anew("version 99");
}

TEST_F(Store, NoPlaceForIt_RemembersNothingAndSaysNothing) {
  test::put(folder_ / "file", "x");
  for (const fs::path& place : {fs::path(), folder_ / "file" / "calibration.sqlite", folder_}) {
    CalibrationStore store(place);
    store.put(kDevice, {{product_of(16), 3e9}});
    store.refine(kDevice, {{product_of(16), 3e9}});
    store.forget_ops(kDevice);
    EXPECT_TRUE(store.find(kDevice).empty());
  }
}

TEST_F(Store, LockedFile_IsNoFault) {
  { CalibrationStore(file_).put(kDevice, {{product_of(16), 3e9}}); }
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  {
    CalibrationStore store(file_);
    store.put(kDevice, {{product_of(16), 9e9}});
    EXPECT_EQ(store.note(), "");
  }
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  CalibrationStore store(file_);
  EXPECT_EQ(rate_of(store, product_of(16)), 3e9);
}

TEST_F(Store, SeveralProcesses_LoseNothing) {
  constexpr int kProcesses = 4;
  constexpr std::int64_t kSpeeds = 25;
  std::vector<pid_t> children;
  for (int child = 0; child < kProcesses; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      CalibrationStore store(file_);
      for (std::int64_t i = 0; i < kSpeeds; ++i) store.put(kDevice, {{product_of(child * kSpeeds + i + 1), 3e9}});
      for (int i = 0; i < 5; ++i) store.refine(kDevice, {{{"memory", ""}, 1e9}});
      ::_exit(store.note().empty() ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  CalibrationStore store(file_);
  const Speeds speeds = store.find(kDevice);
  EXPECT_EQ(speeds.size(), kProcesses * kSpeeds + 1U);
  // Each refinement saw the one before.
  EXPECT_EQ(speeds.at({"memory", ""}).samples, kProcesses * 5);
}

TEST_F(Store, SeveralProcessesAtABrokenFile_AgreeOnANewOne) {
  fs::create_directories(file_.parent_path());
  test::put(file_, std::string(8192, 'x'));
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      CalibrationStore(file_).put(kDevice, {{product_of(child + 1), 3e9}});
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  CalibrationStore store(file_);
  EXPECT_EQ(store.note(), "");
  store.put(kDevice, {{product_of(16), 3e9}});
  EXPECT_EQ(rate_of(store, product_of(16)), 3e9);
}

TEST(Refined, FirstRun_ReplacesTheShortMeasurement) {
  const Speed speed = refined({100, 0, 1, 0}, 130);
  EXPECT_NEAR(speed.rate, 130, 1e-9);
  EXPECT_EQ(speed.samples, 2);
}

TEST(Refined, WrongRate_MovesToTheTruth) {
  Speed speed{1000, 0, 1, 0};
  double before = 1000;
  for (int run = 0; run < 40; ++run) {
    speed = refined(speed, 100);
    EXPECT_LE(speed.rate, before);
    before = speed.rate;
  }
  EXPECT_NEAR(speed.rate, 100, 3);
}

TEST(Refined, OneBusyRun_HardlyMovesWhatWasSteady) {
  Speed speed{100, 0, 1, 0};
  for (int run = 0; run < 8; ++run) speed = refined(speed, run % 2 == 0 ? 102 : 98);
  const double steady = speed.rate;
  speed = refined(speed, 30);
  EXPECT_GT(speed.rate, 0.96 * steady);
  // And the next quiet ones bring it back.
  for (int run = 0; run < 6; ++run) speed = refined(speed, 100);
  EXPECT_NEAR(speed.rate, 100, 1.5);
}

TEST(Refined, NeverMoreThanTwofold) {
  EXPECT_NEAR(refined({100, 0, 1, 0}, 1e9).rate, 200, 1e-6);
  EXPECT_NEAR(refined({100, 0, 1, 0}, 1e-9).rate, 50, 1e-6);
}

class Profiles : public Store {
 protected:
  std::vector<PoolMember> open(std::uint32_t threads) {
    pools_.push_back(std::make_unique<ThreadPool>(threads));
    auto pool = open_pool({"cpu", ""}, *pools_.back());
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }
  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

TEST_F(Profiles, PlainSpeeds_ComeBackAsAProfileAndAddUp) {
  CalibrationStore store(file_);
  const auto cpu = open(1);
  const Device& device = *cpu[0].device;
  const DeviceKey key = DeviceKey::of(device);
  EXPECT_FALSE(profile_of(device, store.find(key)).has_value());
  DeviceProfile profile;
  profile.flops[DType::kFloat32] = 3e9;
  profile.memory_bandwidth = 5e9;
  store.put(key, speeds_of(profile));
  DeviceProfile more;
  more.flops[DType::kBfloat16] = 7e9;
  more.link_up = 1e9;
  more.link_down = 2e9;
  more.link_latency_seconds = 1e-6;
  store.put(key, speeds_of(more));
  const auto found = profile_of(device, store.find(key));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->flops.at(DType::kFloat32), 3e9);
  EXPECT_EQ(found->flops.at(DType::kBfloat16), 7e9);
  EXPECT_EQ(found->memory_bandwidth, 5e9);
  EXPECT_EQ(found->link_up, 1e9);
  EXPECT_EQ(found->link_latency_seconds, 1e-6);
  // Another number of threads has other speeds.
  const auto two = open(2);
  EXPECT_FALSE(profile_of(*two[0].device, store.find(DeviceKey::of(*two[0].device))).has_value());
}

TEST_F(Profiles, Latency_ComesBackAsMeasured) {
  const auto cpu = open(1);
  const Device& device = *cpu[0].device;
  const DeviceKey key = DeviceKey::of(device);
  DeviceProfile profile;
  profile.link_up = profile.link_down = 1e9;
  for (int nanoseconds = 11'500; nanoseconds < 11'540; ++nanoseconds) {
    profile.link_latency_seconds = std::chrono::duration<double>(std::chrono::nanoseconds(nanoseconds)).count();
    CalibrationStore(file_).put(key, speeds_of(profile));
    const auto found = profile_of(device, CalibrationStore(file_).find(key));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->link_latency_seconds, profile.link_latency_seconds);
  }
}

}  // namespace
}  // namespace rondo::devices
