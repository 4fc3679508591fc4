// Interrupted and resumed is uninterrupted, through the command line: the same losses and the same bytes.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

/// Slow enough that a step of the small model is worth both cards.
constexpr const char* kCards = R"(fast: {flops: {fp32: 1e9}, memory_bytes: 1e9, memory_bandwidth: 1e12, link_up: 1e12,
       link_down: 1e12, link_latency: 0, efficiency: 1, jitter: 0}
slow: {flops: {fp32: 75e7}, memory_bytes: 1e9, memory_bandwidth: 1e12, link_up: 1e12,
       link_down: 1e12, link_latency: 0, efficiency: 1, jitter: 0}
)";

struct Setting {
  const char* name;
  const char* devices;
  const char* method;
  std::uint64_t steps;  // of a run that takes longer than its interruption
  bool stale = false;
  bool packed = false;  // two weighted data sets in packed sequences
};

void PrintTo(const Setting& setting, std::ostream* stream) { *stream << setting.name; }

class ResumedRun : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    workspace_.write("cards.yaml", kCards);
    workspace_.write("more.jsonl", more_chats());
  }

  /// Of many lengths.
  static std::string more_chats() {
    std::string chats;
    for (std::size_t i = 0; i < 24; ++i) {
      chats += R"({"messages":[{"role":"user","content":"Count."},{"role":"assistant","content":")" +
               std::string(i % 9 + 1, static_cast<char>('a' + i)) + "\"}]}\n";
    }
    return chats;
  }

  /// Dropout and shuffling, so that positions of all random numbers count; an epoch has two steps.
  Words words(const char* output_dir, std::uint64_t steps, const Words& more = {}) const {
    Words all = {"train",
                 "--model=model",
                 "--dataset=chats.jsonl",
                 "--cutoff_len=64",
                 "--dtype=fp32",
                 "--per_device_train_batch_size=1",
                 "--gradient_accumulation_steps=2",
                 "--lr=1e-2",
                 "--weight_decay=0.1",
                 "--lr_scheduler_type=constant",
                 std::string("--devices=") + GetParam().devices,
                 std::string("--finetuning_type=") + GetParam().method,
                 std::string("--output_dir=") + output_dir,
                 "--max_steps=" + std::to_string(steps),
                 GetParam().stale ? "--staleness=1" : "--staleness=0"};
    if (std::string(GetParam().method) == "lora") all.push_back("--lora_dropout=0.1");
    if (GetParam().packed) {
      all[2] = "--dataset=chats.jsonl,more.jsonl";
      all.insert(all.end(), {"--packing", "--dataset_weights=2,0.4"});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void run(const Words& arguments) const {
    const Outcome outcome = workspace_.run(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }

  /// What must be the same in every line of metrics.jsonl, with all digits.
  std::vector<std::string> course(const std::string& folder) const {
    std::vector<std::string> lines;
    for (const Json& entry : metrics_of(workspace_, folder)) {
      std::string part;
      for (const char* key : {"step", "epoch", "loss", "grad_norm", "learning_rate", "target_tokens", "tokens"}) {
        part += std::string(key) + " " + (entry.contains(key) ? entry[key].dump() : "?") + " ";
      }
      lines.push_back(part);
    }
    return lines;
  }

  /// Every file of the result and of the last checkpoint's optimizer.
  void expect_same(const std::string& a, const std::string& b, std::uint64_t steps) const {
    EXPECT_EQ(course(a), course(b));
    EXPECT_EQ(course(a).size(), steps);
    std::size_t tensors = 0;
    for (const auto& entry : fs::recursive_directory_iterator(workspace_.path(a))) {
      if (entry.path().extension() != ".safetensors") continue;
      const fs::path name = fs::relative(entry.path(), workspace_.path(a));
      if (name.has_parent_path() && name.parent_path() != "checkpoint-" + std::to_string(steps)) continue;
      EXPECT_TRUE(workspace_.read(a / name) == workspace_.read(b / name)) << name;
      ++tensors;
    }
    // The result, the same in the checkpoint, the optimizer's state; at staleness 1 the weights without the last
    // update.
    EXPECT_EQ(tensors, GetParam().stale ? 4U : 3U);
  }

  /// Every device of the pool has work, else the pool is not what is tested.
  void expect_all_devices_used(const std::string& folder) const {
    const std::string metrics = workspace_.read(folder + "/metrics.jsonl");
    const Json entry = Json::parse(metrics.substr(0, metrics.find('\n')), nullptr, false);
    for (const auto& [name, bytes] : entry["memory"].items()) EXPECT_GT(bytes, 0) << name;
  }

  const Workspace workspace_;
};

TEST_P(ResumedRun, AfterHalfOfItsSteps_EndsAsTheUninterruptedOne) {
  run(words("whole", 6));
  run(words("parts", 3));
  EXPECT_EQ(course("parts").size(), 3U);
  run(words("parts", 6, {"--resume_from_checkpoint"}));
  expect_same("whole", "parts", 6);
  expect_all_devices_used("whole");
}

/// "checkpoint-<n>" in `folder`; 0 where there is not exactly one.
std::uint64_t only_checkpoint(const fs::path& folder) {
  std::vector<std::uint64_t> steps;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-")) steps.push_back(std::stoull(name.substr(name.find('-') + 1)));
  }
  return steps.size() == 1 ? steps.front() : 0;
}

TEST_P(ResumedRun, AfterAnInterruption_EndsAsTheUninterruptedOne) {
  // The same command each time: a rate that falls with the steps must find its place again too.
  const std::uint64_t steps = GetParam().steps;
  const Words falling = {"--lr_scheduler_type=linear", "--warmup_ratio=0.1"};
  run(words("whole", steps, falling));
  Outcome outcome;
  // Steps are so short that a run may be over before the signal comes: then once more.
  for (int tries = 0; tries < 10 && outcome.status != 130; ++tries) {
    workspace_.remove("parts");
    Process process(words("parts", steps, falling), workspace_.path().string());
    ASSERT_TRUE(process.says("step 2/"));
    process.send(SIGINT);
    outcome = process.wait();
    ASSERT_THAT(outcome.status, testing::AnyOf(0, 130)) << outcome.err;
  }
  ASSERT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.err.find("error: "), std::string::npos) << outcome.err;
  const std::uint64_t saved = only_checkpoint(workspace_.path("parts"));
  EXPECT_GE(saved, 2U);
  EXPECT_LT(saved, steps);
  EXPECT_EQ(course("parts").size(), saved);
  Words again = words("parts", steps, falling);
  again.push_back("--resume_from_checkpoint=auto");
  run(again);
  expect_same("whole", "parts", steps);
}

