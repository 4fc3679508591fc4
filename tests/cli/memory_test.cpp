// Main memory from the outside: what a run announces, takes and may be held to.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "patience.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

/// The total of the host's row, bytes: "  host ...  18.93 MiB".
double announced_host(const std::string& text) {
  const std::size_t row = text.find("\n  host ");
  if (row == std::string::npos) return 0;
  const std::size_t unit = text.find(" MiB\n", row);
  if (unit + 4 != text.find('\n', row + 1)) return 0;
  return std::stod(text.substr(text.rfind(' ', unit - 1))) * 1048576;
}

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
  const double announced = announced_host(free.err);
  ASSERT_GT(announced, 0) << free.err;
  const auto limit = [](double bytes) { return "--host_memory_limit=" + std::to_string(std::llround(bytes)); };
  const Outcome tight = train(limit(announced - 1.3 * 1048576));
  EXPECT_NE(tight.status, 0);
  EXPECT_THAT(tight.err, testing::HasSubstr("error: host memory: the plan needs"));
  const Outcome enough = train(limit(announced + 1.3 * 1048576));
  EXPECT_EQ(enough.status, 0) << enough.err;

  const double planned = json_of(run({"plan"}, "--json")).at("host_peak_bytes").get<double>();
  EXPECT_NEAR(planned, announced, 0.4 * 1048576);
}

TEST(HostLimit, OfEvaluationAndAnswers_IsHeldOrRefused) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's";
  const Workspace workspace;
  const auto refused = [&](Words words, const std::string& why) {
    words.insert(words.end(), {"--model=model", "--devices=cpu"});
    Words tight = words;
    tight.push_back("--host_memory_limit=2MiB");
    const Outcome outcome = workspace.run(tight);
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.err, testing::HasSubstr("error: host memory: " + why));
    words.push_back("--host_memory_limit=1GiB");
    EXPECT_EQ(workspace.run(words).status, 0);
  };
  // The process holds more than that beside weights and boundaries.
  refused({"eval", "--eval_dataset=chats.jsonl", "--cutoff_len=64"}, "the plan needs");
  refused({"generate", "--prompt=a", "--raw", "--max_new_tokens=1"}, "answering needs");
  refused({"chat", "--max_new_tokens=1"}, "answering needs");
}

/// Orders of samples are there twice: for the steps, and for the batches that are made ahead.
TEST(HostLimit, OfVeryManySamples_IsWhatTheRunAnnounces) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's";
  const Workspace workspace;
  std::string many;
  for (int i = 0; i < 250000; ++i) many += "{\"text\":\"ab\"}\n";
  workspace.write("many.jsonl", many);
  const Words words = {"--dataset=many.jsonl", "--max_steps=2", "--save_steps=0", "--dataset_prepared_path=prepared"};
  ASSERT_EQ(workspace.run(train(words)).status, 0);  // reading it takes more than having it
  Words again = words;
  again.push_back("--overwrite_output_dir");
  const Outcome outcome = workspace.run(train(again));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double announced = announced_host(outcome.err);
  ASSERT_GT(announced, 0) << outcome.err;
  EXPECT_LE(metrics_of(workspace, "out").back()["memory"]["host"], announced + 1.3 * 1048576);
}

/// What belongs to each of very many small blocks is as much as their numbers.
TEST(HostLimit, OfManyBlocks_IsWhatTheRunAnnounces) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's";
  const Workspace workspace;
  const Outcome made = workspace.run(
      {"init", "--arch=qwen3", "--output_dir=deep", "--hidden_size=32", "--num_hidden_layers=80", "--dtype=fp32"});
  ASSERT_EQ(made.status, 0) << made.err;
  Words words = train({"--max_steps=2", "--save_steps=1", "--cutoff_len=32"});
  std::ranges::replace(words, std::string("model"), std::string("deep"));
  const Outcome outcome = workspace.run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double announced = announced_host(outcome.err);
  ASSERT_GT(announced, 0) << outcome.err;
  EXPECT_LE(metrics_of(workspace, "out").back()["memory"]["host"], announced + 1048576);
}

