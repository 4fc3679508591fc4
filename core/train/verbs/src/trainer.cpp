#include "trainer.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/data/describe.h"
#include "rondo/devices/host_memory.h"
#include "rondo/train/checkpoint_folders.h"
#include "rondo/train/code_choice.h"
#include "rondo/train/config_text.h"
#include "rondo/train/host_account.h"
#include "rondo/train/stored_plan.h"
#include "rondo/train/weights.h"
#include "watcher.h"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Libraries and statics are left as they are.
void leave_as_it_is(int status, void* /*unused*/) {
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

void Trainer::close(std::unique_ptr<Trainer> trainer) {
  if (trainer->executor_ == nullptr || trainer->executor_->lost_devices().empty()) return;
  static auto* const kept = new std::vector<std::unique_ptr<Trainer>>();  // in reach, so that leak checkers know
  kept->push_back(std::move(trainer));
  // Called before all that was registered earlier, such as destructors.
  static_cast<void>(::on_exit(leave_as_it_is, nullptr));
}

absl::StatusOr<RunOutcome> Trainer::run() {
  RONDO_RETURN_IF_ERROR(open());
  RONDO_RETURN_IF_ERROR(lay_out_steps());
  RONDO_RETURN_IF_ERROR(find_checkpoint());
  RONDO_RETURN_IF_ERROR(plan());
  RONDO_RETURN_IF_ERROR(fill_store());
  if (!resumed_from_.empty()) {
    const absl::Status read = read_checkpoint(resumed_from_, *model_.architecture, *store_).status();
    if (!read.ok()) return with_one_before(read, resumed_from_);
  }
  // After everything that can be refused: a refused run leaves no folder behind.
  if (!config_.dry_run) RONDO_RETURN_IF_ERROR(prepare_output_dir(config_, output_lock_, resumed_from_.empty()));
  RONDO_RETURN_IF_ERROR(start());
  absl::StatusOr<RunOutcome> outcome = loop();
  if (outcome.ok()) outcome->computed = !machine_.phantom;
  return outcome;
}

absl::Status Trainer::plan() {
  const auto note = [this](const std::string& text) { early_notes_.push_back(text); };
  tell(progress_, "measuring and planning");
  RONDO_RETURN_IF_ERROR(count_host_taken(config_, *model_.architecture, lengths_, text_and_data_, machine_));
  const bool measured = calibrate(*model_.architecture, lengths_, optimizer_of(config_), machine_, speeds_, note);
  if (measured) devices::reset_process_peak();
  if (!repeats_plan()) {
    RONDO_ASSIGN_OR_RETURN(planned_, plan_run(config_, *model_.architecture, machine_, lengths_, Purpose::kTrain));
  }
  if (has_several_classes(machine_)) state_.plan = store_plan(planned_.plan, machine_);
  return absl::OkStatus();
}

/// Takes the plan of the checkpoint where numbers depend on it. What keeps it from that is noted.
bool Trainer::repeats_plan() {
  if (!plan_before_ || !has_several_classes(machine_)) return false;
  absl::StatusOr<partition::Plan> dealt = read_plan(*plan_before_, config_, machine_);
  absl::Status status = dealt.status();
  if (status.ok()) {
    auto run = plan_run(config_, *model_.architecture, machine_, lengths_, Purpose::kTrain, &*dealt);
    status = run.status();
    if (run.ok()) planned_ = *std::move(run);
  }
  if (!status.ok()) {
    early_notes_.push_back(
        fmt::format("a new plan: {}; on devices of several kinds results agree within rounding, not bit for bit",
                    message_of(status)));
  }
  return status.ok();
}

absl::Status Trainer::fill_store() {
  const Clock::time_point begin = Clock::now();
  const bool chooses = chooses_codes(config_) && !machine_.phantom;
  const auto samples = first_microbatches(*loader_, chooses ? config_.quantization_tokens : 0);
  RONDO_ASSIGN_OR_RETURN(store_, open_store(config_, model_, machine_, planned_.plan, samples, progress_));
  if (samples.empty()) return absl::OkStatus();
  std::size_t sequences = 0;
  std::size_t tokens = 0;
  for (const schedule::Microbatch& one : samples) {
    sequences += one.bounds.size() - 1;
    tokens += one.ids.size();
  }
  early_notes_.push_back(fmt::format(
      "4-bit codes were chosen for {} tokens of {} samples in {:.1f} s; quantization_tokens: 0 takes the nearest ones",
      tokens, sequences, seconds_between(begin, Clock::now())));
  return absl::OkStatus();
}

absl::Status Trainer::start() {
  schedule::ExecutorParts parts = executor_parts(model_, machine_, planned_, *store_);
  programs_.emplace(*model_.architecture, planned_, machine_);
  if (programs_->watches()) parts.trace_spans = kWatchedPrograms;
  parts.traced = schedule::Traced::kComputing;
  parts.recovery.keep_pace = true;
  tell(progress_, "compiling programs");
  RONDO_ASSIGN_OR_RETURN(executor_, schedule::StepExecutor::make(parts));
  executor_->set_course(state_.course);
  executor_->set_steps(state_.global_step);
  if (!config_.dry_run) {
    RONDO_ASSIGN_OR_RETURN(
        metrics_, MetricsFile::open(config_.output_dir, state_.global_step, is_evaluated(state_, state_.global_step)));
    state_.branch = branch_of_run(config_.output_dir, resumed_from_);
    // A run that was killed may have saved one and not removed the one before. Those that this run does not go on from
    // stay until it has left one of its own.
    const std::uint64_t limit = is_newest(config_.output_dir, resumed_from_) ? config_.save_total_limit : 0;
    const absl::Status pruned = prune_checkpoints(config_.output_dir, limit, state_.best.step);
    if (!pruned.ok()) early_notes_.push_back(message_of(pruned));
  }
  first_step_ = state_.global_step;
  for (const std::string& note : early_notes_) observer_.on_note(note);
  observer_.on_start(summary());
  return absl::OkStatus();
}

absl::StatusOr<RunOutcome> Trainer::loop() {
  started_ = Clock::now();
  last_end_ = started_;
  computed_ = executor_->compute_seconds();
  stop_.heeded.store(true, std::memory_order_release);
  Watcher watcher;
  RONDO_RETURN_IF_ERROR(watcher.start(stop_.asked, *executor_));
  const std::uint64_t end = config_.dry_run ? std::min(state_.global_step + 1, total_steps_) : total_steps_;
  batches_.emplace(data_.train, loader_options(config_), end);
  // What was interrupted before its evaluation, or within it, has that still to come.
  const std::uint64_t resumed = state_.global_step;
  if (resumed > 0 && !config_.dry_run && evaluates_after(resumed) && !is_evaluated(state_, resumed)) {
    if (const absl::Status status = evaluate(resumed); !status.ok()) return end_with(status);
    if (saves_after(resumed)) RONDO_RETURN_IF_ERROR(save(resumed));
  }
  while (state_.global_step < end && !is_stopped_early(state_)) {
    if (stop_.asked.load(std::memory_order_relaxed)) return finish(true);
    const std::uint64_t step = state_.global_step;
    begin_steps(end);
    // As transformers has it: the schedule does not go on with a step that overflowed.
    const double rate = rate_.at(step - state_.overflowed_steps);
    const absl::StatusOr<schedule::StepResult> result = executor_->finish({rate, config_.max_grad_norm});
    const std::vector<schedule::Microbatch> batches = std::move(begun_.front());
    begun_.pop_front();
    pass_on_notes();
    if (!result.ok()) {
      if (!executor_->last_step().finite && !stop_.asked.load(std::memory_order_relaxed)) {
        observer_.on_note(describe_not_finite(fmt::format("step {}", step + 1), executor_->last_step().losses,
                                              records_of(*loader_, data_.train, step), data_.train.report.path));
      }
      return end_with(result.status());
    }
    const Interval interval = take_interval();
    state_.global_step = step + 1;
    state_.course = executor_->course();
    state_.epoch = loader_->epochs_of(step + 1);
    if (result->skipped) ++state_.skipped_steps;
    if (result->overflowed) ++state_.overflowed_steps;
    if (const absl::Status logged = log_step(step + 1, *result, batches, interval, rate); !logged.ok()) {
      return stop_with(logged);
    }
    if (config_.dry_run) continue;
    if (evaluates_after(step + 1)) {
      if (const absl::Status status = evaluate(step + 1); !status.ok()) return end_with(status);
    }
    if (saves_after(step + 1)) RONDO_RETURN_IF_ERROR(save(step + 1));
  }
  if (is_stopped_early(state_)) note_early_stop();
  return finish(false);
}

/// The next step, and at staleness 1 the one after it too, unless something is to be done between them: that is done on
/// what the run holds when no step is under way.
void Trainer::begin_steps(std::uint64_t end) {
  const auto begin = [this, end](std::uint64_t step) {
    const Clock::time_point asked = Clock::now();
    begun_.push_back(batches_->take(step));
    data_seconds_ += seconds_between(asked, Clock::now());
    executor_->begin(begun_.back(), step + 1 == end);
  };
  const std::uint64_t step = state_.global_step;
  if (begun_.empty()) begin(step);
  const bool pause = evaluates_after(step + 1) || saves_after(step + 1);
  if (config_.staleness > 0 && begun_.size() == 1 && step + 1 < end && !pause) begin(step + 1);
}

void Trainer::pass_on_notes() {
  for (const std::string& note : executor_->take_notes()) observer_.on_note(note);
}

/// A step or an evaluation has given up with `error`, maybe because it was asked to.
absl::StatusOr<RunOutcome> Trainer::end_with(const absl::Status& error) {
  if (stop_.asked.load(std::memory_order_relaxed)) return finish(true);
  return stop_with(error);
}

/// The run ends with `error`, but what was committed is kept.
absl::Status Trainer::stop_with(const absl::Status& error) {
  if (config_.dry_run || machine_.phantom || state_.global_step == first_step_) return error;
  executor_->drain_and_wait();
  if (const absl::Status update = executor_->update_status(); !update.ok()) {  // the checkpoint before stands
    if (message_of(update) == message_of(error)) return error;
    return absl::Status(error.code(), fmt::format("{}; {}", message_of(error), message_of(update)));
  }
  if (state_.global_step != saved_step_) {
    const absl::Status saved = save(state_.global_step);
    if (!saved.ok()) return absl::Status(error.code(), fmt::format("{}; and {}", message_of(error), message_of(saved)));
  }
  return absl::Status(error.code(),
                      fmt::format("{}; the state after step {} is in {}", message_of(error), state_.global_step,
                                  checkpoint_folder(config_.output_dir, state_.global_step).string()));
}

absl::StatusOr<RunOutcome> Trainer::finish(bool interrupted) {
  executor_->drain_and_wait();
  RONDO_RETURN_IF_ERROR(executor_->update_status());
  if (light_.peak() > first_peak_) {
    remember_peak(machine_, dtype(), light_.peak(), speeds_);
  }
  programs_->fold_back(speeds_);
  RunOutcome outcome;
  outcome.output_dir = config_.output_dir;
  outcome.interrupted = interrupted;
  outcome.steps = state_.global_step;
  if (config_.dry_run || machine_.phantom) return outcome;
  if (interrupted) {
    if (saved_step_ != state_.global_step) RONDO_RETURN_IF_ERROR(save(state_.global_step));
    return outcome;
  }
  if (config_.eval_strategy != "no" && !is_evaluated(state_, state_.global_step)) {
    if (const absl::Status status = evaluate(state_.global_step); !status.ok()) return end_with(status);
  }
  const bool keeps_the_end = (config_.save_strategy == "steps" && config_.save_steps > 0) ||
                             config_.save_strategy == "epoch" || saves_after(state_.global_step);
  if (keeps_the_end && saved_step_ != state_.global_step && state_.global_step > first_step_) {
    RONDO_RETURN_IF_ERROR(save(state_.global_step));
  }
  RONDO_ASSIGN_OR_RETURN(const bool best_loaded, load_best());
  if (const absl::Status kept = keep_result(); !kept.ok()) return best_loaded ? kept : stop_with(kept);
  const bool lora = config_.finetuning_type == "lora";
  // With `=`, since a name may begin as a flag does.
  outcome.try_command = fmt::format("rondo generate --model_name_or_path={}{} --prompt \"...\"",
                                    config::shell_word(lora ? model_.folder.string() : config_.output_dir),
                                    lora ? " --adapter_name_or_path=" + config::shell_word(config_.output_dir) : "");
  return outcome;
}

absl::Status Trainer::keep_result() {
  RONDO_RETURN_IF_ERROR(write_result(*model_.architecture, *store_, model_.documents, config_.output_dir));
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(model_.documents, config_.output_dir));
  RONDO_RETURN_IF_ERROR(write_trainer_state(config_.output_dir, state_));
  return sync_path(config_.output_dir);
}

