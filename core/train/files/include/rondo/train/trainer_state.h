// trainer_state.json: where a run stands, in the keys of transformers' TrainerState, so that scripts that plot its runs
// read ours.
//
//   global_step, epoch, max_steps, num_train_epochs, logging_steps, eval_steps, save_steps, train_batch_size,
//   log_history
//   ({loss, grad_norm, learning_rate, epoch, step} of logged steps, {eval_loss, epoch, step} of evaluations),
//   best_metric, best_global_step, best_model_checkpoint, stateful_callbacks.EarlyStoppingCallback: as transformers has
//   them; stateful_callbacks.Rondo.attributes: {updates, skipped_steps, samples, numerics_class, settings}, in fp16
//   also {overflowed_steps, loss_scale, good_steps}, and of the step before {updates_before, loss_scale_before};
//   contents: of the checkpoint's files of tensors a hash of names and numbers (checkpoint.h);
//   base: {model, weights}, where the weights that are not trained came from, and what tells them from others
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/schedule/loss_scale.h"

namespace rondo::train {

inline constexpr const char* kStateFile = "trainer_state.json";

/// A line of log_history: of a logged step, or of an evaluation.
struct LogEntry {
  std::uint64_t step = 0;
  double epoch = 0;
  double loss = 0;  // or eval_loss
  double grad_norm = 0;
  double learning_rate = 0;
  bool of_evaluation = false;

  friend bool operator==(const LogEntry&, const LogEntry&) = default;
};

/// The best evaluation so far, and how long ago it was.
struct BestEvaluation {
  std::optional<double> metric;
  std::uint64_t step = 0;        // 0: none yet
  std::string checkpoint;        // its folder; empty: that step was not saved
  std::uint64_t not_better = 0;  // evaluations in a row that early stopping counts
};

struct EarlyStopping {
  std::uint64_t patience = 0;  // 0: none
  double threshold = 0;
};

/// What is stored beside tensors.
struct TrainerState {
  std::uint64_t global_step = 0;
  /// Its updates: steps that changed weights, global_step less the skipped ones.
  schedule::RunCourse course;
  std::uint64_t overflowed_steps = 0;  // of the skipped ones: the schedule of the learning rate stood still
  std::uint64_t skipped_steps = 0;
  double epoch = 0;
  std::uint64_t max_steps = 0;
  double num_train_epochs = 0;
  std::uint64_t samples = 0;         // in the training set: a resumed run must have as many
  std::deque<LogEntry> log_history;  // it grows with the run: nothing is moved, nothing is kept in vain
  nlohmann::ordered_json settings;   // what the course of the run depends on
  std::string numerics_class;
  nlohmann::ordered_json plan;                  // null: every plan gives the same bits
  std::uint64_t branch = 0;                     // of the checkpoints that are written: branch_of(); not in the file
  std::map<std::string, std::string> contents;  // by file: hash of its tensors; checkpoints of early versions have none
  std::string base_model;                       // where it lay when the checkpoint was made
  std::string base_weights;                     // base_weights.h; empty: all are trained, or an early version
  BestEvaluation best;
  EarlyStopping early_stopping;
  bool scales_loss = false;  // fp16
  // For readers alone.
  std::uint64_t logging_steps = 0;
  std::uint64_t eval_steps = 0;
  std::uint64_t save_steps = 0;
  std::uint64_t train_batch_size = 0;
};

/// Takes an evaluation into `state.best`. A loss is the best when it lies below all before; early stopping counts one
/// that does not lie more than the threshold below the best before it (transformers' EarlyStoppingCallback).
void take_evaluation(TrainerState& state, double eval_loss, std::uint64_t step);

/// Early stopping has seen enough.
bool is_stopped_early(const TrainerState& state);

/// The evaluation after `step` is in the history.
bool is_evaluated(const TrainerState& state, std::uint64_t step);

/// Errors: Internal naming the path.
absl::Status write_trainer_state(const std::filesystem::path& folder, const TrainerState& state);

/// Errors: InvalidArgument naming file and key.
absl::StatusOr<TrainerState> read_trainer_state(const std::filesystem::path& folder);

}  // namespace rondo::train