/// Longer than every microbatch of the first pass are, with the second sample, the pair that shuffling brings together
/// later, and a sample for evaluation.
TEST(Plan, OfARunWithLongerMicrobatchesLater_SaysWhatItTakes) {
  const Workspace workspace;
  const auto line = [](std::size_t letters) { return R"({"text":")" + std::string(letters, 'x') + "\"}\n"; };
  workspace.write("pairs.jsonl", line(1) + line(200) + line(200));
  workspace.write("longer.jsonl", line(450));
  for (const Words& data : {Words{"--max_steps=12"}, Words{"--max_steps=1", "--eval_dataset=longer.jsonl"}}) {
    Words words = {"--model=model",    "--dataset=pairs.jsonl", "--devices=cpu",  "--batch_size=2",
                   "--cutoff_len=512", "--recompute=full",      "--save_steps=0", "--gradient_accumulation_steps=1"};
    words.insert(words.end(), data.begin(), data.end());
    const auto run = [&](const Words& first) {
      Words all = first;
      all.insert(all.end(), words.begin(), words.end());
      return workspace.run(all);
    };
    const double planned = json_of(run({"plan", "--json"})).at("devices").at(0).at("peak_bytes").get<double>();
    const Outcome outcome = run({"train", "--output_dir=out", "--overwrite_output_dir"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto line_of_run = metrics_of(workspace, "out").front();
    EXPECT_EQ(planned, line_of_run.at("memory").at("cpu:0").get<double>()) << data.back();
  }
}

TEST(StateOnTheCard, WithoutRoom_SaysThatTheHostMayHaveIt) {
  const Workspace workspace;
  const Outcome outcome = workspace.run(train({"--devices=emulated:rtx3060", "--optimizer_state=device",
                                               "--finetuning_type=full", "--memory_limit=emulated:rtx3060:0=300KiB"}));
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err,
              testing::AllOf(testing::HasSubstr("error: emulated:rtx3060:0: model.layers.0.mlp alone needs"),
                             testing::HasSubstr("optimizer_state: host")));
}

