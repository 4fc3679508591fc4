// Boundaries on disk behind a few buffers: bytes, order, reuse, a failing disk, and no deadlock with the fewest
// buffers.
#include "rondo/offload/boundary_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "patience.h"
#include "rondo/offload/activation_store.h"

namespace rondo::offload {
namespace {

using test::patience;
using test::soon;

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr Bytes kPage = 6000;  // no whole blocks

void fill(const devices::BufferView& view, std::uint32_t seed, Bytes size = kPage) {
  auto* bytes = reinterpret_cast<unsigned char*>(view.host());
  for (Bytes i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(seed * 131 + i * 7 + i / 251);
}
bool holds(const devices::BufferView& view, std::uint32_t seed, Bytes size = kPage) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(view.host());
  for (Bytes i = 0; i < size; ++i) {
    if (bytes[i] != static_cast<unsigned char>(seed * 131 + i * 7 + i / 251)) return false;
  }
  return true;
}

class Boundaries : public testing::Test {
 protected:
  Boundaries() { std::filesystem::remove_all(folder_); }
  ~Boundaries() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<BoundaryTier> make(std::size_t pages, std::uint32_t buffers) {
    BoundaryTierOptions options;
    options.folder = folder_;
    options.pages = pages;
    options.page_bytes = kPage;
    options.buffers = buffers;
    auto tier = BoundaryTier::make(options);
    EXPECT_TRUE(tier.ok()) << tier.status();
    return *std::move(tier);
  }
  static void put(BoundaryTier& tier, std::size_t page, std::uint32_t seed, const ReadOrder& order = {}) {
    const absl::Status taken = tier.take(page, kPage, order, patience());
    ASSERT_TRUE(taken.ok()) << taken;
    fill(tier.view(page), seed);
    tier.filled(page);
  }
  static void expect_holds(BoundaryTier& tier, std::size_t page, std::uint32_t seed) {
    const absl::Status held = tier.hold(page, patience());
    ASSERT_TRUE(held.ok()) << held;
    EXPECT_TRUE(holds(tier.view(page), seed)) << "page " << page;
    tier.let_go(page);
  }
  /// Read in reverse, as backward visits do.
  static ReadOrder reversed(std::size_t page, std::size_t pages) { return {{pages - page, ReadOrder::kNever}}; }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_boundaries_" + std::to_string(::getpid()));
};

TEST_F(Boundaries, MorePagesThanBuffers_ComeBackAsTheyWere_AsOftenAsTheyAreRead) {
  constexpr std::size_t kPages = 40;
  const auto tier = make(kPages, 5);
  EXPECT_EQ(std::filesystem::file_size(tier->file()->path()), kPages * whole_disk_blocks(kPage));
  for (std::size_t i = 0; i < kPages; ++i) put(*tier, i, static_cast<std::uint32_t>(i), reversed(i, kPages));
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t i = kPages; i-- > 0;) expect_holds(*tier, i, static_cast<std::uint32_t>(i));
  }
  EXPECT_GE(tier->stats().written, (kPages - 5) * 2 * kDiskBlock);
}

TEST_F(Boundaries, ShortPage_MovesOnlyItsBlocks) {
  const auto tier = make(12, 2);
  for (std::size_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(tier->take(i, 100, {}, patience()).ok());
    fill(tier->view(i), static_cast<std::uint32_t>(i), 100);
    tier->filled(i);
  }
  for (std::size_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(tier->hold(i, patience()).ok());
    EXPECT_TRUE(holds(tier->view(i), static_cast<std::uint32_t>(i), 100));
    tier->let_go(i);
  }
  EXPECT_GE(tier->stats().read, 10 * kDiskBlock);
  EXPECT_EQ(tier->stats().written % kDiskBlock, 0U);
  EXPECT_LE(tier->stats().written, 12 * kDiskBlock) << "written more than once, or whole";
}

TEST_F(Boundaries, EnoughBuffers_TheDiskStaysIdle) {
  const auto tier = make(40, 20);
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 10; ++i) put(*tier, i, round * 100 + static_cast<std::uint32_t>(i), reversed(i, 10));
    for (std::size_t i = 10; i-- > 0;) expect_holds(*tier, i, round * 100 + static_cast<std::uint32_t>(i));
    for (std::size_t i = 0; i < 10; ++i) tier->drop(i);
  }
  EXPECT_EQ(tier->stats().written, 0U);
  EXPECT_EQ(tier->stats().read, 0U);
}

TEST_F(Boundaries, WhatIsReadLast_LeavesMemoryFirst) {
  constexpr std::size_t kPages = 32;
  const auto tier = make(kPages, 16);
  for (std::size_t i = 0; i < kPages; ++i) put(*tier, i, static_cast<std::uint32_t>(i), reversed(i, kPages));
  // The last eight are read next: none of them comes from the disk.
  for (std::size_t i = kPages; i-- > kPages - 8;) expect_holds(*tier, i, static_cast<std::uint32_t>(i));
  EXPECT_EQ(tier->stats().read_late, 0U);
}

