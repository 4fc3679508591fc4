// Configurations of Axolotl and LLaMA-Factory, written as their users write them, become ones that `rondo train`
// accepts; every key is accounted for.
#include "rondo/train/import.h"

#include <yaml-cpp/yaml.h>

#include <map>

#include "config_keys.h"
#include "config_test_util.h"

namespace rondo::train {
namespace {

using testing::HasSubstr;

struct Imported {
  ImportedConfig result;
  Config config;                              // what `rondo train` makes of it
  std::map<std::string, ImportedKey> by_key;  // of the keys of the file
};

/// Imports `text` and hands the result to the parser of `rondo train`.
Imported import(const std::string& text, const std::string& from = "auto") {
  const YamlFile theirs(text);
  Config request;
  request.file = theirs.path();
  request.from = from;
  Imported imported;
  absl::StatusOr<ImportedConfig> result = import_config(request);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return imported;
  imported.result = *std::move(result);
  for (const ImportedKey& key : imported.result.keys) {
    if (key.line > 0) imported.by_key[key.key] = key;
  }
  for (const auto& entry : YAML::Load(text)) {
    EXPECT_EQ(imported.by_key.count(entry.first.Scalar()), 1U) << entry.first.Scalar() << " is not accounted for";
  }
  EXPECT_EQ(imported.result.missing, "") << imported.result.yaml;
  const YamlFile ours(imported.result.yaml);
  absl::StatusOr<Config> config = parse_arguments("train", {ours.path(), "--dry_run"});
  EXPECT_TRUE(config.ok()) << config.status() << "\n" << imported.result.yaml;
  if (config.ok()) imported.config = *std::move(config);
  return imported;
}

TEST(ImportAxolotl, LoraInEightBits_KeepsWhatItMeans) {
  const Imported imported = import(R"(
base_model: NousResearch/Llama-2-7b-hf
model_type: LlamaForCausalLM
tokenizer_type: LlamaTokenizer
load_in_8bit: true
load_in_4bit: false
strict: false
datasets:
  - path: notes/alpaca.jsonl
    type: alpaca
dataset_prepared_path:
val_set_size: 0.05
output_dir: ./outputs/lora-out
sequence_len: 4096
pad_to_sequence_len: true
adapter: lora
lora_model_dir:
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: adamw_torch
lr_scheduler: cosine
learning_rate: 0.0002
train_on_inputs: false
group_by_length: false
bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
warmup_steps: 10
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
)");
  EXPECT_EQ(imported.result.tool, "Axolotl");
  const Config& config = imported.config;
  EXPECT_EQ(config.model_name_or_path, "NousResearch/Llama-2-7b-hf");
  EXPECT_EQ(config.dataset, "notes/alpaca.jsonl");
  EXPECT_EQ(config.data_format, "alpaca");
  EXPECT_EQ(config.val_size, 0.05);
  EXPECT_EQ(config.cutoff_len, 4096U);
  EXPECT_EQ(config.finetuning_type, "lora");
  EXPECT_EQ(config.quantization_bit, 8U);
  EXPECT_EQ(config.lora_rank, 32U);
  EXPECT_EQ(config.lora_dropout, 0.05);
  EXPECT_EQ(config.lora_target, "all");
  EXPECT_EQ(config.per_device_train_batch_size, 2U);
  EXPECT_EQ(config.gradient_accumulation_steps, 4U);
  EXPECT_EQ(config.num_train_epochs, 4.0);
  EXPECT_EQ(config.lr_scheduler_type, "cosine");
  EXPECT_EQ(config.warmup_steps, 10U);
  EXPECT_EQ(config.warmup_ratio, 0);
  EXPECT_THAT(imported.by_key.at("datasets").note, HasSubstr("chat template"));
  EXPECT_EQ(config.dtype, "bf16");
  EXPECT_EQ(config.save_strategy, "epoch");
  EXPECT_EQ(config.eval_steps, 1.0 / 16);  // four in each of four epochs
  EXPECT_EQ(imported.by_key.at("special_tokens").outcome, "left out");
  EXPECT_EQ(imported.by_key.at("micro_batch_size").outcome, "taken");
}

TEST(ImportAxolotl, Qlora_IsLoraOverFourBits) {
  const Imported imported = import(R"(
base_model: mistralai/Mistral-7B-v0.1
load_in_4bit: true
adapter: qlora
chat_template: tokenizer_default
datasets:
  - path: chats.jsonl
    type: chat_template
    field_messages: messages
output_dir: out
sequence_len: 2048
lora_r: 16
lora_alpha: 32
lora_target_modules:
  - q_proj
  - v_proj
  - k_proj
  - o_proj
micro_batch_size: 1
optimizer: paged_adamw_32bit
learning_rate: 2e-4
peft_use_rslora: true
peft_use_dora: true
wandb_project: shelf
wandb_entity:
)");
  EXPECT_EQ(imported.config.quantization_bit, 4U);
  EXPECT_EQ(imported.config.finetuning_type, "lora");
  EXPECT_EQ(imported.config.lora_target, "q_proj,v_proj,k_proj,o_proj");
  EXPECT_EQ(imported.config.data_format, "messages");
  EXPECT_EQ(imported.config.optim, "adamw");
  EXPECT_TRUE(imported.config.use_rslora);
  EXPECT_TRUE(imported.config.use_dora);
  // Axolotl's defaults, not ours.
  EXPECT_EQ(imported.config.gradient_accumulation_steps, 1U);
  EXPECT_EQ(imported.config.num_train_epochs, 1.0);
  EXPECT_EQ(imported.config.lr_scheduler_type, "cosine");
  EXPECT_EQ(imported.config.warmup_ratio, 0.03);
  EXPECT_EQ(imported.by_key.at("wandb_project").outcome, "not understood");
  EXPECT_EQ(imported.by_key.at("wandb_entity").outcome, "left out");
  EXPECT_EQ(imported.by_key.at("optimizer").outcome, "changed");
}

TEST(ImportAxolotl, TargetsByARegularExpression_AreNamedAndNotWritten) {
  const Imported imported = import(R"(
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: chats.jsonl
    type: chat_template
output_dir: out
adapter: lora
micro_batch_size: 1
sequence_len: 64
lora_target_modules: 'model.layers.[\d]+.(mlp|self_attn).(up|down|gate|q|k|v|o)_proj'
)");
  EXPECT_EQ(imported.config.lora_target, "all");
  EXPECT_EQ(imported.by_key.at("lora_target_modules").outcome, "not understood");
  EXPECT_THAT(imported.by_key.at("lora_target_modules").note, testing::HasSubstr("a regular expression"));
}

TEST(ImportAxolotl, WithoutAdapter_TrainsEveryWeight) {
  const Imported imported = import(R"(
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: books/all.txt
    type: completion
val_set_size: 0
output_dir: full
sequence_len: 1024
micro_batch_size: 8
gradient_accumulation_steps: 2
num_epochs: 2
max_steps: -1
optimizer: adamw_torch_fused
learning_rate: 1.0e-5
lr_scheduler: linear
bf16: false
fp16: false
deepspeed: deepspeed_configs/zero3.json
save_strategy: "no"
resume_from_checkpoint:
auto_resume_from_checkpoints: true
unfrozen_parameters:
)");
  EXPECT_EQ(imported.config.finetuning_type, "full");
  EXPECT_EQ(imported.config.data_format, "text");
  EXPECT_EQ(imported.config.dtype, "fp32");
  EXPECT_EQ(imported.config.save_steps, 0U);
  EXPECT_EQ(imported.config.max_steps, 0U);
  EXPECT_EQ(imported.config.resume_from_checkpoint, "auto");
  EXPECT_THAT(imported.by_key.at("deepspeed").note, HasSubstr("rondo plan"));
}

TEST(Import, StepsOfAShareAndEarlyEnds_KeepWhatTheyMean) {
  const Imported axolotl = import(R"(
base_model: m
datasets: [{path: a.jsonl, type: alpaca}]
sequence_len: 64
micro_batch_size: 1
val_set_size: 0.1
saves_per_epoch: 0
evals_per_epoch: 1
early_stopping_patience: 3
output_dir: out
)");
  EXPECT_EQ(axolotl.by_key.at("saves_per_epoch").outcome, "left out");
  EXPECT_EQ(axolotl.config.eval_strategy, "epoch");
  EXPECT_EQ(axolotl.config.early_stopping_patience, 3U);
  const Imported factory = import(R"(
stage: sft
model_name_or_path: m
dataset: a.jsonl
finetuning_type: lora
val_size: 0.1
save_steps: 0.2
eval_steps: 0.1
mask_history: true
early_stopping_steps: 2
output_dir: out
)");
  EXPECT_EQ(factory.config.save_steps, 0.2);
  EXPECT_EQ(factory.config.eval_steps, 0.1);
  EXPECT_TRUE(factory.config.mask_history);
  EXPECT_EQ(factory.config.early_stopping_patience, 2U);
}

TEST(ImportAxolotl, Defaults_AreAxolotlsNotOurs) {
  const std::string file = "base_model: m\ndatasets: [{path: a.jsonl}]\nmicro_batch_size: 1\noutput_dir: out\n";
  EXPECT_EQ(import(file).config.cutoff_len, 512U);
  EXPECT_EQ(import(file).config.warmup_ratio, 0.03);
  EXPECT_EQ(import(file + "warmup_steps: 0\n").config.warmup_ratio, 0);
  EXPECT_EQ(import(file + "warmup_ratio: 0.1\n").config.warmup_ratio, 0.1);
}

TEST(ImportAxolotl, WhatHasNoCounterpart_IsNamed) {
  const Imported imported = import(R"(
base_model: meta-llama/Llama-3.2-1B
datasets:
  - path: first/records
    type: sharegpt
    conversation: chatml
  - path: second.jsonl
    type:
      field_instruction: ask
      field_output: reply
output_dir: out
sequence_len: 512
adapter: lora
unfrozen_parameters: ["^lm_head.weight$"]
micro_batch_size: 1
optimizer: shampoo
learning_rate: 0.0001
rl: dpo
some_new_key: 7
fsdp_config:
  fsdp_offload_params: true
)");
  for (const char* key : {"unfrozen_parameters", "optimizer", "rl", "some_new_key"}) {
    EXPECT_EQ(imported.by_key.at(key).outcome, "not understood") << key;
  }
  EXPECT_EQ(imported.by_key.at("fsdp_config").outcome, "left out");
  EXPECT_THAT(imported.by_key.at("datasets").note, HasSubstr("conversation is not read"));
  EXPECT_EQ(imported.by_key.at("datasets").outcome, "changed");
  EXPECT_EQ(imported.by_key.at("optimizer").line, 16);
}

TEST(ImportAxolotl, PartsOfAnAdapterAndARate_KeepWhatTheyMean) {
  const Imported imported = import(R"(
base_model: meta-llama/Llama-3.2-1B
datasets:
  - path: chats.jsonl
    type: chat_template
output_dir: out
sequence_len: 512
adapter: lora
lora_modules_to_save: [embed_tokens, lm_head]
peft_layers_to_transform: [14, 15]
loraplus_lr_ratio: 16
micro_batch_size: 1
optimizer: adamw_bnb_8bit
learning_rate: 0.0001
lr_scheduler: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr: 1.0e-6
  num_cycles: 0.5
)");
  EXPECT_EQ(imported.config.modules_to_save, "embed_tokens,lm_head");
  EXPECT_EQ(imported.config.layers_to_transform, "14,15");
  EXPECT_EQ(imported.config.loraplus_lr_ratio, 16.0);
  EXPECT_EQ(imported.config.optim, "adamw_8bit");
  EXPECT_EQ(imported.config.lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(imported.config.lr_scheduler_kwargs, "min_lr=1.0e-6,num_cycles=0.5");
}

TEST(ImportLlamaFactory, LastBlocks_AreTrainedAlone) {
  const std::string start = "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\ndataset: d\ntemplate: qwen\n";
  const Imported last = import(start + "output_dir: o\nfreeze_trainable_layers: 3\nfreeze_trainable_modules: all\n");
  EXPECT_EQ(last.config.finetuning_type, "freeze");
  EXPECT_EQ(last.config.freeze_trainable_layers, 3U);
  EXPECT_EQ(last.by_key.at("freeze_trainable_modules").outcome, "left out");
  EXPECT_EQ(last.result.yaml.find("lora_alpha"), std::string::npos) << last.result.yaml;
  const Imported first = import(start + "output_dir: o\nfreeze_trainable_layers: -3\nfreeze_trainable_modules: mlp\n");
  EXPECT_EQ(first.by_key.at("freeze_trainable_layers").outcome, "not understood");
  EXPECT_EQ(first.by_key.at("freeze_trainable_modules").outcome, "not understood");
}

TEST(ImportLlamaFactory, LoraSupervised_KeepsWhatItMeans) {
  const Imported imported = import(R"(
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
### dataset
dataset: shelf_notes
dataset_dir: lists
template: llama3
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: saves/llama3-8b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
report_to: none
)");
  EXPECT_EQ(imported.result.tool, "LLaMA-Factory");
  const Config& config = imported.config;
  EXPECT_EQ(config.dataset, "lists/shelf_notes.json");
  EXPECT_THAT(imported.by_key.at("dataset").note, HasSubstr("a guess"));
  EXPECT_EQ(config.lora_rank, 8U);
  EXPECT_EQ(config.lora_alpha, 16.0);
  EXPECT_EQ(config.max_samples, 1000U);
  EXPECT_EQ(config.warmup_ratio, 0.1);
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_TRUE(config.overwrite_output_dir);
  EXPECT_THAT(imported.by_key.at("template").note, HasSubstr("llama3"));
}

TEST(ImportLlamaFactory, DataSetInfo_LeadsToTheFile) {
  const YamlFile anywhere("x: 1\n");
  const std::filesystem::path folder = std::filesystem::path(anywhere.path()).parent_path() / "data";
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "dataset_info.json") << R"({
    "orders": {"file_name": "orders.json", "formatting": "sharegpt", "columns": {"messages": "messages"},
               "tags": {"role_tag": "role", "content_tag": "content"}},
    "pairs": {"file_name": "pairs.json", "ranking": true, "num_samples": 9, "columns": {"images": "images"}},
    "hub_only": {"hf_hub_url": "someone/something"}})";
  const Imported imported =
      import("model_name_or_path: m\nstage: sft\ndataset: orders\ntemplate: qwen\ndataset_dir: " + folder.string() +
             "\noutput_dir: o\nfinetuning_type: lora\nlora_rank: 16\nuse_dora: true\n");
  EXPECT_TRUE(imported.config.use_dora);
  EXPECT_EQ(imported.config.dataset, (folder / "orders.json").string());
  EXPECT_EQ(imported.config.data_format, "messages");
  // LLaMA-Factory's defaults, not ours.
  EXPECT_EQ(imported.config.lora_alpha, 32.0);
  EXPECT_EQ(imported.config.per_device_train_batch_size, 8U);
  EXPECT_EQ(imported.config.gradient_accumulation_steps, 1U);
  const Imported hub =
      import("model_name_or_path: m\nstage: sft\ndataset: hub_only\ntemplate: qwen\ndataset_dir: " + folder.string() +
             "\noutput_dir: o\n");
  EXPECT_THAT(hub.by_key.at("dataset").note, HasSubstr("save it as JSON lines"));
  const Imported pairs =
      import("model_name_or_path: m\nstage: sft\ndataset: pairs\ntemplate: qwen\ndataset_dir: " + folder.string() +
             "\noutput_dir: o\n");
  for (const char* word : {"preferences", "num_samples", "images"}) {
    EXPECT_THAT(pairs.by_key.at("dataset").note, HasSubstr(word));
  }
}

