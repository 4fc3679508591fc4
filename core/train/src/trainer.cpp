#include "trainer.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/data/describe.h"
#include "rondo/devices/host_memory.h"
#include "rondo/schedule/programs.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/weights.h"
#include "watcher.h"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;

/// What a process comes to hold beside all that is planned: stacks, heaps' slack, code that oneDNN makes. Seen: 4 to 7
/// MiB.
constexpr Bytes kThreadsAndCaches = 8_MiB;

/// What the process holds beside its program.
Bytes own_memory() {
  const Bytes all = devices::process_memory().now;
  return all - std::min(all, devices::program_memory());
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// What the course of a run depends on: a resumed run must have the same.
nlohmann::ordered_json course_of(const Config& config) {
  return {{"finetuning_type", config.finetuning_type},
          {"use_dora", config.use_dora},
          {"loraplus_lr_ratio", config.loraplus_lr_ratio},
          {"dtype", config.dtype},
          {"quantization_bit", config.quantization_bit},
          {"optim", config.optim},
          {"momentum", config.momentum},
          {"staleness", config.staleness},
          {"seed", config.seed},
          {"shuffle", config.shuffle},
          {"cutoff_len", config.cutoff_len},
          {"packing", config.packing},
          {"dataset_weights", config.dataset_weights},
          {"mask_history", config.mask_history},
          {"train_on_prompt", config.train_on_prompt},
          {"per_device_train_batch_size", config.per_device_train_batch_size},
          {"gradient_accumulation_steps", config.gradient_accumulation_steps},
          {"reduction_group", config.reduction_group}};
}

absl::StatusOr<RateSchedule> rate_of(const Config& config, std::uint64_t total_steps) {
  RateSchedule rate;
  rate.kind = config.lr_scheduler_type;
  rate.peak = config.learning_rate;
  rate.warmup_steps = resolve_warmup(config.warmup_ratio, config.warmup_steps, total_steps);
  rate.total_steps = total_steps;
  RONDO_RETURN_IF_ERROR(rate.set_arguments(config.lr_scheduler_kwargs));
  return rate;
}

/// In reach of a pointer, so that leak checkers know.
void keep_to_the_end(std::unique_ptr<devices::Device> device) {
  static auto* const kept = new std::vector<std::unique_ptr<devices::Device>>();
  kept->push_back(std::move(device));
}

}  // namespace

/// A device that hangs may hold threads for ever: lost ones are not closed, they end with the program.
Trainer::~Trainer() {
  if (executor_ == nullptr) return;
  const std::vector<partition::DeviceIndex> lost = executor_->lost_devices();
  executor_.reset();
  for (const partition::DeviceIndex device : lost) keep_to_the_end(std::move(machine_.pool[device].device));
}

absl::StatusOr<RunOutcome> Trainer::run() {
  RONDO_RETURN_IF_ERROR(open());
  RONDO_RETURN_IF_ERROR(plan());
  RONDO_ASSIGN_OR_RETURN(store_, open_store(config_, model_, machine_, planned_.plan));
  RONDO_RETURN_IF_ERROR(resume());
  // After everything that can be refused: a refused run leaves no folder behind.
  if (!config_.dry_run) RONDO_RETURN_IF_ERROR(prepare_output_dir(config_));
  RONDO_RETURN_IF_ERROR(start());
  return loop();
}

absl::Status Trainer::open() {
  RONDO_RETURN_IF_ERROR(find_model(config_.model_name_or_path, config_.model_revision).status());
  RONDO_ASSIGN_OR_RETURN(machine_, open_machine(config_));
  RONDO_ASSIGN_OR_RETURN(model_, open_model(config_, Purpose::kTrain, !machine_.phantom));
  // Before there is much in memory: measuring takes some, for a moment.
  const Bytes opened = own_memory();
  first_peak_ = peak_flops(machine_, dtype(), speeds_);
  devices::reset_process_peak();  // what measuring took is no part of the run's peak
  const Bytes measured = own_memory();
  light_ = SpeedOfLight(first_peak_);
  if (machine_.phantom && config_.dataset.empty()) {
    data_.train = assumed_data(config_);
  } else {
    RONDO_ASSIGN_OR_RETURN(text_, open_text(model_.documents));
    RONDO_ASSIGN_OR_RETURN(data_, load_data(config_, model_.documents, *text_));
  }
  if (data_.train.samples.empty()) return invalid_input("dataset: {} holds no sample to train on", config_.dataset);
  RONDO_RETURN_IF_ERROR(check_vocabulary());
  if (!machine_.phantom) {
    // What the machine's first run measures with stays: code of oneDNN and stacks, which count as such.
    const Bytes now = own_memory();
    const Bytes text_and_data = std::min(opened, measured) + now - std::min(now, measured);
    machine_.shape.host_taken = {{"tokenizer and data", text_and_data}, {"threads and caches", kThreadsAndCaches}};
  }
  return absl::OkStatus();
}

