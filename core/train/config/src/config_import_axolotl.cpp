// Axolotl's keys, as its documentation names them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "config_import.h"
#include "config_keys.h"

namespace rondo::train::config {
namespace {

using Kind = ImportRule::Kind;

/// qlora is lora over a base of four bits.
void translate_adapter(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  if (is_off(value)) {
    import.take(theirs, "finetuning_type", "full", "no adapter: every weight is trained");
  } else if (value == "qlora") {
    import.take(theirs, "finetuning_type", "lora", "over a base of four bits");
    if (!import.given("load_in_4bit").IsDefined()) import.assume("quantization_bit", "4", "what qlora means");
  } else {
    import.take(theirs, "finetuning_type", value);
  }
}

void translate_bits(Import& import, const std::string& theirs) {
  if (!import.is_on(theirs)) return import.leave_out(theirs, "it is off");
  import.take(theirs, "quantization_bit", theirs == "load_in_8bit" ? "8" : "4");
}

void translate_all_linear(Import& import, const std::string& theirs) {
  if (!import.is_on(theirs)) return import.leave_out(theirs, "it is off");
  import.take(theirs, "lora_target", "all");
}

void translate_targets(Import& import, const std::string& theirs) {
  if (import.is_on("lora_target_linear"))
    return import.leave_out(theirs, "lora_target_linear takes every linear layer");
  take_targets(import, theirs);
}

std::string entry_text(const YAML::Node& entry, const char* key) {
  const YAML::Node value = entry[key];
  return value.IsDefined() ? joined_text(value) : std::string();
}

/// The layout that an entry's `type` speaks of; "auto" where it is none of ours.
std::string format_of(const YAML::Node& entry) {
  const YAML::Node type_node = entry["type"];
  if (type_node.IsDefined() && type_node.IsMap()) return "auto";
  const std::string type = entry_text(entry, "type");
  if (type.starts_with("alpaca")) return "alpaca";
  if (type.starts_with("sharegpt")) return "sharegpt";
  if (type == "completion" || type == "pretrain") return "text";
  if (type != "chat_template") return "auto";
  const std::string field = entry_text(entry, "field_messages");
  if (field.empty() || field == "messages") return "messages";
  return field == "conversations" ? "sharegpt" : "auto";
}

/// What an entry asks for that a file of a known layout does not need.
std::string remark_on(const YAML::Node& entry, const std::string& path) {
  std::string remark;
  const auto add = [&remark](const std::string& text) { remark += (remark.empty() ? "" : "; ") + text; };
  const std::string type = entry_text(entry, "type");
  if (!type.empty() && format_of(entry) == "auto")
    add(fmt::format("type {} is not known: auto looks at the records", type));
  if (entry["type"].IsDefined() && entry["type"].IsMap())
    add("a prompt of its own form is not read: auto looks at the records");
  if (type.starts_with("alpaca")) add("the model's chat template writes the turns, no ### Instruction: does");
  std::error_code ignored;
  const std::string end = std::filesystem::path(path).extension().string();
  if (end != ".json" && end != ".jsonl" && end != ".txt" && !std::filesystem::exists(path, ignored)) {
    add("data are read from files: save it as JSON lines and name that file");
  }
  for (const auto& field : entry) {
    const std::string name = field.first.IsScalar() ? field.first.Scalar() : std::string("?");
    const bool known = name == "path" || name == "type" || name == "ds_type" || name == "data_files" ||
                       name == "split" || name == "field_messages" || name == "name";
    if (!known) add(name + " is not read");
  }
  return remark;
}

/// A list of {path, type, ...}: ours is a file, or several where the key takes a list.
void translate_datasets(Import& import, const std::string& theirs) {
  const std::string ours = theirs == "test_datasets" ? "eval_dataset" : "dataset";
  const YAML::Node list = import.given(theirs);
  if (!list.IsSequence() || list.size() == 0) return import.leave_out(theirs, "it is empty");
  const bool takes_list = find_key(kTrain, ours)->list;
  std::string paths;
  std::string format;
  std::string remarks;
  const auto add_remark = [&remarks](const std::string& text) {
    if (!text.empty()) remarks += (remarks.empty() ? "" : "; ") + text;
  };
  for (const YAML::Node& entry : list) {
    if (!entry.IsMap()) return import.refuse(theirs, "expected a list of maps with a path each");
    std::string path = entry_text(entry, "data_files");
    if (path.empty()) path = entry_text(entry, "path");
    if (!paths.empty() && !takes_list) {
      add_remark(fmt::format("{} is left out: one file is read, join them", path));
      continue;
    }
    paths += (paths.empty() ? "" : ",") + path;
    add_remark(remark_on(entry, path));
    const std::string one = format_of(entry);
    format = format.empty() || format == one ? one : "auto";
  }
  if (import.take(theirs, ours, paths, remarks.empty() ? "" : remarks) && format != "auto" &&
      !import.has("data_format")) {
    import.assume("data_format", format, fmt::format("the type in {}", theirs));
  }
}

void translate_axolotl_checkpointing(Import& import, const std::string& theirs) {
  import.leave_out(theirs, "recompute: auto does it where memory asks for it");
}

void translate_chat_template(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  if (is_off(value) || value == "tokenizer_default") return import.leave_out(theirs, "the model's own is used");
  import.refuse(theirs, "the model's own template is used; put another into its tokenizer_config.json");
}

/// Axolotl makes a share of the run of it.
void translate_times_an_epoch(Import& import, const std::string& theirs) {
  const bool saves = theirs.starts_with("save");
  const std::string times = import.text(theirs);
  if (is_off(times)) return import.leave_out(theirs, "it is off");
  if (times == "1") {
    import.take(theirs, saves ? "save_strategy" : "eval_strategy", "epoch");
    return;
  }
  const std::string epochs = import.text("num_epochs");
  double share = 1;
  for (const std::string& text : {times, epochs.empty() ? std::string("1") : epochs}) {
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !(number > 0)) {
      return import.refuse(theirs, fmt::format("give {} as a number of steps", saves ? "save_steps" : "eval_steps"));
    }
    share /= number;
  }
  import.take(theirs, saves ? "save_steps" : "eval_steps", fmt::format("{}", share), "a share of the run");
}

void finish_axolotl(Import& import) {
  const bool adapts = import.given("adapter").IsDefined();
  if (!adapts) import.assume("finetuning_type", "full", "no adapter: every weight is trained");
  const auto is_false = [&import](const char* key) { return import.given(key).IsDefined() && !import.is_on(key); };
  if (is_false("bf16") && !import.is_on("fp16") && !import.is_on("bfloat16") && !import.is_on("float16")) {
    import.assume("dtype", "fp32", "neither bf16 nor fp16");
  }
  import.assume("gradient_accumulation_steps", "1", "Axolotl's default");
  import.assume("num_train_epochs", "1", "Axolotl's default");
  import.assume("lr_scheduler_type", "cosine", "Axolotl's default");
  import.assume("cutoff_len", "512", "Axolotl's default");
  if (!import.has("warmup_steps")) {
    import.assume("warmup_ratio", "0.03", "Axolotl's default, which takes 100 steps at most");
  }
}

std::vector<ImportRule> axolotl_rules() {
  const std::string files = "the model's files tell it";
  const std::string kernels = "kernels are chosen by the device";
  const std::string loading = "data are read once, before the run";
  return {
      {Kind::kTake, {"base_model"}, "model_name_or_path"},
      {Kind::kLeaveOut,
       {"model_type", "tokenizer_type", "base_model_config", "is_llama_derived_model", "is_mistral_derived_model",
        "is_qwen_derived_model", "tokenizer_use_fast", "tokenizer_legacy", "trust_remote_code",
        "base_model_ignore_patterns"},
       "",
       files},
      {Kind::kRefuse, {"tokenizer_config", "revision_of_model"}, "", "the model's own files are read"},
      {Kind::kRefuse,
       {"special_tokens", "tokens", "added_tokens_overrides", "resize_token_embeddings_to_32x"},
       "",
       "tokens are those of the model's tokenizer"},
      {Kind::kBy, {"load_in_8bit", "load_in_4bit"}, "", "", &translate_bits},
      {Kind::kBy, {"adapter"}, "", "", &translate_adapter},
      {Kind::kTake, {"lora_model_dir"}, "adapter_name_or_path"},
      {Kind::kTake, {"lora_r"}, "lora_rank"},
      {Kind::kBy, {"lora_target_linear"}, "", "", &translate_all_linear},
      {Kind::kBy, {"lora_target_modules"}, "", "", &translate_targets},
      {Kind::kTake, {"lora_target_parameters"}, "target_parameters"},
      {Kind::kTake, {"peft_use_rslora"}, "use_rslora"},
      {Kind::kTake, {"peft_use_dora"}, "use_dora"},
      {Kind::kTake, {"lora_modules_to_save"}, "modules_to_save"},
      {Kind::kTake, {"neftune_noise_alpha", "noisy_embedding_alpha"}, "neftune_noise_alpha"},
      {Kind::kTake, {"peft_layers_to_transform"}, "layers_to_transform"},
      {Kind::kRefuse,
       {"unfrozen_parameters"},
       "",
       "of a model's parts the last blocks can be trained: give "
       "finetuning_type: freeze and freeze_trainable_layers"},
      {Kind::kLeaveOut,
       {"lora_fan_in_fan_out", "lora_on_cpu", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"},
       "",
       kernels},
      {Kind::kBy, {"datasets", "test_datasets"}, "", "", &translate_datasets},
      {Kind::kTake, {"val_set_size"}, "val_size"},
      {Kind::kTake, {"dataset_prepared_path"}, "dataset_prepared_path"},
      {Kind::kBy, {"chat_template"}, "", "", &translate_chat_template},
      {Kind::kLeaveOut,
       {"dataset_processes", "dataset_keep_in_memory", "dataset_exact_deduplication", "dataloader_num_workers",
        "dataloader_pin_memory", "dataloader_prefetch_factor", "shuffle_merged_datasets"},
       "",
       loading},
      {Kind::kRefuse, {"pretraining_dataset", "streaming"}, "", "data are read whole, before the run"},
      {Kind::kTake, {"sequence_len"}, "cutoff_len"},
      {Kind::kTake, {"sample_packing"}, "packing"},
      {Kind::kLeaveOut,
       {"pad_to_sequence_len", "eval_sample_packing", "sample_packing_group_size", "group_by_length"},
       "",
       "there is no padding between samples"},
      {Kind::kTake, {"train_on_inputs"}, "train_on_prompt"},
      {Kind::kTake, {"micro_batch_size"}, "per_device_train_batch_size"},
      {Kind::kLeaveOut, {"eval_batch_size"}, "", "evaluation takes per_device_train_batch_size"},
      {Kind::kTake, {"num_epochs"}, "num_train_epochs"},
      {Kind::kBy, {"max_steps"}, "", "", &translate_max_steps},
      {Kind::kBy, {"optimizer", "lr_scheduler"}, "", "", &translate_optimizer},
      {Kind::kBy, {"bf16", "fp16", "bfloat16", "float16"}, "", "", &translate_dtype},
      {Kind::kLeaveOut, {"tf32"}, "", "fp32 sums are fp32"},
      {Kind::kBy, {"gradient_checkpointing"}, "", "", &translate_axolotl_checkpointing},
      {Kind::kLeaveOut, {"gradient_checkpointing_kwargs"}, "", "there is one way to compute again"},
      {Kind::kLeaveOut,
       {"flash_attention", "xformers_attention", "sdp_attention", "eager_attention", "flash_attn_cross_entropy",
        "flash_attn_rms_norm", "flash_attn_fuse_qkv", "flash_attn_fuse_mlp", "plugins", "liger_rope", "liger_rms_norm",
        "liger_glu_activation", "liger_fused_linear_cross_entropy", "cut_cross_entropy", "torch_compile",
        "unsloth_cross_entropy_loss"},
       "",
       kernels},
      {Kind::kRefuse, {"s2_attention", "flex_attention"}, "", "there is nothing like it here"},
      {Kind::kLeaveOut,
       {"deepspeed", "fsdp", "fsdp_config", "fsdp_version", "ddp_timeout", "ddp_bucket_cap_mb", "local_rank"},
       "",
       "layers are dealt to the devices by the plan: `rondo plan` shows it"},
      {Kind::kRefuse,
       {"gpu_memory_limit", "max_memory", "device_map"},
       "",
       "give memory_limit by device: cuda:0=20GiB"},
      {Kind::kRefuse,
       {"rl", "reward_model", "process_reward_model", "dpo_beta", "kto_desirable_weight"},
       "",
       "only supervised fine-tuning: the result would be another"},
      {Kind::kBy, {"saves_per_epoch", "evals_per_epoch"}, "", "", &translate_times_an_epoch},
      {Kind::kBy, {"save_steps", "eval_steps", "logging_steps"}, "", "", &translate_steps},
      {Kind::kBy, {"save_strategy", "eval_strategy", "evaluation_strategy"}, "", "", &translate_strategy},
      {Kind::kBy, {"resume_from_checkpoint", "auto_resume_from_checkpoints"}, "", "", &translate_resume},
      {Kind::kTake, {"early_stopping_patience"}, "early_stopping_patience"},
      {Kind::kLeaveOut,
       {"eval_table_size", "eval_max_new_tokens", "eval_causal_lm_metrics", "save_safetensors", "strict", "debug",
        "save_only_model", "load_best_model_at_end_metric"},
       "",
       "it has no bearing here"},
      {Kind::kRefuse,
       {"wandb_project", "wandb_entity", "wandb_watch", "wandb_name", "wandb_run_id", "wandb_log_model",
        "mlflow_tracking_uri", "mlflow_experiment_name", "use_comet", "comet_project_name"},
       "",
       "figures go to metrics.jsonl in output_dir"},
      {Kind::kRefuse, {"hub_model_id", "hub_strategy", "push_dataset_to_hub"}, "", "nothing is sent anywhere"},
  };
}

}  // namespace

const ImportTool& axolotl() {
  static const ImportTool tool = {"Axolotl",
                                  {"base_model", "datasets", "sequence_len", "micro_batch_size", "val_set_size",
                                   "num_epochs", "optimizer", "adapter"},
                                  axolotl_rules(),
                                  &finish_axolotl};
  return tool;
}

}  // namespace rondo::train::config
