// One run at a time works in output_dir, and what a run that was killed has left there is taken care of.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Words long_run(const Words& more = {}) {
  Words words = train({"--max_steps=100000", "--save_steps=0"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(OutputDir, OfARunAtWork_IsRefusedToOthers_UntilItsProcessIsGone) {
  const Workspace workspace;
  Process first(long_run(), workspace.path().string());
  ASSERT_TRUE(first.says("step 2/"));
  for (const Words& more : {Words{}, Words{"--resume_from_checkpoint=auto"}, Words{"--overwrite_output_dir"}}) {
    const std::string settings = workspace.read("out/config.resolved.yaml");
    const Outcome second = workspace.run(train(more));
    EXPECT_EQ(second.status, 2) << second.err;
    EXPECT_THAT(second.err, testing::StartsWith("error: output_dir: another run is at work in out"));
    EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1) << second.err;
    EXPECT_EQ(workspace.read("out/config.resolved.yaml"), settings);
  }
  const Outcome apart = workspace.run(train({"--output_dir=other"}));
  EXPECT_EQ(apart.status, 0) << apart.err;
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().status, 128 + SIGKILL);
  const Outcome after = workspace.run(train({"--resume_from_checkpoint=auto"}));
  EXPECT_EQ(after.status, 0) << after.err;
}

TEST(OutputDir, OfTwoRunsThatBeginAtOnce_OneIsRefused) {
  const Workspace workspace;
  for (const char* more : {"--resume_from_checkpoint=auto", "--shuffle"}) {
    const Words words = train({"--max_steps=20", "--save_steps=1", more});
    workspace.remove("out");
    Process one(words, workspace.path().string());
    Process other(words, workspace.path().string());
    const Outcome first = one.wait();
    const Outcome second = other.wait();
    // The one that comes late to a folder with a whole run in it may find its last checkpoint, and nothing to do.
    const bool late =
        first.status == 0 && second.status == 0 && std::string(more).starts_with("--resume") &&
        (first.err.find("step 1/20") == std::string::npos || second.err.find("step 1/20") == std::string::npos);
    EXPECT_TRUE(late || first.status + second.status == 2) << first.err << second.err;
    EXPECT_TRUE(late || first.status == 0 || second.status == 0) << first.err << second.err;
  }
}

TEST(OutputDir, FilesThatAKilledRunWasWriting_AreRemovedByTheNext) {
  const Workspace workspace;
  workspace.write("out/.config.resolved.yaml.4242.part", "model_na");
  workspace.write("out/.part", "mine");
  workspace.write("out/.notes.part", "mine");
  workspace.write("out/notes.4242.part", "mine");
  const Outcome outcome = workspace.run(train());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(fs::exists(workspace.path("out/.config.resolved.yaml.4242.part")));
  for (const char* kept : {"out/.part", "out/.notes.part", "out/notes.4242.part"}) {
    EXPECT_EQ(workspace.read(kept), "mine") << kept;
  }
}

/// `ulimit -f`, which also shells and batch systems set.
class LongestFile {
 public:
  explicit LongestFile(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit few{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
  }
  ~LongestFile() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  LongestFile(const LongestFile&) = delete;
  LongestFile& operator=(const LongestFile&) = delete;

 private:
  rlimit before_{};
};

TEST(OutputDir, FileThatMayNotGrowFurther_EndsTheRunWithOneLine) {
  const Workspace workspace;
  Outcome outcome;
  {
    const LongestFile limit(50000);
    outcome = workspace.run(train({"--max_steps=2", "--save_steps=1"}));
  }
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("error: out/.checkpoint-1.part/"), HasSubstr("File too large")));
  EXPECT_FALSE(std::filesystem::exists(workspace.path("out/.checkpoint-1.part")));
}

}  // namespace
}  // namespace rondo::cli