INSTANTIATE_TEST_SUITE_P(
    Pools, ResumedRun,
    testing::Values(Setting{"CpuLora", "cpu", "lora", 200}, Setting{"CpuFull", "cpu", "full", 200},
                    Setting{"CpuPackedMixture", "cpu", "lora", 200, false, true},
                    Setting{"UnlikeCardsLora", "emulated:cards.yaml#fast,emulated:cards.yaml#slow", "lora", 12},
                    Setting{"UnlikeCardsFull", "emulated:cards.yaml#fast,emulated:cards.yaml#slow", "full", 12},
                    Setting{"CpuFullStale", "cpu", "full", 200, true},
                    Setting{"UnlikeCardsLoraStale", "emulated:cards.yaml#fast,emulated:cards.yaml#slow", "lora", 12,
                            true}),
    [](const testing::TestParamInfo<Setting>& one) { return one.param.name; });

TEST(Resume, OnAnotherPool_EndsAsTheUninterruptedOne) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  const Words common = {"--max_steps=4", "--save_steps=2", "--lora_dropout=0.1", "--lr=1e-2"};
  const auto with = [&](const char* devices, const char* folder, Words more) {
    Words words = train(common);
    words.push_back(std::string("--devices=") + devices);
    words.push_back(std::string("--output_dir=") + folder);
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = workspace.run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.err;
  };
  with("emulated:cards.yaml#fast,emulated:cards.yaml#slow", "whole", {});
  EXPECT_THAT(with("cpu", "other", {"--resume_from_checkpoint=whole/checkpoint-2"}), HasSubstr("whole/checkpoint-2"));
  EXPECT_TRUE(workspace.read("whole/adapter_model.safetensors") == workspace.read("other/adapter_model.safetensors"));
}

