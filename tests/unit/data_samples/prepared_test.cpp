// Tokens of large files are made once: what a second reading takes from the file is what the first one made, and
// whatever the tokens depend on leads to another file.
#include "prepared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "rondo/base/atomic_file.h"
#include "test_support.h"

namespace rondo::data {
namespace {

namespace fs = std::filesystem;

class Prepared : public testing::Test {
 protected:
  Prepared() { options_.prepared = folder_ / "prepared"; }

  /// A chat a line, above a MiB together. `salt` changes the last one.
  fs::path chats(const std::string& salt = "") const {
    std::string lines;
    std::size_t i = 0;
    while (lines.size() < 1'100'000) {
      lines += R"({"messages":[{"role":"user","content":"question )" + std::to_string(i++) +
               R"("},{"role":"assistant","content":"the answer, at some length"}]})" + "\n";
    }
    lines += R"({"messages":[{"role":"user","content":"last"},{"role":"assistant","content":"one)" + salt + "\"}]}\n";
    return testing_support::write(folder_ / "chats.jsonl", lines);
  }
  Renderer renderer(const std::string& fingerprint = "a") const {
    Renderer renderer = model_.renderer();
    renderer.fingerprint = fingerprint;
    return renderer;
  }
  Dataset load(const fs::path& path, const Renderer& renderer) const {
    auto dataset = load_dataset(path, renderer, options_);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : Dataset{};
  }
  std::size_t files() const {
    std::error_code none;
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(options_.prepared, none), {}));
  }

  const fs::path folder_ = testing_support::fresh_folder();
  const testing_support::Model model_ = testing_support::load_model("chatml");
  DataOptions options_;
};

void expect_equal(const Dataset& found, const Dataset& expected) {
  ASSERT_EQ(found.samples.size(), expected.samples.size());
  for (std::size_t i = 0; i < found.samples.size(); ++i) {
    const Sample one = found.samples[i];
    const Sample other = expected.samples[i];
    ASSERT_EQ(one.ids, other.ids) << i;
    ASSERT_EQ(one.labels, other.labels) << i;
    ASSERT_EQ(one.index, other.index) << i;
  }
  EXPECT_EQ(found.report.records, expected.report.records);
  EXPECT_EQ(found.report.tokens, expected.report.tokens);
  EXPECT_EQ(found.report.target_tokens, expected.report.target_tokens);
  EXPECT_EQ(found.report.longest, expected.report.longest);
  EXPECT_EQ(found.report.largest_token, expected.report.largest_token);
  EXPECT_EQ(found.report.format, expected.report.format);
}

TEST_F(Prepared, SecondReading_TakesTheTokensOfTheFirst) {
  const fs::path path = chats();
  const Dataset in_memory = load(path, model_.renderer());  // without a fingerprint nothing is kept
  EXPECT_EQ(in_memory.report.prepared, "");
  EXPECT_EQ(files(), 0U);
  const Dataset first = load(path, renderer());
  EXPECT_FALSE(first.report.reused);
  EXPECT_EQ(files(), 1U);
  const Dataset second = load(path, renderer());
  EXPECT_TRUE(second.report.reused);
  EXPECT_EQ(second.report.prepared, first.report.prepared);
  EXPECT_EQ(second.report.path, path.string());
  expect_equal(first, in_memory);
  expect_equal(second, in_memory);
}

TEST_F(Prepared, WhateverTokensDependOn_LeadsToAnotherFile) {
  const fs::path path = chats();
  load(path, renderer());
  const auto expect_new = [&](const char* what, std::size_t count) {
    EXPECT_FALSE(load(path, renderer()).report.reused) << what;
    EXPECT_EQ(files(), count) << what;
  };
  options_.cutoff_len = 60;
  expect_new("cutoff_len", 2);
  options_.train_on_prompt = true;
  expect_new("train_on_prompt", 3);
  options_.train_on_prompt = false;
  options_.mask_history = true;
  expect_new("mask_history", 4);
  options_.format = DataFormat::kMessages;
  expect_new("format", 5);
  chats("!");
  expect_new("contents", 6);
  EXPECT_FALSE(load(path, renderer("b")).report.reused);
  EXPECT_EQ(files(), 7U);
  EXPECT_TRUE(load(path, renderer("b")).report.reused);
}

