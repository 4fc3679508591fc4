// The entries of the table of keys, in the order in which help pages and the resolved file show them.
#include "config_keys.h"

namespace rondo::train::config {
namespace {

constexpr Verbs kRun = kTrain | kPlan | kProfile;
constexpr Verbs kAnswers = kGenerate | kChat;
constexpr Verbs kOfModel = kRun | kEval | kAnswers;
constexpr Verbs kOfData = kRun | kEval | kData;
constexpr double kManySteps = 1e12;
constexpr double kWide = 1 << 24;  // above any dimension of a model

/// An entry under construction: each function adds what it says and hands the entry on.
struct Entry : Key {
  Entry(Verbs of, std::string spelled, Member where, std::string meaning) {
    name = std::move(spelled);
    verbs = of;
    member = where;
    help = std::move(meaning);
  }
  using Words = std::vector<std::string>;
  Entry also(Words words) && { return aliases = std::move(words), std::move(*this); }
  Entry one_of(Words words) && { return choices = std::move(words), std::move(*this); }
  Entry written(std::vector<std::pair<std::string, std::string>> pairs) && {
    return spellings = std::move(pairs), std::move(*this);
  }
  Entry refused(Words words) && { return unavailable = std::move(words), std::move(*this); }
  Entry from(double low) && { return range.low = low, std::move(*this); }
  Entry to(double high) && { return range.high = high, std::move(*this); }
  Entry above(double low) && { return range.low = low, range.above_low = true, std::move(*this); }
  Entry below(double high) && { return range.high = high, range.below_high = true, std::move(*this); }
  Entry listed() && { return list = true, std::move(*this); }
  Entry mapped() && { return list = map = true, std::move(*this); }
  Entry or_share_of_run() && { return of_run = true, std::move(*this); }
  Entry as_word() && { return bare = true, std::move(*this); }
};

void append(std::vector<Key>& table, const std::string& group, std::vector<Entry> entries) {
  for (Entry& entry : entries) {
    entry.group = group;
    table.push_back(std::move(entry));
  }
}

std::vector<Entry> model_and_data_keys() {
  return {
      Entry(kOfModel | kData | kMerge | kExport, "model_name_or_path", &Config::model_name_or_path,
            "the model's directory, a GGUF file, or a Hub id in the local Hugging Face cache")
          .also({"model", "base_model"}),
      Entry(kOfModel | kData | kMerge | kExport, "model_revision", &Config::model_revision,
            "of a Hub id: the branch, tag or commit")
          .also({"revision"}),
      Entry(kOfModel | kMerge | kExport, "adapter_name_or_path", &Config::adapter_name_or_path,
            "directory of a PEFT adapter to start from, to apply, to merge or to export"),
      Entry(kOfData, "dataset", &Config::dataset,
            "file or folder of samples: JSON lines, a JSON array, or plain text; several: a.jsonl,b.jsonl")
          .also({"data", "train_file"})
          .listed(),
      Entry(kRun | kEval, "eval_dataset", &Config::eval_dataset, "the same for evaluation").listed(),
      Entry(kOfData, "dataset_weights", &Config::dataset_weights,
            "passes an epoch through each data set: 2,0.5; empty: one each")
          .listed(),
      Entry(kOfData, "val_size", &Config::val_size, "share (below 1) or number of the samples held out for evaluation")
          .to(1e9),
      Entry(kOfData, "data_format", &Config::data_format, "layout of the records; auto looks at the first ones")
          .one_of({"auto", "messages", "prompt_completion", "text", "alpaca", "sharegpt", "plain_text"})
          .written({{"prompt/completion", "prompt_completion"},
                    {"prompt-completion", "prompt_completion"},
                    {"plain-text", "plain_text"}}),
      Entry(kOfData, "cutoff_len", &Config::cutoff_len, "tokens of a sample that are kept, from its head")
          .also({"sequence_len", "max_seq_len", "seq_len"})
          .from(2)
          .to(kWide),
      Entry(kOfData, "packing", &Config::packing,
            "several samples in a sequence of cutoff_len tokens, kept apart; batch sizes count sequences")
          .also({"sample_packing"}),
      Entry(kOfData, "train_on_prompt", &Config::train_on_prompt, "every token is a target, the prompt's too")
          .also({"train_on_inputs"}),
      Entry(kOfData, "mask_history", &Config::mask_history,
            "of a conversation's answers only the last one is a target"),
      Entry(kOfData, "max_samples", &Config::max_samples, "read no more than so many records of each set; 0: all")
          .to(kManySteps),
      Entry(kOfData, "dataset_prepared_path", &Config::dataset_prepared_path,
            "folder that keeps the tokens of files above 1 MiB; none: memory; empty: in the user's cache folder"),
      Entry(kRun, "shuffle", &Config::shuffle, "a new order in every epoch; false keeps file order"),
      Entry(kRun | kAnswers | kInit, "seed", &Config::seed, "of every random number").to(9007199254740991.0),
  };
}

std::vector<Entry> method_keys() {
  return {
      Entry(kRun, "finetuning_type", &Config::finetuning_type,
            "train an adapter, every weight, or those of the last blocks")
          .one_of({"lora", "full", "freeze"}),
      Entry(kRun, "lora_rank", &Config::lora_rank, "rank of the adapter's factors")
          .also({"lora_r", "r"})
          .from(1)
          .to(65536),
      Entry(kRun, "lora_alpha", &Config::lora_alpha, "the adapter is scaled by lora_alpha / lora_rank")
          .above(0)
          .to(1e6),
      Entry(kRun, "lora_dropout", &Config::lora_dropout, "share of an adapter's inputs dropped while training")
          .below(1),
      Entry(kRun, "lora_target", &Config::lora_target,
            "all, or the linear layers that get an adapter, by names or by ends of their paths: "
            "q_proj,layers.0.mlp.up_proj")
          .written({{"all-linear", "all"}})
          .listed(),
      Entry(kRun, "target_parameters", &Config::target_parameters,
            "tensors of experts that get an adapter, by the ends of PEFT's paths: mlp.experts.down_proj")
          .also({"lora_target_parameters"})
          .listed(),
      Entry(kRun, "use_rslora", &Config::use_rslora, "scale by lora_alpha / sqrt(lora_rank) instead"),
      Entry(kRun, "use_dora", &Config::use_dora,
            "DoRA: the lengths of weights' rows are trained apart from their directions"),
      Entry(kRun, "rank_pattern", &Config::rank_pattern, "other ranks by name: q_proj=16,layers.0.mlp.up_proj=4")
          .mapped(),
      Entry(kRun, "alpha_pattern", &Config::alpha_pattern, "other values of lora_alpha by name").mapped(),
      Entry(kRun, "layers_to_transform", &Config::layers_to_transform,
            "blocks that get adapters, from 0: 14,15; none: all")
          .listed(),
      Entry(kRun, "modules_to_save", &Config::modules_to_save,
            "trained whole beside the adapter and saved in it: embed_tokens, lm_head")
          .also({"additional_target"})
          .listed(),
      Entry(kRun, "loraplus_lr_ratio", &Config::loraplus_lr_ratio, "LoRA+: rate of the factors B over learning_rate")
          .above(0)
          .to(1e6),
      Entry(kRun, "freeze_trainable_layers", &Config::freeze_trainable_layers,
            "freeze: the last so many blocks are trained")
          .from(1)
          .to(65536),
      Entry(kRun, "neftune_noise_alpha", &Config::neftune_noise_alpha,
            "NEFTune: uniform noise on embeddings while training, at most this over sqrt(tokens of the sample * "
            "hidden_size); 0: none")
          .also({"neftune_alpha", "noisy_embedding_alpha"})
          .to(1e6),
  };
}

std::vector<Entry> batch_keys() {
  return {
      Entry(kRun | kEval, "per_device_train_batch_size", &Config::per_device_train_batch_size,
            "sequences of a microbatch")
          .also({"micro_batch_size", "batch_size"})
          .from(1)
          .to(65536),
      Entry(kRun, "gradient_accumulation_steps", &Config::gradient_accumulation_steps,
            "microbatches of a step, whatever the number of devices")
          .from(1)
          .to(1 << 20),
      Entry(kRun, "num_train_epochs", &Config::num_train_epochs, "passes over the data")
          .also({"num_epochs", "epochs"})
          .above(0)
          .to(1e6),
      Entry(kRun, "max_steps", &Config::max_steps, "steps of the run; 0: as num_train_epochs says")
          .also({"steps", "iters"})
          .written({{"-1", "0"}})
          .to(kManySteps),
      Entry(kRun, "reduction_group", &Config::reduction_group,
            "consecutive microbatches whose gradients are added on one device; 0: 16, or all when there are fewer")
          .to(1 << 20),
  };
}

std::vector<Entry> optimizer_keys() {
  return {
      Entry(kRun, "optim", &Config::optim, "the optimizer")
          .one_of({"adamw", "adamw_8bit", "sgd", "lion"})
          .written({{"adamw_torch", "adamw"},
                    {"adamw_torch_fused", "adamw"},
                    {"adamw_hf", "adamw"},
                    {"paged_adamw", "adamw"},
                    {"paged_adamw_32bit", "adamw"},
                    {"adamw_bnb_8bit", "adamw_8bit"},
                    {"paged_adamw_8bit", "adamw_8bit"},
                    {"lion_32bit", "lion"},
                    {"paged_lion", "lion"},
                    {"paged_lion_32bit", "lion"}})
          .refused({"lion_8bit", "paged_lion_8bit", "adafactor", "muon", "galore_adamw", "apollo_adamw", "adagrad",
                    "rmsprop", "schedule_free_adamw"}),
      Entry(kRun, "learning_rate", &Config::learning_rate, "the peak rate").also({"lr"}).to(1e3),
      Entry(kRun, "lr_scheduler_type", &Config::lr_scheduler_type, "course of the rate after the warmup")
          .one_of({"linear", "cosine", "constant", "cosine_with_restarts", "cosine_with_min_lr", "inverse_sqrt",
                   "polynomial", "warmup_stable_decay"})
          .written({{"constant_with_warmup", "constant"}})
          .refused({"reduce_lr_on_plateau", "cosine_warmup_with_min_lr", "greedy"}),
      Entry(kRun, "lr_scheduler_kwargs", &Config::lr_scheduler_kwargs,
            "its further arguments, as transformers names them: min_lr=1e-6,num_cycles=2")
          .mapped(),
      Entry(kRun, "warmup_ratio", &Config::warmup_ratio, "share of the steps in which the rate rises").to(1),
      Entry(kRun, "warmup_steps", &Config::warmup_steps,
            "the same as a number of steps, or below 1 as a share; wins over warmup_ratio")
          .to(kManySteps)
          .or_share_of_run(),
      Entry(kRun, "weight_decay", &Config::weight_decay, "decoupled decay of matrices").to(1e3),
      Entry(kRun, "momentum", &Config::momentum, "sgd: of its buffer; 0: it keeps none").below(1),
      Entry(kRun, "adam_beta1", &Config::adam_beta1, "decay of the first moment; of lion's mixture").below(1),
      Entry(kRun, "adam_beta2", &Config::adam_beta2, "decay of the second moment; of lion's momentum").below(1),
      Entry(kRun, "adam_epsilon", &Config::adam_epsilon, "added to the root of the second moment").above(0).to(1),
      Entry(kRun, "max_grad_norm", &Config::max_grad_norm, "gradients are clipped to this global L2 norm; 0: never")
          .to(1e30),
      Entry(kRun, "optimizer_state", &Config::optimizer_state,
            "where masters and moments are kept and updated: host, or device: on a pool's only card")
          .one_of({"host", "device"}),
      Entry(kRun, "staleness", &Config::staleness, "1: a step's weights lack the last update, so that nothing waits")
          .to(1),
  };
}

std::vector<Entry> precision_keys() {
  return {
      Entry(kOfModel | kInit, "dtype", &Config::dtype,
            "of weights and activations on the devices; fp16, for cards without bf16, scales the loss")
          .one_of({"bf16", "fp16", "fp32"})
          .written({{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}}),
      Entry(kRun, "fp8", &Config::fp8,
            "products of the blocks' matrices, but for gradients of weights, in 8 bits: NVIDIA cards from 8.9 on, "
            "processors"),
      Entry(kRun, "fp8_format", &Config::fp8_format,
            "with fp8: e4m3 for all numbers; hybrid: E5M2 for gradients, of more range and a bit less of fraction")
          .one_of({"e4m3", "hybrid"}),
      Entry(kRun, "recompute", &Config::recompute, "what the backward pass computes again instead of keeping it")
          .one_of({"auto", "full", "selective", "none"}),
      Entry(kOfModel, "quantization_bit", &Config::quantization_bit,
            "bits of the frozen base's matrices: 8 (int8), 4 (NF4); 0: as dtype says")
          .to(8),
      Entry(kRun, "quantization_tokens", &Config::quantization_tokens,
            "tokens of the training data that 4-bit codes are chosen for (GPTQ); 0: nearest codes, as bitsandbytes")
          .to(1 << 20),
      Entry(kRun, "boundary_quantization_bit", &Config::boundary_quantization_bit,
            "bits of activations and gradients between layers: 8, 4 (lossy); 0: as dtype says")
          .to(8),
      Entry(kOfModel, "memory_limit", &Config::memory_limit,
            "memory of a device to use at most: cuda:0=8GiB,cpu:0=4GiB")
          .listed(),
      Entry(kRun, "resident_weights", &Config::resident_weights,
            "weights stay on a device whose memory has room for them; false: they come anew for every visit"),
      Entry(kOfModel, "host_memory_limit", &Config::host_memory_limit, "main memory to use at most: 24GiB"),
      Entry(kOfModel | kDoctor, "nvme_path", &Config::nvme_path, "folder for state that does not fit into main memory"),
  };
}

std::vector<Entry> pool_keys() {
  return {
      Entry(kOfModel | kDevices | kDoctor, "devices", &Config::devices,
            "auto, or a list: cuda:0,cpu or emulated:rtx4090*4,rtx3060*2")
          .listed(),
      Entry(kRun, "host", &Config::host, "file.yaml#name of a machine to plan for instead of this one"),
      Entry(kRun, "schedule", &Config::schedule, "how the layers are dealt to the devices")
          .one_of({"roundpipe", "gpipe", "looped_bfs", "1f1b", "interleaved", "zb_h1", "zb_v"}),
      Entry(kOfModel | kDevices, "threads", &Config::threads,
            "threads that compute on the host; 0: as many as the process may use")
          .to(4096),
      Entry(kRun, "verify_transfers", &Config::verify_transfers,
            "checksums on everything that travels between host and devices"),
  };
}

std::vector<Entry> file_keys() {
  return {
      Entry(kTrain | kInit | kMerge | kDoctor, "output_dir", &Config::output_dir,
            "folder for the result, without an earlier run in it"),
      Entry(kTrain, "save_steps", &Config::save_steps,
            "steps between checkpoints, or below 1 a share of the run's; 0: none")
          .to(kManySteps)
          .or_share_of_run(),
      Entry(kTrain, "save_total_limit", &Config::save_total_limit,
            "checkpoints kept: the newest ones and the best; 0: all")
          .to(kManySteps),
      Entry(kTrain, "eval_steps", &Config::eval_steps,
            "steps between evaluations, or below 1 a share of the run's; 0: one at the end")
          .to(kManySteps)
          .or_share_of_run(),
      Entry(kTrain, "logging_steps", &Config::logging_steps,
            "steps between lines of metrics.jsonl, or below 1 a share of the run's")
          .above(0)
          .to(kManySteps)
          .or_share_of_run(),
      Entry(kTrain, "resume_from_checkpoint", &Config::resume_from_checkpoint,
            "auto (the newest in output_dir, if there is one), or a checkpoint's folder")
          .written({{"true", "auto"}, {"True", "auto"}, {"false", ""}, {"False", ""}}),
      Entry(kTrain, "overwrite_output_dir", &Config::overwrite_output_dir, "output_dir may hold an earlier run"),
      Entry(kTrain, "load_best_model_at_end", &Config::load_best_model_at_end,
            "the result has the weights that evaluated best; each best evaluation leaves a checkpoint"),
      Entry(kTrain, "save_strategy", &Config::save_strategy,
            "when to save checkpoints: every save_steps, after every epoch, after an evaluation better than all before")
          .one_of({"steps", "epoch", "best", "no"})
          .written({{"epochs", "epoch"}, {"false", "no"}, {"False", "no"}}),
      Entry(kTrain, "eval_strategy", &Config::eval_strategy, "when to evaluate: every eval_steps, or after every epoch")
          .also({"evaluation_strategy"})
          .one_of({"steps", "epoch", "no"})
          .written({{"epochs", "epoch"}, {"false", "no"}, {"False", "no"}}),
      Entry(kTrain, "metric_for_best_model", &Config::metric_for_best_model, "what the best evaluation is best in")
          .one_of({"eval_loss"})
          .written({{"loss", "eval_loss"}}),
      Entry(kTrain, "greater_is_better", &Config::greater_is_better, "of a loss less is better").refused({"true"}),
      Entry(kTrain, "early_stopping_patience", &Config::early_stopping_patience,
            "end the run after so many evaluations in a row that were not better than the best; 0: never")
          .to(kManySteps),
      Entry(kTrain, "early_stopping_threshold", &Config::early_stopping_threshold,
            "an evaluation is better when it lies more than this below the best")
          .to(1e9),
      Entry(kTrain, "report_to", &Config::report_to, "services to report to")
          .one_of({"", "tensorboard"})
          .written({{"none", ""}, {"None", ""}, {"all", "tensorboard"}})
          .refused({"wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "trackio"})
          .listed(),
      Entry(kTrain, "logging_dir", &Config::logging_dir, "folder for TensorBoard's files; empty: runs in output_dir"),
      Entry(kTrain, "dry_run", &Config::dry_run, "one step on the longest batch, nothing is kept"),
  };
}

std::vector<Entry> generation_keys() {
  return {
      Entry(kGenerate, "prompt", &Config::prompt, "one user message; with raw the text to continue"),
      Entry(kGenerate, "raw", &Config::raw, "the prompt as it is, without the chat template"),
      Entry(kAnswers | kEval, "max_new_tokens", &Config::max_new_tokens, "tokens to add at most").from(1).to(kWide),
      Entry(kAnswers, "temperature", &Config::temperature, "0 takes the likeliest token").to(1e6),
      Entry(kAnswers, "top_k", &Config::top_k, "draw from the k likeliest tokens; 0: from all").to(kWide),
      Entry(kAnswers, "top_p", &Config::top_p, "draw from the likeliest tokens that hold this share together")
          .above(0)
          .to(1),
      Entry(kChat, "context_len", &Config::context_len,
            "tokens of a conversation that are kept; 0: 4096, or as many as the model knows")
          .to(kWide),
      Entry(kChat, "compare", &Config::compare, "the answer without the adapter beside the one with it"),
  };
}

std::vector<Entry> report_keys() {
  return {
      Entry(kEval, "exact_match", &Config::exact_match,
            "also let the model answer, greedily, and count the answers that are the expected ones"),
      Entry(kData, "samples", &Config::samples, "how many to show").from(1).to(kManySteps),
      Entry(kProfile, "steps", &Config::steps, "how many to measure").from(2).to(kManySteps),
      Entry(kProfile | kReport, "trace", &Config::trace,
            "timeline file: profile writes it, report draws a step of it (by itself RUN/trace.json)"),
      Entry(kDevices, "bench", &Config::bench, "measure the devices' speeds"),
      Entry(kDevices, "catalogue", &Config::catalogue, "list the cards that can be emulated"),
      Entry(kPlan | kProfile, "sweep", &Config::sweep,
            "several runs side by side: global_batch=16,32,64;devices=cuda:0|cuda:0,cuda:1"),
      Entry(kPlan | kProfile, "plot", &Config::plot, "SVG file of the sweep: tokens a second against global batch"),
      Entry(kPlan, "compare", &Config::compare, "the published schedules beside it"),
      Entry(kEvery, "json", &Config::json, "one JSON document on standard output and nothing else"),
  };
}

std::vector<Entry> export_keys() {
  return {
      Entry(kExport, "format", &Config::format, "of the file").one_of({"gguf"}),
      Entry(kExport | kImport | kReport, "output", &Config::output,
            "file to write; export and import make new files only"),
      Entry(kExport, "quantization", &Config::quantization, "type of the matrices; auto keeps the one that they have")
          .one_of({"auto", "f32", "f16", "bf16", "q8_0"})
          .written({{"fp32", "f32"}, {"float32", "f32"}, {"fp16", "f16"}, {"float16", "f16"}, {"bfloat16", "bf16"}}),
  };
}

std::vector<Entry> import_keys() {
  return {
      Entry(kImport, "file", &Config::file, "the other tool's YAML file").as_word(),
      Entry(kImport, "from", &Config::from, "the tool; auto looks at the keys")
          .one_of({"auto", "axolotl", "llamafactory"})
          .written({{"llama-factory", "llamafactory"}, {"llama_factory", "llamafactory"}}),
      Entry(kCompletion, "shell", &Config::shell, "the shell to complete in: bash, zsh or fish").as_word(),
  };
}

std::vector<Entry> init_keys() {
  return {
      Entry(kInit, "arch", &Config::arch, "its architecture: llama, qwen2, qwen3, ..."),
      Entry(kInit, "hidden_size", &Config::hidden_size, "width of the residual stream").from(1).to(kWide),
      Entry(kInit, "intermediate_size", &Config::intermediate_size, "width inside the MLP; 0: from hidden_size")
          .to(kWide),
      Entry(kInit, "num_hidden_layers", &Config::num_hidden_layers, "blocks").from(1).to(65536),
      Entry(kInit, "num_attention_heads", &Config::num_attention_heads, "query heads").from(1).to(65536),
      Entry(kInit, "num_key_value_heads", &Config::num_key_value_heads, "key and value heads; 0: from the query heads")
          .to(65536),
      Entry(kInit, "head_dim", &Config::head_dim, "width of a head; 0: hidden_size / num_attention_heads").to(65536),
      Entry(kInit, "vocab_size", &Config::vocab_size, "tokens, at least those of the byte-level tokenizer")
          .from(1)
          .to(kWide),
      Entry(kInit, "max_position_embeddings", &Config::max_position_embeddings, "longest sequence").from(1).to(1e9),
      Entry(kInit, "rope_theta", &Config::rope_theta, "base of the rotary frequencies").above(0).to(1e30),
      Entry(kInit, "num_experts", &Config::num_experts, "experts a block, of architectures that have them")
          .from(1)
          .to(model::kMaxExperts),
      Entry(kInit, "num_experts_per_tok", &Config::num_experts_per_tok, "experts that a token goes through")
          .from(1)
          .to(model::kMaxChoices),
      Entry(kInit, "moe_intermediate_size", &Config::moe_intermediate_size,
            "width inside an expert, where the architecture has one of its own; 0: hidden_size")
          .to(kWide),
      Entry(kInit, "tie_word_embeddings", &Config::tie_word_embeddings, "the head uses the embedding's weights"),
  };
}

}  // namespace

std::vector<Key> training_keys() {
  std::vector<Key> table;
  append(table, "Model and data", model_and_data_keys());
  append(table, "Method", method_keys());
  append(table, "Batch and length of the run", batch_keys());
  append(table, "Optimizer", optimizer_keys());
  append(table, "Precision and memory", precision_keys());
  append(table, "Pool", pool_keys());
  append(table, "Files and reports", file_keys());
  return table;
}

std::vector<Key> other_keys() {
  std::vector<Key> table;
  append(table, "Generation", generation_keys());
  append(table, "Export", export_keys());
  append(table, "Other programs", import_keys());
  append(table, "The model to make", init_keys());
  append(table, "Output", report_keys());
  return table;
}

}  // namespace rondo::train::config
