// A folder that is built beside its place, and what killed processes have left of one.
#include "rondo/model/new_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "files.h"

namespace rondo::model {
namespace {

namespace fs = std::filesystem;

/// A folder with a file in it, last written to long ago.
fs::path left_behind(const fs::path& path) {
  fs::create_directory(path);
  std::ofstream(path / "model.safetensors") << "half";
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(1));
  return path;
}

TEST(NewFolder, WhatAKilledProcessHasBegunOfIt_IsRemovedByTheNext) {
  const fs::path folder = test::fresh_folder();
  const fs::path killed = left_behind(folder / ".merged.4711.part");
  const fs::path of_another = left_behind(folder / ".other.4711.part");
  const fs::path no_process = left_behind(folder / ".merged.mine.part");
  const fs::path at_work = left_behind(folder / ".merged.4712.part");
  const int fd = ::open(at_work.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  const fs::path begun = folder / ".merged.4713.part";
  fs::create_directory(begun);
  auto made = NewFolder::create(folder / "merged", "merge");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(of_another));
  EXPECT_TRUE(fs::exists(no_process));
  EXPECT_TRUE(fs::exists(at_work));
  EXPECT_TRUE(fs::exists(begun));  // its process may be about to take the lock
  ::close(fd);
}

TEST(NewFolder, WhileItIsWritten_IsLockedAgainstOthers) {
  const fs::path folder = test::fresh_folder();
  fs::path aside;
  {
    auto made = NewFolder::create(folder / "merged", "merge");
    ASSERT_TRUE(made.ok()) << made.status();
    const NewFolder moved = *std::move(made);
    aside = moved.path();
    const int fd = ::open(aside.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT_NE(::flock(fd, LOCK_EX | LOCK_NB), 0);
    ::close(fd);
  }
  EXPECT_FALSE(fs::exists(aside));
}

}  // namespace
}  // namespace rondo::model
