// The training loop over an executor.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "batches_ahead.h"
#include "loss_watch.h"
#include "rondo/schedule/executor.h"
#include "rondo/train/calibration.h"
#include "rondo/train/checkpoint.h"
#include "rondo/train/folder_lock.h"
#include "rondo/train/progress.h"
#include "rondo/train/rate.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"
#include "rondo/train/speed_of_light.h"
#include "run_output.h"

namespace rondo::train {

class Trainer {
 public:
  Trainer(const Config& config, RunObserver& observer, StopRequest& stop)
      : config_(config), observer_(observer), stop_(stop) {}
  ~Trainer() { executor_.reset(); }  // before what it was given
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  absl::StatusOr<RunOutcome> run();
  /// After run(). One that lost a device stays until the program ends, which then ends without taking down what threads
  /// may use: a device that hangs holds some of them for ever, and one that was only late gives them back at any
  /// moment, into weights, gradients and the pool of threads.
  static void close(std::unique_ptr<Trainer> trainer);

 private:
  absl::Status open();
  absl::Status check_vocabulary() const;
  absl::Status lay_out_steps();
  absl::Status find_checkpoint();
  absl::Status with_one_before(const absl::Status& error, const std::filesystem::path& checkpoint) const;
  absl::Status plan();
  bool repeats_plan();
  absl::Status fill_store();
  absl::Status start();
  absl::StatusOr<RunOutcome> loop();
  struct Interval {
    double seconds = 0;
    double bubble = 0;
  };
  void begin_steps(std::uint64_t end);
  absl::StatusOr<RunOutcome> finish(bool interrupted);
  absl::Status log_step(std::uint64_t step, const schedule::StepResult& result,
                        const std::vector<schedule::Microbatch>& batches, const Interval& interval, double rate);
  absl::Status evaluate(std::uint64_t step);
  absl::Status save(std::uint64_t step);
  bool evaluates_after(std::uint64_t step);
  bool saves_after(std::uint64_t step);
  absl::StatusOr<bool> load_best();
  absl::Status keep_result();
  void note_early_stop();
  /// Record numbers of 0-based step `step`.
  static StepRecords records_of(Loader& loader, const data::Dataset& dataset, std::uint64_t step);
  absl::StatusOr<RunOutcome> end_with(const absl::Status& error);
  absl::Status stop_with(const absl::Status& error);
  void pass_on_notes();
  RunSummary summary();
  std::vector<std::pair<std::string, Bytes>> memory_use() const;
  /// What went by since the last call. The next step is timed from here.
  Interval take_interval();
  double necessary_flops(double tokens) const;
  void watch_programs(const std::vector<schedule::Microbatch>& batches);
  devices::DType dtype() const { return model_.architecture->method().dtype; }

  Config config_;
  RunObserver& observer_;
  StopRequest& stop_;
  const Progress progress_ = progress_to(observer_);

  FolderLock output_lock_;
  std::optional<TextParts> text_;
  RunData data_;
  OpenModel model_;
  Machine machine_;
  std::optional<Loader> loader_;
  std::optional<Loader> evaluation_loader_;
  Loader::Lengths lengths_;               // of all microbatches
  std::vector<std::string> early_notes_;  // told when the run starts: one that is refused says only why
  PlannedRun planned_;
  std::optional<offload::ParameterStore> store_;
  std::unique_ptr<schedule::StepExecutor> executor_;
  std::optional<BatchesAhead> batches_;                  // of the steps to come
  double data_seconds_ = 0;                              // that steps waited for them since the last one was logged
  std::deque<std::vector<schedule::Microbatch>> begun_;  // of steps that the executor has begun
  std::optional<MetricsFile> metrics_;
  RateSchedule rate_;
  SpeedOfLight light_{0};
  double first_peak_ = 0;  // before any step
  Bytes text_and_data_ = 0;
  devices::CalibrationStore speeds_ = devices::CalibrationStore::of_user();
  std::optional<ProgramWatch> programs_;
  TrainerState state_;
  LossWatch losses_;
  std::string resumed_from_;
  /// Of a checkpoint of the same numerics class (stored_plan.h).
  std::optional<nlohmann::ordered_json> plan_before_;
  std::uint64_t total_steps_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point last_end_;
  std::vector<double> computed_;  // until then: seconds by device
  std::uint64_t first_step_ = 0;
  std::optional<std::uint64_t> saved_step_;  // of the last checkpoint in output_dir that this run wrote or began with
};

}  // namespace rondo::train
