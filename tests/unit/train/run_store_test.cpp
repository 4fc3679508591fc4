// The list of runs: what is written comes back, and nothing that is wrong with the file harms a run.
#include "rondo/train/run_store.h"

#include <gmock/gmock.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "rondo/train/run.h"
#include "run_recorder.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

StoredRun some_run(const std::string& folder) {
  StoredRun run;
  run.output_dir = folder;
  run.model = "m'); DROP TABLE runs; --";
  run.method = "lora";
  run.data = "\xc3\xa9.jsonl";
  run.started = 1700000000.5;
  run.status = "running";
  run.process = this_process();
  run.total_steps = 90;
  return run;
}

/// While it lives the process opens no file and no folder more, whoever it is.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    const int first_free = ::dup(0);
    EXPECT_GE(first_free, 0);
    ::close(first_free);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{static_cast<rlim_t>(first_free), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

class Notes : public RunObserver {
 public:
  void on_start(const RunSummary&) override { ++calls; }
  void on_step(const StepReport&) override { ++calls; }
  void on_evaluation(const EvalReport&) override { ++calls; }
  void on_checkpoint(const std::string&) override { ++calls; }
  void on_note(const std::string& text) override { notes.push_back(text); }
  void on_progress(std::string_view, std::uint64_t, std::uint64_t) override { ++calls; }
  std::vector<std::string> notes;
  int calls = 0;
};

class Runs : public testing::Test {
 protected:
  void SetUp() override { ::setenv("RONDO_RUNS_DB", path_.c_str(), 1); }
  void TearDown() override {
    ::unsetenv("RONDO_RUNS_DB");
    fs::remove_all(folder_);
  }
  /// A run of two steps and an evaluation through the recorder.
  void record(const absl::StatusOr<RunOutcome>& outcome, std::uint64_t first_step = 0, double eval_loss = 1.5) {
    Config config;
    config.output_dir = (folder_ / "out").string();
    config.model_name_or_path = "tiny";
    config.dataset = "chats.jsonl";
    RunRecorder recorder(config, notes_);
    RunSummary summary;
    summary.total_steps = 8;
    summary.first_step = first_step;
    recorder.on_start(summary);
    for (const std::uint64_t step : {first_step + 1, first_step + 2}) {
      StepReport report;
      report.step = step;
      report.loss = 2.0 / static_cast<double>(step);
      report.tokens = 300;
      report.step_seconds = step % 2 == 1 ? 1.0 : 2.0;
      recorder.on_step(report);
    }
    EvalReport evaluation;
    evaluation.eval_loss = eval_loss;
    recorder.on_evaluation(evaluation);
    recorder.on_checkpoint("c");
    recorder.end(outcome);
  }
  std::vector<StoredRun> list() const {
    const auto runs = RunStore::list(path_);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return runs.ok() ? *runs : std::vector<StoredRun>();
  }
  static RunOutcome done(std::uint64_t steps, bool interrupted = false) {
    RunOutcome outcome;
    outcome.steps = steps;
    outcome.interrupted = interrupted;
    return outcome;
  }

  const fs::path folder_ = test::fresh_folder();
  const fs::path path_ = folder_ / "state" / "runs.sqlite";
  Notes notes_;
};

TEST_F(Runs, Line_ComesBackAsItWas) {
  auto store = RunStore::open(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  auto line = store->begin(some_run("/a"), false);
  ASSERT_TRUE(line.ok()) << line.status();
  line->status = "done";
  line->ended = 1700000100.25;
  line->steps = 90;
  line->final_loss = 0.1;
  ASSERT_TRUE(store->update(*line).ok());
  const auto runs = list();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].id, line->id);
  EXPECT_EQ(runs[0].model, some_run("/a").model);
  EXPECT_EQ(runs[0].data, "\xc3\xa9.jsonl");
  EXPECT_EQ(runs[0].started, 1700000000.5);
  EXPECT_EQ(runs[0].ended, 1700000100.25);
  EXPECT_EQ(runs[0].final_loss, 0.1);
  EXPECT_FALSE(runs[0].best_eval_loss);
  EXPECT_EQ(runs[0].total_steps, 90U);
}

TEST_F(Runs, OneFolder_HasOneLine) {
  auto store = RunStore::open(path_);
  ASSERT_TRUE(store.ok());
  StoredRun first = *store->begin(some_run("/a"), false);
  first.best_eval_loss = 0.5;
  first.final_loss = 0.75;
  ASSERT_TRUE(store->update(first).ok());
  StoredRun again = some_run("/a");
  again.started += 100;
  const StoredRun resumed = *store->begin(again, true);
  EXPECT_EQ(resumed.id, first.id);
  EXPECT_EQ(resumed.started, first.started);
  EXPECT_EQ(resumed.best_eval_loss, 0.5);
  EXPECT_EQ(resumed.final_loss, 0.75);
  const StoredRun anew = *store->begin(again, false);
  EXPECT_NE(anew.id, first.id);
  ASSERT_EQ(list().size(), 1U);
  EXPECT_EQ(list()[0].started, again.started);
  EXPECT_FALSE(list()[0].best_eval_loss);
  EXPECT_NE(store->begin(some_run("/b"), true)->id, anew.id);
  EXPECT_EQ(list().size(), 2U);
}

