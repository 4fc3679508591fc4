// What a verb cannot do without, and values that contradict each other.
#include <algorithm>
#include <cmath>

#include "config_keys.h"
#include "rondo/base/status.h"
#include "rondo/train/config_sweep.h"
#include "rondo/train/config_text.h"
#include "rondo/train/rate.h"

namespace rondo::train::config {
namespace {

/// "run.yaml:3: val_size", "--val_size", or the bare name of a key that was not given.
std::string place(const Origins& origins, const std::string& key) {
  const auto found = origins.find(key);
  return found == origins.end() ? key : found->second;
}

absl::Status need(const std::string& verb, const Origins& origins, const std::string& key, const std::string& value,
                  const char* meaning) {
  if (!value.empty()) return absl::OkStatus();
  return invalid_input("{}: `rondo {}` needs {}, found none; give --{} or the key in the file", place(origins, key),
                       verb, meaning, key);
}

/// Every member of the pool only takes time: no data is read.
bool all_timed(const std::string& devices) {
  constexpr std::string_view kTimed = "timed:";
  // Of "timed:a,b" the second inherits the backend of the first, so that the first decides.
  return devices.starts_with(kTimed);
}

absl::Status check_val_size(const Config& config, const Origins& origins) {
  if (config.val_size >= 1 && config.val_size != std::floor(config.val_size)) {
    return invalid_input("{}: expected a share below 1 or a whole number of samples, found {}",
                         place(origins, "val_size"), config.val_size);
  }
  return absl::OkStatus();
}

absl::Status check_weights(const Config& config, const Origins& origins) {
  if (config.dataset_weights.empty()) return absl::OkStatus();
  constexpr double kMost = 1000;
  const std::string key = place(origins, "dataset_weights");
  const auto weights = numbers_of(config.dataset_weights);
  const auto is_weight = [](double weight) { return weight > 0 && weight <= kMost; };
  if (!weights || !std::ranges::all_of(*weights, is_weight)) {
    return invalid_input("{}: expected numbers above 0 and at most {} with a comma between them, found {}", key, kMost,
                         in_quotes(config.dataset_weights));
  }
  const std::size_t sets = elements_of(config.dataset).size();
  if (weights->size() == sets || sets == 0) return absl::OkStatus();
  return invalid_input("{}: expected one for each of the {} data sets {}, found {} in {}", key, sets,
                       in_quotes(config.dataset), weights->size(), in_quotes(config.dataset_weights));
}

absl::Status check_data(const Config& config, const Origins& origins) {
  if (config.mask_history && config.train_on_prompt) {
    return invalid_input("{}: expected false beside train_on_prompt, which makes every token a target, found true",
                         place(origins, "mask_history"));
  }
  return check_weights(config, origins);
}

/// Tokens of a microbatch are counted in 32 bits.
absl::Status check_microbatch(const Config& config, const Origins& origins) {
  constexpr std::uint64_t kMost = 1U << 30U;
  const std::uint64_t tokens = std::uint64_t{config.cutoff_len} * config.per_device_train_batch_size;
  if (tokens <= kMost) return absl::OkStatus();
  return invalid_input("{}: expected at most {} tokens in a microbatch of {} sequences, found {}; take a smaller one",
                       place(origins, "cutoff_len"), kMost, config.per_device_train_batch_size, tokens);
}

absl::Status check_quantization(const Config& config, const Origins& origins, bool trains) {
  const std::uint32_t bits = config.quantization_bit;
  for (const auto& [key, value] : {std::pair("quantization_bit", bits),
                                   std::pair("boundary_quantization_bit", config.boundary_quantization_bit)}) {
    if (value == 0 || value == 4 || value == 8) continue;
    return invalid_input("{}: expected 8, 4 or 0, found {}", place(origins, key), value);
  }
  if (bits != 0 && trains && config.finetuning_type != "lora") {
    return invalid_input(
        "{}: expected 0 beside finetuning_type {}, whose result is a whole model without codes, found {}; set lora",
        place(origins, "quantization_bit"), config.finetuning_type, bits);
  }
  return absl::OkStatus();
}

/// In bf16 the sums that eight bits give are rounded without leaving its range.
absl::Status check_fp8(const Config& config, const Origins& origins) {
  if (!config.fp8 && config.fp8_format != "e4m3") {
    return invalid_input("{}: expected e4m3 without fp8, found {}; set fp8: true", place(origins, "fp8_format"),
                         config.fp8_format);
  }
  if (!config.fp8 || config.dtype == "bf16") return absl::OkStatus();
  return invalid_input("{}: expected false beside dtype {}, found true; set dtype: bf16", place(origins, "fp8"),
                       config.dtype);
}

absl::Status check_optimizer_state(const Config& config, const Origins& origins) {
  if (config.optimizer_state == "host") return absl::OkStatus();
  const std::string key = place(origins, "optimizer_state");
  if (!updates_on_devices(config)) {
    return invalid_input("{}: expected host beside optim {}, found device; set optim: adamw, or adamw_8bit", key,
                         config.optim);
  }
  if (config.staleness > 0) {
    return invalid_input(
        "{}: expected host beside staleness {}, found device; an update on the device takes its time "
        "between two steps: set staleness: 0",
        key, config.staleness);
  }
  return absl::OkStatus();
}

absl::Status check_rate(const Config& config, const Origins& origins) {
  RateSchedule schedule;
  schedule.kind = config.lr_scheduler_type;
  schedule.peak = config.learning_rate;
  return with_context(schedule.set_arguments(config.lr_scheduler_kwargs), place(origins, "lr_scheduler_kwargs"));
}

/// What looks at evaluations needs some in the course of the run.
absl::Status check_best(const Config& config, const Origins& origins) {
  const bool on_the_way = config.eval_strategy == "epoch" || (config.eval_strategy == "steps" && config.eval_steps > 0);
  if (on_the_way && (!config.eval_dataset.empty() || config.val_size > 0)) return absl::OkStatus();
  const char* key = config.load_best_model_at_end        ? "load_best_model_at_end"
                    : config.early_stopping_patience > 0 ? "early_stopping_patience"
                    : config.save_strategy == "best"     ? "save_strategy"
                                                         : nullptr;
  if (key == nullptr) return absl::OkStatus();
  return invalid_input(
      "{}: expected evaluations in the course of the run, found none; give eval_dataset or val_size, and eval_steps or "
      "eval_strategy: epoch",
      place(origins, key));
}

absl::Status check_training(const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(check_rate(config, origins));
  const bool evaluates = !config.eval_dataset.empty() || config.val_size > 0;
  if (!config.eval_dataset.empty() && config.val_size > 0) {
    return invalid_input("{}: expected 0 beside eval_dataset, found {}; leave one of them out",
                         place(origins, "val_size"), config.val_size);
  }
  if (config.eval_steps > 0 && !evaluates) {
    return invalid_input("{}: expected data to evaluate on, found none; give eval_dataset or val_size",
                         place(origins, "eval_steps"));
  }
  if (config.eval_strategy == "epoch" && !evaluates) {
    return invalid_input("{}: expected data to evaluate on, found none; give eval_dataset or val_size",
                         place(origins, "eval_strategy"));
  }
  if (config.finetuning_type != "lora" && !config.adapter_name_or_path.empty()) {
    return invalid_input("{}: expected no adapter beside finetuning_type {}, found {}; leave one of them out",
                         place(origins, "adapter_name_or_path"), config.finetuning_type,
                         in_quotes(config.adapter_name_or_path));
  }
  if (config.overwrite_output_dir && !config.resume_from_checkpoint.empty()) {
    return invalid_input("{}: expected false beside resume_from_checkpoint, found true; leave one of them out",
                         place(origins, "overwrite_output_dir"));
  }
  return absl::OkStatus();
}

absl::Status check_train(const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(need("train", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  if (!all_timed(config.devices)) {
    RONDO_RETURN_IF_ERROR(need("train", origins, "dataset", config.dataset, "data"));
  }
  if (!config.dry_run) {
    RONDO_RETURN_IF_ERROR(need("train", origins, "output_dir", config.output_dir, "a folder for the result"));
  }
  RONDO_RETURN_IF_ERROR(check_training(config, origins));
  return check_best(config, origins);
}

absl::Status check_eval(const Config& config, const Origins& origins) {
  if (config.exact_match && config.train_on_prompt) {
    return invalid_input("{}: expected false beside exact_match, which tells answers from prompts, found true",
                         place(origins, "train_on_prompt"));
  }
  RONDO_RETURN_IF_ERROR(need("eval", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  return need("eval", origins, "eval_dataset", config.eval_dataset, "data");
}

absl::Status check_generate(const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(need("generate", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  return need("generate", origins, "prompt", config.prompt, "text to answer");
}

absl::Status check_chat(const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(need("chat", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  if (config.compare) {
    return need("chat --compare", origins, "adapter_name_or_path", config.adapter_name_or_path, "an adapter");
  }
  return absl::OkStatus();
}

absl::Status check_completion(const Config& config, const Origins& origins) {
  if (config.shell == "bash" || config.shell == "zsh" || config.shell == "fish") return absl::OkStatus();
  const std::string found = config.shell.empty() ? std::string("none") : in_quotes(config.shell);
  return invalid_input("{}: expected bash, zsh or fish, found {}", place(origins, "shell"), found);
}

absl::Status check_merge(const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(need("merge", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  RONDO_RETURN_IF_ERROR(need("merge", origins, "adapter_name_or_path", config.adapter_name_or_path, "an adapter"));
  return need("merge", origins, "output_dir", config.output_dir, "a folder for the model");
}

absl::Status check_sweep(const Config& config, const Origins& origins) {
  if (config.sweep.empty()) {
    if (config.plot.empty()) return absl::OkStatus();
    return invalid_input("{}: expected a sweep to draw, found none; give --sweep", place(origins, "plot"));
  }
  if (config.compare) {
    return invalid_input("{}: expected no sweep beside it, found {}; leave one of them out", place(origins, "compare"),
                         in_quotes(config.sweep));
  }
  if (!config.trace.empty()) {
    return invalid_input("{}: expected no sweep beside it, found {}; leave one of them out", place(origins, "trace"),
                         in_quotes(config.sweep));
  }
  const absl::StatusOr<Sweep> sweep = parse_sweep(config);
  return sweep.ok() ? absl::OkStatus() : with_context(sweep.status(), place(origins, "sweep"));
}

absl::Status check_export(const Config& config, const Origins& origins) {
  // An adapter names its base.
  if (config.adapter_name_or_path.empty()) {
    RONDO_RETURN_IF_ERROR(need("export", origins, "model_name_or_path", config.model_name_or_path, "a model"));
  }
  return need("export", origins, "output", config.output, "a file to write");
}

absl::Status check_report(const Config& config, const Origins& origins) {
  if (config.run_names.empty() || config.run_names.size() > 2) {
    return invalid_input(
        "report: expected the output_dir or the number of one run or of two, found {}: `rondo report RUN [RUN2] "
        "--output "
        "FILE.html`",
        config.run_names.empty() ? "none" : std::to_string(config.run_names.size()));
  }
  return need("report", origins, "output", config.output, "a file to write, such as report.html");
}

}  // namespace

absl::Status check_together(const std::string& verb, const Config& config, const Origins& origins) {
  RONDO_RETURN_IF_ERROR(check_val_size(config, origins));
  RONDO_RETURN_IF_ERROR(check_microbatch(config, origins));
  RONDO_RETURN_IF_ERROR(check_data(config, origins));
  const bool trains = (verb_bit(verb) & (kTrain | kPlan | kProfile)) != 0;
  RONDO_RETURN_IF_ERROR(check_quantization(config, origins, trains));
  RONDO_RETURN_IF_ERROR(check_fp8(config, origins));
  if (trains) RONDO_RETURN_IF_ERROR(check_optimizer_state(config, origins));
  switch (verb_bit(verb)) {
    case kTrain:
      return check_train(config, origins);
    case kPlan:
    case kProfile:
      RONDO_RETURN_IF_ERROR(check_sweep(config, origins));
      return need(verb, origins, "model_name_or_path", config.model_name_or_path, "a model");
    case kEval:
      return check_eval(config, origins);
    case kGenerate:
      return check_generate(config, origins);
    case kChat:
      return check_chat(config, origins);
    case kCompletion:
      return check_completion(config, origins);
    case kImport:
      return need(verb, origins, "file", config.file, "a file to read");
    case kData:
      RONDO_RETURN_IF_ERROR(need(verb, origins, "model_name_or_path", config.model_name_or_path, "a tokenizer"));
      return need(verb, origins, "dataset", config.dataset, "data");
    case kMerge:
      return check_merge(config, origins);
    case kExport:
      return check_export(config, origins);
    case kReport:
      return check_report(config, origins);
    case kInit:
      RONDO_RETURN_IF_ERROR(need(verb, origins, "arch", config.arch, "an architecture, such as llama"));
      return need(verb, origins, "output_dir", config.output_dir, "a folder for the model");
    default:
      return absl::OkStatus();
  }
}

}  // namespace rondo::train::config
