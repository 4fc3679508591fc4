// The course of a run beside its steps: when it evaluates, saves and stops, which weights it ends with, and which
// records a step saw.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "rondo/base/status.h"
#include "trainer.h"

namespace rondo::train {

bool Trainer::evaluates_after(std::uint64_t step) {
  if (machine_.phantom) return false;
  if (config_.eval_strategy == "epoch") return loader_->ends_epoch(step);
  return config_.eval_strategy == "steps" && state_.eval_steps > 0 && step % state_.eval_steps == 0;
}

bool Trainer::saves_after(std::uint64_t step) {
  if (machine_.phantom) return false;
  const bool keeps_best = config_.load_best_model_at_end || config_.save_strategy == "best";
  if (keeps_best && state_.best.step == step) return true;
  if (config_.save_strategy == "epoch") return loader_->ends_epoch(step);
  return config_.save_strategy == "steps" && state_.save_steps > 0 && step % state_.save_steps == 0;
}

/// The weights of the best evaluation into the store, where they are not there already. Whether it then holds others
/// than those of the last step.
absl::StatusOr<bool> Trainer::load_best() {
  const BestEvaluation& best = state_.best;
  if (!config_.load_best_model_at_end || !best.metric || best.step == state_.global_step) return false;
  std::filesystem::path folder = fmt::format("{}/checkpoint-{}", config_.output_dir, best.step);
  std::error_code ignored;
  // A run resumed from another folder may have its best there.
  if (!std::filesystem::exists(folder / kStateFile, ignored) && !best.checkpoint.empty()) folder = best.checkpoint;
  if (!std::filesystem::exists(folder / kStateFile, ignored)) {
    observer_.on_note(fmt::format("{} is gone: the result has the weights of step {}, not the best ones (step {})",
                                  folder.string(), state_.global_step, best.step));
    return false;
  }
  RONDO_RETURN_IF_ERROR(read_checkpoint(folder, *model_.architecture, *store_).status());
  observer_.on_note(fmt::format("the result has the weights of step {}, which evaluated best: eval_loss {:.4f}",
                                best.step, *best.metric));
  return true;
}

void Trainer::note_early_stop() {
  observer_.on_note(fmt::format(
      "stopped early at step {} of {}: {} evaluations in a row were not better than eval_loss "
      "{:.4f} at step {}",
      state_.global_step, total_steps_, state_.best.not_better, state_.best.metric.value_or(0), state_.best.step));
}

StepRecords Trainer::records_of(Loader& loader, const data::Dataset& dataset, std::uint64_t step) {
  StepRecords records;
  for (const auto& samples : loader.samples_of(step)) {
    records.emplace_back();
    for (const std::uint32_t sample : samples) records.back().push_back(dataset.samples.index(sample));
  }
  return records;
}

}  // namespace rondo::train
