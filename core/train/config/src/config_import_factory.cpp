// LLaMA-Factory's keys, as its documentation names them. Its data sets are names: the file dataset_info.json beside
// them says which file each one is.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config_import.h"
#include "config_keys.h"
#include "rondo/base/file.h"

namespace rondo::train::config {
namespace {

using Kind = ImportRule::Kind;
namespace fs = std::filesystem;

void translate_stage(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  if (value == "sft") return import.leave_out(theirs, "it is what train does");
  if (value == "pt") {
    import.take(theirs, "data_format", "text", "every token of a text is a target");
    return;
  }
  import.refuse(theirs, fmt::format("{}: only supervised fine-tuning: the result would be another", value));
}

/// dataset_info.json of dataset_dir, below the working directory or beside the configuration.
struct DataInfo {
  fs::path folder;
  nlohmann::json entries;
};
DataInfo data_info(const Import& import) {
  DataInfo info;
  info.folder = import.text("dataset_dir").empty() ? fs::path("data") : fs::path(import.text("dataset_dir"));
  for (const fs::path& folder : {info.folder, fs::path(import.path()).parent_path() / info.folder}) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / "dataset_info.json", ignored)) continue;
    const auto text = read_file(folder / "dataset_info.json");
    if (!text.ok()) continue;
    info.folder = folder;
    info.entries = nlohmann::json::parse(*text, nullptr, false);
    break;
  }
  return info;
}

std::string string_of(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

struct Source {
  std::string path;
  std::string format = "auto";
  std::string remark;
};

/// ShareGPT with OpenAI's names is what we call messages.
std::string format_of(const nlohmann::json& entry) {
  if (string_of(entry, "formatting") != "sharegpt") return entry.contains("columns") ? "auto" : "alpaca";
  const nlohmann::json tags = entry.value("tags", nlohmann::json::object());
  const nlohmann::json columns = entry.value("columns", nlohmann::json::object());
  if (string_of(tags, "role_tag") == "role" && string_of(columns, "messages") == "messages") return "messages";
  return tags.empty() ? "sharegpt" : "auto";
}

/// What an entry asks for beside a file and its layout.
std::string remark_on(const nlohmann::json& entry, const std::string& name, bool looks_at_records) {
  std::string remark;
  const auto add = [&remark](const std::string& text) { remark += (remark.empty() ? "" : "; ") + text; };
  const nlohmann::json columns = entry.value("columns", nlohmann::json::object());
  if (!columns.empty() && looks_at_records) {
    add(fmt::format("the columns of {} are not renamed: auto looks at the records", name));
  }
  if (entry.value("ranking", nlohmann::json()) == true) {
    add(fmt::format("{} holds preferences: only supervised fine-tuning, save the answers wanted as its own file",
                    name));
  }
  if (entry.contains("num_samples")) {
    add(fmt::format("num_samples of {} is not read: give max_samples, which counts for each data set", name));
  }
  for (const char* kind : {"images", "videos", "audios"}) {
    if (columns.is_object() && columns.contains(kind)) add(fmt::format("{} of {} are not read", kind, name));
  }
  return remark;
}

Source find_source(const DataInfo& info, const std::string& name) {
  Source source;
  const auto entry = info.entries.is_object() ? info.entries.find(name) : info.entries.end();
  if (!info.entries.is_object() || entry == info.entries.end()) {
    source.path = (info.folder / (name + ".json")).string();
    source.remark =
        fmt::format("no dataset_info.json in {} tells of {}: the file name is a guess", info.folder.string(), name);
    return source;
  }
  source.format = format_of(*entry);
  const std::string file = string_of(*entry, "file_name");
  if (file.empty()) {
    source.path = name;
    source.remark = fmt::format("{} is no file in dataset_info.json: save it as JSON lines and name that file", name);
    return source;
  }
  source.path = (info.folder / file).string();
  source.remark = remark_on(*entry, name, source.format == "auto");
  return source;
}

void translate_dataset(Import& import, const std::string& theirs) {
  std::string names = joined_text(import.given(theirs));
  if (is_off(names)) return import.leave_out(theirs, "it is empty");
  const bool takes_list = find_key(kTrain, theirs)->list;
  const DataInfo info = data_info(import);
  std::string paths;
  std::string format;
  std::string remarks;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    std::erase(name, ' ');
    begin = end + 1;
    if (name.empty()) continue;
    Source source = find_source(info, name);
    if (!paths.empty() && !takes_list) {
      source.remark = fmt::format("{} is left out: one file is read, join them", source.path);
    } else {
      paths += (paths.empty() ? "" : ",") + source.path;
      format = format.empty() || format == source.format ? source.format : "auto";
    }
    if (!source.remark.empty()) remarks += (remarks.empty() ? "" : "; ") + source.remark;
  }
  if (import.take(theirs, theirs, paths, remarks) && format != "auto") {
    import.assume("data_format", format, "dataset_info.json says so");
  }
}

