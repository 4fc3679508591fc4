// Pools that only take time: no loss, no result, no checkpoint, and plans that count what a microbatch holds.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Words timed(const Words& more = {}) {
  Words words = train({"--devices=timed:rtx4090", "--max_steps=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(TimedRun, NoLossIsReported_AndNoResultPromised) {
  const Workspace workspace;
  const Outcome outcome = workspace.run(
      timed({"--save_steps=2", "--eval_steps=2", "--eval_dataset=chats.jsonl", "--load_best_model_at_end"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<Json> lines = metrics_of(workspace, "out");
  EXPECT_EQ(lines.size(), 4U);
  for (const Json& line : lines) {
    EXPECT_EQ(line["kind"], "train");
    EXPECT_FALSE(line.contains("loss")) << line;
    EXPECT_FALSE(line.contains("grad_norm")) << line;
    EXPECT_GT(line.value("step_seconds", 0.0), 0.0);
  }
  for (const char* text : {"loss 0", "grad 0", "the result is in", "checkpoint out", "rondo generate"}) {
    EXPECT_THAT(outcome.err, Not(HasSubstr(text)));
  }
  EXPECT_THAT(outcome.err, HasSubstr("there is no result; the steps are in out/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(workspace.path("out/adapter_model.safetensors")));
  EXPECT_FALSE(fs::exists(workspace.path("out/checkpoint-2")));
}

TEST(TimedRun, TransfersThatAreToBeVerified_CostNoDevice) {
  const Workspace workspace;
  const Outcome outcome = workspace.run(timed({"--verify_transfers"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(TimedRun, CheckpointToGoOnFrom_IsRefused) {
  expect_refusal({"Checkpoint",
                  [](const Workspace& workspace) {
                    EXPECT_EQ(workspace.run(train()).status, 0);
                    return timed({"--resume_from_checkpoint=auto"});
                  },
                  {"resume_from_checkpoint", "out/checkpoint-1", "timed:rtx4090"}});
}

/// On a card whose memory is slow beside its arithmetic.
TEST(Profile, OfOneMicrobatch_ComputesAsLongAsThePlanSays) {
  const Workspace workspace;
  workspace.write(
      "cards.yaml",
      "slow: {flops: {bf16: 1e12}, memory_bytes: 8e9, memory_bandwidth: 2e8, link_up: 1e10, link_down: 1e10, "
      "jitter: 0}\n");
  const Json json =
      json_of(workspace.run({"profile", "--model=model", "--devices=timed:cards.yaml#slow", "--finetuning_type=full",
                             "--gradient_accumulation_steps=1", "--cutoff_len=16", "--steps=4", "--json"}));
  const Json& device = json["measured"]["devices"][0];
  for (const char* phase : {"forward", "fused", "backward"}) {
    const double predicted = device["predicted_phases"][phase];
    EXPECT_NEAR(device["phases"][phase].get<double>(), predicted, 0.01 * predicted) << phase;
  }
}

TEST(Plan, ForwardFlops_AreThoseOfTheMicrobatchNotOfItsBucket) {
  const Workspace workspace;
  const auto flops = [&](int length, int batch) {
    const Json plan = json_of(workspace.run({"plan", "--model=model", "--devices=timed:rtx4090", "--json",
                                             "--finetuning_type=full", "--cutoff_len=" + std::to_string(length),
                                             "--per_device_train_batch_size=" + std::to_string(batch)}));
    std::map<std::string, double> found;
    for (const Json& layer : plan["layers"]) found[layer["name"]] = layer["forward_flops"];
    return found;
  };
  const auto config = Json::parse(workspace.read("model/config.json"));
  const auto size = [&](const char* key) { return config[key].get<double>(); };
  for (const auto& [length, batch] : {std::pair(193, 1), std::pair(7, 5), std::pair(256, 2)}) {
    const double tokens = length * batch;
    std::size_t found = 0;
    for (const auto& [name, value] : flops(length, batch)) {
      SCOPED_TRACE(name);
      if (name.find("mlp") != std::string::npos) {
        EXPECT_DOUBLE_EQ(value, 2 * tokens * 3 * size("hidden_size") * size("intermediate_size"));
        ++found;
      } else if (name.find("head") != std::string::npos) {
        EXPECT_DOUBLE_EQ(value, 2 * tokens * size("hidden_size") * size("vocab_size"));
        ++found;
      }
    }
    EXPECT_EQ(found, static_cast<std::size_t>(size("num_hidden_layers")) + 1);
  }
}

TEST(Plan, KeysOfAnotherMethod_AreNamedOnce) {
  const Workspace workspace;
  const auto advice = [&](const Words& more) {
    Words words = {"plan", "--model=model", "--devices=timed:rtx4090", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    std::string text;
    const Json plan = json_of(workspace.run(words));
    for (const Json& sentence : plan["advice"]) text += sentence.get<std::string>() + "\n";
    return text;
  };
  EXPECT_THAT(advice({"--finetuning_type=full", "--use_dora", "--lora_rank=16"}),
              HasSubstr("lora_rank, use_dora have no effect beside finetuning_type full"));
  EXPECT_THAT(advice({"--finetuning_type=freeze", "--lora_dropout=0.1", "--freeze_trainable_layers=1"}),
              HasSubstr("lora_dropout has no effect beside finetuning_type freeze"));
  const Outcome made = workspace.run(train({"--output_dir=adapter", "--save_steps=0", "--max_steps=1"}));
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(advice({"--adapter_name_or_path=adapter", "--use_dora", "--loraplus_lr_ratio=4"}),
              HasSubstr("use_dora has no effect beside adapter_name_or_path, whose adapter has its own"));
  EXPECT_THAT(advice({"--use_dora", "--lora_rank=16"}), Not(HasSubstr("no effect")));
  EXPECT_THAT(advice({"--finetuning_type=full"}), Not(HasSubstr("no effect")));
}

/// Their factors are most of what an adapter of all layers has.
TEST(Plan, AdaptersOfExperts_AreNamedWithTheirSize) {
  const Workspace workspace;
  const auto plan = [&](const Words& more) {
    Words words = {"plan", "--model=Qwen/Qwen3-30B-A3B", "--devices=timed:rtx4090", "--cutoff_len=512"};
    words.insert(words.end(), more.begin(), more.end());
    return workspace.run(words);
  };
  // Of each block the router's factors, and 128 experts' A and B of twice and once the rank.
  const double experts = 48 * 128 * (16.0 * (2048 + 2 * 768) + 8.0 * (768 + 2048)) / 1e6;
  const std::string text = json_of(plan({"--json", "--host_memory_limit=400GiB"}))["advice"].dump();
  EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("{:.4g} M", experts)), HasSubstr("q_proj,k_proj,v_proj,o_proj")));
  EXPECT_THAT(json_of(plan({"--json", "--lora_target=q_proj", "--host_memory_limit=400GiB"}))["advice"].dump(),
              Not(HasSubstr("experts")));
  const Outcome narrow = plan({"--host_memory_limit=40GiB"});  // in which the weights alone have no room
  EXPECT_EQ(narrow.status, 1);
  EXPECT_THAT(narrow.err, AllOf(HasSubstr("host memory"), HasSubstr("quantization_bit: 8 or 4")));
  const Outcome coded = plan({"--host_memory_limit=20GiB", "--quantization_bit=4"});
  EXPECT_EQ(coded.status, 1);
  EXPECT_THAT(coded.err, AllOf(HasSubstr("host memory"), HasSubstr("lora_target: q_proj,k_proj,v_proj,o_proj")));
}

}  // namespace
}  // namespace rondo::cli
