// Compiled pipelines on disk: a second start finds those of the first, and no other file does harm.
#include <gtest/gtest.h>

#include <fstream>

#include "card_test.h"
#include "pipelines.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

class PipelinesOnDisk : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    folder_ = std::filesystem::path(testing::TempDir()) / "rondo_pipelines_on_disk";
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Opens `card`, compiles a pipeline, closes it again. Returns how many bytes its cache had from the file.
  std::size_t start(const Card& card) {
    auto context = Context::make(instance_, card, "vulkan:0", {});
    EXPECT_EQ(context.status(), absl::OkStatus());
    if (!context.ok()) return 0;
    Pipelines pipelines(*context, folder_);
    EXPECT_EQ(pipelines.prepare(), absl::OkStatus());
    EXPECT_EQ(pipelines.get(Shader::kElementwise, {0, 0, 0}).status(), absl::OkStatus());
    path_ = pipelines.cache().path();
    return pipelines.cache().loaded_bytes();
  }
  std::string contents() const {
    auto read = read_file(path_);
    EXPECT_EQ(read.status(), absl::OkStatus());
    return read.ok() ? *read : std::string();
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << text; }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(PipelinesOnDisk, SecondStart_FindsThoseOfTheFirst) {
  EXPECT_EQ(start(card_), 0U);
  const std::string kept = contents();
  const std::size_t found = start(card_);
  EXPECT_GT(found, 0U);
  EXPECT_LT(found, kept.size());
}

TEST_F(PipelinesOnDisk, DamagedFile_IsReplaced) {
  start(card_);
  const std::string kept = contents();
  std::string flipped = kept;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  for (const std::string& damaged : {flipped, kept.substr(0, kept.size() - 1), kept + "x", kept.substr(0, 20),
                                     std::string(), std::string(4096, '\xff')}) {
    write(damaged);
    EXPECT_EQ(start(card_), 0U) << damaged.size() << " bytes";
    EXPECT_GT(start(card_), 0U) << "not replaced";
  }
}

TEST_F(PipelinesOnDisk, FileOfAnotherDriver_IsLeftAloneAndNotTaken) {
  Card other = card_;
  other.pipeline_identity += " of another driver";
  start(other);
  const std::filesystem::path theirs = path_;
  const std::string foreign = contents();
  EXPECT_EQ(start(card_), 0U);
  EXPECT_NE(path_, theirs);
  write(foreign);  // under this card's name
  EXPECT_EQ(start(card_), 0U);
  path_ = theirs;
  EXPECT_EQ(contents(), foreign);
}

TEST_F(PipelinesOnDisk, FolderThatCannotBeMade_IsNoError) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "file") << "in the way";
  const std::filesystem::path whole = folder_;
  folder_ = folder_ / "file";
  EXPECT_EQ(start(card_), 0U);
  EXPECT_EQ(start(card_), 0U);
  folder_ = whole;
}

}  // namespace
}  // namespace rondo::devices::vulkan
