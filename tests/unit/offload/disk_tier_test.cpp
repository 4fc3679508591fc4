// State on disk: copies, passes that change it, what is reserved and what is left behind.
#include "rondo/offload/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>

namespace rondo::offload {
namespace {

using testing::HasSubstr;

const std::vector<MomentFormat> kThree(3, MomentFormat::kFloat32);

class Disk : public testing::Test {
 protected:
  Disk() { std::filesystem::remove_all(folder_); }
  ~Disk() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<DiskTier> make(const std::vector<std::uint64_t>& elements, std::uint32_t depth = 4) {
    DiskTierOptions options;
    options.folder = folder_ / "tier";
    options.elements = elements;
    options.arrays.assign(elements.size(), kThree);
    options.depth = depth;
    options.requests = 3;
    options.chunk_elements = 2048;
    auto tier = DiskTier::make(options);
    EXPECT_TRUE(tier.ok()) << tier.status();
    return *std::move(tier);
  }
  std::size_t files() const {
    std::error_code none;  // there may be no folder
    const auto count = std::distance(std::filesystem::recursive_directory_iterator(folder_, none), {});
    return static_cast<std::size_t>(count);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_disk_tier_" + std::to_string(::getpid()));
};

/// One pass over everything: each array's elements grow by 1, 2 and 3.
absl::Status pass(DiskTier& tier, const std::vector<std::uint64_t>& elements) {
  for (const std::uint64_t n : elements) {
    for (std::uint64_t first = 0; first < n;) {
      const auto chunk = tier.next();
      if (!chunk.ok()) return chunk.status();
      EXPECT_EQ((*chunk)->first, first);
      for (std::size_t a = 0; a < 3; ++a) {
        auto* numbers = reinterpret_cast<float*>((*chunk)->arrays[a].data());
        for (std::uint64_t i = 0; i < (*chunk)->elements; ++i) numbers[i] += static_cast<float>(a + 1);
      }
      first += (*chunk)->elements;
      tier.done();
    }
  }
  return absl::OkStatus();
}

TEST_F(Disk, Copies_ReachAnyRange) {
  const auto tier = make({5000, 1, 2048});
  std::vector<float> values(3000);
  std::iota(values.begin(), values.end(), 1.0F);
  ASSERT_TRUE(tier->write(0, 1, 1500, values).ok());
  std::vector<float> all(5000, -1);
  ASSERT_TRUE(tier->read(0, 1, 0, std::as_writable_bytes(std::span(all))).ok());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], i >= 1500 && i < 4500 ? static_cast<float>(i - 1499) : 0.0F) << i;
  }
  ASSERT_TRUE(tier->read(0, 0, 0, std::as_writable_bytes(std::span(all))).ok());
  EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0.0), 0.0);
}

TEST_F(Disk, Passes_ChangeEveryElementOnceEach) {
  // Fewer chunks than slots, as many, and more; several passes, so that reading ahead meets writing behind.
  for (const auto& elements : {std::vector<std::uint64_t>{100}, {2048, 2049}, {5000, 1, 9000, 2048}}) {
    for (const std::uint32_t depth : {1U, 3U, 8U}) {
      const auto tier = make(elements, depth);
      ASSERT_TRUE(tier->start().ok());
      for (int i = 0; i < 7; ++i) ASSERT_TRUE(pass(*tier, elements).ok());
      ASSERT_TRUE(tier->drain_and_wait().ok());
      for (std::size_t parameter = 0; parameter < elements.size(); ++parameter) {
        for (std::uint32_t array = 0; array < 3; ++array) {
          std::vector<float> values(elements[parameter]);
          ASSERT_TRUE(tier->read(parameter, array, 0, std::as_writable_bytes(std::span(values))).ok());
          EXPECT_THAT(values, testing::Each(7.0F * static_cast<float>(array + 1))) << depth;
        }
      }
    }
  }
}

/// Bytes that this process has read from files so far.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t bytes = 0;
  file >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

TEST_F(Disk, Chunks_AreReadBeforeTheyAreAskedFor) {
  constexpr std::uint64_t kChunk = 3 * 2048 * sizeof(float);
  const auto tier = make({std::uint64_t{2048} * 64}, 16);
  const std::uint64_t before = bytes_read();
  ASSERT_TRUE(tier->start().ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  // Looking costs some bytes too: fewer than a chunk in all.
  std::uint64_t read = 0;
  while (read < 16 * kChunk && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    read = bytes_read() - before;
  }
  EXPECT_GE(read, 16 * kChunk);
}

TEST_F(Disk, File_IsReservedWhole_AndHasNoName) {
  std::filesystem::create_directories(folder_ / "tier");
  const auto tier = make({100000});
  EXPECT_GE(tier->disk_bytes(), 100000U * 12);
  EXPECT_EQ(std::filesystem::file_size(tier->file().path()), tier->disk_bytes());
  struct stat reserved {};
  ASSERT_EQ(::stat(tier->file().path().c_str(), &reserved), 0);
  EXPECT_GE(static_cast<Bytes>(reserved.st_blocks) * 512, tier->disk_bytes());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tier")) << "a process that is killed would leave it";
}

TEST_F(Disk, FoldersMadeForTheFile_DoNotStay) {
  std::filesystem::create_directories(folder_);
  const auto file = ScratchFile::make(folder_ / "made" / "for it", kDiskBlock);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const DiskBuffer buffer = *allocate_disk_buffer(kDiskBlock);
  EXPECT_TRUE((*file)->write(0, buffer.bytes).ok());
  EXPECT_TRUE((*file)->read(0, buffer.bytes).ok());
}

/// Each makes the folder and takes it away again, when another may have just found it there.
TEST_F(Disk, FilesOfManyAtATime_AreAllMade) {
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) refused += ScratchFile::make(folder_ / "a" / "b", 0).ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
}