/// Devices that round otherwise: whatever is known of their speeds meanwhile, each computes what it computed before.
TEST(Resume, OnTheSamePoolOfUnlikeKinds_EndsAsTheUninterruptedOne) {
  const Workspace workspace;
  // Two classes of numerics in a pool are wanted: processors and emulated cards are one.
  if (!has_device(workspace, "vulkan:0"))
    GTEST_SKIP() << "no Vulkan device on this machine, or no Vulkan in this build";
  workspace.write("cards.yaml", kCards);
  workspace.edit("cards.yaml", "fp32: 1e9", "fp32: 1e12");
  const Words words = train({"--devices=emulated:cards.yaml#fast,vulkan:0", "--max_steps=2", "--save_steps=1",
                             "--lora_target=q_proj", "--lr=1e-2"});
  const Outcome whole = workspace.run(words);
  ASSERT_EQ(whole.status, 0) << whole.err;
  // Of the two only this one is used now, and would not be any more.
  workspace.edit("cards.yaml", "fp32: 1e12", "fp32: 1e7");
  Words again = words;
  again.insert(again.end(), {"--resume_from_checkpoint=out/checkpoint-1", "--output_dir=parts"});
  const Outcome parts = workspace.run(again);
  ASSERT_EQ(parts.status, 0) << parts.err;
  EXPECT_EQ(metrics_of(workspace, "parts").back()["loss"], metrics_of(workspace, "out").back()["loss"]);
  EXPECT_TRUE(workspace.read("out/adapter_model.safetensors") == workspace.read("parts/adapter_model.safetensors"));
}

TEST(Resume, FromADamagedCheckpoint_IsRefusedNamingTheOneBefore) {
  const Workspace workspace;
  const Words words = train({"--max_steps=4", "--save_steps=1", "--staleness=1", "--overwrite_output_dir"});
  Words again = train({"--max_steps=4", "--staleness=1", "--resume_from_checkpoint"});
  for (const char* file : {"optimizer.safetensors", "stale_weights.safetensors", "trainer_state.json"}) {
    ASSERT_EQ(workspace.run(words).status, 0);
    const std::string path = std::string("out/checkpoint-4/") + file;
    std::string bytes = workspace.read(path);
    bytes[bytes.size() - 2] = 'x';
    workspace.write(path, bytes);
    const Outcome outcome = workspace.run(again);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("error: " + path), HasSubstr("out/checkpoint-3 goes on")));
  }
}

/// Checkpoints of larger steps that another run has left are not the newest, whatever their number.
TEST(Resume, FromAnOlderCheckpoint_LeavesOnesThatCountAsNewer) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=4", "--save_steps=1"})).status, 0);
  const Words other = {"--max_steps=3", "--save_steps=1", "--save_total_limit=1", "--lr=1e-2"};
  const auto leaves_its_last = [&](const char* how) {
    Words words = train(other);
    words.push_back(how);
    const Outcome outcome = workspace.run(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    for (const char* step : {"1", "2", "4"})
      EXPECT_FALSE(fs::exists(workspace.path("out/checkpoint-" + std::string(step))));
    EXPECT_TRUE(workspace.read("out/checkpoint-3/adapter_model.safetensors") ==
                workspace.read("out/adapter_model.safetensors"));
    words = train({"--max_steps=3", "--lr=1e-2", "--resume_from_checkpoint"});
    EXPECT_THAT(workspace.run(words).err, HasSubstr("out/checkpoint-3")) << how;
  };
  leaves_its_last("--resume_from_checkpoint=out/checkpoint-2");
  ASSERT_EQ(workspace.run(train({"--max_steps=4", "--save_steps=1", "--overwrite_output_dir"})).status, 0);
  leaves_its_last("--overwrite_output_dir");
}

