// The best evaluation, early stopping, and the file that keeps both.
#include "rondo/train/trainer_state.h"

#include <set>

#include "files.h"
#include "patience.h"
#include "rondo/base/file.h"
#include "rondo/devices/host_memory.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using test::expect_refused;
using test::fresh_folder;
using test::put;

TrainerState with_patience(std::uint64_t patience, double threshold = 0) {
  TrainerState state;
  state.early_stopping = {patience, threshold};
  return state;
}

TEST(TakeEvaluation, LowestLoss_IsTheBest) {
  TrainerState state = with_patience(0);
  for (const double loss : {3.0, 2.0, 2.5, 2.0, 4.0}) take_evaluation(state, loss, state.global_step += 10);
  EXPECT_EQ(state.best.metric, 2.0);
  EXPECT_EQ(state.best.step, 20U);
  EXPECT_FALSE(is_stopped_early(state));
}

TEST(TakeEvaluation, NewBest_IsNotSavedYet) {
  TrainerState state = with_patience(0);
  take_evaluation(state, 3.0, 10);
  state.best.checkpoint = "out/checkpoint-10";
  take_evaluation(state, 4.0, 20);
  EXPECT_EQ(state.best.checkpoint, "out/checkpoint-10");
  take_evaluation(state, 2.0, 30);
  EXPECT_EQ(state.best.checkpoint, "");
}

TEST(EarlyStopping, Patience_CountsEvaluationsInARow) {
  TrainerState state = with_patience(2);
  std::uint64_t stopped_at = 0;
  const double losses[] = {3.0, 3.1, 2.9, 2.9, 2.95, 2.0};
  for (std::uint64_t i = 0; i < std::size(losses) && stopped_at == 0; ++i) {
    take_evaluation(state, losses[i], i + 1);
    if (is_stopped_early(state)) stopped_at = i + 1;
  }
  EXPECT_EQ(stopped_at, 5U);
  EXPECT_EQ(state.best.step, 3U);
}

TEST(EarlyStopping, Threshold_AsksForMoreThanALittle) {
  // As transformers counts: a little better is the new best, and yet not better enough to go on.
  TrainerState state = with_patience(2, 0.1);
  take_evaluation(state, 3.0, 1);
  take_evaluation(state, 2.95, 2);
  EXPECT_EQ(state.best.metric, 2.95);
  EXPECT_EQ(state.best.not_better, 1U);
  take_evaluation(state, 2.84, 3);
  EXPECT_EQ(state.best.not_better, 0U);
}

TEST(IsEvaluated, LooksAtTheLastStepOfTheHistory) {
  TrainerState state;
  EXPECT_FALSE(is_evaluated(state, 2));
  state.log_history.push_back({.step = 1, .loss = 1.0, .of_evaluation = true});
  state.log_history.push_back({.step = 2, .loss = 1.0});
  EXPECT_FALSE(is_evaluated(state, 2));
  state.log_history.push_back({.step = 2, .loss = 1.0, .of_evaluation = true});
  EXPECT_TRUE(is_evaluated(state, 2));
  EXPECT_FALSE(is_evaluated(state, 1));
}

class TrainerStateFile : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fresh_folder();
  const fs::path file_ = folder_ / "trainer_state.json";
};

TEST_F(TrainerStateFile, BestAndPatience_ComeBack) {
  TrainerState state = with_patience(3, 0.25);
  take_evaluation(state, 1.5, 4);
  take_evaluation(state, 1.75, 8);
  state.best.checkpoint = "out/checkpoint-4";
  state.global_step = 8;
  state.logging_steps = 5;
  ASSERT_TRUE(write_trainer_state(folder_, state).ok());
  const auto read = read_trainer_state(folder_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->best.metric, 1.5);
  EXPECT_EQ(read->best.step, 4U);
  EXPECT_EQ(read->best.checkpoint, "out/checkpoint-4");
  EXPECT_EQ(read->best.not_better, 1U);
  // Under the names that transformers reads.
  const auto json = nlohmann::ordered_json::parse(*read_file(file_), nullptr, false);
  EXPECT_EQ(json["best_metric"], 1.5);
  EXPECT_EQ(json["best_global_step"], 4);
  EXPECT_EQ(json["best_model_checkpoint"], "out/checkpoint-4");
  EXPECT_EQ(json["logging_steps"], 5);
  const auto& callback = json["stateful_callbacks"]["EarlyStoppingCallback"];
  EXPECT_EQ(callback["args"]["early_stopping_patience"], 3);
  EXPECT_EQ(callback["args"]["early_stopping_threshold"], 0.25);
  EXPECT_EQ(callback["attributes"]["early_stopping_patience_counter"], 1);
}