void translate_template(Import& import, const std::string& theirs) {
  import.leave_out(theirs, fmt::format("{}: the model's own chat template is used", joined_text(import.given(theirs))));
}

void translate_factory_checkpointing(Import& import, const std::string& theirs) {
  if (import.is_on(theirs)) {
    import.take(theirs, "recompute", "none", "nothing is computed again");
  } else {
    import.leave_out(theirs, "recompute: auto does it where memory asks for it");
  }
}

void translate_finetuning(Import& import, const std::string& theirs) {
  import.take(theirs, "finetuning_type", import.text(theirs));
}

/// Theirs counts from the first block where it is negative, and may name parts of a block.
void translate_frozen(Import& import, const std::string& theirs) {
  if (import.text("finetuning_type") != "freeze") return import.leave_out(theirs, "finetuning_type is not freeze");
  const std::string value = joined_text(import.given(theirs));
  if (theirs == "freeze_trainable_layers") {
    import.take(theirs, theirs, value);
  } else if (value == "all") {
    import.leave_out(theirs, "blocks are trained whole");
  } else {
    import.refuse(theirs, "blocks are trained whole: the result would be another");
  }
}

void finish_factory(Import& import) {
  import.assume("per_device_train_batch_size", "8", "LLaMA-Factory's default");
  import.assume("gradient_accumulation_steps", "1", "LLaMA-Factory's default");
  const std::string rank = import.text("lora_rank");
  const std::string method = import.text("finetuning_type");
  if (!import.has("lora_alpha") && method != "full" && method != "freeze") {
    const int doubled = rank.empty() ? 16 : 2 * std::max(std::atoi(rank.c_str()), 1);
    import.assume("lora_alpha", std::to_string(doubled), "LLaMA-Factory's default, twice the rank");
  }
}

