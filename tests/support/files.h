// Folders and files of tests, and the form that every refusal must have.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
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

/// While it lives nobody can remove the folder, whoever they are: it is deeper than files may be open.
class Unremovable {
 public:
  explicit Unremovable(const std::filesystem::path& folder) {
    constexpr rlim_t kMore = 64;  // for whoever works meanwhile
    rlim_t last = 0;
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      last = std::max<rlim_t>(last, std::stoul(open.path().filename().string()));
    }
    std::filesystem::path deep = folder;
    for (rlim_t i = 0; i < last + 2 * kMore; ++i) deep /= "d";
    std::filesystem::create_directories(deep);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{last + kMore, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~Unremovable() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Unremovable(const Unremovable&) = delete;
  Unremovable& operator=(const Unremovable&) = delete;

 private:
  rlimit before_{};
};

/// The user's fault, on one line, and every one of `parts` in it.
inline void expect_refused(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::string message(status.message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts) EXPECT_THAT(message, testing::HasSubstr(part));
}

}  // namespace rondo::test
