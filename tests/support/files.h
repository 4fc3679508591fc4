// Folders and files of tests, and the form that every refusal must have.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rondo::test {

/// Named after the running test: ctest runs tests side by side.
inline std::filesystem::path fresh_folder() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string("rondo_") + info->test_suite_name() + "_" + info->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

/// A new file each time: some file systems write a truncated one to disk at once, which 20,000 rounds would wait for.
inline void put(const std::filesystem::path& path, const std::string& contents) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::size_t entries_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// The user's fault, on one line, and every one of `parts` in it.
inline void expect_refused(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::string message(status.message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts) EXPECT_THAT(message, testing::HasSubstr(part));
}

}  // namespace rondo::test
