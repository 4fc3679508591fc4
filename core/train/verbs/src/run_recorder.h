// Tells the list of runs (run_store.h) of a run while handing everything on to the run's own observer. Whatever is
// wrong with the list costs one note, never the run.
#pragma once

#include <optional>
#include <string>

#include "rondo/train/config.h"
#include "rondo/train/run.h"
#include "rondo/train/run_store.h"

namespace rondo::train {

class RunRecorder final : public RunObserver {
 public:
  /// `next` outlives the recorder.
  RunRecorder(const Config& config, RunObserver& next) : config_(config), next_(next) {}

  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvalReport& report) override;
  void on_checkpoint(const std::string& path) override { next_.on_checkpoint(path); }
  void on_note(const std::string& text) override { next_.on_note(text); }
  void on_progress(std::string_view what, std::uint64_t done, std::uint64_t of) override {
    next_.on_progress(what, done, of);
  }

  /// How the run ended; nothing is written when it never began.
  void end(const absl::StatusOr<RunOutcome>& outcome);

 private:
  void give_up(const absl::Status& status);

  const Config& config_;
  RunObserver& next_;
  std::optional<RunStore> store_;  // empty: before the start, or after a fault
  StoredRun run_;
  double tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace rondo::train
