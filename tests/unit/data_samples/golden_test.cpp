// Ids and labels equal transformers' for eight template styles; see tests/reference/samples/generate.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test_support.h"

namespace rondo::data {
namespace {

using testing_support::data_folder;
using testing_support::load_model;
using testing_support::Model;

std::vector<nlohmann::json> read_lines(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line, nullptr, false));
  return lines;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  /// Every record by itself, so that one refused by the template does not hide the others.
  void expect_equal(const std::string& name) {
    const Model model = load_model(GetParam());
    ASSERT_NE(model.tokenizer, nullptr);
    const auto goldens = read_lines(data_folder() / GetParam() / (name + ".golden.jsonl"));
    std::ifstream records(data_folder() / (name + ".jsonl"));
    const auto folder = testing_support::fresh_folder();
    std::size_t index = 0;
    for (std::string line; std::getline(records, line); ++index) {
      ASSERT_LT(index, goldens.size());
      SCOPED_TRACE(line);
      const auto file = testing_support::write(folder / "one.jsonl", line);
      const auto dataset = load_dataset(file, model.renderer(), {});
      if (goldens[index].is_null()) {
        EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      ASSERT_EQ(dataset->samples.size(), 1U);
      const Sample sample = dataset->samples[0];
      EXPECT_EQ(sample.ids, goldens[index]["input_ids"].get<std::vector<TokenId>>());
      EXPECT_EQ(sample.labels, goldens[index]["labels"].get<std::vector<std::int32_t>>())
          << "targets: " << testing_support::targets_of(*model.tokenizer, sample);
    }
    EXPECT_EQ(index, goldens.size());
    EXPECT_GT(index, 5U);
  }
};

TEST_P(Golden, Conversations_HaveTheReferencesIdsAndLabels) { expect_equal("conversations"); }
TEST_P(Golden, Pairs_HaveTheReferencesIdsAndLabels) { expect_equal("pairs"); }
TEST_P(Golden, Texts_HaveTheReferencesIdsAndLabels) { expect_equal("texts"); }

/// The finder remembers what it learned: all records of one file must give what each gives alone.
TEST_P(Golden, WholeFile_GivesWhatEachRecordGivesAlone) {
  const Model model = load_model(GetParam());
  ASSERT_NE(model.tokenizer, nullptr);
  const auto goldens = read_lines(data_folder() / GetParam() / "conversations.golden.jsonl");
  std::ifstream records(data_folder() / "conversations.jsonl");
  std::string accepted;
  std::vector<nlohmann::json> expected;
  std::size_t index = 0;
  for (std::string line; std::getline(records, line); ++index) {
    if (goldens[index].is_null()) continue;
    accepted += line + "\n";
    expected.push_back(goldens[index]);
  }
  const auto dataset = load_dataset(testing_support::write_data(accepted), model.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->samples.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(dataset->samples[i].labels, expected[i]["labels"].get<std::vector<std::int32_t>>()) << i;
    EXPECT_EQ(dataset->samples[i].index, i);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, Golden,
                         testing::Values("chatml", "thinker", "headers", "brackets", "closing", "bare", "words",
                                         "promptless"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace rondo::data