/// Refuses data with ids that the model does not have.
absl::Status Trainer::check_vocabulary() const {
  const auto vocabulary = static_cast<std::int32_t>(model_.architecture->config().vocab_size);
  const auto check = [vocabulary](const data::DataReport& report) {
    if (report.largest_token < vocabulary) return absl::OkStatus();
    return invalid_input(
        "{}: sample {} holds token {}, the model's vocabulary has {} entries: the tokenizer is another model's",
        report.path, report.largest_token_record, report.largest_token, vocabulary);
  };
  for (const data::Dataset* set : {&data_.train, &data_.evaluation}) {
    for (const data::DataReport& part : set->report.parts) RONDO_RETURN_IF_ERROR(check(part));
    RONDO_RETURN_IF_ERROR(check(set->report));
  }
  return absl::OkStatus();
}

absl::Status Trainer::plan() {
  if (config_.reduction_group == 0) {
    config_.reduction_group = std::min<std::uint32_t>(config_.gradient_accumulation_steps, 16);
  }
  constexpr std::uint64_t kMostSteps = 10'000'000;
  loader_.emplace(data_.train, loader_options(config_));
  total_steps_ = config_.max_steps;
  if (total_steps_ == 0) total_steps_ = loader_->steps_of(config_.num_train_epochs, kMostSteps + 1);
  if (total_steps_ > kMostSteps) {
    return invalid_input("max_steps: the run would have more than {} steps, which is the most; take fewer epochs",
                         kMostSteps);
  }
  Loader::Lengths lengths = loader_->lengths(total_steps_);
  if (!data_.evaluation.samples.empty()) {
    evaluation_loader_.emplace(data_.evaluation, evaluation_options(config_));
    const Loader::Lengths other = evaluation_loader_->lengths(evaluation_loader_->steps_per_epoch());
    lengths.longest = std::max(lengths.longest, other.longest);
    lengths.longest_sequence = std::max(lengths.longest_sequence, other.longest_sequence);
    lengths.buckets.insert(lengths.buckets.end(), other.buckets.begin(), other.buckets.end());
    std::ranges::sort(lengths.buckets);
    lengths.buckets.erase(std::unique(lengths.buckets.begin(), lengths.buckets.end()), lengths.buckets.end());
  }
  const auto tell = [this](const std::string& note) { observer_.on_note(note); };
  if (calibrate(*model_.architecture, lengths, machine_, speeds_, tell)) devices::reset_process_peak();
  RONDO_RETURN_IF_ERROR(count_scratch(lengths));
  RONDO_ASSIGN_OR_RETURN(planned_, plan_run(config_, *model_.architecture, machine_, lengths, Purpose::kTrain));
  RONDO_ASSIGN_OR_RETURN(rate_, rate_of(config_, total_steps_));
  state_.max_steps = total_steps_;
  state_.num_train_epochs = config_.num_train_epochs;
  state_.samples = data_.train.samples.size();
  state_.settings = course_of(config_);
  state_.numerics_class = machine_.numerics_class;
  state_.early_stopping = {config_.early_stopping_patience, config_.early_stopping_threshold};
  state_.logging_steps = config_.logging_steps;
  state_.eval_steps = config_.eval_steps;
  state_.save_steps = config_.save_steps;
  state_.train_batch_size = config_.per_device_train_batch_size;
  return absl::OkStatus();
}

/// What computing with the processor takes beside a device's memory is the host's, and follows from the microbatches
/// alone: the plan leaves room for it. Looked up on a device of its own, since what the pool's will take depends on the
/// layers that the plan gives them.
absl::Status Trainer::count_scratch(const Loader::Lengths& lengths) {
  if (machine_.phantom) return absl::OkStatus();
  const partition::MemoryTable before = host_account();
  RONDO_ASSIGN_OR_RETURN(const auto pool, devices::open_pool({"cpu", ""}, *machine_.threads));
  const std::string& kernels = pool.front().device->caps().numerics_class;
  const auto computing = std::ranges::count_if(machine_.pool, [&kernels](const devices::PoolMember& member) {
    return member.device->caps().does_arithmetic && member.device->caps().numerics_class == kernels;
  });
  if (computing == 0) return absl::OkStatus();
  RONDO_RETURN_IF_ERROR(
      schedule::try_programs(*pool.front().device, *model_.architecture, lengths.longest, lengths.longest_sequence));
  for (const auto& [purpose, bytes] : host_account()) {
    const auto entry = std::ranges::find(before, purpose, [](const auto& one) { return one.first; });
    const Bytes had = entry == before.end() ? 0 : entry->second;
    if (bytes <= had) continue;
    machine_.shape.host_taken.emplace_back(purpose, (bytes - had) * static_cast<Bytes>(computing));
  }
  return absl::OkStatus();
}

