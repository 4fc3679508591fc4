#include "run_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "rondo/base/status.h"

namespace rondo::train {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(path, error);
  return error || full.empty() ? path : full.string();
}

}  // namespace

void RunRecorder::on_start(const RunSummary& summary) {
  next_.on_start(summary);
  const std::filesystem::path path = run_store_path();
  if (path.empty()) return;
  absl::StatusOr<RunStore> store = RunStore::open(path);
  if (!store.ok()) return give_up(store.status());
  run_.output_dir = absolute(config_.output_dir);
  run_.model = config_.model_name_or_path;
  run_.method = config_.finetuning_type;
  run_.data = config_.dataset;
  run_.started = now();
  run_.status = "running";
  run_.process = this_process();
  run_.steps = summary.first_step;
  run_.total_steps = summary.total_steps;
  absl::StatusOr<StoredRun> line = store->begin(run_, summary.first_step > 0);
  if (!line.ok()) return give_up(line.status());
  run_ = *std::move(line);
  store_.emplace(*std::move(store));
}

void RunRecorder::on_step(const StepReport& report) {
  next_.on_step(report);
  run_.steps = report.step;
  run_.final_loss = report.loss;
  tokens_ += static_cast<double>(report.tokens);
  seconds_ += report.step_seconds;
}

void RunRecorder::on_evaluation(const EvalReport& report) {
  next_.on_evaluation(report);
  run_.best_eval_loss = std::min(run_.best_eval_loss.value_or(report.eval_loss), report.eval_loss);
}

void RunRecorder::end(const absl::StatusOr<RunOutcome>& outcome) {
  if (!store_) return;
  run_.ended = now();
  run_.status = !outcome.ok() ? "failed" : outcome->interrupted ? "interrupted" : "done";
  if (outcome.ok()) run_.steps = outcome->steps;
  if (seconds_ > 0) run_.tokens_per_second = tokens_ / seconds_;
  const absl::Status status = store_->update(run_);
  if (!status.ok()) give_up(status);
}

void RunRecorder::give_up(const absl::Status& status) {
  store_.reset();
  next_.on_note(fmt::format("`rondo runs` will not know this run: {}", message_of(status)));
}

}  // namespace rondo::train