TEST(ImportLlamaFactory, FullParameters_LeaveDeepSpeedToThePlan) {
  const Imported imported = import(R"(
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: identity
template: qwen
cutoff_len: 1024
output_dir: saves/full
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 1
pure_bf16: true
flash_attn: fa2
disable_gradient_checkpointing: true
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
use_galore: true
optim: adamw_torch
max_grad_norm: 0.5
)");
  EXPECT_EQ(imported.config.finetuning_type, "full");
  EXPECT_EQ(imported.config.recompute, "none");
  EXPECT_EQ(imported.config.eval_steps, 500U);
  EXPECT_EQ(imported.config.val_size, 0.1);
  EXPECT_EQ(imported.config.max_grad_norm, 0.5);
  EXPECT_EQ(imported.by_key.at("use_galore").outcome, "not understood");
  EXPECT_EQ(imported.by_key.at("deepspeed").outcome, "left out");
}

TEST(ImportLlamaFactory, QuantizedBaseAndPretraining_AreTold) {
  const Imported quantized = import(R"(
model_name_or_path: models/base
adapter_name_or_path: saves/before
quantization_bit: 4
quantization_method: bnb
double_quantization: false
stage: sft
finetuning_type: lora
lora_rank: 64
lora_alpha: 128
lora_dropout: 0.1
lora_target: q_proj,v_proj
additional_target: embed_tokens
dataset: chats
template: mistral
output_dir: out
fp16: true
warmup_steps: 0.1
)");
  EXPECT_EQ(quantized.config.quantization_bit, 4U);
  EXPECT_EQ(quantized.config.adapter_name_or_path, "saves/before");
  EXPECT_EQ(quantized.config.lora_alpha, 128.0);
  EXPECT_EQ(quantized.config.lora_target, "q_proj,v_proj");
  EXPECT_EQ(quantized.config.dtype, "fp16");
  EXPECT_EQ(quantized.config.modules_to_save, "embed_tokens");
  EXPECT_EQ(quantized.config.warmup_steps, 0.1);
  const Imported text = import(R"(
model_name_or_path: models/base
stage: pt
finetuning_type: lora
dataset: books
template: default
output_dir: out
stream: false
)");
  EXPECT_EQ(text.config.data_format, "text");
}

