// Cards that are told to fail, hang or corrupt do so at the named piece of work, once, and end cleanly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "cards.h"

namespace rondo::devices::emulated {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

CardOptions failing(const char* fail_at) {
  CardOptions options = round_card();
  options.profile.link_latency_seconds = 0;
  options.profile.fail_at = fail_at;
  return options;
}

TEST(FailingCard, ErrorAtAPieceOfWork_PoisonsOnlyThatPiece) {
  const auto device = *open_timed(failing("error@up:2"));
  const Buffer here = *device->allocate(64, MemoryKind::kDevice);
  const Buffer home = phantom_host(64);
  const auto down = *device->timeline();
  std::vector<std::unique_ptr<Timeline>> up;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    up.push_back(*device->timeline());
    device->queue(QueueRole::kDown).copy(here.view(), home.view(), {}, {down.get(), i}, {"down"});
    device->queue(QueueRole::kUp).copy(home.view(), here.view(), {}, {up.back().get(), 1}, {"weights of layer 3"});
  }
  EXPECT_TRUE(up[2]->wait(1, patience()).ok());
  EXPECT_TRUE(down->wait(3, patience()).ok());
  EXPECT_TRUE(up[0]->wait(1, patience()).ok());
  EXPECT_THAT(std::string(up[1]->wait(1, patience()).message()),
              testing::AllOf(testing::HasSubstr("timed:round:0"), testing::HasSubstr("weights of layer 3")));
}

/// Where something has held the test up the second work is late already, and it is that which fails.
TEST(FailingCard, ErrorAtATime_ComesOnceAfterTheFirstWork) {
  const auto device = *open_timed(failing("error@0.05s"));
  const Buffer here = *device->allocate(64, MemoryKind::kDevice);
  const auto clear = [&] {
    const auto line = *device->timeline();
    device->queue(QueueRole::kCompute).clear(here.view(), {}, {line.get(), 1}, {"test"});
    return line->wait(1, patience());
  };
  const auto begin = steady_clock::now();
  EXPECT_TRUE(clear().ok());
  const absl::Status second = clear();
  const bool in_time = steady_clock::now() < begin + milliseconds(50);
  std::this_thread::sleep_for(milliseconds(60));
  const absl::Status third = clear();
  EXPECT_TRUE(second.ok() || !in_time) << second;
  EXPECT_EQ((second.ok() ? third : second).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE((second.ok() ? second : third).ok());
  EXPECT_TRUE(clear().ok());
}

TEST(FailingCard, Hang_MissesDeadlinesUntilTheDeviceIsClosed) {
  auto device = *open_timed(failing("hang@compute:1"));
  const Buffer here = *device->allocate(64, MemoryKind::kDevice);
  const auto hung = *device->timeline();
  const auto behind = *device->timeline();
  const auto other = *device->timeline();
  const Point wait{hung.get(), 1};
  device->queue(QueueRole::kCompute).clear(here.view(), {}, {hung.get(), 1}, {"test"});
  device->queue(QueueRole::kDown).clear(here.view(), {&wait, 1}, {behind.get(), 1}, {"test"});
  device->queue(QueueRole::kUp).clear(here.view(), {}, {other.get(), 1}, {"test"});
  EXPECT_TRUE(other->wait(1, patience()).ok());
  EXPECT_EQ(behind->wait(1, steady_clock::now() + milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  device.reset();
  EXPECT_EQ(hung->wait(1, patience()).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(behind->wait(1, patience()).code(), absl::StatusCode::kCancelled);
}

TEST(FailingCard, CorruptRun_WritesNoNumbers) {
  ThreadPool threads(1);
  CardOptions options = failing("corrupt@compute:2");
  options.name = "emulated:round:0";
  const auto device = *open_emulated(options, threads);
  const Loaded loaded = load(*device, small_product());
  const auto line = *device->timeline();
  const auto run = [&](std::uint64_t value) {
    device->queue(QueueRole::kCompute).run(*loaded.program, loaded.bindings, {}, {line.get(), value}, {"test"});
    EXPECT_TRUE(line->wait(value, patience()).ok()) << line->wait(value, patience());
    return *reinterpret_cast<const float*>(loaded.buffers[2].view().host());
  };
  EXPECT_EQ(run(1), 0.0F);
  EXPECT_TRUE(std::isnan(run(2)));
  EXPECT_EQ(run(3), 0.0F);
}

TEST(FailingCard, CorruptCopy_DiffersFromItsSource) {
  ThreadPool threads(1);
  CardOptions options = failing("corrupt@down:1");
  options.name = "emulated:round:0";
  const auto device = *open_emulated(options, threads);
  const Buffer here = *device->allocate(1000, MemoryKind::kDevice);
  const Buffer home = *allocate_host(1000, "test");
  const auto line = *device->timeline();
  for (std::uint64_t value = 1; value <= 2; ++value) {
    device->queue(QueueRole::kDown).copy(here.view(), home.view(), {}, {line.get(), value}, {"test"});
    ASSERT_TRUE(line->wait(value, patience()).ok());
    const bool same = std::memcmp(here.view().host(), home.view().host(), 1000) == 0;
    EXPECT_EQ(same, value == 2) << value;
  }
}

TEST(OpenTimed, BadFailureOrProfile_IsRefused) {
  EXPECT_EQ(open_timed(failing("explode@noon")).status().code(), absl::StatusCode::kInvalidArgument);
  CardOptions options = round_card();
  options.profile.link_up = 0;
  EXPECT_EQ(open_timed(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rondo::devices::emulated
