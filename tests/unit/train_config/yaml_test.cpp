// The configuration file: what it may hold, and that every fault is told with file, line and key.
#include <random>

#include "config_test_util.h"

namespace rondo::train {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

std::string refusal_of_yaml(const std::string& text) {
  const YamlFile file(text);
  auto arguments = needed();
  arguments.insert(arguments.begin(), file.path());
  const std::string message = message_of(parse_arguments("train", arguments));
  EXPECT_THAT(message, HasSubstr(file.path()));
  return message;
}

Config read(const std::string& text) {
  const YamlFile file(text);
  auto arguments = needed();
  arguments.insert(arguments.begin(), file.path());
  auto config = parse_arguments("train", arguments);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config{};
}

TEST(Yaml, KeysOfEveryType_AreRead) {
  const Config config = read(
      "# a comment\nlearning-rate: 2e-4\nmax_steps: 12   # another\nshuffle: no\nlora_target: [q_proj, v_proj]\n"
      "devices:\n  - cuda:0\n  - cpu\nseed: \"9\"\neval_dataset: ~\nresume_from_checkpoint: true\n");
  EXPECT_DOUBLE_EQ(config.learning_rate, 2e-4);
  EXPECT_EQ(config.max_steps, 12U);
  EXPECT_FALSE(config.shuffle);
  EXPECT_EQ(config.lora_target, "q_proj,v_proj");
  EXPECT_EQ(config.devices, "cuda:0,cpu");
  EXPECT_EQ(config.seed, 9U);
  EXPECT_EQ(config.eval_dataset, "");
  EXPECT_EQ(config.resume_from_checkpoint, "auto");
}

TEST(Yaml, ScalarsWithColonsAndLists_StayWhole) {
  EXPECT_EQ(read("devices: emulated:rtx4090*4,rtx3060*2\n").devices, "emulated:rtx4090*4,rtx3060*2");
  EXPECT_EQ(read("memory_limit: [cuda:0=8GiB, cpu:0=4GiB]\n").memory_limit, "cuda:0=8GiB,cpu:0=4GiB");
  EXPECT_EQ(read("\xef\xbb\xbfmax_steps: 5\r\nseed: 6\r\n").max_steps, 5U);
}

TEST(Yaml, KeysThatMap_TakeMapsAndText) {
  const std::string kind = "lr_scheduler_type: cosine_with_min_lr\n";
  EXPECT_EQ(read(kind + "lr_scheduler_kwargs: {min_lr: 1e-6, num_cycles: 2}\n").lr_scheduler_kwargs,
            "min_lr=1e-6,num_cycles=2");
  EXPECT_EQ(read(kind + "lr_scheduler_kwargs:\n  min_lr_rate: 0.1\n").lr_scheduler_kwargs, "min_lr_rate=0.1");
  EXPECT_EQ(read(kind + "lr_scheduler_kwargs: min_lr_rate=0.1\n").lr_scheduler_kwargs, "min_lr_rate=0.1");
  EXPECT_EQ(read("lr_scheduler_kwargs: {}\n").lr_scheduler_kwargs, "");
  EXPECT_EQ(read("rank_pattern: {q_proj: 16, layers.0.mlp.up_proj: 4}\n").rank_pattern,
            "q_proj=16,layers.0.mlp.up_proj=4");
  EXPECT_THAT(refusal_of_yaml("lr_scheduler_kwargs: {min_lr: 1e-6}\n"),
              HasSubstr("run.yaml:1: lr_scheduler_kwargs: linear has no argument 'min_lr'"));
  EXPECT_THAT(refusal_of_yaml("lr_scheduler_kwargs: {min_lr: [1]}\n"),
              HasSubstr("names and values, found a list in it"));
}

TEST(Yaml, Null_IsAKeyThatIsNotGiven) {
  const Config config =
      read("save_total_limit: null\nlora_target: ~   # all\nlearning_rate: Null\nseed:\n  NULL\ndtype: ~");
  const Config defaults;
  EXPECT_EQ(config.save_total_limit, defaults.save_total_limit);
  EXPECT_EQ(config.lora_target, defaults.lora_target);
  EXPECT_EQ(config.learning_rate, defaults.learning_rate);
  EXPECT_EQ(config.seed, defaults.seed);
  EXPECT_EQ(config.dtype, defaults.dtype);
  EXPECT_EQ(read("{seed: null, lr: 1e-3}").learning_rate, 1e-3);
  EXPECT_THAT(refusal_of_yaml("seed: null\nseed: 3\n"), HasSubstr("given twice"));
  EXPECT_THAT(refusal_of_yaml("lora_ranc: null\n"), HasSubstr("lora_rank?"));
}

TEST(Yaml, NothingBehindAKey_IsRefused) {
  EXPECT_THAT(refusal_of_yaml("learning_rate:\n"), HasSubstr("run.yaml:1: learning_rate: expected a number"));
  EXPECT_THAT(refusal_of_yaml("learning_rate:\nmodel_revision: null\n"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal_of_yaml("seed: 3\n\nlearning_rate:   # later\n\n# null\n"),
              HasSubstr("run.yaml:3: learning_rate"));
}

TEST(Yaml, WrongValue_IsToldWithFileLineAndKey) {
  EXPECT_THAT(refusal_of_yaml("seed: 1\nlearning_rate: fast\n"),
              HasSubstr("run.yaml:2: learning_rate: expected a number from 0 to 1000, found 'fast'"));
  EXPECT_THAT(refusal_of_yaml("\n\nlora_rank: 1.5\n"), HasSubstr("run.yaml:3: lora_rank: expected a whole number"));
  EXPECT_THAT(refusal_of_yaml("shuffle: 2\n"), HasSubstr("run.yaml:1: shuffle: expected true or false"));
  EXPECT_THAT(refusal_of_yaml("learning_rate: .nan\n"), HasSubstr("run.yaml:1: learning_rate"));
  EXPECT_THAT(refusal_of_yaml("learning_rate: .inf\n"), HasSubstr("'.inf'"));
  EXPECT_THAT(refusal_of_yaml("optim: muon\n"), HasSubstr("run.yaml:1: optim: 'muon' is not available"));
}

TEST(Yaml, UnknownKey_IsToldWithTheNearest) {
  EXPECT_THAT(refusal_of_yaml("seed: 1\nlora_ranc: 4\n"),
              AllOf(HasSubstr("run.yaml:2: lora_ranc"), HasSubstr("lora_rank?")));
}

TEST(Yaml, KeysOfOtherPrograms_AreToldWithWhatTranslatesTheirFiles) {
  EXPECT_THAT(refusal_of_yaml("base_model: m\nsequence_len: 8\nmicro_batch_size: 1\nflash_attention: true\n"),
              AllOf(HasSubstr("run.yaml:4: flash_attention: unknown key"), HasSubstr("`rondo import "),
                    HasSubstr("of Axolotl")));
  EXPECT_THAT(refusal_of_yaml("model_name_or_path: m\nfinetuning_type: lora\ncutoff_len: 8\nstage: sft\n"),
              AllOf(HasSubstr("run.yaml:4: stage: unknown key"), HasSubstr("of LLaMA-Factory")));
  // A file of ours, and a key that no program has.
  EXPECT_THAT(refusal_of_yaml("model_name_or_path: m\nbf16: true\n"), testing::Not(HasSubstr("import")));
  EXPECT_THAT(refusal_of_yaml("base_model: m\nsequence_len: 8\nmicro_batch_size: 1\nflash: true\n"),
              testing::Not(HasSubstr("import")));
}

TEST(Yaml, KeyTwice_IsRefusedWithBothPlaces) {
  EXPECT_THAT(refusal_of_yaml("seed: 1\nseed: 1\n"),
              AllOf(HasSubstr("run.yaml:2: seed: given twice"), HasSubstr("run.yaml:1")));
  EXPECT_THAT(refusal_of_yaml("lr: 1\nlearning_rate: 1\n"), HasSubstr("learning_rate: given twice"));
}

TEST(Yaml, ValuesThatAreNoScalars_AreRefused) {
  EXPECT_THAT(refusal_of_yaml("learning_rate:\n"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal_of_yaml("learning_rate: [1, 2]\n"), HasSubstr("found a list"));
  EXPECT_THAT(refusal_of_yaml("nvme_path: [a, b]\n"), HasSubstr("found a list"));
  EXPECT_THAT(refusal_of_yaml("optimizer:\n  lr: 3\n"), HasSubstr("run.yaml:1: optimizer: unknown key"));
  EXPECT_THAT(refusal_of_yaml("seed:\n  lr: 3\n"), HasSubstr("found a map"));
  EXPECT_THAT(refusal_of_yaml("lora_target: [[q_proj]]\n"), HasSubstr("found in it a list"));
  EXPECT_THAT(refusal_of_yaml("lora_target: []\n"), HasSubstr("lora_target"));
  EXPECT_THAT(refusal_of_yaml("lora_target: [\"a,b\"]\n"), HasSubstr("one name an element"));
  EXPECT_THAT(refusal_of_yaml("? [a]\n: 3\n"), HasSubstr("a list as a key"));
  EXPECT_THAT(refusal_of_yaml("lora_target: &x [*x]\n"), HasSubstr("run.yaml:1"));
}

TEST(Yaml, FilesThatAreNoConfiguration_AreRefused) {
  EXPECT_THAT(refusal_of_yaml(""), EndsWith("found none"));
  EXPECT_THAT(refusal_of_yaml("# nothing\n\n---\n"), EndsWith("found none"));
  EXPECT_THAT(refusal_of_yaml("just words\n"), HasSubstr("found text"));
  EXPECT_THAT(refusal_of_yaml("- a\n- b\n"), HasSubstr("found a list"));
  EXPECT_THAT(refusal_of_yaml("seed: 1\nlr: [1\n"), HasSubstr("run.yaml:"));
  EXPECT_THAT(refusal_of_yaml("seed: 'open\n"), HasSubstr("run.yaml:"));
  EXPECT_THAT(refusal_of_yaml("seed: 1\n\tlr: 2\n"), HasSubstr("run.yaml:2: expected spaces"));
  EXPECT_THAT(refusal_of_yaml("seed: 1\n  lr: 2\n"), HasSubstr("run.yaml:"));
  EXPECT_THAT(refusal_of_yaml("seed: 1\n---\nseed: 2\n"), HasSubstr("one YAML document"));
  EXPECT_THAT(refusal_of_yaml("seed: *nowhere\n"), HasSubstr("run.yaml:1"));
  EXPECT_THAT(refusal_of_yaml(std::string("seed: 1\n\x04\nlr: 2\n", 16)), HasSubstr("run.yaml:2: expected UTF-8 text"));
  EXPECT_THAT(refusal_of_yaml("seed: 1\ndataset: \xff\xfe\n"), HasSubstr("run.yaml:2: expected UTF-8 text"));
  EXPECT_THAT(refusal_of_yaml(std::string(5000, '[')), HasSubstr("run.yaml"));
  EXPECT_THAT(refusal_of_yaml("a: " + std::string(2 << 20, 'x')), HasSubstr("at most"));
}

TEST(Yaml, FileThatCannotBeRead_IsNamed) {
  EXPECT_THAT(message_of(parse_arguments("train", {"/nowhere/run.yaml"})), HasSubstr("/nowhere/run.yaml"));
  EXPECT_THAT(message_of(parse_arguments("train", {testing::TempDir()})), HasSubstr("not a regular file"));
}

TEST(Yaml, RandomMutations_AreReadOrRefusedInOneLine) {
  const std::string good =
      "model: m\ndataset: d\noutput_dir: o\nlora_target: [q_proj, \"v_proj\"]\nlr: 2e-4\n# note\nseed: &x 3\n"
      "max_steps: *x\ndevices:\n  - cuda:0\n  - cpu\n";
  const std::string pieces = "[]{}:,-&*!|>'\"%@`#\n\t ?~x1\\\x04\xff\xc3";
  std::mt19937_64 random(11);
  const auto below = [&random](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(text.size());
      if (below(3) == 0) text.erase(at, 1 + below(6));
      text.insert(std::min(at, text.size()), 1, pieces[below(pieces.size())]);
    }
    const YamlFile file(text);
    const auto config = parse_arguments("train", {file.path()});
    if (!config.ok()) message_of(config);
  }
}

TEST(Yaml, TrainingKeys_ServeOtherVerbsToo) {
  const YamlFile file("model: m\ndataset: d\nlearning_rate: 1e-3\noutput_dir: o\n");
  for (const char* verb : {"data", "plan", "devices"}) {
    EXPECT_TRUE(parse_arguments(verb, {file.path()}).ok()) << verb;
  }
  EXPECT_TRUE(parse_arguments("generate", {file.path(), "--prompt=x"}).ok());
}

}  // namespace
}  // namespace rondo::train