TEST(Import, NoiseOnEmbeddings_HasItsNameOfEachProgram) {
  const std::string axolotl = "base_model: m\ndatasets:\n  - path: d.jsonl\n    type: alpaca\noutput_dir: o\n";
  const std::string factory = "model_name_or_path: m\nstage: sft\ndataset: d\ntemplate: qwen\noutput_dir: o\n";
  for (const std::string& text : {axolotl + "neftune_noise_alpha: 5\n", axolotl + "noisy_embedding_alpha: 5\n",
                                  factory + "neftune_noise_alpha: 5\n", factory + "neftune_alpha: 5\n"}) {
    EXPECT_EQ(import(text).config.neftune_noise_alpha, 5.0) << text;
  }
  EXPECT_EQ(import(axolotl + "neftune_noise_alpha:\n").config.neftune_noise_alpha, 0.0);
}

std::string refusal_of_import(const std::string& text, const std::string& from = "auto") {
  const YamlFile file(text);
  Config request;
  request.file = file.path();
  request.from = from;
  const absl::StatusOr<ImportedConfig> result = import_config(request);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  return std::string(result.status().message());
}

TEST(Import, WhatIsNoConfiguration_IsRefused) {
  EXPECT_THAT(refusal_of_import("a: 1\nb: 2\n"), HasSubstr("give --from"));
  EXPECT_THAT(refusal_of_import("- a\n- b\n"), HasSubstr("found none"));
  EXPECT_THAT(refusal_of_import("base_model: [unclosed\n"), HasSubstr("the parser says"));
  EXPECT_THAT(refusal_of_import("\x01\n"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of_import("base_model: \"unclosed\n", "axolotl"), HasSubstr("EOF"));
  EXPECT_THAT(refusal_of_import("base_model: x\n---\nseed: 1\n", "axolotl"), HasSubstr("one YAML document"));
  EXPECT_THAT(refusal_of_import("base_model: x\n? [a, b]\n: c\n"), HasSubstr("no plain key"));
  EXPECT_THAT(refusal_of_import("base_model: x\nadapter: lora\nbase_model: y\n"),
              HasSubstr(":3: base_model: given twice, first in line 1"));
  EXPECT_THAT(refusal_of_import("base_model: " + std::string(100, '[') + std::string(100, ']') + "\n", "axolotl"),
              HasSubstr("levels"));
}

TEST(Import, WhatIsMissing_IsTold) {
  const YamlFile file("base_model: m\nsequence_len: 64\n");
  Config request;
  request.file = file.path();
  const absl::StatusOr<ImportedConfig> result = import_config(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->missing, HasSubstr("dataset"));
}

}  // namespace
}  // namespace rondo::train
