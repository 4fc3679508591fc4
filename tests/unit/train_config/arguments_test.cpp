// The command line: spellings of flags, what wins, what is refused and how the message reads.
#include "config_test_util.h"

namespace rondo::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Config parsed(const std::vector<std::string>& more) {
  auto config = parse_arguments("train", with_needed(more));
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config{};
}

std::string refusal_of_arguments(const std::vector<std::string>& more) {
  return message_of(parse_arguments("train", with_needed(more)));
}

TEST(Flags, EverySpelling_SetsTheSameKey) {
  EXPECT_DOUBLE_EQ(parsed({"--learning_rate", "2e-4"}).learning_rate, 2e-4);
  EXPECT_DOUBLE_EQ(parsed({"--learning-rate", "2e-4"}).learning_rate, 2e-4);
  EXPECT_DOUBLE_EQ(parsed({"--learning-rate=2e-4"}).learning_rate, 2e-4);
  EXPECT_DOUBLE_EQ(parsed({"--lr=0.0002"}).learning_rate, 2e-4);
}

TEST(Flags, Aliases_AreThoseOfOtherTools) {
  const Config config =
      parsed({"--steps=7", "--epochs=2", "--batch-size=3", "--seq_len=64", "--r=4", "--train_on_inputs", "--model=x"});
  EXPECT_EQ(config.max_steps, 7U);
  EXPECT_DOUBLE_EQ(config.num_train_epochs, 2);
  EXPECT_EQ(config.per_device_train_batch_size, 3U);
  EXPECT_EQ(config.cutoff_len, 64U);
  EXPECT_EQ(config.lora_rank, 4U);
  EXPECT_TRUE(config.train_on_prompt);
}

TEST(Flags, WithoutValue_AreTrue) {
  EXPECT_TRUE(parsed({"--train_on_prompt"}).train_on_prompt);
  EXPECT_TRUE(parsed({"--use_rslora", "--dry_run"}).use_rslora);
  EXPECT_EQ(parsed({"--resume_from_checkpoint"}).resume_from_checkpoint, "auto");
}

TEST(Flags, Booleans_AreReadInTheirSpellings) {
  for (const char* yes : {"true", "True", "yes", "1", "on"}) EXPECT_TRUE(parsed({"--dry_run", yes}).dry_run) << yes;
  for (const char* no : {"false", "FALSE", "no", "0", "off"}) EXPECT_FALSE(parsed({"--shuffle", no}).shuffle) << no;
}

TEST(Flags, GivenTwice_TheLaterWins) { EXPECT_EQ(parsed({"--max_steps=3", "--steps=9"}).max_steps, 9U); }

TEST(Flags, SwitchBeforeTheFile_LeavesTheFileAlone) {
  const YamlFile file("model: m\nseed: 7\n");
  const auto config = parse_arguments("plan", {"--json", file.path()});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->json);
  EXPECT_EQ(config->seed, 7U);
}

TEST(Flags, WinOverTheFile) {
  const YamlFile file("model: m\ndataset: d\noutput_dir: o\nlr: 1e-3\nmax_steps: 4\n");
  const auto config = parse_arguments("train", {file.path(), "--learning-rate", "5e-6"});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_DOUBLE_EQ(config->learning_rate, 5e-6);
  EXPECT_EQ(config->max_steps, 4U);
}

TEST(Sources, Each_WinsOverTheOnesBeforeIt) {
  const Config defaults;
  const YamlFile file("epochs: 7\nlora_r: 5\nwarmup-ratio: 0.5\ndevices: [cpu]\n");
  // The same keys by other names, and in another order than the file's.
  const auto config = parse_arguments("train", with_needed({"--r=6", file.path(), "--num-train-epochs", "9"}));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_DOUBLE_EQ(config->num_train_epochs, 9);  // flag over file
  EXPECT_EQ(config->lora_rank, 6U);               // also one that stands before the file
  EXPECT_DOUBLE_EQ(config->warmup_ratio, 0.5);    // file over default
  EXPECT_EQ(config->devices, "cpu");
  EXPECT_DOUBLE_EQ(config->learning_rate, defaults.learning_rate);  // neither
  EXPECT_NE(defaults.num_train_epochs, 7);
  EXPECT_NE(defaults.warmup_ratio, 0.5);
}

TEST(Flags, NegativeNumber_IsAValueAndOutOfRange) {
  const auto config = parse_arguments("generate", {"--model=m", "--prompt=p", "--temperature", "-1"});
  EXPECT_THAT(message_of(config), testing::AllOf(StartsWith("--temperature: "), HasSubstr("'-1'")));
  EXPECT_THAT(refusal_of_arguments({"--max_steps", "-2"}), StartsWith("--max_steps: expected a whole number"));
}

