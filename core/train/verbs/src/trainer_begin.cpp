// What comes before a run's plan: model and data, the steps they make, the checkpoint to go on from. All that can be
// refused without computing anything is refused here.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/train/base_weights.h"
#include "rondo/train/checkpoint_folders.h"
#include "rondo/train/config_text.h"
#include "rondo/train/host_account.h"
#include "trainer.h"

namespace rondo::train {
namespace {

/// What the course of a run depends on: a resumed run must have the same.
nlohmann::ordered_json course_of(const Config& config) {
  return {{"finetuning_type", config.finetuning_type},
          {"use_dora", config.use_dora},
          {"loraplus_lr_ratio", config.loraplus_lr_ratio},
          {"neftune_noise_alpha", config.neftune_noise_alpha},
          {"dtype", config.dtype},
          {"fp8", config.fp8},
          {"fp8_format", config.fp8_format},
          {"quantization_bit", config.quantization_bit},
          {"quantization_tokens", config.quantization_tokens},
          {"boundary_quantization_bit", config.boundary_quantization_bit},
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

/// What a method's parameters are and what they mean, as it was resolved: lists that name the same are the same.
void add_method(const model::MethodSpec& method, nlohmann::ordered_json& course) {
  if (method.trained_blocks) course["freeze_trainable_layers"] = *method.trained_blocks;
  if (!method.lora) return;
  const auto sorted = [](std::vector<std::string> names) {
    std::ranges::sort(names);
    return names;
  };
  const model::LoraConfig& lora = *method.lora;
  course["lora_rank"] = lora.rank;
  course["lora_alpha"] = lora.alpha;
  course["use_rslora"] = lora.use_rslora;
  course["lora_target"] = sorted(lora.targets);
  course["target_parameters"] = sorted(lora.parameters);
  course["rank_pattern"] = lora.rank_pattern;
  course["alpha_pattern"] = lora.alpha_pattern;
  course["layers_to_transform"] = lora.layers;
  if (!lora.paths.empty()) course["target_modules"] = lora.paths;
  course["modules_to_save"] = sorted(lora.modules_to_save);
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

/// True when the data set, or one of those that it was joined from, has one of these formats.
bool has_format(const data::DataReport& report, std::initializer_list<const char*> formats) {
  const auto is_one = [&](const data::DataReport& part) { return std::ranges::count(formats, part.format) > 0; };
  return is_one(report) || std::ranges::any_of(report.parts, is_one);
}

/// Completions that no end-of-sequence token follows, and answers that the template ends with no token of its own
/// (GLM's, which the next header ends), teach a model no end.
std::optional<std::string> missing_end(const data::DataReport& report, const TextParts& text) {
  const std::optional<std::string> name = text.tokenizer.eos_token();
  if (!text.tokenizer.eos_id() && has_format(report, {"prompt/completion"})) {
    return fmt::format("no end-of-sequence token follows the completions, so the model does not learn to stop: {}",
                       name ? "the vocabulary lacks eos_token " + config::in_quotes(*name)
                            : std::string("the tokenizer names no eos_token"));
  }
  if (!has_format(report, {"messages", "alpaca", "sharegpt"}) || data::end_of_turn(text.renderer())) {
    return std::nullopt;
  }
  return "the chat template ends an answer with no token of its own, so the model does not learn to stop "
         "after the last one of a conversation";
}

/// Positions that the model has not seen: what turns by them there is a guess.
std::optional<std::string> beyond_positions(const data::DataReport& report, const model::ModelConfig& model) {
  const bool turns = model.without_rope.empty() || std::ranges::count(model.without_rope, false) > 0;
  if (!turns || model.max_positions == 0 || report.longest <= model.max_positions) return std::nullopt;
  return fmt::format(
      "the longest sample has {} tokens, max_position_embeddings of the model is {}: cutoff_len: {} cuts samples there",
      report.longest, model.max_positions, model.max_positions);
}

}  // namespace

absl::Status Trainer::open() {
  RONDO_ASSIGN_OR_RETURN(const auto model, find_model(config_.model_name_or_path, config_.model_revision));
  if (!config_.dry_run) {
    RONDO_RETURN_IF_ERROR(check_apart_from_model(config_, model));
    RONDO_RETURN_IF_ERROR(check_output_dir(config_, output_lock_));
  }
  RONDO_ASSIGN_OR_RETURN(machine_, open_machine(config_));
  const std::uint32_t threads = config_.threads > 0 ? config_.threads : devices::usable_threads();
  if (machine_.threads->threads() < threads) {
    early_notes_.push_back(fmt::format(
        "threads: the host computes with {} of {}: the process may have no more (ulimit -u, the container's "
        "limit on pids), or more than 1024 were asked for",
        machine_.threads->threads(), threads));
  }
  RONDO_ASSIGN_OR_RETURN(model_, open_model(config_, Purpose::kTrain, !machine_.phantom));
  // Before there is much in memory: measuring takes some, for a moment.
  const Bytes opened = memory_beside_drivers(machine_);
  first_peak_ = peak_flops(machine_, dtype(), speeds_);
  devices::reset_process_peak();  // what measuring took is no part of the run's peak
  const Bytes measured = memory_beside_drivers(machine_);
  light_ = SpeedOfLight(first_peak_);
  if (machine_.phantom && config_.dataset.empty()) {
    data_.train = assumed_data(config_, model_.architecture->config().vocab_size);
  } else {
    tell(progress_, "reading the data");
    RONDO_ASSIGN_OR_RETURN(text_, open_text(model_.documents));
    RONDO_ASSIGN_OR_RETURN(data_, load_data(config_, model_.documents, *text_));
    for (const auto& note : {missing_end(data_.train.report, *text_),
                             beyond_positions(data_.train.report, model_.architecture->config())}) {
      if (note) early_notes_.push_back(*note);
    }
  }
  if (data_.train.samples.empty()) return invalid_input("dataset: {} holds no sample to train on", config_.dataset);
  RONDO_RETURN_IF_ERROR(check_vocabulary());
  loader_.emplace(data_.train, loader_options(config_));
  if (!data_.evaluation.samples.empty()) evaluation_loader_.emplace(data_.evaluation, evaluation_options(config_));
  // What the machine's first run measures with stays: code of oneDNN and stacks, which count as such.
  const Bytes now = memory_beside_drivers(machine_);
  text_and_data_ = std::min(opened, measured) + now - std::min(now, measured);
  text_and_data_ += loader_->order_bytes();  // of the one that makes batches ahead
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

absl::Status Trainer::lay_out_steps() {
  if (config_.reduction_group == 0) {
    config_.reduction_group = std::min<std::uint32_t>(config_.gradient_accumulation_steps, 16);
  }
  RONDO_ASSIGN_OR_RETURN(total_steps_, steps_of_run(config_, *loader_));
  lengths_ = lengths_of_run(*loader_, total_steps_, evaluation_loader_);
  state_.logging_steps = resolve_steps(config_.logging_steps, total_steps_);
  state_.eval_steps = resolve_steps(config_.eval_steps, total_steps_);
  state_.save_steps = resolve_steps(config_.save_steps, total_steps_);
  text_and_data_ += total_steps_ / state_.logging_steps * sizeof(LogEntry);
  RONDO_ASSIGN_OR_RETURN(rate_, rate_of(config_, total_steps_));
  state_.max_steps = total_steps_;
  state_.num_train_epochs = config_.num_train_epochs;
  state_.scales_loss = dtype() == devices::DType::kFloat16;
  state_.samples = data_.train.samples.size();
  state_.settings = course_of(config_);
  state_.settings["model_type"] = model_.architecture->config().model_type;
  add_method(model_.architecture->method(), state_.settings);
  if (model_.files) {
    state_.base_model = model_.folder.string();
    state_.base_weights = base_fingerprint(*model_.architecture, *model_.files);
  }
  state_.numerics_class = machine_.numerics_class;
  state_.early_stopping = {config_.early_stopping_patience, config_.early_stopping_threshold};
  state_.train_batch_size = config_.per_device_train_batch_size;
  return absl::OkStatus();
}

/// Of a checkpoint that was found, not named, and cannot be read: which one to name.
absl::Status Trainer::with_one_before(const absl::Status& error, const std::filesystem::path& checkpoint) const {
  if (error.ok() || config_.resume_from_checkpoint != "auto") return error;
  const auto before = checkpoint_before(config_.output_dir, checkpoint);
  if (!before) return error;
  return absl::Status(error.code(), fmt::format("{}; resume_from_checkpoint: {} goes on from the one before",
                                                message_of(error), before->string()));
}

absl::Status Trainer::find_checkpoint() {
  if (config_.resume_from_checkpoint.empty()) return absl::OkStatus();
  RONDO_RETURN_IF_ERROR(recover_checkpoints(config_.output_dir));
  std::filesystem::path folder = config_.resume_from_checkpoint;
  if (config_.resume_from_checkpoint == "auto") {
    const auto newest = newest_checkpoint(config_.output_dir);
    if (!newest) {
      early_notes_.push_back(fmt::format("{} holds no checkpoint: starting from the beginning", config_.output_dir));
      return absl::OkStatus();
    }
    folder = *newest;
  }
  if (machine_.phantom) {
    return invalid_input("resume_from_checkpoint: {}: devices {} does no arithmetic: it has no state to go on from",
                         folder.string(), config_.devices);
  }
  std::error_code error;
  if (!std::filesystem::exists(folder / "trainer_state.json", error)) {
    return invalid_input(
        "resume_from_checkpoint: expected auto or the folder of a checkpoint, found {} without trainer_state.json",
        folder.string());
  }
  if (std::filesystem::exists(folder / "config.resolved.yaml", error)) {
    return invalid_input(
        "resume_from_checkpoint: {} is the folder of a run, expected a checkpoint in it: name one, such as {}, or set "
        "auto and this folder as output_dir",
        folder.string(), newest_checkpoint(folder).value_or(folder / "checkpoint-<step>").string());
  }
  absl::StatusOr<TrainerState> read = read_trainer_state(folder);
  if (!read.ok()) return with_one_before(read.status(), folder);
  TrainerState state = *std::move(read);
  if (state.samples != state_.samples) {
    return invalid_input("{}: the checkpoint was made with {} samples, {}{} has {}", folder.string(), state.samples,
                         config_.dataset, config_.val_size > 0 ? ", less what val_size takes," : "", state_.samples);
  }
  for (const auto& [key, value] : state_.settings.items()) {
    if (state.settings.contains(key) && state.settings[key] != value) {
      return invalid_input("{}: the checkpoint was made with {}: {}, this run has {}", folder.string(), key,
                           state.settings[key].dump(), value.dump());
    }
  }
  if (!state.base_weights.empty() && !state_.base_weights.empty() && state.base_weights != state_.base_weights) {
    return invalid_input(
        "{}: the checkpoint was trained over other weights than those of {}: set model_name_or_path to the model that "
        "it was trained over, which lay in {}",
        folder.string(), state_.base_model, state.base_model);
  }
  if (state.numerics_class != state_.numerics_class) {
    early_notes_.push_back(
        fmt::format("the checkpoint was made on {}, this pool is {}: results agree within rounding, not bit for bit",
                    state.numerics_class, state_.numerics_class));
  } else {
    plan_before_ = std::move(state.plan);
  }
  state_.global_step = state.global_step;
  state_.course = state.course;
  state_.overflowed_steps = state.overflowed_steps;
  state_.skipped_steps = state.skipped_steps;
  state_.epoch = state.epoch;
  state_.log_history = std::move(state.log_history);
  state_.best = std::move(state.best);
  losses_.remember(state_.log_history);
  resumed_from_ = folder.string();
  // What the run leaves where it is now lies there already.
  const std::filesystem::path own = checkpoint_folder(config_.output_dir, state_.global_step);
  if (std::filesystem::equivalent(folder, own, error)) saved_step_ = state_.global_step;
  return absl::OkStatus();
}

}  // namespace rondo::train
