// What is left half written when a signal ends the process.
#include "rondo/base/unfinished.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

class Beginning : public testing::Test {
 protected:
  Beginning() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    return names;
  }
  fs::path folder_ = fs::path(testing::TempDir()) / "rondo_unfinished";
};

TEST_F(Beginning, OfFilesAndFolders_IsRemoved) {
  auto file = AtomicFile::create(folder_ / "file");
  ASSERT_TRUE(file.ok());
  const AtomicFile moved = *std::move(file);
  fs::create_directories(folder_ / "part");
  const Unfinished part(folder_ / "part");
  for (int i = 0; i < 300; ++i) std::ofstream(folder_ / "part" / std::to_string(i)) << i;
  remove_unfinished();
  EXPECT_EQ(names(), std::vector<std::string>());
}

TEST_F(Beginning, ThatBecameWhole_Stays) {
  ASSERT_TRUE(write_file_atomically(folder_ / "file", "whole").ok());
  remove_unfinished();
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

/// And takes no place from later ones.
TEST_F(Beginning, BeyondWhatThereIsRoomFor_IsNotCounted) {
  std::vector<Unfinished> many;
  for (int i = 0; i < 70; ++i) many.emplace_back(folder_ / "none");
  many.clear();
  fs::create_directories(folder_ / "part");
  const Unfinished part(folder_ / "part");
  remove_unfinished();
  EXPECT_EQ(names(), std::vector<std::string>());
}

}  // namespace
}  // namespace rondo
