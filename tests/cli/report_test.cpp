// Reports and TensorBoard's files from the outside.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "shell.h"
#include "well_formed.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

void train_run(const Workspace& workspace, const Words& more = {}) {
  Words words = {"--max_steps=3", "--eval_dataset=chats.jsonl", "--eval_steps=1", "--save_steps=0"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = workspace.run(train(words));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
}

std::string report(const Workspace& workspace, const Words& runs) {
  Words words = {"report", "--output=report.html"};
  words.insert(words.end(), runs.begin(), runs.end());
  const Outcome outcome = workspace.run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "report.html\n");
  EXPECT_EQ(outcome.err, "");
  const std::string page = workspace.read("report.html");
  EXPECT_EQ(test::xml_fault(page), "");
  return page;
}

TEST(Report, Run_IsOnePageWithItsCurvesAndSettings) {
  const Workspace workspace;
  train_run(workspace);
  const std::string page = report(workspace, {"out"});
  for (const char* part : {"<svg", "Loss", "eval", "Learning rate", "Gradient norm", "Tokens a second", "SOL", "Bubble",
                           "Memory", "cpu:0", "chats.jsonl", "gradient_accumulation_steps", "3 of 3", "done"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("http")));
}

TEST(Report, NumberOfTheList_NamesARunToo) {
  const Workspace workspace;
  ::setenv("RONDO_RUNS_DB", workspace.path("runs.sqlite").c_str(), 1);
  train_run(workspace);
  const auto list = nlohmann::json::parse(workspace.run({"runs", "--json"}).out, nullptr, false);
  EXPECT_THAT(report(workspace, {list["runs"][0]["id"].dump()}), HasSubstr("out"));
  const Outcome missing = workspace.run({"report", "4711", "--output=x.html"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("4711"));
  ::unsetenv("RONDO_RUNS_DB");
}

TEST(Report, TwoRuns_ShowWhatDiffers) {
  const Workspace workspace;
  train_run(workspace);
  train_run(workspace, {"--output_dir=other", "--lr=0.125"});
  const std::string page = report(workspace, {"out", "other"});
  EXPECT_THAT(page, HasSubstr("<th>learning_rate</th><td class=\"n\">5e-05</td><td class=\"n\">0.125</td>"));
  EXPECT_THAT(page, HasSubstr("B: train"));
}

TEST(Report, CutRun_ShowsWhatIsWhole) {
  const Workspace workspace;
  train_run(workspace);
  const std::string metrics = workspace.read("out/metrics.jsonl");
  workspace.write("out/metrics.jsonl", metrics.substr(0, metrics.size() - 20));
  workspace.remove("out/trainer_state.json");
  const std::string page = report(workspace, {"out"});
  EXPECT_THAT(page, HasSubstr("1 lines of metrics.jsonl are not whole"));
  EXPECT_THAT(page, HasSubstr("unfinished"));
}

TEST(Report, Trace_IsDrawnAsATimeLine) {
  const Workspace workspace;
  train_run(workspace);
  ASSERT_EQ(workspace
                .run({"profile", "--model=model", "--dataset=chats.jsonl", "--devices=emulated:rtx4090", "--steps=3",
                      "--dtype=fp32", "--cutoff_len=64", "--gradient_accumulation_steps=1", "--trace=out/trace.json"})
                .status,
            0);
  const std::string page = report(workspace, {"out"});
  EXPECT_THAT(page, HasSubstr("Time line"));
  EXPECT_THAT(page, HasSubstr("compute"));
  EXPECT_THAT(page, HasSubstr("<rect"));
}

class BadReport : public testing::TestWithParam<BadInput> {};

TEST_P(BadReport, Refused_NamingTheCulprit) { expect_refusal(GetParam()); }

/// A run of one line, cheaper than training one.
BadInput with_run(const char* name, Words arguments, Words named) {
  return {name,
          [arguments = std::move(arguments)](const Workspace& workspace) {
            workspace.write("out/metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":1.0}\n");
            workspace.write("bad.json", "{");
            return arguments;
          },
          std::move(named)};
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadReport,
    testing::Values(command("NoRun", {"report", "--output=x.html"}, {"report", "none"}),
                    with_run("ThreeRuns", {"report", "out", "out", "out", "--output=x.html"}, {"report", "3"}),
                    with_run("NoOutput", {"report", "out"}, {"output"}),
                    command("NoFolder", {"report", "nowhere", "--output=x.html"}, {"nowhere", "no such folder"}),
                    command("FolderOfNoRun", {"report", "model", "--output=x.html"}, {"model", "metrics.jsonl"}),
                    with_run("SecondOfNoRun", {"report", "out", "model", "--output=x.html"}, {"model"}),
                    with_run("OutputBelowAFile", {"report", "out", "--output=chats.jsonl/x.html"},
                             {"output", "chats.jsonl/x.html"}),
                    with_run("OutputNotWritable", {"report", "out", "--output=/proc/x.html"},
                             {"output", "/proc/x.html"}),
                    with_run("TraceMissing", {"report", "out", "--output=x.html", "--trace=t.json"}, {"t.json"}),
                    with_run("TraceNone", {"report", "out", "--output=x.html", "--trace=bad.json"}, {"bad.json"}),
                    command("UnknownService", train({"--report_to=tensorboard,pigeon"}), {"--report_to", "pigeon"}),
                    command("LoggingFolderIsAFile", train({"--report_to=tensorboard", "--logging_dir=chats.jsonl/x"}),
                            {"logging_dir", "chats.jsonl/x"})),
    name_of);

/// Whoever fills the disk has not given a wrong command.
TEST(Report, PageThatMayNotGrow_IsWorkThatFailed) {
  const Workspace workspace;
  workspace.write("out/metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":1.0}\n");
  const test::Shown shown = test::shell("cd " + workspace.path().string() +
                                        " && ulimit -f 2 && " RONDO_PROGRAM " report out --output=x.html");
  ASSERT_TRUE(WIFEXITED(shown.status));
  EXPECT_EQ(WEXITSTATUS(shown.status), 1);
  EXPECT_EQ(shown.output, "error: x.html: cannot be written: File too large\n");
  EXPECT_FALSE(fs::exists(workspace.path("x.html")));
}

TEST(Tensorboard, Run_LeavesEventsInItsFolder) {
  const Workspace workspace;
  train_run(workspace, {"--report_to=tensorboard"});
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(workspace.path("out/runs"))) {
    const std::string bytes = slurp(entry.path().string());
    for (const char* tag : {"brain.Event:2", "train/loss", "train/learning_rate", "eval/loss", "memory/cpu:0"}) {
      EXPECT_THAT(bytes, HasSubstr(tag));
    }
    ++files;
  }
  EXPECT_EQ(files, 1U);
  train_run(workspace, {"--report_to=none", "--output_dir=quiet"});
  EXPECT_FALSE(fs::exists(workspace.path("quiet/runs")));
  train_run(workspace, {"--report_to=tensorboard", "--output_dir=moved", "--logging_dir=logs"});
  EXPECT_TRUE(fs::exists(workspace.path("logs")));
  EXPECT_FALSE(fs::exists(workspace.path("moved/runs")));
}

}  // namespace
}  // namespace rondo::cli