/// As one that was killed between saving a checkpoint and removing the one before has left it.
TEST(Resume, WithOneCheckpointTooMany_RemovesIt) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=3", "--save_steps=1"})).status, 0);
  const Words again = train({"--max_steps=3", "--save_steps=1", "--save_total_limit=1", "--resume_from_checkpoint"});
  ASSERT_EQ(workspace.run(again).status, 0);
  EXPECT_FALSE(fs::exists(workspace.path("out/checkpoint-1")));
  EXPECT_FALSE(fs::exists(workspace.path("out/checkpoint-2")));
  EXPECT_TRUE(fs::exists(workspace.path("out/checkpoint-3")));
}

TEST(Resume, WithAnotherAdapter_IsRefusedNamingTheSetting) {
  const Workspace workspace;
  const Words base = {"--max_steps=2", "--lora_target=q_proj,down_proj", "--rank_pattern=q_proj=4"};
  ASSERT_EQ(workspace.run(train(base)).status, 0);
  const auto resumed = [&](const char* other) {
    Words words = train(base);
    words.insert(words.end(), {"--max_steps=3", "--resume_from_checkpoint", other});
    return workspace.run(words);
  };
  for (const char* other : {"--lora_alpha=64", "--use_rslora", "--alpha_pattern=q_proj=3", "--rank_pattern=q_proj=5",
                            "--lora_target=q_proj", "--lora_target=all", "--lora_rank=2", "--modules_to_save=lm_head",
                            "--layers_to_transform=0"}) {
    const Outcome outcome = resumed(other);
    const std::string key = std::string(other).substr(2, std::string(other).find('=') - 2);
    EXPECT_EQ(outcome.status, 2) << other << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the checkpoint was made with " + key + ": ")) << other;
  }
  const Outcome same = resumed("--lora_target=down_proj,q_proj");
  EXPECT_EQ(same.status, 0) << same.err;
}

/// Tensors of the same names and shapes do not make it the same model.
TEST(Resume, OfAnotherArchitecture_IsRefusedNamingIt) {
  const Workspace workspace;
  for (const char* arch : {"llama", "mistral"}) {
    const Outcome made = workspace.run({"init", std::string("--arch=") + arch, std::string("--output_dir=") + arch,
                                        "--hidden_size=32", "--num_hidden_layers=1"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  const auto run = [&](const char* arch, const Words& more) {
    Words words = train(more);
    std::ranges::replace(words, std::string("model"), std::string(arch));
    return workspace.run(words);
  };
  const Outcome begun = run("llama", {"--max_steps=1"});
  ASSERT_EQ(begun.status, 0) << begun.err;
  const Outcome outcome = run("mistral", {"--max_steps=2", "--resume_from_checkpoint=auto"});
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(R"(made with model_type: "llama", this run has "mistral")"));
}

/// An adapter means nothing over other weights, whatever their names and shapes. Where the same ones lie, in what files
/// and of which width, does not matter.
TEST(Resume, OverAnotherBase_IsRefusedNamingBoth) {
  const Workspace workspace;
  for (const char* seed : {"1", "2"}) {
    const Outcome made = workspace.run({"init", "--arch=qwen3", std::string("--output_dir=base") + seed,
                                        "--hidden_size=32", "--num_hidden_layers=1", std::string("--seed=") + seed});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  ASSERT_EQ(workspace.run({"export", "--model=base1", "--output=one.gguf", "--quantization=f32"}).status, 0);
  const auto run = [&](const std::string& base, const Words& more) {
    Words words = train(more);
    std::ranges::replace(words, std::string("model"), base);
    return workspace.run(words);
  };
  const Outcome begun = run("base1", {"--max_steps=1"});
  ASSERT_EQ(begun.status, 0) << begun.err;
  const Outcome other = run("base2", {"--max_steps=2", "--resume_from_checkpoint"});
  EXPECT_EQ(other.status, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("over other weights than those of base2"));
  EXPECT_THAT(other.err, HasSubstr("lay in base1"));
  fs::rename(workspace.path("base1"), workspace.path("moved"));
  const Outcome moved = run("moved", {"--max_steps=2", "--resume_from_checkpoint"});
  EXPECT_EQ(moved.status, 0) << moved.err;
  const Outcome exported = run("one.gguf", {"--max_steps=3", "--resume_from_checkpoint"});
  EXPECT_EQ(exported.status, 0) << exported.err;
  // Checkpoints of early versions do not tell.
  workspace.edit("out/checkpoint-3/trainer_state.json", "\"base\": {", "\"of_another_version\": {");
  const Outcome early = run("base2", {"--max_steps=4", "--resume_from_checkpoint"});
  EXPECT_EQ(early.status, 0) << early.err;
}

TEST(Resume, WithFewerTrainedBlocks_IsRefusedNamingTheSetting) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=2", "--finetuning_type=freeze"})).status, 0);
  const Words fewer = {"--max_steps=3", "--finetuning_type=freeze", "--freeze_trainable_layers=1",
                       "--resume_from_checkpoint"};
  const Outcome outcome = workspace.run(train(fewer));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the checkpoint was made with freeze_trainable_layers: 2, this run has 1"));
  // Checkpoints of early versions tell neither the setting nor which weights were left as they were.
  workspace.edit("out/checkpoint-2/trainer_state.json", "freeze_trainable_layers", "of_another_version");
  workspace.edit("out/checkpoint-2/trainer_state.json", "\"base\": {", "\"of_another_version\": {");
  const Outcome early = workspace.run(train(fewer));
  EXPECT_EQ(early.status, 2);
  EXPECT_THAT(early.err, HasSubstr("belongs to nothing that this run trains"));
}

TEST(Resume, AfterAnInterruptedEvaluation_IsSaidAsAfterAStep) {
  const Workspace workspace;
  const std::string line = Json::object({{"text", "the river runs down to the sea, and on and on"}}).dump() + "\n";
  std::string many;
  for (int i = 0; i < 20000; ++i) many += line;
  workspace.write("many.jsonl", many);
  Process process(train({"--eval_dataset=many.jsonl", "--eval_steps=2", "--max_steps=4"}), workspace.path().string());
  ASSERT_TRUE(process.says("step 2/"));
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("evaluation at step"))) << "it was not interrupted";
  EXPECT_THAT(outcome.err, HasSubstr("interrupted; a checkpoint was saved in out"));
  EXPECT_THAT(workspace.read("out/train.log"), testing::Not(HasSubstr("error: ")));
  EXPECT_EQ(only_checkpoint(workspace.path("out")), 2U);
}

