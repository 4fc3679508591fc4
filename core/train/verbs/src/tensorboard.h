// Writes what a run measures where TensorBoard finds it, while handing everything on to the run's own observer. The
// tags are those of transformers: train/loss, train/learning_rate, train/grad_norm, train/epoch, eval/loss; further
// ones beside them.
#pragma once

#include <filesystem>
#include <optional>

#include "rondo/train/config.h"
#include "rondo/train/event_file.h"
#include "rondo/train/run.h"

namespace rondo::train {

/// report_to names TensorBoard.
bool reports_to_tensorboard(const Config& config);

/// logging_dir, or runs/ in output_dir.
std::filesystem::path logging_folder(const Config& config);

/// Does nothing unless report_to says so. A file that cannot be written costs one note.
class TensorboardReporter final : public RunObserver {
 public:
  /// `next` outlives the reporter.
  TensorboardReporter(const Config& config, RunObserver& next) : config_(config), next_(next) {}

  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvalReport& report) override;
  void on_checkpoint(const std::string& path) override { next_.on_checkpoint(path); }
  void on_note(const std::string& text) override { next_.on_note(text); }
  void on_progress(std::string_view what, std::uint64_t done, std::uint64_t of) override {
    next_.on_progress(what, done, of);
  }

 private:
  void write(std::uint64_t step, const Scalars& scalars);
  void give_up(const absl::Status& status);

  const Config& config_;
  RunObserver& next_;
  std::optional<EventFile> file_;
};

}  // namespace rondo::train