std::vector<ImportRule> factory_rules() {
  const std::string kernels = "kernels are chosen by the device";
  const std::string loading = "data are read once, before the run";
  return {
      {Kind::kBy, {"stage"}, "", "", &translate_stage},
      {Kind::kLeaveOut, {"do_train"}, "", "it is what train does"},
      {Kind::kRefuse, {"do_eval", "do_predict", "predict_with_generate"}, "", "`rondo eval` does it"},
      {Kind::kBy, {"finetuning_type"}, "", "", &translate_finetuning},
      {Kind::kBy, {"lora_target"}, "", "", &take_targets},
      {Kind::kTake, {"additional_target"}, "modules_to_save"},
      {Kind::kTake, {"neftune_noise_alpha", "neftune_alpha"}, "neftune_noise_alpha"},
      {Kind::kBy, {"freeze_trainable_layers"}, "", "", &translate_frozen},
      {Kind::kBy, {"freeze_trainable_modules"}, "", "", &translate_frozen},
      {Kind::kRefuse, {"freeze_extra_modules"}, "", "freeze trains blocks and nothing beside them"},
      {Kind::kRefuse,
       {"ref_model", "reward_model", "pref_beta", "pref_loss", "pref_ftx", "kto_chosen_weight", "ppo_epochs"},
       "",
       "only supervised fine-tuning: the result would be another"},
      {Kind::kRefuse,
       {"use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_mca"},
       "",
       "there is nothing like it here"},
      {Kind::kLeaveOut,
       {"quantization_method", "quantization_type", "double_quantization", "quantization_device_map"},
       "",
       "there is one way to keep a base in 8 or 4 bits"},
      {Kind::kBy, {"dataset", "eval_dataset"}, "", "", &translate_dataset},
      {Kind::kLeaveOut, {"dataset_dir"}, "", "data sets are named by their files"},
      {Kind::kBy, {"template"}, "", "", &translate_template},
      {Kind::kLeaveOut,
       {"overwrite_cache", "preprocessing_num_workers", "preprocessing_batch_size", "dataloader_num_workers",
        "dataloader_pin_memory", "tokenized_path", "data_shared_file_system", "cache_dir", "use_fast_tokenizer",
        "trust_remote_code", "group_by_length", "dataloader_drop_last"},
       "",
       loading},
      {Kind::kRefuse,
       {"streaming", "interleave_probs", "tool_format", "default_system"},
       "",
       "there is nothing like it here"},
      {Kind::kLeaveOut,
       {"mix_strategy", "neat_packing"},
       "",
       "packed samples never see each other; one file is one list"},
      {Kind::kRefuse,
       {"resize_vocab", "new_special_tokens", "add_tokens", "add_special_tokens"},
       "",
       "tokens are those of the model's tokenizer"},
      {Kind::kRefuse, {"rope_scaling"}, "", "it is what the model's config.json says"},
      {Kind::kRefuse, {"shift_attn", "mixture_of_depths", "use_llama_pro"}, "", "there is nothing like it here"},
      {Kind::kTake, {"early_stopping_steps"}, "early_stopping_patience", "evaluations, as there"},
      {Kind::kBy, {"max_steps"}, "", "", &translate_max_steps},
      {Kind::kBy, {"optim", "lr_scheduler_type"}, "", "", &translate_optimizer},
      {Kind::kBy, {"bf16", "fp16", "pure_bf16"}, "", "", &translate_dtype},
      {Kind::kBy, {"disable_gradient_checkpointing"}, "", "", &translate_factory_checkpointing},
      {Kind::kLeaveOut,
       {"gradient_checkpointing", "use_reentrant_gc", "use_unsloth_gc"},
       "",
       "recompute: auto does it where memory asks for it"},
      {Kind::kLeaveOut,
       {"flash_attn", "enable_liger_kernel", "use_unsloth", "upcast_layernorm", "upcast_lmhead_output"},
       "",
       kernels},
      {Kind::kLeaveOut,
       {"deepspeed", "fsdp", "fsdp_config", "ddp_timeout", "ddp_find_unused_parameters", "ddp_backend"},
       "",
       "layers are dealt to the devices by the plan: `rondo plan` shows it"},
      {Kind::kLeaveOut, {"per_device_eval_batch_size"}, "", "evaluation takes per_device_train_batch_size"},
      {Kind::kBy, {"save_steps", "eval_steps", "logging_steps"}, "", "", &translate_steps},
      {Kind::kBy, {"save_strategy", "eval_strategy", "evaluation_strategy"}, "", "", &translate_strategy},
      {Kind::kBy, {"resume_from_checkpoint"}, "", "", &translate_resume},
      {Kind::kBy, {"report_to"}, "", "", &translate_report},
      {Kind::kLeaveOut,
       {"plot_loss", "include_num_input_tokens_seen", "logging_dir", "log_level"},
       "",
       "figures go to metrics.jsonl in output_dir"},
      {Kind::kLeaveOut, {"save_only_model"}, "", "a run can go on from each of its checkpoints"},
      {Kind::kRefuse,
       {"run_name", "use_swanlab", "push_to_hub", "hub_model_id", "export_dir"},
       "",
       "nothing is sent anywhere"},
  };
}

}  // namespace

const ImportTool& llama_factory() {
  static const ImportTool tool = {"LLaMA-Factory",
                                  {"stage", "do_train", "template", "dataset_dir", "finetuning_type", "cutoff_len",
                                   "model_name_or_path", "preprocessing_num_workers", "overwrite_cache", "plot_loss"},
                                  factory_rules(),
                                  &finish_factory};
  return tool;
}

}  // namespace rondo::train::config
