// The verbs as functions: what the `rondo` command calls and prints.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/data/packing.h"
#include "rondo/data/samples.h"
#include "rondo/devices/profile.h"
#include "rondo/partition/plan.h"
#include "rondo/partition/schedules.h"
#include "rondo/train/config.h"
#include "rondo/train/progress.h"
#include "rondo/train/run_history.h"

namespace rondo::train {

/// What is known before the first step.
struct RunSummary {
  std::string model;   // "llama, 30 blocks, 134.5 M parameters, bf16"
  std::string method;  // "LoRA rank 16 on q_proj, ...: 4.9 M trained parameters"
  data::DataReport data;
  data::DataReport evaluation;  // records 0: none
  std::string sample_text;      // one sample with its targets marked, without colour
  std::string sample_text_coloured;
  std::uint64_t total_steps = 0;
  std::uint64_t first_step = 0;  // of a resumed run: steps done already
  std::string resumed_from;
  /// Bytes promised, by purpose: one table for each used device, then "host".
  std::vector<std::pair<std::string, partition::MemoryTable>> memory;
  std::vector<std::pair<std::string, std::string>> unused_devices;  // name, why
  partition::Prediction predicted;
  std::vector<std::string> notes;
};

struct StepReport {
  std::uint64_t step = 0;  // from 1
  std::uint64_t total_steps = 0;
  double epoch = 0;
  std::optional<double> loss;  // this and the norm: none of devices that do no arithmetic
  double learning_rate = 0;
  std::optional<double> grad_norm;
  std::uint64_t target_tokens = 0;
  std::uint64_t tokens = 0;
  double tokens_per_second = 0;
  double step_seconds = 0;
  double data_seconds = 0;  // of them spent waiting for the step's batches
  double elapsed_seconds = 0;
  double remaining_seconds = 0;
  double sol = 0;  // share of the speed of light, DESIGN's definition
  double bubble = 0;
  std::string limited_by;
  std::uint64_t skipped_steps = 0;
  std::uint64_t retries = 0;
  std::uint64_t lost_devices = 0;
  std::optional<double> loss_scale;                   // that the step computed with, in fp16
  std::vector<std::pair<std::string, Bytes>> memory;  // peak by device, then "host"
};
/// The line of metrics.jsonl.
nlohmann::ordered_json to_json(const StepReport& report);

struct EvalReport {
  std::uint64_t step = 0;
  double eval_loss = 0;
  std::uint64_t eval_target_tokens = 0;
};

/// What was left behind, for the last lines on the screen.
struct RunOutcome {
  std::string output_dir;
  bool interrupted = false;  // a checkpoint was saved, if there is anything to save; exit 130
  bool computed = true;      // false: on devices that do no arithmetic, which leave neither result nor checkpoint
  std::uint64_t steps = 0;   // done, those before a resumption too
  std::string try_command;   // "rondo generate --model_name_or_path ..."
};

/// Told of everything that a user sees. Called from the training thread.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_start(const RunSummary& summary) = 0;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_evaluation(const EvalReport& report) = 0;
  virtual void on_checkpoint(const std::string& path) = 0;
  virtual void on_note(const std::string& text) = 0;
  /// Before on_start(), see progress.h.
  virtual void on_progress(std::string_view what, std::uint64_t done, std::uint64_t of) = 0;
};

/// What tells `observer` of progress, as long as it is there.
inline Progress progress_to(RunObserver& observer) {
  return [&observer](std::string_view what, std::uint64_t done, std::uint64_t of) {
    observer.on_progress(what, done, of);
  };
}

/// Set from a signal handler.
using StopFlag = std::atomic<bool>;

/// What a signal handler and a training run tell each other.
struct StopRequest {
  StopFlag asked = false;   // the run then abandons an uncommitted step or finishes a committed one, saves and ends
  StopFlag heeded = false;  // by the run: from here on. Before, nothing is lost by ending at once
};

