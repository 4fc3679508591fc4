// Reading back what a run has left, whole or cut.
#include "rondo/train/run_history.h"

#include <cmath>

#include "files.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using test::expect_refused;
using test::put;

constexpr const char* kFirst =
    R"({"kind":"train","step":1,"loss":2.5,"learning_rate":0.1,"grad_norm":1.5,"tokens":100,"tokens_per_second":50.0,"step_seconds":2.0,"sol":0.5,"bubble":0.1,"memory":{"cpu:0":1000,"host":2000}})";
constexpr const char* kSecond = R"({"kind":"train","step":2,"loss":2.25,"tokens":100,"step_seconds":3.0})";
constexpr const char* kEvaluation = R"({"kind":"eval","step":2,"eval_loss":2.75,"eval_target_tokens":10})";

class History : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  RunHistory read() const {
    const auto run = read_run(folder_);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *run : RunHistory();
  }
  void metrics(const std::string& text) const { put(folder_ / "metrics.jsonl", text); }
  const fs::path folder_ = test::fresh_folder();
};

TEST_F(History, Lines_AreReadByTheirKind) {
  metrics(std::string(kFirst) + "\n" + kSecond + "\n" + kEvaluation + "\n");
  const RunHistory run = read();
  ASSERT_EQ(run.train.size(), 2U);
  EXPECT_EQ(run.train[0].loss, 2.5);
  EXPECT_EQ(run.train[0].memory.at("host"), 2000.0);
  EXPECT_TRUE(std::isnan(run.train[1].sol));
  ASSERT_EQ(run.evaluations.size(), 1U);
  EXPECT_EQ(run.evaluations[0].eval_loss, 2.75);
  EXPECT_EQ(run.ignored_lines, 0U);
  EXPECT_EQ(run.steps(), 2U);
  EXPECT_EQ(mean_tokens_per_second(run), 40.0);
  EXPECT_EQ(best_eval_loss(run), 2.75);
  EXPECT_FALSE(run.has_result);
}

TEST_F(History, FileCutAnywhere_GivesWhatIsWhole) {
  const std::string whole = std::string(kFirst) + "\n" + kSecond + "\n" + kEvaluation + "\n";
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    metrics(whole.substr(0, size));
    const RunHistory run = read();
    const auto lines = static_cast<std::size_t>(std::ranges::count(whole.substr(0, size), '\n'));
    EXPECT_EQ(run.train.size() + run.evaluations.size(), lines) << size;
    EXPECT_EQ(run.ignored_lines, size == 0 || whole[size - 1] == '\n' ? 0U : 1U) << size;
  }
}

TEST_F(History, LinesThatAreNone_AreCountedNotRead) {
  metrics(
      std::string("[1]\n{\"kind\":3,\"step\":1}\n{\"kind\":\"train\"}\n{\"kind\":\"train\",\"step\":-1}\n"
                  "{\"kind\":\"eval\",\"step\":1}\n\n{\"kind\":\"train\",\"step\":1,\"loss\":\"x\",\"memory\":[]}\n") +
      kSecond + "\n");
  const RunHistory run = read();
  EXPECT_EQ(run.ignored_lines, 5U);
  ASSERT_EQ(run.train.size(), 2U);
  EXPECT_TRUE(std::isnan(run.train[0].loss));
}

TEST_F(History, Settings_AreThoseOfTheResolvedFile) {
  metrics("");
  put(folder_ / "config.resolved.yaml", "# Group\nseed: 42\ndataset: \"a \\\"b\\\" <c>\"\nlr: 1e-4\n");
  const RunHistory run = read();
  ASSERT_EQ(run.settings.size(), 3U);
  EXPECT_EQ(run.settings[0], (std::pair<std::string, std::string>("seed", "42")));
  EXPECT_EQ(setting(run, "dataset"), "a \"b\" <c>");
  EXPECT_EQ(setting(run, "none"), "");
  for (const char* broken : {"a: [", "- 1\n", "", "a: b: c"}) {
    put(folder_ / "config.resolved.yaml", broken);
    EXPECT_TRUE(read().settings.empty()) << broken;
  }
}

TEST_F(History, WhatIsNoRun_IsNamed) {
  expect_refused(read_run(folder_).status(), {folder_.string(), "metrics.jsonl"});
  expect_refused(read_run(folder_ / "nowhere").status(), {"nowhere", "no such folder"});
  EXPECT_FALSE(is_run(folder_));
}

}  // namespace
}  // namespace rondo::train