TEST_F(Boundaries, PagesOnDisk_AreReadBeforeTheyAreAskedFor) {
  constexpr std::size_t kPages = 48;
  constexpr std::uint32_t kBuffers = 16;
  const auto tier = make(kPages, kBuffers);
  for (std::size_t i = 0; i < kPages; ++i) put(*tier, i, static_cast<std::uint32_t>(i), reversed(i, kPages));
  // Who gives the disk its time before each page finds it in memory, whatever was written meanwhile. As many pages as
  // have no buffer are on disk alone, those that are read last, and come back in the order of need.
  const auto deadline = patience();
  const auto has_come = [&](std::size_t page) {
    return tier->stats().read / whole_disk_blocks(kPage) + page >= kPages - kBuffers;
  };
  for (std::size_t i = kPages; i-- > 0;) {
    while (!has_come(i) && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    expect_holds(*tier, i, static_cast<std::uint32_t>(i));
    tier->drop(i);
  }
  EXPECT_GT(tier->stats().read, 0U);
  EXPECT_LE(tier->stats().read_late, kPages / 8);
}

TEST_F(Boundaries, DroppedPage_IsTakenAgain_WhateverOfItIsBeingMoved) {
  const auto tier = make(6, 4);
  for (std::uint32_t round = 0; round < 300; ++round) {
    for (std::size_t i = 0; i < 6; ++i) put(*tier, i, round * 10 + static_cast<std::uint32_t>(i), reversed(i, 6));
    for (std::size_t i = 6; i-- > 3;) expect_holds(*tier, i, round * 10 + static_cast<std::uint32_t>(i));
    for (std::size_t i = 0; i < 6; ++i) tier->drop(i);
  }
}

TEST_F(Boundaries, PinnedBuffers_AreGivenToNobody) {
  const auto tier = make(8, 3);
  put(*tier, 0, 50);
  ASSERT_TRUE(tier->hold(0, patience()).ok());
  ASSERT_TRUE(tier->take(1, kPage, {}, patience()).ok());
  ASSERT_TRUE(tier->take(1, kPage, {}, patience()).ok()) << "again: it keeps its buffer";
  ASSERT_TRUE(tier->take(2, kPage, {}, patience()).ok());
  EXPECT_EQ(tier->take(3, kPage, {}, soon()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(holds(tier->view(0), 50));
  auto waits = std::async(std::launch::async, [&] { return tier->take(3, kPage, {}, patience()); });
  EXPECT_EQ(waits.wait_for(milliseconds(30)), std::future_status::timeout);
  tier->let_go(0);
  EXPECT_TRUE(waits.get().ok());
  fill(tier->view(3), 53);
  tier->filled(3);
  expect_holds(*tier, 0, 50);
  expect_holds(*tier, 3, 53);
}

TEST_F(Boundaries, DiskThatFails_EndsAllWaitsAndNamesTheFolder) {
  const auto tier = make(20, 4);
  for (std::size_t i = 0; i < 20; ++i) put(*tier, i, static_cast<std::uint32_t>(i), reversed(i, 20));
  for (std::size_t i = 0; i < 20; ++i) expect_holds(*tier, i, static_cast<std::uint32_t>(i));
  const std::string name = tier->file()->path().string();
  absl::Status status;
  for (std::size_t i = 0; i < 40 && status.ok(); ++i) {
    // Again each time: what was still being written, four pages at most, makes the file long again.
    ASSERT_EQ(::truncate(name.c_str(), 0), 0);
    status = tier->hold(i % 20, patience());
    if (status.ok()) tier->let_go(i % 20);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.string()));
  EXPECT_EQ(tier->take(3, kPage, {}, patience()), status) << "it stays";
}

TEST_F(Boundaries, DiskThatIsTooSmall_IsFoundBeforehand) {
  BoundaryTierOptions options;
  options.folder = folder_;
  options.pages = std::size_t{1} << 40U;
  options.page_bytes = kPage;
  options.buffers = 4;
  const auto tier = BoundaryTier::make(options);
  EXPECT_EQ(tier.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tier.status().message()), HasSubstr("nvme_path"));
}

TEST_F(Boundaries, Close_ClosesTheFile_AndFailEndsWaits) {
  const auto tier = make(4, 1);
  const std::filesystem::path file = tier->file()->path();
  EXPECT_TRUE(std::filesystem::exists(file));
  ASSERT_TRUE(tier->take(0, kPage, {}, patience()).ok());
  auto waits = std::async(std::launch::async, [&] { return tier->take(1, kPage, {}, patience()); });
  tier->fail(absl::CancelledError("the run has ended"));
  EXPECT_EQ(waits.get().message(), "the run has ended");
  tier->close();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(tier->hold(0, patience()).message(), "the run has ended");
}

TEST_F(Boundaries, Phantom_TakesTheDisksTimeAndNoMemory) {
  BoundaryTierOptions options;
  options.pages = 40;
  options.page_bytes = Bytes{1} << 30U;
  options.buffers = 8;
  options.phantom = true;
  options.bandwidth = 500.0 * static_cast<double>(Bytes{1} << 30U);  // 2 ms a page
  const auto tier = BoundaryTier::make(options);
  ASSERT_TRUE(tier.ok()) << tier.status();
  const auto begin = steady_clock::now();
  for (std::size_t i = 0; i < 40; ++i) {
    ASSERT_TRUE((*tier)->take(i, options.page_bytes, reversed(i, 40), patience()).ok());
    EXPECT_EQ((*tier)->view(i).host(), nullptr);
    (*tier)->filled(i);
  }
  for (std::size_t i = 40; i-- > 0;) {
    ASSERT_TRUE((*tier)->hold(i, patience()).ok());
    (*tier)->let_go(i);
  }
  EXPECT_GT(steady_clock::now() - begin, milliseconds(100));
}

}  // namespace
}  // namespace rondo::offload