TEST_F(Disk, BytesFor_IsWhatTheFileTakes) {
  DiskTierOptions options;
  options.folder = folder_;
  options.elements = {3, 600000, std::uint64_t{1} << 18U};
  const std::vector<MomentFormat> coded = {MomentFormat::kFloat32, MomentFormat::kBlocks8, MomentFormat::kBlocks8};
  options.arrays = {kThree, coded, {}};
  const auto tier = DiskTier::make(options);
  ASSERT_TRUE(tier.ok()) << tier.status();
  Bytes bytes = 0;
  for (std::size_t i = 0; i < 3; ++i) bytes += DiskTier::bytes_for(options.elements[i], options.arrays[i]);
  EXPECT_EQ((*tier)->disk_bytes(), bytes);
  EXPECT_LT(DiskTier::bytes_for(600000, coded), 600000 * 6.1);
}

TEST_F(Disk, WholeArrays_OfAnyFormat_ComeBack) {
  DiskTierOptions options;
  options.folder = folder_;
  options.elements = {5001, 700};
  options.arrays = {{MomentFormat::kFloat32, MomentFormat::kBlocks8}, {MomentFormat::kBlocks8}};
  options.chunk_elements = 2048;
  const auto tier = DiskTier::make(options);
  ASSERT_TRUE(tier.ok()) << tier.status();
  for (std::size_t parameter = 0; parameter < 2; ++parameter) {
    for (std::uint32_t array = 0; array < options.arrays[parameter].size(); ++array) {
      std::vector<std::byte> bytes(moment_bytes(options.arrays[parameter][array], options.elements[parameter]));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + parameter + array + 1);
      // The bytes that pad codes to four stand nowhere.
      const bool coded = options.arrays[parameter][array] == MomentFormat::kBlocks8;
      for (std::size_t i = options.elements[parameter]; coded && i % 4 != 0; ++i) bytes[i] = std::byte{0};
      ASSERT_TRUE((*tier)->write_whole(parameter, array, bytes).ok());
      std::vector<std::byte> again(bytes.size());
      ASSERT_TRUE((*tier)->read(parameter, array, 0, again).ok());
      EXPECT_EQ(again, bytes) << parameter << " " << array;
    }
  }
}

TEST_F(Disk, MoreThanIsFree_IsRefusedBeforeAnythingIsWritten) {
  const auto file = ScratchFile::make(folder_, Bytes{1} << 60U);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("nvme_path"));
  EXPECT_EQ(files(), 0U);
}

/// A run that needs less than the 64 MiB that are measured with is none of the full ones.
TEST_F(Disk, WithLittleFree_IsMeasuredWithLess) {
  EXPECT_EQ(disk_probe_bytes(Bytes{1} << 40U), 64_MiB);
  EXPECT_EQ(disk_probe_bytes(30_MiB), 12_MiB);
  EXPECT_EQ(disk_probe_bytes(5_MiB), 4_MiB);
  EXPECT_EQ(disk_probe_bytes(0), 4_MiB);
  for (const Bytes most : {~Bytes{0}, 100_KiB, Bytes{1}}) {
    const auto speed = measure_disk(folder_, most);
    ASSERT_TRUE(speed.ok()) << speed.status();
    EXPECT_GT(*speed, 0) << most;
  }
}

TEST_F(Disk, FolderThatCannotBe_IsRefused) {
  const auto file = ScratchFile::make("/dev/null/folder", 4096);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/dev/null/folder"));
}

TEST_F(Disk, ReadingFails_PassEndsWithTheError) {
  const std::vector<std::uint64_t> elements = {20000};
  const auto tier = make(elements);
  ASSERT_EQ(::truncate(tier->file().path().c_str(), 40960), 0);
  ASSERT_TRUE(tier->start().ok());
  const absl::Status status = pass(*tier, elements);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the file ends there"));
  EXPECT_EQ(tier->status(), status);
  EXPECT_EQ(tier->drain_and_wait(), status);
}

}  // namespace
}  // namespace rondo::offload