/// As transformers' Trainer has it: a step that overflowed counts, but the schedule of the rate does not go on.
TEST(ResumedFp16, StepsThatOverflow_LeaveTheRateWhereItIs) {
  const Workspace workspace;
  const auto run = [&](std::uint64_t steps, const Words& more) {
    Words words = {"train",
                   "--model=model",
                   "--dataset=chats.jsonl",
                   "--dtype=fp16",
                   "--devices=cpu",
                   "--lr_scheduler_type=linear",
                   "--output_dir=out",
                   "--lr=1e-3",
                   "--max_steps=" + std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = workspace.run(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  };
  ASSERT_NO_FATAL_FAILURE(run(2, {}));
  workspace.edit("out/checkpoint-2/trainer_state.json", "\"loss_scale\": 65536.0", "\"loss_scale\": 16777216.0");
  ASSERT_NO_FATAL_FAILURE(run(16, {"--resume_from_checkpoint"}));
  const std::vector<Json> lines = metrics_of(workspace, "out");
  ASSERT_EQ(lines.size(), 16U);
  std::uint64_t skipped = 0;
  for (std::size_t i = 2; i + 1 < lines.size(); ++i) {
    SCOPED_TRACE(lines[i].dump());
    const bool overflowed = lines[i]["skipped_steps"].get<std::uint64_t>() > skipped;
    skipped = lines[i]["skipped_steps"].get<std::uint64_t>();
    const auto scale = lines[i]["loss_scale"].get<double>();
    EXPECT_EQ(lines[i + 1]["loss_scale"].get<double>(), overflowed ? scale / 2 : scale);
    if (overflowed) {
      EXPECT_EQ(lines[i + 1]["learning_rate"], lines[i]["learning_rate"]);
    } else {
      EXPECT_LT(lines[i + 1]["learning_rate"].get<double>(), lines[i]["learning_rate"].get<double>());
    }
  }
  EXPECT_GT(skipped, 1U);
  EXPECT_LT(skipped, 12U);
}

}  // namespace
}  // namespace rondo::cli
