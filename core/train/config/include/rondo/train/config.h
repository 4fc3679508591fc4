// The configuration of a run: every key with its type, default, aliases and check, in one table.
//
// Sources, the later winning: defaults, a YAML file, command-line flags. `-` and `_` are equal in keys. Unknown keys
// are refused with the nearest known one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/model/init.h"

namespace rondo::train {

/// Defaults of the verb init.
using InitDefaults = model::InitOptions;

/// Keys of every verb, in the order in which they are documented. Defaults are Hugging Face's where it has the key.
struct Config {
  // Model.
  std::string model_name_or_path;
  std::string model_revision = "main";
  std::string adapter_name_or_path;
  // Data.
  std::string dataset;          // one, or several with commas between them
  std::string eval_dataset;     // likewise
  std::string dataset_weights;  // passes an epoch of each; empty: one
  double val_size = 0.0;        // share (< 1) or number of samples held out for evaluation
  std::string data_format = "auto";
  std::uint32_t cutoff_len = 2048;
  bool packing = false;
  bool train_on_prompt = false;
  bool mask_history = false;
  std::uint64_t max_samples = 0;
  std::string dataset_prepared_path;  // empty: the user's cache folder; none: tokens stay in memory
  bool shuffle = true;
  std::uint64_t seed = 42;
  // Method.
  std::string finetuning_type = "lora";
  std::uint32_t lora_rank = 8;
  double lora_alpha = 16.0;
  double lora_dropout = 0.0;
  std::string lora_target = "all";
  std::string target_parameters;
  bool use_rslora = false;
  bool use_dora = false;
  std::string rank_pattern;  // name=8,name=16
  std::string alpha_pattern;
  std::string layers_to_transform;
  std::string modules_to_save;
  double loraplus_lr_ratio = 1.0;
  std::uint32_t freeze_trainable_layers = 2;
  double neftune_noise_alpha = 0.0;  // 0: no noise
  // Batch and length of the run.
  std::uint32_t per_device_train_batch_size = 1;
  std::uint32_t gradient_accumulation_steps = 8;
  double num_train_epochs = 3.0;
  std::uint64_t max_steps = 0;        // 0: as num_train_epochs says
  std::uint32_t reduction_group = 0;  // 0: min(gradient_accumulation_steps, 16)
  // Optimizer.
  std::string optim = "adamw";
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  double warmup_ratio = 0.0;
  double warmup_steps = 0;          // below 1 a share of those of the run
  std::string lr_scheduler_kwargs;  // name=value,name=value: rate.h
  double weight_decay = 0.0;
  double momentum = 0.0;  // sgd
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  std::string optimizer_state = "host";  // device
  std::uint32_t staleness = 0;
  // Precision and memory.
  std::string dtype = "bf16";
  bool fp8 = false;
  std::string fp8_format = "e4m3";  // hybrid
  std::string recompute = "auto";   // full, selective, none
  std::uint32_t quantization_bit = 0;
  std::uint32_t quantization_tokens = 4096;  // with 4 bits; 0: the nearest codes
  std::uint32_t boundary_quantization_bit = 0;
  // Pool.
  std::string devices = "auto";
  std::string memory_limit;
  std::string host_memory_limit;
  std::string nvme_path;
  std::string host;
  std::string schedule = "roundpipe";
  std::uint32_t threads = 0;  // 0: as many as the process may use
  bool verify_transfers = false;
  bool resident_weights = true;
  // Files and reports.
  std::string output_dir;
  // Numbers of steps; below 1 shares of those of the run.
  double save_steps = 500;
  std::uint64_t save_total_limit = 0;  // 0: all
  double eval_steps = 0;               // 0: at the end, when there is evaluation data
  double logging_steps = 1;
  std::string resume_from_checkpoint;  // auto, or a path
  bool overwrite_output_dir = false;
  bool load_best_model_at_end = false;
  std::string save_strategy = "steps";
  std::string eval_strategy = "steps";
  std::string metric_for_best_model = "eval_loss";
  bool greater_is_better = false;
  std::uint64_t early_stopping_patience = 0;  // evaluations; 0: never
  double early_stopping_threshold = 0.0;
  std::string report_to;
  std::string logging_dir;
  bool dry_run = false;
  // Verbs other than train.
  std::string prompt;
  bool raw = false;
  std::uint32_t max_new_tokens = 128;
  double temperature = 0.0;
  std::uint32_t top_k = 0;
  double top_p = 1.0;
  std::uint32_t context_len = 0;  // chat; 0: 4096, or as many as the model knows
  std::uint64_t samples = 1;      // data: how many to show; profile: none
  std::uint64_t steps = 5;        // profile
  std::string trace;
  bool json = false;
  bool bench = false;
  bool catalogue = false;
  bool compare = false;
  std::vector<std::string> run_names;  // runs, report: the words after the verb
  bool exact_match = false;            // eval
  std::string shell;                   // completion
  std::string file;                    // import
  std::string from = "auto";
  std::string sweep;  // plan, profile: config_sweep.h
  std::string plot;
  // export.
  std::string format = "gguf";
  std::string output;
  std::string quantization = "auto";
  // init; what 0 means stands there.
  std::string arch;
  std::uint32_t hidden_size = InitDefaults{}.hidden_size;
  std::uint32_t intermediate_size = InitDefaults{}.intermediate_size;
  std::uint32_t num_hidden_layers = InitDefaults{}.num_hidden_layers;
  std::uint32_t num_attention_heads = InitDefaults{}.num_attention_heads;
  std::uint32_t num_key_value_heads = InitDefaults{}.num_key_value_heads;
  std::uint32_t head_dim = InitDefaults{}.head_dim;
  std::uint32_t vocab_size = InitDefaults{}.vocab_size;
  std::uint32_t max_position_embeddings = InitDefaults{}.max_position_embeddings;
  double rope_theta = InitDefaults{}.rope_theta;
  std::uint32_t num_experts = InitDefaults{}.num_experts;
  std::uint32_t num_experts_per_tok = InitDefaults{}.num_experts_per_tok;
  std::uint32_t moe_intermediate_size = InitDefaults{}.moe_intermediate_size;
  bool tie_word_embeddings = InitDefaults{}.tie_word_embeddings;
};

/// The verbs, in the order of the help.
const std::vector<std::string>& verbs();

/// Reads the arguments after the verb: an optional YAML file (of runs and report: the names of runs), then --key value,
/// --key=value or --key. A later flag
/// wins. Values are checked by themselves and against each other as `verb` needs them. Errors: InvalidArgument naming
/// the key, where it stands (file and line, or the flag), what was expected and found.
absl::StatusOr<Config> parse_arguments(const std::string& verb, const std::vector<std::string>& arguments);

/// The rules that a device can update by (optimizer_state).
inline bool updates_on_devices(const Config& config) { return config.optim == "adamw" || config.optim == "adamw_8bit"; }

/// Every key of training with its value, as YAML that parse_arguments("train", ...) reads back to the same Config.
std::string format_resolved(const Config& config);

/// One page of help for a verb: its keys with aliases, defaults and meaning, and an example. Empty verb: the overview.
std::string help_text(const std::string& verb);

}  // namespace rondo::train
