// Complaints about memory, cards, disks and installing, each seen from the outside.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "patience.h"
#include "shell.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kDeepLayers = "--num_hidden_layers=16";

/// `deep`: 3.4 MB of weights in sixteen blocks; and `cards.yaml` with a card of `bytes`, faster than anything.
void make_deep_model_and_card(const Workspace& workspace, const char* bytes) {
  const Outcome made =
      workspace.run({"init", "--arch=llama", "--output_dir=deep", "--dtype=fp32", "--seed=7", kDeepLayers});
  EXPECT_EQ(made.status, 0) << made.err;
  workspace.write("cards.yaml", std::string("small: {flops: {fp32: 4e15, bf16: 4e15}, memory_bytes: ") + bytes +
                                    ", memory_bandwidth: 4e15, link_up: 4e12, link_down: 4e12, link_latency: 0, "
                                    "jitter: 0}\n");
}

Words train_deep(const std::string& devices, const std::string& out, const Words& more = {}) {
  Words words = train({"--model=deep", "--devices=" + devices, "--output_dir=" + out, "--max_steps=3", "--save_steps=0",
                       "--finetuning_type=full", "--lr=1e-3"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// LlamaFactory#2744, DeepSpeed#4571: the card is full while the host's memory idles; the host's is full and the system
/// kills the run without a word.
TEST(Complaint, ModelLargerThanTheCard_TrainsFromHostMemory) {
  const Workspace workspace;
  make_deep_model_and_card(workspace, "1.6e6");
  const Outcome on_card = workspace.run(train_deep("emulated:cards.yaml#small", "on_card"));
  ASSERT_EQ(on_card.status, 0) << on_card.err;
  const Outcome on_cpu = workspace.run(train_deep("cpu", "on_cpu"));
  ASSERT_EQ(on_cpu.status, 0) << on_cpu.err;
  EXPECT_TRUE(workspace.read("on_card/model.safetensors") == workspace.read("on_cpu/model.safetensors"));
  for (const Json& line : metrics_of(workspace, "on_card")) {
    EXPECT_LE(line["memory"].value("emulated:small:0", 1e12), 1.6e6);
  }
}

TEST(Complaint, HostMemoryThatDoesNotSuffice_IsSaidBeforeTheFirstStep) {
  const Workspace workspace;
  make_deep_model_and_card(workspace, "1.6e6");
  const auto before = workspace.snapshot();
  const Outcome outcome = workspace.run(train_deep("cpu", "out", {"--host_memory_limit=8MiB"}));
  EXPECT_NE(outcome.status, 0);
  EXPECT_LT(outcome.status, 128);  // no signal
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: host memory: the plan needs"), HasSubstr("8.00 MiB")));
  EXPECT_EQ(workspace.snapshot(), before);
}

/// LlamaFactory#4199, mlx-examples#738: hours later the longest sample comes, and there is no room for it.
TEST(Complaint, LongestSample_IsReckonedWithBeforeTheFirstStep) {
  const Workspace workspace;
  make_deep_model_and_card(workspace, "3e6");
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    std::string answer = "A.";
    if (i == 11) answer.append(900, 'a');
    const Json messages = {{{"role", "user"}, {"content", "Q?"}}, {{"role", "assistant"}, {"content", answer}}};
    lines += Json::object({{"messages", messages}}).dump() + "\n";
  }
  workspace.write("late.jsonl", lines);
  const auto words = [](const std::string& devices, const std::string& out) {
    return train_deep(
        devices, out,
        {"--dataset=late.jsonl", "--cutoff_len=1024", "--shuffle=false", "--gradient_accumulation_steps=4"});
  };
  const auto before = workspace.snapshot();
  const Outcome refused = workspace.run(words("emulated:cards.yaml#small", "out"));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("error: emulated:small:0: "), HasSubstr("cutoff_len")));
  EXPECT_EQ(workspace.snapshot(), before);
  // Where it fits, the first step holds what the last one needs.
  const Outcome outcome = workspace.run(words("cpu", "out"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<Json> steps = metrics_of(workspace, "out");
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_GT(steps[2].value("tokens", 0), 5 * steps[0].value("tokens", 0));
  EXPECT_EQ(steps[0]["memory"]["cpu:0"], steps[2]["memory"]["cpu:0"]);
}

/// ms-swift#775, DeepSpeed#2484, #4402: the smallest card sets the pace of all.
TEST(Complaint, UnlikeCards_AddUp) {
  const Workspace workspace;
  workspace.write("machine.yaml",
                  "server: {memory_bytes: 128e9, memory_bandwidth: 1e11, optimizer_parameters_per_second: 1e9}\n");
  const auto speed = [&](const std::string& devices) {
    const Json plan =
        json_of(workspace.run({"plan", "--model=Qwen/Qwen3-8B", "--devices=" + devices, "--host=machine.yaml#server",
                               "--cutoff_len=2048", "--gradient_accumulation_steps=16", "--json"}));
    return plan.value("tokens_per_second", 0.0);
  };
  const double large = speed("emulated:rtx4090");
  const double middle = speed("emulated:rtx3060");
  const double small = speed("emulated:rx7600");
  EXPECT_GT(large, 5 * middle);
  EXPECT_GT(speed("emulated:rtx4090,emulated:rtx3060"), 0.9 * (large + middle));
  EXPECT_GT(speed("emulated:rtx4090,emulated:rtx3060,emulated:rx7600"), 0.9 * (large + middle + small));
}

/// DeepSpeed#1130, #4871, #1627: state on disk changes the result, stays behind, or is waited for. That it is read
/// ahead is Disk.Chunks_AreReadBeforeTheyAreAskedFor's to show; how fast against the disk itself is measured by a
/// benchmark.
TEST(Complaint, StateOnDisk_ChangesNothingAndIsGoneAfterwards) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the program's, and 100 MiB do not hold it";
  const Workspace workspace;
  const Outcome made = workspace.run(
      {"init", "--arch=llama", "--output_dir=deep", "--dtype=fp32", "--hidden_size=256", "--num_hidden_layers=8"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome in_memory = workspace.run(train_deep("cpu", "in_memory"));
  ASSERT_EQ(in_memory.status, 0) << in_memory.err;
  // The weights, gradients and moments take 100 MiB.
  const Outcome outcome =
      workspace.run(train_deep("cpu", "on_disk", {"--host_memory_limit=100MiB", "--nvme_path=disk"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("disk buffers"));
  for (const Json& line : metrics_of(workspace, "on_disk"))
    EXPECT_LE(line["memory"].value("host", 1e12), 100 * 1048576);
  EXPECT_TRUE(workspace.read("on_disk/model.safetensors") == workspace.read("in_memory/model.safetensors"));
  EXPECT_FALSE(fs::exists(workspace.path("disk")));
}

/// unsloth#160, #2518, LlamaFactory#6271: nothing but NVIDIA's cards.
TEST(Complaint, CardOfAnyVendor_TrainsByVulkan) {
  const Workspace workspace;
  const Json listed = json_of(workspace.run({"devices", "--json"}));
  bool vulkan = false;
  for (const Json& device : listed["devices"]) vulkan = vulkan || device.value("backend", "") == "vulkan";
  if (!vulkan) GTEST_SKIP() << "no Vulkan device here";
  const auto course = [&](const std::string& devices, const std::string& out) {
    const Outcome outcome = workspace.run(train({"--devices=" + devices, "--output_dir=" + out, "--max_steps=3",
                                                 "--save_steps=0", "--lr=1e-2", "--gradient_accumulation_steps=3"}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return metrics_of(workspace, out);
  };
  const std::vector<Json> expected = course("cpu", "cpu");
  for (const char* pool : {"vulkan:0", "vulkan:0,cpu"}) {
    const std::vector<Json> found = course(pool, std::string("pool") + std::to_string(std::string(pool).size()));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double loss = expected[i].value("loss", 0.0);
      EXPECT_NEAR(found[i].value("loss", 0.0), loss, 2e-5 * loss);
    }
  }
}

/// axolotl#2812, unsloth#540: an afternoon of versions that do not go together. The program alone, in a folder of its
/// own and without the environment, is all that training takes.
TEST(Complaint, InstalledProgram_NeedsNothingBesideIt) {
  const Workspace workspace;
  const std::string prefix = workspace.path("prefix").string();
  const test::Shown installed = test::shell(std::string("cmake --install ") + RONDO_BUILD + " --prefix " + prefix);
  ASSERT_EQ(installed.status, 0) << installed.output;
  const std::string program = workspace.path("alone/rondo").string();
  fs::create_directories(workspace.path("alone"));
  fs::rename(prefix + "/bin/rondo", program);
  workspace.remove("prefix");
  const std::string in_folder = "cd " + workspace.path().string() + " && env -i " + program;
  const test::Shown made = test::shell(in_folder + " init --arch=llama --output_dir=new");
  EXPECT_EQ(made.status, 0) << made.output;
  const test::Shown trained = test::shell(
      in_folder + " train --model=new --dataset=chats.jsonl --output_dir=out --max_steps=1 --devices=emulated:rtx4090");
  EXPECT_EQ(trained.status, 0) << trained.output;
  const test::Shown said =
      test::shell(in_folder + " generate --model=new --adapter_name_or_path=out --max_new_tokens=2 --prompt=x");
  EXPECT_EQ(said.status, 0) << said.output;
}

}  // namespace
}  // namespace rondo::cli
