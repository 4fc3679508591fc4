// Files are read whole, mapped, and written whole or not at all.
#include "rondo/base/file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/folder.h"
#include "rondo/base/units.h"

namespace rondo {
namespace {

std::filesystem::path fresh_folder(const char* name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(WriteFileAtomically, ExistingFile_IsReplacedAndNothingElseIsLeft) {
  const auto folder = fresh_folder("rondo_atomic");
  ASSERT_TRUE(write_file_atomically(folder / "a", "one").ok());
  ASSERT_TRUE(write_file_atomically(folder / "a", "two").ok());
  EXPECT_EQ(*read_file(folder / "a"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

/// As root the new file would take the place of /dev/null.
TEST(WriteFileAtomically, WhatIsNoRegularFile_IsLeftAlone) {
  const auto folder = fresh_folder("rondo_special");
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(write_file_atomically(pipe, "x").ok());
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(CheckWritable, Path_IsAskedWithoutATrace) {
  const auto folder = fresh_folder("rondo_writable");
  EXPECT_TRUE(check_writable(folder / "a").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  ASSERT_TRUE(write_file_atomically(folder / "a", "one").ok());
  EXPECT_TRUE(check_writable(folder / "a").ok());
  EXPECT_EQ(*read_file(folder / "a"), "one");
  for (const auto& path : {folder, folder / "a" / "b", folder / "none" / "b"}) {
    const auto status = check_writable(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_NE(std::string(status.message()).find(path.string()), std::string::npos) << status;
  }
}

TEST(WriteFileAtomically, FolderMissing_NamesThePath) {
  const auto status = write_file_atomically(fresh_folder("rondo_none") / "no" / "a", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("no/a"), std::string::npos);
}

TEST(MappedFile, Folder_IsRefused) {
  const auto file = MappedFile::open(fresh_folder("rondo_map"));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Files, PipeWithoutAWriter_IsRefusedAndNotWaitedFor) {
  const auto pipe = fresh_folder("rondo_pipe") / "data.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string expected = pipe.string() + ": not a regular file";
  EXPECT_EQ(MappedFile::open(pipe).status().message(), expected);
  EXPECT_EQ(read_file(pipe).status().message(), expected);
  EXPECT_FALSE(sync_path(pipe).ok());
}

TEST(MappedFile, Contents_AreTheFiles) {
  const auto folder = fresh_folder("rondo_map2");
  std::ofstream(folder / "a") << "hello";
  auto file = MappedFile::open(folder / "a");
  ASSERT_TRUE(file.ok());
  const MappedFile moved = *std::move(file);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()), "hello");
}

TEST(MappedFile, ReleasedPagesOfAnotherOwner_KeepTheirContents) {
  const auto folder = fresh_folder("rondo_map3");
  std::ofstream(folder / "a") << std::string(100, 'a');
  // Two files with memory mapped between them: mappings are laid out in order, downwards on Linux.
  const auto first = MappedFile::open(folder / "a");
  constexpr std::size_t kBetween = 1U << 20U;
  void* const between = ::mmap(nullptr, kBetween, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(between, MAP_FAILED);
  std::memset(between, 'b', kBetween);
  const auto second = MappedFile::open(folder / "a");
  ASSERT_TRUE(first.ok() && second.ok());
  first->release_pages(second->bytes());
  second->release_pages(first->bytes());
  first->release_pages({static_cast<const std::byte*>(between), kBetween});
  const std::string_view kept(static_cast<const char*>(between), kBetween);
  EXPECT_EQ(kept.find_first_not_of('b'), std::string_view::npos);
  ::munmap(between, kBetween);
}

TEST(MappedFile, ReleasedPages_ComeFromTheFileAgain) {
  const auto folder = fresh_folder("rondo_map4");
  std::ofstream(folder / "a") << std::string(10000, 'a');
  const auto file = MappedFile::open(folder / "a");
  ASSERT_TRUE(file.ok());
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  ASSERT_EQ(text, std::string(10000, 'a'));
  file->release_pages(file->bytes().subspan(4000, 5000));
  EXPECT_EQ(text, std::string(10000, 'a'));
}

/// Of a mapped file, KiB. The sums in /proc/self/status are late by what each thread has not added yet.
std::size_t resident_of(const std::filesystem::path& file) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  std::size_t sum = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(file.string())) here = true;
    if (here && line.starts_with("Rss:")) {
      sum += std::stoul(line.substr(4));
      here = false;
    }
  }
  return sum;
}

/// Reading a piece maps what lies beside it: a piece that was released before, among others.
TEST(MappedFile, PiecesReadBackwardsAndReleased_LeaveNothingResident) {
  const auto folder = fresh_folder("rondo_map5");
  constexpr std::size_t kPiece = 100000;
  constexpr std::size_t kPieces = 40;
  std::ofstream(folder / "a") << std::string(kPiece * kPieces, 'a');
  const auto file = MappedFile::open(folder / "a");
  ASSERT_TRUE(file.ok());
  std::size_t most = 0;
  for (std::size_t i = kPieces; i-- > 0;) {
    const auto piece = file->bytes().subspan(i * kPiece, kPiece);
    EXPECT_EQ(std::count(piece.begin(), piece.end(), std::byte{'a'}), std::ptrdiff_t{kPiece});
    most = std::max(most, resident_of(folder / "a"));
    file->release_pages(piece);
  }
  EXPECT_GT(most, kPiece / 1024) << "reading was not seen";
  EXPECT_EQ(resident_of(folder / "a"), 0U);
}

TEST(EntriesOf, Folder_AreAllThatLiesThere) {
  const auto folder = fresh_folder("rondo_entries");
  ASSERT_TRUE(write_file_atomically(folder / "a", "one").ok());
  std::filesystem::create_directories(folder / "b" / "deeper");
  std::error_code error = std::make_error_code(std::errc::io_error);
  std::vector<std::filesystem::path> found = entries_of(folder, error);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector{folder / "a", folder / "b"}));
  EXPECT_FALSE(error);
}

TEST(EntriesOf, FolderThatIsMissing_AreNoneAndTheReasonIsSaid) {
  std::error_code error;
  EXPECT_TRUE(entries_of(fresh_folder("rondo_no_entries") / "none", error).empty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
}

TEST(FormatBytes, Units_AreBinary) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(3_GiB / 2), "1.50 GiB");
}

}  // namespace
}  // namespace rondo
