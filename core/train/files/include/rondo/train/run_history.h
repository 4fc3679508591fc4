// What a run has left in its output_dir so far, read back: its measurements and settings. Works while the run goes on
// and after it was cut: lines of metrics.jsonl that are no whole JSON object are counted and left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace rondo::train {

/// A line of kind train. Numbers that the line lacks are NaN.
struct TrainPoint {
  std::uint64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double tokens = 0;
  double tokens_per_second = 0;
  double step_seconds = 0;
  double elapsed_seconds = 0;
  double sol = 0;
  double bubble = 0;
  double skipped_steps = 0;
  double retries = 0;
  double lost_devices = 0;
  std::map<std::string, double> memory;  // bytes, by device and "host"
};

struct EvaluationPoint {
  std::uint64_t step = 0;
  double eval_loss = 0;
};

struct RunHistory {
  std::filesystem::path folder;
  std::vector<TrainPoint> train;  // in the order of the file
  std::vector<EvaluationPoint> evaluations;
  std::vector<std::pair<std::string, std::string>> settings;  // of config.resolved.yaml, in its order; empty: none
  std::string status;  // as the store of runs has it; done or unfinished where it has none
  std::uint64_t ignored_lines = 0;
  std::uint64_t total_steps = 0;  // of trainer_state.json; 0: unknown
  bool has_result = false;        // the run has come to its end
  double modified = 0;            // metrics.jsonl, seconds since 1970

  std::uint64_t steps() const { return train.empty() ? 0 : train.back().step; }
};

/// The folder is the output_dir of a run.
bool is_run(const std::filesystem::path& folder);

/// Errors: InvalidArgument naming the folder and what it lacks.
absl::StatusOr<RunHistory> read_run(const std::filesystem::path& folder);

/// Mean tokens/s over the logged steps; NaN without any.
double mean_tokens_per_second(const RunHistory& run);
/// NaN without evaluations.
double best_eval_loss(const RunHistory& run);
/// The setting's value; empty when there is none.
std::string setting(const RunHistory& run, const std::string& key);

}  // namespace rondo::train
