// A run as its observer sees it: what ends it costs no step that was committed, and no step is saved twice.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "files.h"
#include "rondo/base/file.h"
#include "rondo/model/init.h"
#include "rondo/train/run.h"
#include "run_output.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Keeps what it is told, and does at a moment what a test asks for.
class Witness final : public RunObserver {
 public:
  void on_start(const RunSummary& summary) override {
    predicted_seconds = summary.predicted.step_seconds;
    at_start();
  }
  void on_step(const StepReport& report) override { at_step(report.step); }
  void on_evaluation(const EvalReport& /*report*/) override {}
  void on_checkpoint(const std::string& path) override {
    checkpoints.push_back(fs::path(path).filename().string());
    at_checkpoint();
  }
  void on_note(const std::string& text) override { notes.push_back(text); }
  void on_progress(std::string_view /*what*/, std::uint64_t /*done*/, std::uint64_t /*of*/) override {}

  std::function<void()> at_start = [] {};
  std::function<void(std::uint64_t)> at_step = [](std::uint64_t) {};
  std::function<void()> at_checkpoint = [] {};
  std::vector<std::string> checkpoints;
  std::vector<std::string> notes;
  double predicted_seconds = 0;
};

class Run : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}) {
      ::setenv(name, folder_.c_str(), /*overwrite=*/1);
    }
    model::InitOptions options;
    options.arch = "llama";
    options.hidden_size = 16;
    options.intermediate_size = 24;
    options.num_hidden_layers = 1;
    options.num_attention_heads = 2;
    options.num_key_value_heads = 1;
    ASSERT_TRUE(model::init_model(options, folder_ / "model").ok());
    std::string records;
    for (int i = 0; i < 8; ++i) records += "{\"prompt\": \"one\", \"completion\": \"two\"}\n";
    test::put(folder_ / "data.jsonl", records);
    config_.model_name_or_path = folder_ / "model";
    config_.dataset = folder_ / "data.jsonl";
    config_.dataset_prepared_path = "none";
    config_.output_dir = out_;
    config_.devices = "cpu";
    config_.threads = 1;
    config_.gradient_accumulation_steps = 1;
    config_.max_steps = 6;
    config_.save_steps = 2;
  }
  void TearDown() override { fs::remove_all(folder_); }

  absl::StatusOr<RunOutcome> run() { return run_training(config_, witness_, stop_); }
  void ask_to_stop() { stop_.asked.store(true); }
  bool is_checkpoint(std::uint64_t step) const {
    return fs::exists(out_ / ("checkpoint-" + std::to_string(step)) / "trainer_state.json");
  }

  const fs::path folder_ = test::fresh_folder();
  const fs::path out_ = folder_ / "out";
  Config config_;
  Witness witness_;
  StopRequest stop_;
};

TEST_F(Run, InterruptedRightAfterASave_DoesNotSaveAgain) {
  witness_.at_checkpoint = [this] { ask_to_stop(); };
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->interrupted);
  EXPECT_EQ(outcome->steps, 2U);
  EXPECT_THAT(witness_.checkpoints, testing::ElementsAre("checkpoint-2"));
}

/// One of its threads may still be inside, and come out while statics and libraries are taken down.
TEST_F(Run, ThatLostADevice_LeavesWithoutDestructors) {
  const auto card = [](const std::string& name, const std::string& more) {
    return name +
           ": {flops: {fp32: 4e15, bf16: 4e15}, memory_bytes: 1e9, memory_bandwidth: 4e15, link_up: 4e12, "
           "link_down: 4e12, link_latency: 0, jitter: 0" +
           more + "}\n";
  };
  const std::string cards = (folder_ / "cards.yaml").string();
  test::put(cards, card("good", "") + card("bad", ", fail_at: 'error@compute:1'"));
  constexpr int kDestroyed = 77;
  constexpr int kLeft = 3;
  const auto run_on = [this](const std::string& devices) {
    std::atexit([] { ::_exit(kDestroyed); });
    config_.devices = devices;
    config_.max_steps = 1;
    config_.save_steps = 0;
    std::exit(run().ok() ? kLeft : 1);
  };
  EXPECT_EXIT(run_on("emulated:" + cards + "#good"), testing::ExitedWithCode(kDestroyed), "");
  fs::remove_all(out_);
  EXPECT_EXIT(run_on("emulated:" + cards + "#bad,emulated:" + cards + "#good"), testing::ExitedWithCode(kLeft), "");
}

TEST_F(Run, FewerSamplesThanAStepAsksFor_AnnouncesStepsAsTheyAre) {
  config_.devices = "timed:rtx3060";
  config_.max_steps = 1;
  config_.save_steps = 0;
  const auto announced = [this](std::uint32_t microbatches) {
    config_.gradient_accumulation_steps = microbatches;
    config_.reduction_group = 8;
    EXPECT_TRUE(run().ok());
    fs::remove_all(out_);
    return witness_.predicted_seconds;
  };
  const double all = announced(8);
  ASSERT_GT(all, 0);
  EXPECT_NEAR(announced(64), all, 0.2 * all);
}