TEST(Flags, PromptWithDashes_IsTakenAfterEquals) {
  const auto config = parse_arguments("generate", {"--model=m", "--prompt=--help me"});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->prompt, "--help me");
  EXPECT_THAT(message_of(parse_arguments("generate", {"--model=m", "--prompt", "--raw"})), HasSubstr("no value"));
}

TEST(Flags, UnknownKey_NamesTheNearest) {
  EXPECT_THAT(refusal_of_arguments({"--learnig-rate", "1"}), HasSubstr("did you mean learning_rate"));
  EXPECT_THAT(refusal_of_arguments({"--lora_rnk=1"}), HasSubstr("did you mean lora_rank"));
  EXPECT_THAT(refusal_of_arguments({"--epoch=1"}), HasSubstr("num_train_epochs"));
  EXPECT_THAT(refusal_of_arguments({"--zzzzzzzzzz"}), HasSubstr("rondo help train"));
}

TEST(Flags, KeyOfAnotherVerb_IsRefusedByName) {
  EXPECT_THAT(refusal_of_arguments({"--prompt", "x"}), HasSubstr("rondo generate"));
  EXPECT_THAT(message_of(parse_arguments("init", {"--arch=llama", "--output_dir=o", "--lora_rank=3"})),
              HasSubstr("rondo train"));
}

TEST(Flags, Values_AreRefusedOutsideTheirRange) {
  const std::vector<std::string> bad = {"--learning_rate=abc",
                                        "--learning_rate=nan",
                                        "--learning_rate=inf",
                                        "--learning_rate=-1e-4",
                                        "--learning_rate=",
                                        "--learning_rate=1e-5x",
                                        "--max_steps=1_000",
                                        "--max_steps=1.5",
                                        "--max_steps=0x10",
                                        "--seed=-1",
                                        "--seed=99999999999999999999",
                                        "--lora_rank=0",
                                        "--lora_alpha=0",
                                        "--lora_dropout=1",
                                        "--lora_target=",
                                        "--lora_target=q_proj,,v_proj",
                                        "--warmup_ratio=1.01",
                                        "--adam_beta1=1",
                                        "--adam_beta2=-0.1",
                                        "--adam_epsilon=0",
                                        "--cutoff_len=0",
                                        "--batch_size=0",
                                        "--gradient_accumulation_steps=0",
                                        "--num_train_epochs=0",
                                        "--dtype=fp8",
                                        "--dtype=",
                                        "--finetuning_type=qlora",
                                        "--lr_scheduler_type=step",
                                        "--recompute=some",
                                        "--shuffle=maybe",
                                        "--logging_steps=0",
                                        "--save_steps=2.5",
                                        "--save_steps=-0.5",
                                        "--val_size=-0.1",
                                        "--val_size=1.5",
                                        "--devices=",
                                        "--staleness=2",
                                        "--data_format=csv"};
  for (const std::string& flag : bad) {
    EXPECT_THAT(refusal_of_arguments({flag}), testing::AllOf(StartsWith("--"), HasSubstr("expected"))) << flag;
  }
}

TEST(Flags, WhatThisBuildCannotDo_IsRefusedNotIgnored) {
  for (const char* flag : {"--greater_is_better", "--optim=lion_8bit", "--report_to=wandb"}) {
    EXPECT_THAT(refusal_of_arguments({flag}), HasSubstr("not available in this build")) << flag;
  }
  EXPECT_TRUE(parse_arguments("plan", {"--model=m", "--compare"}).ok());
  EXPECT_EQ(parsed({"--report_to=none", "--packing=false", "--optim=adamw_torch", "--staleness=0"}).optim, "adamw");
  EXPECT_EQ(parsed({"--staleness=1"}).staleness, 1U);
  EXPECT_EQ(parsed({"--schedule=zb_v"}).schedule, "zb_v");
}

TEST(Flags, Strings_TakeTheSpellingsOfOtherTools) {
  EXPECT_EQ(parsed({"--dtype=bfloat16"}).dtype, "bf16");
  EXPECT_EQ(parsed({"--lora_target=all-linear"}).lora_target, "all");
  EXPECT_EQ(parsed({"--lora_target", "q_proj, v_proj"}).lora_target, "q_proj,v_proj");
  EXPECT_EQ(parsed({"--resume_from_checkpoint=false"}).resume_from_checkpoint, "");
}

// transformers' default, which configurations with all its arguments hold.
TEST(Flags, MaxStepsOfMinusOne_LeavesTheEpochsToDecide) {
  EXPECT_EQ(parsed({"--max_steps=-1"}).max_steps, 0U);
  EXPECT_EQ(parsed({"--max_steps", "-1", "--epochs=2"}).num_train_epochs, 2.0);
}