/// Of random models that differ in what the program itself comes to hold and in what their programs take.
class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's";
    ASSERT_EQ(workspace_
                  .run({"init", "--arch=llama", "--output_dir=wide", "--hidden_size=512", "--num_hidden_layers=8",
                        "--num_attention_heads=8", "--vocab_size=8000"})
                  .status,
              0);
    ASSERT_EQ(
        workspace_.run({"init", "--arch=llama", "--output_dir=small", "--hidden_size=64", "--num_hidden_layers=4"})
            .status,
        0);
    ASSERT_EQ(
        workspace_.run({"init", "--arch=mixtral", "--output_dir=experts", "--hidden_size=64", "--num_hidden_layers=4"})
            .status,
        0);
  }

  /// `spare`: bytes by which a run may differ however small it is.
  void expect_as_announced(const std::string& model, const std::string& method, const std::string& pool,
                           double spare) const {
    const std::string folder = model + method + pool;
    const Outcome outcome = workspace_.run({"train", "--model=" + model, "--dataset=chats.jsonl", "--devices=" + pool,
                                            "--output_dir=" + folder, "--finetuning_type=" + method, "--max_steps=4",
                                            "--gradient_accumulation_steps=4", "--save_steps=2"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const double announced = announced_host(outcome.err);
    const double taken = metrics_of(workspace_, folder).back().at("memory").at("host").get<double>();
    EXPECT_LE(taken, announced + std::max(0.05 * taken, spare)) << folder;
    // Each of several cards may have scratch of which its share of the layers touches little.
    const double cards = pool.ends_with("*3") ? 3 : pool.ends_with("*2") || pool.find(',') != std::string::npos ? 2 : 1;
    EXPECT_LE(announced, taken + std::max(0.05 * taken, spare * cards)) << folder;
  }

  const Workspace workspace_;
};

/// Whatever the cards' links: the memory that transfers pass through follows from what travels. Of a small model what
/// the program itself comes to hold is the larger part, of full training what a checkpoint passes through would show.
TEST_F(HostMemory, OfPoolsOfEveryKind_IsWhatWasAnnounced) {
  constexpr double kOfLibraries = 1.3 * 1048576;  // differs between processors, and is much of a small model's run
  for (const char* pool : {"cpu", "emulated:rtx4090", "cpu,emulated:rtx4090", "emulated:rtx4090*3"}) {
    expect_as_announced("wide", "lora", pool, kOfLibraries);
    expect_as_announced("small", "lora", pool, kOfLibraries);
    expect_as_announced("small", "full", pool, kOfLibraries);
  }
  expect_as_announced("wide", "full", "emulated:rtx4090*2", kOfLibraries);
  for (const char* method : {"lora", "full"}) {
    for (const char* pool : {"cpu", "emulated:rtx4090*3"}) expect_as_announced("experts", method, pool, kOfLibraries);
  }
}

/// What the processor works in is each card's own, and follows from the layers that it has: of three cards one has the
/// head, which takes most of it. Of a host whose speed is said, so that both calls find the same plan.
TEST_F(HostMemory, OfPoolsOfSeveralDevices_IsWhatThePlanSays) {
  workspace_.write("hosts.yaml",
                   "desk:\n  memory_bytes: 16000000000\n  memory_bandwidth: 2.0e10\n"
                   "  optimizer_parameters_per_second: 2.0e8\n  disk_bandwidth: 1.0e9\n");
  const Words model = {"--model=wide", "--dataset=chats.jsonl", "--cutoff_len=256", "--gradient_accumulation_steps=4",
                       "--packing",    "--host=hosts.yaml#desk"};
  std::string text;
  while (text.size() < 2000) text += "the river runs down to the sea ";
  workspace_.write("chats.jsonl", R"({"text":")" + text + "\"}\n" + R"({"text":")" + text + "\"}\n");
  for (const Words& more : {Words{"--devices=emulated:rtx4090*3"}, Words{"--devices=emulated:rtx4090*2"},
                            Words{"--devices=emulated:rtx4090*3", "--quantization_bit=4"}}) {
    Words words = {"plan", "--json"};
    words.insert(words.end(), model.begin(), model.end());
    words.insert(words.end(), more.begin(), more.end());
    const auto plan = json_of(workspace_.run(words));
    words[0] = "train";
    words[1] = "--output_dir=" + more.front() + std::to_string(more.size());
    words.insert(words.end(), {"--max_steps=3", "--save_steps=0"});
    const Outcome outcome = workspace_.run(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const double taken = metrics_of(workspace_, words[1].substr(13)).back().at("memory").at("host").get<double>();
    EXPECT_NEAR(plan.at("host_peak_bytes").get<double>(), taken, 0.05 * taken) << words[1];
  }
}