absl::Status Trainer::save(std::uint64_t step) {
  executor_->drain_and_wait();
  RONDO_RETURN_IF_ERROR(executor_->update_status());
  const std::string folder = checkpoint_folder(config_.output_dir, step).string();
  if (state_.best.step == step) state_.best.checkpoint = folder;
  RONDO_RETURN_IF_ERROR(write_checkpoint(config_.output_dir, state_, *model_.architecture, *store_, model_.documents));
  saved_step_ = step;
  // What cannot be removed takes room and nothing else.
  const absl::Status pruned = prune_checkpoints(config_.output_dir, config_.save_total_limit, state_.best.step);
  if (!pruned.ok()) observer_.on_note(message_of(pruned));
  take_interval();  // the next step is not slower for it
  observer_.on_checkpoint(folder);
  return absl::OkStatus();
}

absl::Status Trainer::evaluate(std::uint64_t step) {
  if (!evaluation_loader_) return absl::OkStatus();
  EvalReport report;
  report.step = step;
  double sum = 0;
  for (std::uint64_t i = 0; i < evaluation_loader_->steps_per_epoch(); ++i) {
    const absl::StatusOr<schedule::StepResult> result = executor_->evaluate(evaluation_loader_->step(i));
    pass_on_notes();
    RONDO_RETURN_IF_ERROR(result.status());
    if (!std::isfinite(result->loss_sum)) {
      observer_.on_note(
          describe_not_finite(fmt::format("evaluation after step {}", step), executor_->last_step().losses,
                              records_of(*evaluation_loader_, data_.evaluation, i), data_.evaluation.report.path));
    }
    sum += result->loss_sum;
    report.eval_target_tokens += result->target_tokens;
  }
  report.eval_loss = sum / static_cast<double>(std::max<std::uint64_t>(report.eval_target_tokens, 1));
  if (!std::isfinite(report.eval_loss)) return internal_error("the evaluation loss after step {} is not finite", step);
  const nlohmann::ordered_json line = {{"kind", "eval"},
                                       {"step", step},
                                       {"eval_loss", report.eval_loss},
                                       {"eval_target_tokens", report.eval_target_tokens}};
  state_.log_history.push_back({.step = step, .epoch = state_.epoch, .loss = report.eval_loss, .of_evaluation = true});
  take_evaluation(state_, report.eval_loss, step);
  observer_.on_evaluation(report);
  executor_->clear_traces();
  take_interval();
  return metrics_ ? metrics_->write(line) : absl::OkStatus();
}

}  // namespace rondo::train
