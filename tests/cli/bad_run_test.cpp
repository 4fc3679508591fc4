// Bad devices, checkpoints to resume from, output folders, and models to make.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "patience.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

class BadRun : public testing::TestWithParam<BadInput> {};

TEST_P(BadRun, Refused_NamingTheCulprit) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Devices, BadRun,
    testing::Values(command("UnknownBackend", train({"--devices=tpu:0"}), {"tpu"}),
                    command("UnknownCard", train({"--devices=emulated:rtx9999"}), {"rtx9999"}),
                    command("NoSuchCpu", train({"--devices=cpu:7"}), {"cpu:7"}),
                    command("NoTimes", train({"--devices=cpu*0"}), {"cpu*0"}),
                    command("HoleInTheList", train({"--devices=cpu,,cpu"}), {"'cpu,,cpu'"}),
                    command("TimedMixed", train({"--devices=timed:rtx4090,cpu"}), {"devices"}),
                    command("CatalogueMissing", train({"--devices=emulated:cards.yaml#a"}), {"cards.yaml"}),
                    BadInput{"CatalogueBroken",
                             [](const Workspace& workspace) {
                               workspace.write("cards.yaml", "fast:\n  flops: {bf16: quick}\n");
                               return train({"--devices=emulated:cards.yaml#fast"});
                             },
                             {"cards.yaml", "fast"}},
                    command("ListOfUnknown", {"devices", "--devices=warp:3"}, {"warp"}),
                    command("LimitNoSize", train({"--memory_limit=cpu:0=lots"}), {"memory_limit", "lots"}),
                    command("LimitOfNoDevice", train({"--memory_limit=cuda:5=8GiB"}), {"cuda:5"}),
                    command("HostLimitNoSize", train({"--host_memory_limit=8Gigs"}), {"host_memory_limit", "8Gigs"}),
                    command("HostMissing", train({"--host=hosts.yaml#big"}), {"hosts.yaml"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(Method, BadRun,
                         testing::Values(command("UnknownTarget", train({"--lora_target=w_proj"}), {"w_proj"}),
                                         command("OneTargetUnknown", train({"--lora_target=q_proj,w_proj"}),
                                                 {"w_proj"})),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Resume, BadRun,
    testing::Values(command("Missing", train({"--resume_from_checkpoint=nowhere"}), {"nowhere"}),
                    command("NoCheckpoint", train({"--resume_from_checkpoint=model"}), {"trainer_state.json"}),
                    BadInput{"StateNoJson",
                             [](const Workspace& workspace) {
                               workspace.write("checkpoint-1/trainer_state.json", "{");
                               return train({"--resume_from_checkpoint=checkpoint-1"});
                             },
                             {"trainer_state.json"}},
                    BadInput{"StateOfAnotherProgram",
                             [](const Workspace& workspace) {
                               workspace.write("checkpoint-1/trainer_state.json", "{\"global_step\": 1}");
                               return train({"--resume_from_checkpoint=checkpoint-1"});
                             },
                             {"trainer_state.json"}},
                    BadInput{"AnotherSeed",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train({"--output_dir=first"})).status, 0);
                               return train({"--resume_from_checkpoint=first/checkpoint-1", "--seed=8"});
                             },
                             {"seed"}},
                    BadInput{"OptimizerMissing",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train({"--output_dir=first"})).status, 0);
                               workspace.remove("first/checkpoint-1/optimizer.safetensors");
                               return train({"--resume_from_checkpoint=first/checkpoint-1"});
                             },
                             {"optimizer.safetensors"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OutputDir, BadRun,
    testing::Values(command("File", train({"--output_dir=chats.jsonl"}), {"output_dir", "chats.jsonl"}),
                    command("BelowAFile", train({"--output_dir=chats.jsonl/out"}), {"output_dir", "chats.jsonl/out"}),
                    command("NotWritable", train({"--output_dir=/proc/out"}), {"output_dir", "/proc/out"}),
                    command("TheModelItself", train({"--output_dir=model"}), {"output_dir", "model"}),
                    BadInput{"EarlierRun",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train()).status, 0);
                               return train();
                             },
                             {"output_dir", "out"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Init, BadRun,
    testing::Values(command("UnknownArchitecture", {"init", "--arch=mamba", "--output_dir=out"}, {"mamba"}),
                    command("HeadsDoNotDivide",
                            {"init", "--arch=llama", "--output_dir=out", "--hidden_size=65", "--num_attention_heads=4"},
                            {"hidden_size"}),
                    command("VocabularyTooSmall", {"init", "--arch=llama", "--output_dir=out", "--vocab_size=10"},
                            {"vocab_size"}),
                    command("FolderInUse", {"init", "--arch=llama", "--output_dir=model"}, {"model"}),
                    command("FolderIsAFile", {"init", "--arch=llama", "--output_dir=chats.jsonl"}, {"chats.jsonl"}),
                    command("FolderBelowAFile", {"init", "--arch=llama", "--output_dir=chats.jsonl/model"},
                            {"output_dir", "chats.jsonl/model"}),
                    command("FolderNotWritable", {"init", "--arch=llama", "--output_dir=/proc/model"},
                            {"output_dir", "/proc/model"}),
                    command("LayersZero", {"init", "--arch=llama", "--output_dir=out", "--num_hidden_layers=0"},
                            {"--num_hidden_layers"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OtherVerbs, BadRun,
    testing::Values(command("PlanWithoutModel", {"plan", "--model=nowhere"}, {"nowhere"}),
                    command("GenerateWithoutModel", {"generate", "--model=nowhere", "--prompt=x"}, {"nowhere"}),
                    command("GenerateOnTimed", {"generate", "--model=model", "--prompt=x", "--devices=timed:rtx4090"},
                            {"timed:rtx4090"}),
                    command("EvaluateOnTimed",
                            {"eval", "--model=model", "--eval_dataset=chats.jsonl", "--devices=timed:rtx4090"},
                            {"timed:rtx4090"}),
                    BadInput{"NoTemplateForAMessage",
                             [](const Workspace& workspace) -> Words {
                               workspace.remove("model/chat_template.jinja");
                               workspace.write("model/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
                               return {"generate", "--model=model", "--prompt=x", "--devices=cpu"};
                             },
                             {"chat template"}}),
    name_of);

/// What computing with the processor takes beside the device's memory counts: 2.6 MiB with AVX2 and two threads, so
/// that a limit which only the rest would keep is refused. `plan` says the same without a run.
TEST(HostLimit, BelowWhatTheRunAnnounces_IsRefusedBeforeIt) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory, some 90 MiB, differs by more than the margin";
  const Workspace workspace;
  ASSERT_EQ(
      workspace.run({"init", "--arch=llama", "--output_dir=wide", "--hidden_size=256", "--num_hidden_layers=2"}).status,
      0);
  std::string text;
  while (text.size() < 1500) text += "the river runs down to the sea ";
  workspace.write("long.jsonl", R"({"text":")" + text + "\"}\n");
  const auto run = [&](Words words, const std::string& last) {
    const Words of_the_run = {"--model=wide", "--dataset=long.jsonl", "--devices=cpu",
                              "--threads=2",  "--cutoff_len=512",     "--finetuning_type=lora"};
    words.insert(words.end(), of_the_run.begin(), of_the_run.end());
    words.push_back(last);
    return workspace.run(words);
  };
  const auto train = [&](const std::string& limit) { return run({"train", "--output_dir=out", "--dry_run"}, limit); };
  const Outcome free = train("--seed=42");
  ASSERT_EQ(free.status, 0) << free.err;
  const std::size_t row = free.err.find("\n  host ");  // "  host ...  18.93 MiB"
  ASSERT_NE(row, std::string::npos) << free.err;
  const std::size_t unit = free.err.find(" MiB\n", row);
  ASSERT_EQ(unit, free.err.find('\n', row + 1) - 4) << free.err;
  const double announced = std::stod(free.err.substr(free.err.rfind(' ', unit - 1))) * 1048576;
  const auto limit = [](double bytes) { return "--host_memory_limit=" + std::to_string(std::llround(bytes)); };
  const Outcome tight = train(limit(announced - 1.3 * 1048576));
  EXPECT_NE(tight.status, 0);
  EXPECT_THAT(tight.err, testing::HasSubstr("error: host memory: the plan needs"));
  const Outcome enough = train(limit(announced + 1.3 * 1048576));
  EXPECT_EQ(enough.status, 0) << enough.err;

  const double planned = json_of(run({"plan"}, "--json")).at("host_peak_bytes").get<double>();
  EXPECT_NEAR(planned, announced, 1.3 * 1048576);
}

}  // namespace
}  // namespace rondo::cli
