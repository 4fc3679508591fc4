// A file takes its place when it is whole, and where it may not replace another it does not.
#include "rondo/base/atomic_file.h"

#include <gtest/gtest.h>

#include <iterator>
#include <span>
#include <string>

#include "rondo/base/file.h"

namespace rondo {
namespace {

TEST(AtomicFile, WhereAnotherWasWrittenMeanwhile_LeavesItAlone) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "rondo_commit_new";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string text = "late";
  {
    auto first = AtomicFile::create(folder / "a");
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(first->write(std::as_bytes(std::span(text))).ok());
    ASSERT_TRUE(write_file_atomically(folder / "b", "early").ok());
    ASSERT_TRUE(first->commit_new().ok());
    auto second = AtomicFile::create(folder / "b");
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE(second->write(std::as_bytes(std::span(text))).ok());
    const absl::Status status = second->commit_new();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(std::string(status.message()).find((folder / "b").string()), std::string::npos) << status;
  }
  EXPECT_EQ(*read_file(folder / "a"), "late");
  EXPECT_EQ(*read_file(folder / "b"), "early");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2) << "something was left";
}

}  // namespace
}  // namespace rondo