TEST_F(Run, InterruptedBetweenSaves_SavesOnce) {
  witness_.at_step = [this](std::uint64_t step) {
    if (step == 3) ask_to_stop();
  };
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(witness_.checkpoints, testing::ElementsAre("checkpoint-2", "checkpoint-3"));
}

TEST_F(Run, ResumedAndInterruptedAtOnce_SavesOnlyWhatIsNotInItsFolder) {
  witness_.at_checkpoint = [this] { ask_to_stop(); };
  ASSERT_TRUE(run().ok());
  witness_.checkpoints.clear();
  witness_.at_start = [this] { ask_to_stop(); };
  for (const std::string& source : {std::string("auto"), (out_ / "." / "checkpoint-2").string()}) {
    config_.resume_from_checkpoint = source;
    stop_.asked.store(false);
    const auto outcome = run();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->interrupted);
    EXPECT_THAT(witness_.checkpoints, testing::IsEmpty()) << source;
  }
  fs::rename(out_ / "checkpoint-2", folder_ / "checkpoint-2");
  config_.resume_from_checkpoint = folder_ / "checkpoint-2";
  stop_.asked.store(false);
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(witness_.checkpoints, testing::ElementsAre("checkpoint-2"));
  EXPECT_TRUE(is_checkpoint(2));
}

TEST_F(Run, ResumedAfterAnInterruptedRenaming_GoesOnFromWhatIsWhole) {
  witness_.at_checkpoint = [this] { ask_to_stop(); };
  ASSERT_TRUE(run().ok());
  for (const char* left : {".checkpoint-2.part", ".checkpoint-2.old"}) {
    fs::rename(out_ / "checkpoint-2", out_ / left);
    config_.resume_from_checkpoint = "auto";
    stop_.asked.store(false);
    witness_.at_start = [this] { ask_to_stop(); };
    const auto outcome = run();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->steps, 2U) << left;
    EXPECT_TRUE(is_checkpoint(2));
  }
}

/// Has what the process writes to the file end like on a full disk.
void fill_disk_of(const std::string& name) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error).filename() != name) continue;
    EXPECT_GE(::dup2(full, std::stoi(entry.path().filename().string())), 0);
  }
  ::close(full);
}

TEST_F(Run, StepsBelowOne_AreAShareOfTheRunsRoundedUp) {
  config_.save_steps = 0.4;  // 2.4 of 6
  config_.logging_steps = 0.3;
  std::vector<std::uint64_t> logged;
  witness_.at_step = [&logged](std::uint64_t step) { logged.push_back(step); };
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(logged, testing::ElementsAre(2, 4, 6));
  for (const std::uint64_t step : {1U, 2U, 4U, 5U}) EXPECT_FALSE(is_checkpoint(step)) << step;
  EXPECT_TRUE(is_checkpoint(3));
  EXPECT_TRUE(is_checkpoint(6));
}

TEST_F(Run, MetricsThatCannotBeWritten_CostNoStep) {
  config_.save_steps = 0;
  witness_.at_step = [](std::uint64_t step) {
    if (step == 3) fill_disk_of("metrics.jsonl");
  };
  const auto outcome = run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("metrics.jsonl: cannot be written"));
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("the state after step 3 is in"));
  EXPECT_TRUE(is_checkpoint(3));
}

TEST_F(Run, ResultThatCannotBeWritten_CostsNoStep) {
  config_.save_steps = 0;
  witness_.at_step = [this](std::uint64_t step) {
    if (step == 6) fs::create_directories(out_ / "adapter_model.safetensors" / "in the way");
  };
  const auto outcome = run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("adapter_model.safetensors"));
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("the state after step 6 is in"));
  EXPECT_TRUE(is_checkpoint(6));
}

TEST_F(Run, OldCheckpointThatCannotBeRemoved_IsANote) {
  config_.save_total_limit = 1;
  std::unique_ptr<test::Unremovable> stays;
  witness_.at_checkpoint = [&] {
    if (stays == nullptr) stays = std::make_unique<test::Unremovable>(out_ / "checkpoint-2");
  };
  const auto outcome = run();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->steps, 6U);
  EXPECT_THAT(witness_.notes, testing::Contains(testing::AllOf(HasSubstr("checkpoint-2"), HasSubstr("removed"))));
  EXPECT_FALSE(is_checkpoint(4));
  EXPECT_TRUE(is_checkpoint(6));
}

TEST_F(Run, MetricsThatCannotBeLookedAt_AreNamed) {
  fs::create_directories(out_);
  fs::create_symlink("metrics.jsonl", out_ / "metrics.jsonl");  // of itself
  test::expect_refused(MetricsFile::open(out_, 2, true).status(), {"metrics.jsonl"});
}

}  // namespace
}  // namespace rondo::train
