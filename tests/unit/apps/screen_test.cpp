// The screen of a run on a file and on something like a terminal, and its log.
#include "rondo/apps/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "patience.h"

namespace rondo::apps {
namespace {

using testing::HasSubstr;

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ScreenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/rondo_screen_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    stream_ = std::fopen(shown().c_str(), "w");
    ASSERT_NE(stream_, nullptr);
  }
  void TearDown() override {
    std::fclose(stream_);
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path shown() const { return folder_ / "shown"; }
  std::filesystem::path log() const { return folder_ / "train.log"; }

  static train::RunSummary summary() {
    train::RunSummary summary;
    summary.model = "tiny: llama";
    summary.method = "LoRA";
    summary.data.path = "chats.jsonl";
    summary.data.records = 3;
    summary.sample_text = "hello <<you>>";
    summary.sample_text_coloured = "hello \x1b[32myou\x1b[0m";
    summary.total_steps = 2;
    summary.memory = {{"cpu:0", {{"weights", 1024}, {"activations", 2048}}}, {"host", {{"masters", 4096}}}};
    summary.unused_devices = {{"cpu:1", "too slow"}};
    summary.predicted.step_seconds = 2;
    return summary;
  }
  static train::StepReport step(std::uint64_t number) {
    train::StepReport report;
    report.step = number;
    report.total_steps = 2;
    report.loss = 1.5;
    report.grad_norm = 0.0;
    return report;
  }

  std::filesystem::path folder_;
  std::FILE* stream_ = nullptr;
};

TEST_F(ScreenTest, NoTerminal_GetsPlainLinesAndTheSameInTheLog) {
  {
    Screen screen(stream_, {}, log());
    screen.on_start(summary());
    screen.on_step(step(1));
    screen.on_evaluation({1, 1.25, 10});
    screen.on_step(step(2));
    screen.on_checkpoint("out/checkpoint-2");
    screen.on_note("first\nsecond");
  }
  const std::string text = slurp(shown());
  for (const char* part :
       {"tiny: llama", "LoRA", "chats.jsonl", "hello <<you>>", "weights", "3.00 KiB", "cpu:1: too slow", "step 1/2",
        "step 2/2", "loss 1.2500", "checkpoint out/checkpoint-2", "second"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(slurp(log()), text);
}

TEST_F(ScreenTest, Terminal_UpdatesOneLineAndTheLogStaysPlain) {
  {
    Screen screen(stream_, {true, true}, log());
    screen.on_start(summary());
    screen.on_step(step(1));
    screen.on_step(step(2));
  }
  const std::string text = slurp(shown());
  EXPECT_THAT(text, HasSubstr("\x1b[32myou"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[K2/2 100%"));
  EXPECT_EQ(text.back(), '\n');
  const std::string logged = slurp(log());
  EXPECT_EQ(logged.find('\x1b'), std::string::npos);
  EXPECT_THAT(logged, testing::AllOf(HasSubstr("step 1/2"), HasSubstr("step 2/2")));
}

TEST_F(ScreenTest, Progress_StandsOnATerminalUntilSomethingElseIsSaid) {
  {
    Screen screen(stream_, {true, false}, log());
    screen.on_progress("loading weights", 3, 40);
    EXPECT_THAT(slurp(shown()), testing::EndsWith("loading weights 3 of 40"));
    screen.on_progress("compiling programs", 0, 0);
    EXPECT_THAT(slurp(shown()), testing::EndsWith("40\r\x1b[Kcompiling programs"));
    screen.on_start(summary());
    EXPECT_THAT(slurp(shown()), HasSubstr("programs\r\x1b[K"));
    EXPECT_EQ(slurp(shown()).find("programs\n"), std::string::npos);
  }
  EXPECT_EQ(slurp(log()).find("loading"), std::string::npos);
}

/// Nothing is called while a driver compiles.
TEST_F(ScreenTest, ProgressElsewhere_IsSaidAgainUntilSomethingElseIs) {
  Screen screen(stream_, {}, log(), std::chrono::milliseconds(20));
  screen.on_progress("compiling programs", 0, 0);
  const std::string twice = "compiling programs\ncompiling programs\n";
  const auto end = test::patience();
  while (slurp(shown()).find(twice) == std::string::npos && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(slurp(shown()), testing::StartsWith(twice));
  screen.on_start(summary());
  const std::string text = slurp(shown());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(slurp(shown()), text);
}

TEST_F(ScreenTest, ProgressWiderThanTheTerminal_IsCut) {
  Screen screen(stream_, {true, false}, log());
  screen.on_progress(std::string(100, 'x'), 3, 40);
  EXPECT_EQ(slurp(shown()), std::string(79, 'x'));  // of the 80 columns that a file counts as
}

TEST_F(ScreenTest, ProgressWithoutATerminal_IsSilentForAWhile) {
  Screen(stream_, {}, log()).on_progress("loading weights", 3, 40);
  EXPECT_EQ(slurp(shown()), "");
}

TEST_F(ScreenTest, ResumedRun_AppendsToItsLog) {
  std::ofstream(log()) << "earlier\n";
  train::RunSummary resumed = summary();
  resumed.first_step = 1;
  resumed.resumed_from = "out/checkpoint-1";
  Screen(stream_, {}, log()).on_start(resumed);
  EXPECT_THAT(slurp(log()), testing::AllOf(testing::StartsWith("earlier\n"), HasSubstr("out/checkpoint-1")));
}

TEST_F(ScreenTest, BeforeTheStart_NoLogIsMadeAndNothingIsForgotten) {
  Screen screen(stream_, {}, log());
  screen.on_note("early");
  EXPECT_FALSE(std::filesystem::exists(log()));
  screen.on_start(summary());
  EXPECT_EQ(slurp(log()), slurp(shown()));
  EXPECT_THAT(slurp(log()), testing::MatchesRegex("note +early\n(.|\n)*"));
}

}  // namespace
}  // namespace rondo::apps
