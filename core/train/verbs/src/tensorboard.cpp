#include "tensorboard.h"

#include <fmt/format.h>

#include "rondo/base/status.h"

namespace rondo::train {

bool reports_to_tensorboard(const Config& config) {
  // The only service that there is; the table of keys lets nothing else in.
  return config.report_to.find("tensorboard") != std::string::npos;
}

std::filesystem::path logging_folder(const Config& config) {
  return config.logging_dir.empty() ? std::filesystem::path(config.output_dir) / "runs"
                                    : std::filesystem::path(config.logging_dir);
}

void TensorboardReporter::on_start(const RunSummary& summary) {
  next_.on_start(summary);
  if (!reports_to_tensorboard(config_)) return;
  absl::StatusOr<EventFile> file =
      EventFile::open(logging_folder(config_), static_cast<std::int64_t>(summary.first_step) + 1);
  if (!file.ok()) return give_up(file.status());
  file_.emplace(*std::move(file));
}

void TensorboardReporter::on_step(const StepReport& report) {
  next_.on_step(report);
  Scalars scalars;
  if (report.loss) scalars.emplace_back("train/loss", *report.loss);
  scalars.emplace_back("train/learning_rate", report.learning_rate);
  if (report.grad_norm) scalars.emplace_back("train/grad_norm", *report.grad_norm);
  const Scalars others = {{"train/epoch", report.epoch},
                          {"train/tokens_per_second", report.tokens_per_second},
                          {"train/step_seconds", report.step_seconds},
                          {"train/sol", report.sol},
                          {"train/bubble", report.bubble}};
  scalars.insert(scalars.end(), others.begin(), others.end());
  for (const auto& [name, bytes] : report.memory) scalars.emplace_back("memory/" + name, static_cast<double>(bytes));
  write(report.step, scalars);
}

void TensorboardReporter::on_evaluation(const EvalReport& report) {
  next_.on_evaluation(report);
  write(report.step, {{"eval/loss", report.eval_loss}});
}

void TensorboardReporter::write(std::uint64_t step, const Scalars& scalars) {
  if (!file_) return;
  const absl::Status status = file_->write(static_cast<std::int64_t>(step), scalars);
  if (!status.ok()) give_up(status);
}

void TensorboardReporter::give_up(const absl::Status& status) {
  file_.reset();
  next_.on_note(fmt::format("TensorBoard gets nothing more of this run: {}", message_of(status)));
}

}  // namespace rondo::train