partition::MemoryTable Trainer::host_account() const {
  partition::MemoryTable table;
  for (const auto& [purpose, use] : devices::host_memory_account()) {
    const bool of_device = std::ranges::any_of(machine_.pool, [&name = purpose](const devices::PoolMember& member) {
      return member.device->caps().name == name;
    });
    if (!purpose.empty() && !of_device && use.now > 0) table.emplace_back(purpose, use.now);
  }
  return table;
}

absl::Status Trainer::resume() {
  if (config_.resume_from_checkpoint.empty()) return absl::OkStatus();
  std::filesystem::path folder = config_.resume_from_checkpoint;
  if (config_.resume_from_checkpoint == "auto") {
    const auto newest = newest_checkpoint(config_.output_dir);
    if (!newest) {
      observer_.on_note(fmt::format("{} holds no checkpoint: starting from the beginning", config_.output_dir));
      return absl::OkStatus();
    }
    folder = *newest;
  }
  RONDO_ASSIGN_OR_RETURN(TrainerState state, read_trainer_state(folder));
  if (state.samples != state_.samples) {
    return invalid_input("{}: the checkpoint was made with {} samples, {} has {}", folder.string(), state.samples,
                         config_.dataset, state_.samples);
  }
  for (const auto& [key, value] : state_.settings.items()) {
    if (state.settings.contains(key) && state.settings[key] != value) {
      return invalid_input("{}: the checkpoint was made with {}: {}, this run has {}", folder.string(), key,
                           state.settings[key].dump(), value.dump());
    }
  }
  // Another optimizer keeps other tensors: told by its name above, not by the first that is missing.
  RONDO_RETURN_IF_ERROR(read_checkpoint(folder, *model_.architecture, *store_).status());
  if (state.numerics_class != state_.numerics_class) {
    observer_.on_note(
        fmt::format("the checkpoint was made on {}, this pool is {}: results agree within rounding, not bit for bit",
                    state.numerics_class, state_.numerics_class));
  }
  state_.global_step = state.global_step;
  state_.updates = state.updates;
  state_.skipped_steps = state.skipped_steps;
  state_.epoch = state.epoch;
  state_.log_history = std::move(state.log_history);
  state_.best = std::move(state.best);
  losses_.remember(state_.log_history);
  resumed_from_ = folder.string();
  return absl::OkStatus();
}

absl::Status Trainer::start() {
  schedule::ExecutorParts parts = executor_parts(model_, machine_, planned_, *store_);
  parts.trace_spans = 1U << 16U;
  parts.recovery.keep_pace = true;
  RONDO_ASSIGN_OR_RETURN(executor_, schedule::StepExecutor::make(parts));
  executor_->set_updates(state_.updates);
  programs_.emplace(*model_.architecture, planned_, machine_);
  if (!config_.dry_run) {
    RONDO_ASSIGN_OR_RETURN(metrics_, MetricsFile::open(config_.output_dir, state_.global_step));
    RONDO_RETURN_IF_ERROR(prune_checkpoints(config_.output_dir, 0));
  }
  first_step_ = state_.global_step;
  observer_.on_start(summary());
  return absl::OkStatus();
}

absl::StatusOr<RunOutcome> Trainer::loop() {
  started_ = Clock::now();
  last_end_ = started_;
  const Watcher watcher(stop_, *executor_);
  const std::uint64_t end = config_.dry_run ? std::min(state_.global_step + 1, total_steps_) : total_steps_;
  batches_.emplace(data_.train, loader_options(config_), end);
  while (state_.global_step < end && !is_stopped_early(state_)) {
    if (stop_.load(std::memory_order_relaxed)) return finish(true);
    const std::uint64_t step = state_.global_step;
    begin_steps(end);
    const double rate = rate_.at(step);
    const absl::StatusOr<schedule::StepResult> result = executor_->finish({rate, config_.max_grad_norm});
    const std::vector<schedule::Microbatch> batches = std::move(begun_.front());
    begun_.pop_front();
    pass_on_notes();
    if (!result.ok() && stop_.load(std::memory_order_relaxed)) return finish(true);
    if (!result.ok()) {
      if (!executor_->last_step().finite) {
        observer_.on_note(describe_not_finite(fmt::format("step {}", step + 1), executor_->last_step().losses,
                                              records_of(*loader_, data_.train, step), data_.train.report.path));
      }
      return stop_with(result.status());
    }
    const Clock::time_point now = Clock::now();
    state_.global_step = step + 1;
    state_.updates = executor_->updates();
    state_.epoch = loader_->epochs_of(step + 1);
    if (result->skipped) ++state_.skipped_steps;
    RONDO_RETURN_IF_ERROR(log_step(step + 1, *result, batches, seconds_between(last_end_, now), rate));
    last_end_ = now;
    if (config_.dry_run) continue;
    if (evaluates_after(step + 1)) {
      if (const absl::Status status = evaluate(step + 1); !status.ok()) return stop_with(status);
    }
    if (saves_after(step + 1)) RONDO_RETURN_IF_ERROR(save(step + 1));
  }
  if (is_stopped_early(state_)) note_early_stop();
  return finish(false);
}