TEST_F(Runs, MissingFile_IsAnEmptyListAndStaysMissing) {
  EXPECT_TRUE(list().empty());
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Runs, WhatIsNoStore_IsNamed) {
  fs::create_directories(path_.parent_path());
  test::put(path_, std::string(5000, 'x'));
  test::expect_refused(RunStore::list(path_).status(), {path_.string()});
  test::expect_refused(RunStore::open(path_).status(), {path_.string()});
}

TEST_F(Runs, RecordedRun_HasItsNumbers) {
  record(done(2));
  const auto runs = list();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].status, "done");
  EXPECT_EQ(runs[0].output_dir, fs::weakly_canonical(folder_ / "out").string());
  EXPECT_EQ(runs[0].steps, 2U);
  EXPECT_EQ(runs[0].final_loss, 1.0);
  EXPECT_EQ(runs[0].best_eval_loss, 1.5);
  EXPECT_EQ(runs[0].tokens_per_second, 200.0);
  EXPECT_GT(runs[0].ended, runs[0].started - 1);
  EXPECT_EQ(notes_.calls, 5);
  EXPECT_TRUE(notes_.notes.empty());
}

TEST_F(Runs, Endings_AreToldApart) {
  record(done(2, true));
  EXPECT_EQ(list()[0].status, "interrupted");
  record(absl::InternalError("x"), 2, 1.75);
  EXPECT_EQ(list()[0].status, "failed");
  EXPECT_EQ(list()[0].steps, 4U);
  EXPECT_EQ(list()[0].best_eval_loss, 1.5);  // of the part before
}

TEST_F(Runs, StoreThatIsNone_CostsOneNote) {
  fs::create_directories(path_.parent_path());
  test::put(path_, std::string(5000, 'x'));
  record(done(2));
  ASSERT_EQ(notes_.notes.size(), 1U);
  EXPECT_THAT(notes_.notes[0], HasSubstr(path_.string()));
  EXPECT_EQ(notes_.calls, 5);
}

TEST_F(Runs, FolderThatCannotBeMade_CostsOneNote) {
  test::put(folder_ / "state", "a file");
  record(done(2));
  ASSERT_EQ(notes_.notes.size(), 1U);
  EXPECT_THAT(notes_.notes[0], HasSubstr((folder_ / "state").string()));
}

TEST_F(Runs, StoreThatIsLocked_CostsOneNoteAndASecond) {
  ASSERT_TRUE(RunStore::open(path_).ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto begin = std::chrono::steady_clock::now();
  record(done(2));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  sqlite3_close(other);
  ASSERT_EQ(notes_.notes.size(), 1U);
  EXPECT_THAT(notes_.notes[0], HasSubstr("locked"));
}

TEST_F(Runs, TurnedOff_LeavesNothing) {
  ::setenv("RONDO_RUNS_DB", "none", 1);
  record(done(2));
  EXPECT_TRUE(notes_.notes.empty());
  EXPECT_FALSE(fs::exists(path_.parent_path()));
}

TEST_F(Runs, FolderThatCannotBeLookedInto_IsRefused) {
  ::setenv("RONDO_RUNS_DB", "none", 1);
  Config config;
  config.run_names = {(folder_ / "closed").string()};
  fs::create_directories(config.run_names[0]);
  EXPECT_TRUE(run_runs(config).ok());
  const NoMoreFiles none;
  test::expect_refused(run_runs(config).status(), {"closed", "cannot be read"});
}

TEST(Process, EndedOne_IsGone) {
  const std::string mine = this_process();
  EXPECT_FALSE(is_gone(mine));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string name = this_process();
    const ssize_t written = ::write(ends[1], name.data(), name.size());
    ::_exit(written > 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  char name[1024];
  const ssize_t size = ::read(ends[0], name, sizeof name);
  ASSERT_GT(size, 0);
  EXPECT_TRUE(is_gone({name, static_cast<std::size_t>(size)}));
  // The number of a living process, but not its start: another one has taken it.
  std::string other = mine;
  other.insert(other.find(' ') + 1, "9");
  EXPECT_TRUE(is_gone(other));
  // Of another machine one cannot know.
  EXPECT_FALSE(is_gone(mine + "-other"));
  EXPECT_TRUE(is_gone(""));
}

}  // namespace
}  // namespace rondo::train