TEST_F(Prepared, DamagedFile_IsMadeAgain) {
  const fs::path path = chats();
  const Dataset first = load(path, renderer());
  std::string bytes = *read_file(first.report.prepared);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  fs::remove(first.report.prepared);  // `first` still reads the file of that name
  testing_support::write(first.report.prepared, bytes);
  const Dataset again = load(path, renderer());
  EXPECT_FALSE(again.report.reused);
  expect_equal(again, first);
  EXPECT_TRUE(load(path, renderer()).report.reused);
}

TEST_F(Prepared, SmallFileOrFewSamples_StayInMemory) {
  const fs::path small = testing_support::write_data(R"({"text":"a few words"})");
  EXPECT_EQ(load(small, renderer()).report.prepared, "");
  options_.max_samples = 3;
  EXPECT_EQ(load(chats(), renderer()).report.prepared, "");
  EXPECT_EQ(files(), 0U);
}

TEST_F(Prepared, FolderThatCannotBeMade_KeepsTokensInMemory) {
  options_.prepared = testing_support::write(folder_ / "a file", "x") / "below";
  const Dataset dataset = load(chats(), renderer());
  EXPECT_EQ(dataset.report.prepared, "");
  EXPECT_GT(dataset.samples.size(), 1000U);
}

TEST_F(Prepared, RefusedData_LeavesNoFile) {
  std::string lines = *read_file(chats());
  testing_support::write(folder_ / "chats.jsonl", lines + "{\"messages\": 5}\n");
  EXPECT_EQ(load_dataset(folder_ / "chats.jsonl", renderer(), options_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files(), 0U);
}

TEST_F(Prepared, FilesOfKilledPreparations_GoWhenNobodyWritesThem) {
  fs::create_directories(options_.prepared);
  const auto make = [this](const std::string& name, std::chrono::hours age) {
    const fs::path path = testing_support::write(options_.prepared / name, "half of the tokens");
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
    return path;
  };
  const fs::path abandoned = make(".0f56c58f909a5c62.tokens.4321.part", std::chrono::hours(1));
  const fs::path fresh = make(".0f56c58f909a5c62.tokens.4322.part", std::chrono::hours(0));
  const fs::path foreign = make("notes.part", std::chrono::hours(1));
  auto written = AtomicFile::create(options_.prepared / "slow.tokens");
  ASSERT_TRUE(written.ok()) << written.status();
  const fs::path slow = options_.prepared / (".slow.tokens." + std::to_string(::getpid()) + ".part");
  fs::last_write_time(slow, fs::file_time_type::clock::now() - std::chrono::hours(1));
  load(chats(), renderer());
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::exists(slow));
}

TEST_F(Prepared, PartsOfOneRun_CanBeSplitAndPackedAsInMemory) {
  const fs::path path = chats();
  auto from_file = split_dataset(load(path, renderer()), 0.25, 7);
  auto in_memory = split_dataset(load(path, model_.renderer()), 0.25, 7);
  ASSERT_TRUE(from_file.ok() && in_memory.ok());
  expect_equal(from_file->first, in_memory->first);
  expect_equal(from_file->second, in_memory->second);
}

TEST(NoteUse, TooMuch_DeletesWhatWasUsedLongestAgo) {
  const fs::path folder = testing_support::fresh_folder();
  const auto now = fs::file_time_type::clock::now();
  std::vector<fs::path> files;
  for (int i = 0; i < 5; ++i) {
    files.push_back(testing_support::write(folder / (std::to_string(i) + ".tokens"), std::string(100, 'x')));
    fs::last_write_time(files.back(), now - std::chrono::hours(10 - i));
  }
  const fs::path other = testing_support::write(folder / "notes.txt", std::string(1000, 'x'));
  note_use(files[0], 350);
  EXPECT_TRUE(fs::exists(files[0]));  // it is the one in use now
  EXPECT_FALSE(fs::exists(files[1]));
  EXPECT_FALSE(fs::exists(files[2]));
  EXPECT_TRUE(fs::exists(files[3]));
  EXPECT_TRUE(fs::exists(files[4]));
  EXPECT_TRUE(fs::exists(other));
  note_use(files[3], 1);
  EXPECT_TRUE(fs::exists(files[3]));
  EXPECT_FALSE(fs::exists(files[0]));
}

}  // namespace
}  // namespace rondo::data