TEST(Flags, DataSets_AreAListWithAWeightEach) {
  const auto with_sets = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model=m", "--output_dir=o"});
    return parse_arguments("train", flags);
  };
  const auto config = with_sets({"--dataset=a.jsonl, b.jsonl", "--dataset_weights", "2, 0.5", "--sample_packing"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dataset, "a.jsonl,b.jsonl");
  EXPECT_EQ(config->dataset_weights, "2,0.5");
  EXPECT_TRUE(config->packing);
  for (const char* weights : {"0,1", "-1,1", "1,", "1,x", "1001,1", "nan,1", "1", "1,2,3"}) {
    EXPECT_THAT(message_of(with_sets({"--dataset=a,b", std::string("--dataset_weights=") + weights})),
                StartsWith("--dataset_weights: expected "))
        << weights;
  }
}

TEST(Flags, BytesThatAreNoText_AreRefused) {
  EXPECT_THAT(refusal_of_arguments({"--dataset=\xff\xfe"}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of_arguments({"--\xff=3"}), HasSubstr("unknown key"));
  EXPECT_THAT(
      refusal_of_arguments({"--max_length=5"}),
      HasSubstr("unknown key; the nearest one is cutoff_len, and `rondo help train` lists those that there are"));
  EXPECT_THAT(refusal_of_arguments({"--" + std::string(100000, 'a')}), HasSubstr("the nearest one is "));
}

TEST(Arguments, OddWords_AreRefused) {
  EXPECT_THAT(refusal_of_arguments({"-x"}), HasSubstr("'-x'"));
  EXPECT_THAT(refusal_of_arguments({"--"}), HasSubstr("'--'"));
  EXPECT_THAT(refusal_of_arguments({"--=3"}), HasSubstr("unknown key"));
  EXPECT_THAT(refusal_of_arguments({""}), HasSubstr("expected --key value"));
  EXPECT_THAT(message_of(parse_arguments("train", {"a.yaml", "b.yaml"})), HasSubstr("'b.yaml'"));
  EXPECT_THAT(message_of(parse_arguments("trian", {})), HasSubstr("'trian'"));
}

TEST(Verbs, WithoutWhatTheyNeed_NameTheKey) {
  EXPECT_THAT(message_of(parse_arguments("train", {"--dataset=d", "--output_dir=o"})),
              StartsWith("model_name_or_path: "));
  EXPECT_THAT(message_of(parse_arguments("train", {"--model=m", "--output_dir=o"})), StartsWith("dataset: "));
  EXPECT_THAT(message_of(parse_arguments("train", {"--model=m", "--dataset=d"})), StartsWith("output_dir: "));
  EXPECT_THAT(message_of(parse_arguments("eval", {"--model=m"})), StartsWith("eval_dataset: "));
  EXPECT_THAT(message_of(parse_arguments("generate", {"--model=m"})), StartsWith("prompt: "));
  EXPECT_THAT(message_of(parse_arguments("data", {"--model=m"})), StartsWith("dataset: "));
  EXPECT_THAT(message_of(parse_arguments("plan", {})), StartsWith("model_name_or_path: "));
  EXPECT_THAT(message_of(parse_arguments("init", {"--output_dir=o"})), StartsWith("arch: "));
  EXPECT_TRUE(parse_arguments("devices", {}).ok());
  EXPECT_TRUE(parse_arguments("train", {"--model=m", "--dataset=d", "--dry_run"}).ok());
  EXPECT_TRUE(parse_arguments("train", {"--model=m", "--output_dir=o", "--devices=timed:rtx4090*4"}).ok());
}

TEST(Together, Contradictions_AreRefused) {
  EXPECT_THAT(refusal_of_arguments({"--cutoff_len=16777216", "--batch_size=65536"}), StartsWith("--cutoff_len: "));
  EXPECT_THAT(refusal_of_arguments({"--eval_dataset=e", "--val_size=0.1"}), StartsWith("--val_size: "));
  EXPECT_THAT(refusal_of_arguments({"--eval_steps=5"}), HasSubstr("eval_dataset"));
  EXPECT_THAT(refusal_of_arguments({"--mask_history", "--train_on_prompt"}), StartsWith("--mask_history: "));
  EXPECT_THAT(refusal_of_arguments({"--finetuning_type=full", "--adapter_name_or_path=a"}),
              StartsWith("--adapter_name_or_path"));
  EXPECT_THAT(refusal_of_arguments({"--overwrite_output_dir", "--resume_from_checkpoint=auto"}),
              HasSubstr("resume_from_checkpoint"));
  EXPECT_EQ(parsed({"--val_size=3"}).val_size, 3.0);
}

}  // namespace
}  // namespace rondo::train