/// The next step, and at staleness 1 the one after it too, unless something is to be done between them: that is done on
/// what the run holds when no step is under way.
void Trainer::begin_steps(std::uint64_t end) {
  const auto begin = [this](std::uint64_t step) {
    const Clock::time_point asked = Clock::now();
    begun_.push_back(batches_->take(step));
    data_seconds_ += seconds_between(asked, Clock::now());
    executor_->begin(begun_.back());
  };
  const std::uint64_t step = state_.global_step;
  if (begun_.empty()) begin(step);
  const bool pause = evaluates_after(step + 1) || saves_after(step + 1);
  if (config_.staleness > 0 && begun_.size() == 1 && step + 1 < end && !pause) begin(step + 1);
}

void Trainer::pass_on_notes() {
  for (const std::string& note : executor_->take_notes()) observer_.on_note(note);
}

/// The run ends with `error`, but what was committed is kept.
absl::Status Trainer::stop_with(const absl::Status& error) {
  if (config_.dry_run || machine_.phantom || state_.global_step == first_step_) return error;
  executor_->drain_and_wait();
  if (!executor_->update_status().ok()) return error;  // the checkpoint before stands
  if (state_.global_step != saved_step_) {
    const absl::Status saved = save(state_.global_step);
    if (!saved.ok()) return absl::Status(error.code(), fmt::format("{}; and {}", message_of(error), message_of(saved)));
  }
  return absl::Status(error.code(), fmt::format("{}; the state after step {} is in {}/checkpoint-{}", message_of(error),
                                                state_.global_step, config_.output_dir, state_.global_step));
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
    RONDO_RETURN_IF_ERROR(save(state_.global_step));
    return outcome;
  }
  if (config_.eval_strategy != "no" && !is_evaluated(state_, state_.global_step)) {
    if (const absl::Status status = evaluate(state_.global_step); !status.ok()) return stop_with(status);
  }
  const bool keeps_the_end = (config_.save_strategy == "steps" && config_.save_steps > 0) ||
                             config_.save_strategy == "epoch" || saves_after(state_.global_step);
  if (keeps_the_end && saved_step_ != state_.global_step && state_.global_step > first_step_) {
    RONDO_RETURN_IF_ERROR(save(state_.global_step));
  }
  RONDO_RETURN_IF_ERROR(load_best());
  RONDO_RETURN_IF_ERROR(write_result(*model_.architecture, *store_, model_.documents, config_.output_dir));
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(model_.documents, config_.output_dir));
  RONDO_RETURN_IF_ERROR(write_trainer_state(config_.output_dir, state_));
  RONDO_RETURN_IF_ERROR(sync_path(config_.output_dir));
  const bool lora = config_.finetuning_type == "lora";
  outcome.try_command = fmt::format("rondo generate --model_name_or_path {}{} --prompt \"...\"",
                                    lora ? model_.folder.string() : config_.output_dir,
                                    lora ? " --adapter_name_or_path " + config_.output_dir : "");
  return outcome;
}

absl::Status Trainer::save(std::uint64_t step) {
  executor_->drain_and_wait();
  RONDO_RETURN_IF_ERROR(executor_->update_status());
  const std::string folder = fmt::format("{}/checkpoint-{}", config_.output_dir, step);
  if (state_.best.step == step) state_.best.checkpoint = folder;
  RONDO_RETURN_IF_ERROR(write_checkpoint(config_.output_dir, state_, *model_.architecture, *store_, model_.documents));
  RONDO_RETURN_IF_ERROR(prune_checkpoints(config_.output_dir, config_.save_total_limit, state_.best.step));
  saved_step_ = step;
  last_end_ = Clock::now();  // the next step is not slower for it
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
  state_.log_history.push_back({{"epoch", state_.epoch}, {"eval_loss", report.eval_loss}, {"step", step}});
  take_evaluation(state_, report.eval_loss, step);
  observer_.on_evaluation(report);
  last_end_ = Clock::now();
  return metrics_ ? metrics_->write(line) : absl::OkStatus();
}

}  // namespace rondo::train
