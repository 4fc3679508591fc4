// Shared by the tests of the configuration: a YAML file in a folder of its own, and matchers of errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "rondo/train/config.h"

namespace rondo::train {

/// A file with `text`, deleted at the end.
class YamlFile {
 public:
  explicit YamlFile(const std::string& text) {
    std::string pattern = testing::TempDir() + "/rondo_config_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
    folder_ = pattern;
    std::ofstream(path(), std::ios::binary) << text;
  }
  ~YamlFile() { std::filesystem::remove_all(folder_); }
  YamlFile(const YamlFile&) = delete;
  YamlFile& operator=(const YamlFile&) = delete;

  std::string path() const { return (folder_ / "run.yaml").string(); }

 private:
  std::filesystem::path folder_;
};

/// What every `rondo train` needs.
inline const std::vector<std::string>& needed() {
  static const std::vector<std::string> flags = {"--model_name_or_path", "m", "--dataset", "d", "--output_dir", "o"};
  return flags;
}

inline std::vector<std::string> with_needed(std::vector<std::string> more) {
  more.insert(more.end(), needed().begin(), needed().end());
  return more;
}

inline std::string message_of(const absl::StatusOr<Config>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status().ToString();
  const std::string message(result.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

}  // namespace rondo::train
