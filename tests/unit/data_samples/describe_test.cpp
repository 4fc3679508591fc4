// What people see of a sample: its text whole, targets marked, nothing that steers the terminal.
#include "rondo/data/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_support.h"

namespace rondo::data {
namespace {

using testing_support::load_model;

Sample sample_of(const Tokenizer& tokenizer, std::string_view text, std::size_t first_target) {
  Sample sample;
  sample.ids = tokenizer.encode(text, false).ids;
  sample.labels = sample.ids;
  for (std::size_t t = 0; t < std::min(first_target, sample.ids.size()); ++t) sample.labels[t] = kMasked;
  return sample;
}

std::string without_marks(std::string text) {
  for (const std::string mark : {"\u27e6", "\u27e7", "\x1b[0m", "\x1b[2m", "\x1b[32m"}) {
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.erase(at, mark.size());
  }
  return text;
}

TEST(DescribeSample, Plain_MarksTargets) {
  const auto model = load_model("chatml");
  const Sample sample = sample_of(*model.tokenizer, "<|im_start|>x<|im_end|>", 1);
  EXPECT_EQ(describe_sample(*model.tokenizer, sample, false), "<|im_start|>\u27e6x<|im_end|>\u27e7");
}

TEST(DescribeSample, Colour_EndsEveryRun) {
  const auto model = load_model("chatml");
  const Sample sample = sample_of(*model.tokenizer, "<|im_start|>x<|im_end|>", 1);
  EXPECT_EQ(describe_sample(*model.tokenizer, sample, true), "\x1b[2m<|im_start|>\x1b[0m\x1b[32mx<|im_end|>\x1b[0m");
}

TEST(DescribeSample, AnyCut_KeepsTheTextWhole) {
  // Cuts inside characters of several bytes and after the first word, whose space a decoder may drop.
  for (const char* style : {"chatml", "brackets"}) {
    const auto model = load_model(style);
    const std::string text = "The cat 日本 🙂 sat";
    const std::size_t tokens = model.tokenizer->encode(text, false).ids.size();
    for (std::size_t cut = 0; cut <= tokens; ++cut) {
      const Sample sample = sample_of(*model.tokenizer, text, cut);
      EXPECT_EQ(without_marks(describe_sample(*model.tokenizer, sample, cut % 2 == 0)), text) << style << cut;
    }
  }
}

TEST(DescribeSample, ControlCharacters_AreShownAsCodes) {
  const auto model = load_model("chatml");
  const Sample sample = sample_of(*model.tokenizer, "a\x1b[31mb\n", 0);
  EXPECT_EQ(describe_sample(*model.tokenizer, sample, false), "\u27e6a\\x1b[31mb\n\u27e7");
}

TEST(SampleJson, Keys_AreHuggingFaces) {
  Sample sample;
  sample.ids = {5, 6};
  sample.labels = {kMasked, 6};
  EXPECT_EQ(sample_json(sample).dump(), R"({"input_ids":[5,6],"labels":[-100,6]})");
}

TEST(DescribeReport, Counts_AreNamed) {
  DataReport report;
  report.path = "d.jsonl";
  report.format = "text";
  report.container = "JSON lines";
  report.records = 3;
  report.kept = 2;
  report.truncated = 1;
  report.without_target = 1;
  report.first_without_target = {2};
  report.dropped_symbols = 4;
  const std::string text = describe_report(report);
  EXPECT_THAT(text, testing::HasSubstr("d.jsonl: text, JSON lines, 3 records, 2 kept"));
  EXPECT_THAT(text, testing::HasSubstr("1 sample was cut to cutoff_len"));
  EXPECT_THAT(text, testing::HasSubstr("record 2"));
  EXPECT_THAT(text, testing::HasSubstr("4 symbols"));
}

}  // namespace
}  // namespace rondo::data