TEST_F(TrainerStateFile, History_IsWrittenAsTransformersHasItAndComesBack) {
  TrainerState state;
  ASSERT_TRUE(write_trainer_state(folder_, state).ok());
  EXPECT_TRUE(nlohmann::ordered_json::parse(*read_file(file_))["log_history"].empty());
  state.log_history.push_back({.step = 1, .epoch = 0.5, .loss = 2.25, .grad_norm = 1.0, .learning_rate = 1e-4});
  state.log_history.push_back({.step = 1, .epoch = 0.5, .loss = 2.125, .of_evaluation = true});
  for (std::uint64_t step = 2; step < 5000; ++step) state.log_history.push_back({.step = step, .loss = 0.1});
  ASSERT_TRUE(write_trainer_state(folder_, state).ok());
  EXPECT_TRUE(read_trainer_state(folder_)->log_history == state.log_history);
  const std::string text = *read_file(file_);
  const auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json["log_history"].size(), state.log_history.size());
  const auto first =
      nlohmann::ordered_json{{"epoch", 0.5}, {"grad_norm", 1.0}, {"learning_rate", 1e-4}, {"loss", 2.25}, {"step", 1}};
  EXPECT_EQ(json["log_history"][0], first);
  EXPECT_EQ(json["log_history"][1], (nlohmann::ordered_json{{"epoch", 0.5}, {"eval_loss", 2.125}, {"step", 1}}));
  EXPECT_EQ(text, json.dump(2) + "\n");
}

/// A run of very many steps holds 48 bytes of each, and its file is no tree of values: that took some 440.
TEST_F(TrainerStateFile, HistoryOfManySteps_TakesLittleMoreThanItsText) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer keeps what is freed";
  TrainerState state;
  for (std::uint64_t step = 1; step <= 200000; ++step) state.log_history.push_back({.step = step, .loss = 0.1});
  devices::reset_process_peak();
  const Bytes before = devices::process_memory().now;
  ASSERT_TRUE(write_trainer_state(folder_, state).ok());
  EXPECT_LT(devices::process_memory().peak, before + 4_MiB);
  const Bytes text = fs::file_size(file_);
  EXPECT_EQ(read_trainer_state(folder_)->log_history.size(), state.log_history.size());
  EXPECT_LT(devices::process_memory().peak, before + text + 200000 * sizeof(LogEntry) + 8_MiB);
}

TEST_F(TrainerStateFile, FileOfAnEarlyVersion_IsReadToo) {
  TrainerState state;
  state.course.now.updates = 7;
  ASSERT_TRUE(write_trainer_state(folder_, state).ok());
  auto json = nlohmann::ordered_json::parse(*read_file(file_), nullptr, false);
  json["rondo"] = json["stateful_callbacks"]["Rondo"]["attributes"];
  json.erase("stateful_callbacks");
  put(file_, json.dump());
  const auto read = read_trainer_state(folder_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->course.now.updates, 7U);
}

TEST_F(TrainerStateFile, Keys_AreThoseThatTransformersKnows) {
  // Its TrainerState is made of the file's keys: one that it does not know ends its reading.
  ASSERT_TRUE(write_trainer_state(folder_, TrainerState{}).ok());
  const auto json = nlohmann::ordered_json::parse(*read_file(file_), nullptr, false);
  const std::set<std::string> known = {"epoch",
                                       "global_step",
                                       "max_steps",
                                       "logging_steps",
                                       "eval_steps",
                                       "save_steps",
                                       "train_batch_size",
                                       "num_train_epochs",
                                       "num_input_tokens_seen",
                                       "total_flos",
                                       "log_history",
                                       "best_metric",
                                       "best_global_step",
                                       "best_model_checkpoint",
                                       "is_local_process_zero",
                                       "is_world_process_zero",
                                       "is_hyper_param_search",
                                       "trial_name",
                                       "trial_params",
                                       "stateful_callbacks"};
  for (const auto& [key, value] : json.items()) EXPECT_TRUE(known.contains(key)) << key;
}

TEST_F(TrainerStateFile, WithoutEvaluation_HasNulls) {
  ASSERT_TRUE(write_trainer_state(folder_, TrainerState{}).ok());
  const auto json = nlohmann::ordered_json::parse(*read_file(file_), nullptr, false);
  for (const char* key : {"best_metric", "best_global_step", "best_model_checkpoint"}) {
    EXPECT_TRUE(json.contains(key) && json[key].is_null()) << key;
  }
  const auto read = read_trainer_state(folder_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->best.metric);
}

TEST_F(TrainerStateFile, WrongBest_NamesItsKey) {
  ASSERT_TRUE(write_trainer_state(folder_, TrainerState{}).ok());
  const auto whole = nlohmann::ordered_json::parse(*read_file(file_), nullptr, false);
  for (const char* key : {"best_metric", "best_global_step"}) {
    nlohmann::ordered_json changed = whole;
    changed[key] = "low";
    put(file_, changed.dump());
    expect_refused(read_trainer_state(folder_).status(), {file_.string(), key});
  }
  nlohmann::ordered_json changed = whole;
  changed["stateful_callbacks"]["Rondo"]["attributes"]["evaluations_not_better"] = -1;
  put(file_, changed.dump());
  expect_refused(read_trainer_state(folder_).status(), {file_.string(), "evaluations_not_better"});
}

}  // namespace
}  // namespace rondo::train