/// What a slot holds must not grow with the microbatches, of which each has slots of its own.
TEST_F(HostMemory, OfSlotsForEachMicrobatch_IsWhatWasAnnounced) {
  std::string records;
  for (int i = 0; i < 64; ++i) records += R"({"text":"record )" + std::to_string(i) + "\"}\n";
  workspace_.write("many.jsonl", records);
  for (const std::string method : {"lora", "full"}) {
    const Outcome outcome =
        workspace_.run({"train", "--model=experts", "--dataset=many.jsonl", "--devices=emulated:rtx4090*2",
                        "--schedule=zb_v", "--output_dir=" + method, "--finetuning_type=" + method, "--max_steps=3",
                        "--gradient_accumulation_steps=64", "--save_steps=0"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const double taken = metrics_of(workspace_, method).back().at("memory").at("host").get<double>();
    EXPECT_LE(taken, announced_host(outcome.err) + 1.3 * 1048576) << method;
  }
}

/// Rows that a model's files have in another order are put in it for as long as they are written, a tensor at a time.
TEST_F(HostMemory, OfCheckpointsOfRowsInAnotherOrder_IsWhatWasAnnounced) {
  ASSERT_EQ(workspace_
                .run({"init", "--arch=ernie4_5", "--output_dir=pairs", "--hidden_size=128", "--intermediate_size=64",
                      "--num_hidden_layers=1", "--num_attention_heads=256", "--head_dim=64"})
                .status,
            0);
  const auto run = [&](Words words) {
    words.insert(words.end(), {"--model=pairs", "--dataset=chats.jsonl", "--devices=cpu", "--finetuning_type=full",
                               "--optim=sgd", "--max_steps=3"});
    const Outcome outcome = workspace_.run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  const auto taken = [&](const char* folder) {
    return metrics_of(workspace_, folder).back().at("memory").at("host").get<double>();
  };
  const double writing = json_of(run({"plan", "--json"})).at("host_memory").value("writing", 0.0);
  EXPECT_GT(writing, 9 * 1048576.0) << "the queries' rows of 256 heads, twice, and a piece";
  run({"train", "--output_dir=without", "--save_steps=0"});
  run({"train", "--output_dir=with", "--save_steps=1"});
  EXPECT_LE(taken("with"), taken("without") + writing);
}

/// Their names and places are a fifth of what a model of thousands of small tensors takes.
TEST_F(HostMemory, OfThousandsOfTensors_IsWhatWasAnnounced) {
  ASSERT_EQ(workspace_
                .run({"init", "--arch=qwen3_moe", "--output_dir=many", "--hidden_size=32", "--num_hidden_layers=12",
                      "--num_experts=96", "--moe_intermediate_size=16"})
                .status,
            0);
  constexpr double kOfLibraries = 1.3 * 1048576;
  for (const char* method : {"lora", "full"}) expect_as_announced("many", method, "cpu", kOfLibraries);
}

/// A model whose codes take more to choose than its steps take.
TEST_F(HostMemory, OfCodesThatAreChosen_IsWhatWasAnnounced) {
  ASSERT_EQ(workspace_
                .run({"init", "--arch=llama", "--output_dir=broad", "--hidden_size=768", "--intermediate_size=3072",
                      "--num_hidden_layers=2", "--num_attention_heads=12", "--vocab_size=2000"})
                .status,
            0);
  const auto run = [&](const char* out, const char* tokens, const char* pool) {
    return workspace_.run({"train", "--model=broad", "--dataset=chats.jsonl", "--quantization_bit=4",
                           std::string("--quantization_tokens=") + tokens, std::string("--devices=") + pool,
                           std::string("--output_dir=") + out, "--max_steps=2", "--save_steps=0"});
  };
  for (const char* pool : {"cpu", "emulated:rtx4090", "emulated:rtx4090*3"}) {
    const std::string folder = std::string("chosen") + pool;
    const Outcome outcome = run(folder.c_str(), "4096", pool);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("choosing codes"));
    const double taken = metrics_of(workspace_, folder).back().at("memory").at("host").get<double>();
    EXPECT_NEAR(announced_host(outcome.err), taken, 0.05 * taken) << pool;
  }
  const Outcome outcome = run("nearest", "0", "cpu");
  EXPECT_THAT(outcome.err, Not(HasSubstr("choosing codes")));
  const Outcome refused = workspace_.run({"train", "--model=broad", "--dataset=chats.jsonl", "--quantization_bit=4",
                                          "--host_memory_limit=60MiB", "--devices=cpu", "--output_dir=never"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("quantization_tokens: 0"));
}

/// What drivers hold is most of it. With a cache of its own, so that the first run finds nothing compiled.
class HostMemoryOfVulkan : public HostMemory {
 protected:
  void SetUp() override {
    HostMemory::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!has_device(workspace_, "vulkan:0"))
      GTEST_SKIP() << "no Vulkan device on this machine, or no Vulkan in this build";
    ::setenv("XDG_CACHE_HOME", (workspace_.path() / "cache").c_str(), /*overwrite=*/1);
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }
};

TEST_F(HostMemoryOfVulkan, WithAllToCompileAndAgain_IsWhatWasAnnounced) {
  expect_as_announced("small", "full", "vulkan:0", 0);
  workspace_.remove("smallfullvulkan:0");
  expect_as_announced("small", "full", "vulkan:0", 0);
  const auto plan = json_of(workspace_.run({"plan", "--model=small", "--dataset=chats.jsonl", "--devices=vulkan:0",
                                            "--finetuning_type=full", "--gradient_accumulation_steps=4", "--json"}));
  const double taken = metrics_of(workspace_, "smallfullvulkan:0").back().at("memory").at("host").get<double>();
  EXPECT_NEAR(plan.at("host_peak_bytes").get<double>(), taken, 0.05 * taken);
  expect_as_announced("small", "lora", "vulkan:0*2", 0);
  expect_as_announced("wide", "lora", "vulkan:0", 0);
}

}  // namespace
}  // namespace rondo::cli