absl::StatusOr<RunOutcome> run_training(const Config& config, RunObserver& observer, StopRequest& stop);

struct Evaluation {
  double eval_loss = 0;
  double perplexity = 0;
  std::uint64_t target_tokens = 0;
  // With exact_match: questions asked, and those answered as expected.
  std::uint64_t samples = 0;
  std::uint64_t matches = 0;
};
absl::StatusOr<Evaluation> run_evaluation(const Config& config, RunObserver& observer);

struct Generation {
  std::string text;
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> token_ids;  // without the prompt; an end token is the last when finish_reason is stop
  std::string finish_reason;            // stop, length
};
/// `on_text` (may be empty) receives the answer piece by piece.
absl::StatusOr<Generation> run_generation(const Config& config, const std::function<void(std::string_view)>& on_text);

struct DataView {
  data::Dataset dataset;           // the first `samples` ones are to be shown
  std::vector<std::string> texts;  // of these, coloured or plain
  std::optional<data::PackingReport> packing;
};
absl::StatusOr<DataView> run_data(const Config& config, bool colour);

/// plan --json's document (INTERFACE, Planning and profiling), and the memory tables for people.
struct PlanView {
  nlohmann::ordered_json json;
  partition::Plan plan;
  std::vector<partition::ComparedSchedule> schedules;  // with config.compare
  std::vector<std::string> notes;
};
absl::StatusOr<PlanView> run_plan(const Config& config);

/// profile --json's document: the plan, and what `config.steps` real steps took. Beside INTERFACE's keys each device
/// has the shares of time in which its links worked and the seconds a step of each phase, measured and predicted.
struct ProfileView {
  nlohmann::ordered_json json;
  std::vector<std::string> notes;
};
/// Trains in memory and keeps nothing but the trace file. Errors: Cancelled after `stop`.
absl::StatusOr<ProfileView> run_profile(const Config& config, const StopFlag& stop);

/// plan --sweep's and profile --sweep's document: {"sweep":[a point each],"knees":[a pool each]}. A point names its
/// devices and global_batch, and has what was predicted, or (`measured`) measured and predicted; one that does not fit
/// has an `error`. A pool's knee is its first global batch with 95% of the pool's best throughput.
struct SweepLine {
  std::string name;                                      // the pool's devices
  std::vector<std::pair<std::uint32_t, double>> points;  // global batch, tokens a second; rising
  std::uint32_t knee = 0;                                // a global batch among them; 0: none
};
struct SweepView {
  nlohmann::ordered_json json;
  std::vector<SweepLine> lines;  // one a pool
  std::vector<std::string> notes;
};
/// Errors: those of plan and profile; the last refusal when no point fits.
absl::StatusOr<SweepView> run_sweep(const Config& config, bool measured, const StopFlag& stop);

/// devices --json's document; with config.catalogue the catalogue's cards under "catalogue".
absl::StatusOr<nlohmann::ordered_json> run_devices(const Config& config);

/// init: returns the folder that was made.
absl::StatusOr<std::string> run_init(const Config& config);

/// merge: returns the folder that was made. It is whole or not there.
absl::StatusOr<std::string> run_merge(const Config& config);

/// export: the model, or the adapter where one is given; returns the file that was made. It is whole or not there.
absl::StatusOr<std::string> run_export(const Config& config);

/// runs --json's document: {"runs": [{"id", "output_dir", "exists", "status", "model", "method", "data", "started",
/// "ended", "steps", "total_steps", "final_loss", "best_eval_loss", "tokens_per_second"}...]}; what is unknown is null.
/// Status: running, done, interrupted, failed, crashed (the process is gone), and of runs that the store does not know
/// (config.run_names: folders to look in) done or unfinished.
absl::StatusOr<nlohmann::ordered_json> run_runs(const Config& config);

/// report: the runs that config.run_names names, by folder or by their number in `rondo runs`.
absl::StatusOr<std::vector<RunHistory>> open_runs(const Config& config);

}  // namespace rondo::train
