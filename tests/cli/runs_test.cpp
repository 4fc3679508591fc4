// The list of runs from the outside: every way to end is in it, and nothing about it harms a run.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

class RunList : public testing::Test {
 protected:
  void SetUp() override { ::setenv("RONDO_RUNS_DB", store().c_str(), /*overwrite=*/1); }
  void TearDown() override { ::unsetenv("RONDO_RUNS_DB"); }

  std::string store() const { return workspace_.path("state/runs.sqlite").string(); }
  Json runs(const Words& more = {}) const {
    Words words = {"runs", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = workspace_.run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const Json json = Json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(json.is_object() && json.contains("runs")) << outcome.out;
    return json.is_object() ? json.value("runs", Json::array()) : Json::array();
  }
  /// Slow enough to be ended from outside.
  Words long_run(const char* folder) const {
    return train({std::string("--output_dir=") + folder, "--max_steps=100000", "--save_steps=0"});
  }
  /// A step is shown before it is in the store: with the third on the screen, two are.
  static constexpr const char* kTwoSteps = "step 3/";

  const Workspace workspace_;
};

TEST_F(RunList, FinishedRun_HasItsNumbers) {
  EXPECT_TRUE(runs().empty());
  EXPECT_FALSE(fs::exists(store()));  // to look makes nothing
  EXPECT_EQ(workspace_.run({"runs"}).out, "no runs\n");
  ASSERT_EQ(workspace_.run(train({"--max_steps=2", "--eval_dataset=chats.jsonl"})).status, 0);
  const Json list = runs();
  ASSERT_EQ(list.size(), 1U);
  const Json& run = list[0];
  EXPECT_EQ(run["status"], "done");
  EXPECT_EQ(run["output_dir"], fs::canonical(workspace_.path("out")).string());
  EXPECT_EQ(run["exists"], true);
  EXPECT_EQ(run["model"], "model");
  EXPECT_EQ(run["method"], "lora");
  EXPECT_EQ(run["data"], "chats.jsonl");
  EXPECT_EQ(run["steps"], 2);
  EXPECT_EQ(run["total_steps"], 2);
  EXPECT_GT(run["tokens_per_second"], 0);
  EXPECT_THAT(run["started"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_LE(run["started"], run["ended"]);
  const std::string metrics = workspace_.read("out/metrics.jsonl");
  const auto line = [&](const char* part) {
    const std::size_t begin = metrics.rfind('\n', metrics.find(part)) + 1;
    return Json::parse(metrics.substr(begin, metrics.find('\n', begin) - begin), nullptr, false);
  };
  EXPECT_EQ(run["final_loss"], line("\"step\":2")["loss"]);
  EXPECT_EQ(run["best_eval_loss"], line("\"eval\"")["eval_loss"]);
  EXPECT_THAT(workspace_.run({"runs"}).out, HasSubstr("done"));
}

TEST_F(RunList, InterruptedAndResumed_IsOneRun) {
  Process process(long_run("out"), workspace_.path().string());
  ASSERT_TRUE(process.says(kTwoSteps));
  EXPECT_EQ(runs()[0]["status"], "running");
  EXPECT_GE(runs()[0]["steps"], 2);  // of its files
  process.send(SIGINT);
  ASSERT_EQ(process.wait().status, 130);
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_EQ(runs()[0]["status"], "interrupted");
  const std::uint64_t steps = runs()[0]["steps"];
  const Json id = runs()[0]["id"];
  ASSERT_EQ(
      workspace_.run(train({"--resume_from_checkpoint", "--max_steps=" + std::to_string(steps + 1), "--save_steps=0"}))
          .status,
      0);
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_EQ(runs()[0]["status"], "done");
  EXPECT_EQ(runs()[0]["steps"], steps + 1);
  EXPECT_EQ(runs()[0]["id"], id);
}

TEST_F(RunList, KilledRun_IsShownAsCrashed) {
  Process process(long_run("out"), workspace_.path().string());
  ASSERT_TRUE(process.says(kTwoSteps));
  process.send(SIGKILL);
  process.wait();
  const Json list = runs();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["status"], "crashed");
  EXPECT_TRUE(list[0]["ended"].is_null());
  EXPECT_GE(list[0]["steps"], 2);
  EXPECT_GT(list[0]["final_loss"], 0);
}

TEST_F(RunList, Folder_ShowsTheRunsInItThatNobodyListed) {
  ::setenv("RONDO_RUNS_DB", "none", 1);
  ASSERT_EQ(workspace_.run(train({"--output_dir=some/deep/unlisted"})).status, 0);
  ::setenv("RONDO_RUNS_DB", store().c_str(), 1);
  ASSERT_EQ(workspace_.run(train({"--output_dir=some/listed"})).status, 0);
  ASSERT_EQ(workspace_.run(train({"--output_dir=elsewhere"})).status, 0);
  EXPECT_EQ(runs().size(), 2U);
  const Json list = runs({"some"});
  ASSERT_EQ(list.size(), 2U);
  EXPECT_THAT(list[0]["output_dir"].get<std::string>(), testing::EndsWith("some/listed"));
  EXPECT_TRUE(list[1]["id"].is_null());
  EXPECT_EQ(list[1]["status"], "done");
  EXPECT_EQ(list[1]["model"], "model");
  EXPECT_EQ(list[1]["steps"], 1);
  EXPECT_EQ(runs({"some/deep/unlisted"}).size(), 1U);
}

TEST_F(RunList, StoreThatIsNone_CostsTheRunANoteAndTheListAnError) {
  workspace_.write("state/runs.sqlite", std::string(4096, 'x'));
  const Outcome outcome = workspace_.run(train());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("note       `rondo runs` will not know this run: " + store()));
  EXPECT_EQ(outcome.err.find("will not know"), outcome.err.rfind("will not know"));
  EXPECT_TRUE(fs::exists(workspace_.path("out/adapter_model.safetensors")));
  const Outcome list = workspace_.run({"runs"});
  EXPECT_EQ(list.status, 2);
  EXPECT_THAT(list.err, HasSubstr(store()));
}

/// What a full disk leaves of a store that is made there.
TEST_F(RunList, StoreOfNoBytes_HasNoRunsAndTakesThem) {
  workspace_.write("state/runs.sqlite", "");
  EXPECT_TRUE(runs().empty());
  ASSERT_EQ(workspace_.run(train()).status, 0);
  EXPECT_EQ(runs().size(), 1U);
}

TEST_F(RunList, FolderThatIsNone_IsRefused) {
  expect_refusal(command("", {"runs", "nowhere"}, {"nowhere"}));
  expect_refusal(command("", {"runs", "--output=x"}, {"--output"}));
}

TEST_F(RunList, RefusedRunAndDryRun_AreNotListed) {
  EXPECT_EQ(workspace_.run(train({"--lora_target=w_proj"})).status, 2);
  EXPECT_EQ(workspace_.run(train({"--dry_run"})).status, 0);
  EXPECT_FALSE(fs::exists(store()));
}

}  // namespace
}  // namespace rondo::cli
