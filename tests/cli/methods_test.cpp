// Methods and optimizers from the outside: what a run leaves, how it goes on, and every way to be refused.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

void expect_run(const Workspace& workspace, const Words& words) {
  const Outcome outcome = workspace.run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(LoraByParts, Adapter_SaysWhatItIs_AndMergesToTheSameModel) {
  const Workspace workspace;
  expect_run(workspace, {"init", "--arch=llama", "--output_dir=untied", "--tie_word_embeddings=false", "--dtype=fp32"});
  workspace.write("run.yaml",
                  "model: untied\nlr: 1e-2\nmax_steps: 3\nsave_steps: 0\nloraplus_lr_ratio: 4\n"
                  "rank_pattern:\n  layers.1.mlp.up_proj: 2\n  q_proj: 16\nalpha_pattern: {v_proj: 4.5}\n"
                  "layers_to_transform: [1]\nmodules_to_save: [embed_tokens, lm_head]\n");
  Words words = train();
  words.erase(words.begin() + 1, words.begin() + 3);
  words.insert(words.begin() + 1, "run.yaml");
  words.push_back("--max_steps=3");
  expect_run(workspace, words);
  const Json config = Json::parse(workspace.read("out/adapter_config.json"), nullptr, false);
  EXPECT_EQ(config["rank_pattern"], (Json{{"layers.1.mlp.up_proj", 2}, {"q_proj", 16}}));
  EXPECT_EQ(config["alpha_pattern"], (Json{{"v_proj", 4.5}}));
  EXPECT_EQ(config["layers_to_transform"], Json::array({1}));
  EXPECT_EQ(config["modules_to_save"], Json::array({"embed_tokens", "lm_head"}));
  const std::string adapter = workspace.read("out/adapter_model.safetensors");
  EXPECT_THAT(adapter, HasSubstr("base_model.model.lm_head.weight"));
  EXPECT_THAT(adapter, HasSubstr("base_model.model.model.embed_tokens.weight"));
  EXPECT_THAT(adapter, testing::Not(HasSubstr("layers.0.")));
  const double adapted = eval_loss(workspace, {"--model=untied", "--adapter_name_or_path=out"});
  EXPECT_GT(eval_loss(workspace, {"--model=untied"}) - adapted, 1e-2);
  expect_run(workspace, {"merge", "--model=untied", "--adapter_name_or_path=out", "--output_dir=merged"});
  EXPECT_NEAR(eval_loss(workspace, {"--model=merged"}), adapted, 1e-5 * adapted);
  const Outcome exported =
      workspace.run({"export", "--model=untied", "--adapter_name_or_path=out", "--output=adapter.gguf"});
  EXPECT_EQ(exported.status, 2);
  EXPECT_THAT(exported.err, HasSubstr("merge it first"));
}

/// The loss that a run of two steps with these words evaluates at its end, and that of `rondo eval` with its adapter.
void expect_quiet_evaluation(const Words& words) {
  const Workspace workspace;
  Words all = train({"--max_steps=2", "--lr=1e-2", "--save_steps=0", "--eval_dataset=chats.jsonl", "--eval_steps=2"});
  all.insert(all.end(), words.begin(), words.end());
  expect_run(workspace, all);
  double evaluated = 0;
  for (const Json& line : metrics_of(workspace, "out")) evaluated = line.value("eval_loss", evaluated);
  const double apart = eval_loss(workspace, {"--model=model", "--adapter_name_or_path=out", "--cutoff_len=64"});
  EXPECT_NEAR(evaluated, apart, 1e-6 * apart);
}

TEST(Evaluation, WithinARun_DropsNothing) { expect_quiet_evaluation({"--lora_dropout=0.5"}); }

TEST(Evaluation, WithinARun_AddsNoNoise) { expect_quiet_evaluation({"--neftune_noise_alpha=20"}); }

TEST(Neftune, Training_IsAnotherThatRepeatsItselfAndIsResumed) {
  const Workspace workspace;
  const auto words = [&](const std::string& out, const std::string& alpha, const Words& more = {}) {
    Words all = train({"--max_steps=2", "--save_steps=1", "--neftune_noise_alpha=" + alpha, "--output_dir=" + out});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto adapter = [&](const std::string& out) { return workspace.read(out + "/adapter_model.safetensors"); };
  expect_run(workspace, words("noisy", "5"));
  expect_run(workspace, words("quiet", "0"));
  EXPECT_NE(adapter("noisy"), adapter("quiet"));
  const Words resumed = {"--resume_from_checkpoint=noisy/checkpoint-1"};
  expect_run(workspace, words("again", "5", resumed));
  EXPECT_EQ(adapter("noisy"), adapter("again"));
  const Outcome other = workspace.run(words("other", "0", resumed));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("neftune_noise_alpha"));
}

TEST(Freeze, Result_IsAModelThatDiffersInTheLastBlocksAlone) {
  const Workspace workspace;
  expect_run(workspace, train({"--finetuning_type=freeze", "--freeze_trainable_layers=1", "--lr=1e-2", "--max_steps=3",
                               "--save_steps=0"}));
  EXPECT_GT(eval_loss(workspace, {"--model=model"}) - eval_loss(workspace, {"--model=out"}), 1e-3);
  const std::string before = workspace.read("model/model.safetensors");
  const std::string after = workspace.read("out/model.safetensors");
  ASSERT_EQ(before.size(), after.size());
  // The embedding comes first in the file, then block 0.
  EXPECT_EQ(before.compare(0, before.size() / 3, after, 0, before.size() / 3), 0);
  EXPECT_NE(before, after);
}

/// Of a tensor in a safetensors file: its type, and where its bytes are in the file.
struct StoredBytes {
  std::string type;
  std::size_t first = 0;
  std::size_t size = 0;
};

StoredBytes stored_bytes(const std::string& file, const std::string& name) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length), nullptr, false);
  if (!header.contains(name)) return {};
  const std::size_t begin = header[name]["data_offsets"][0].get<std::size_t>();
  return {header[name]["dtype"], sizeof length + length + begin,
          header[name]["data_offsets"][1].get<std::size_t>() - begin};
}

/// Numbers that 16 bits do not hold.
TEST(ChoiceBias, OfATrainedModel_IsThatOfItsBase) {
  for (const auto& [arch, name, router] :
       {std::array{"glm4_moe", "mlp.gate.e_score_correction_bias", "mlp.gate.weight"},
        std::array{"ernie4_5_moe", "mlp.moe_statics.e_score_correction_bias", "mlp.gate.weight"},
        std::array{"lfm2_moe", "feed_forward.expert_bias", "feed_forward.gate.weight"}}) {
    const Workspace workspace;
    expect_run(workspace, {"init", std::string("--arch=") + arch, "--output_dir=mixture", "--hidden_size=32",
                           "--num_experts=4", "--dtype=bf16"});
    const std::string tensor = std::string("model.layers.1.") + name;
    std::string file = workspace.read("mixture/model.safetensors");
    const StoredBytes before = stored_bytes(file, tensor);
    ASSERT_EQ(before.type, "F32") << arch;
    const std::array<float, 4> numbers = {0.3F, -0.001F, 1e-5F, 0.7F};
    ASSERT_EQ(before.size, sizeof numbers);
    std::memcpy(file.data() + before.first, numbers.data(), sizeof numbers);
    workspace.write("mixture/model.safetensors", file);
    expect_run(workspace, train({"--model=mixture", "--finetuning_type=full", "--lr=1e-2", "--max_steps=2",
                                 "--save_steps=0", "--dtype=bf16"}));
    const std::string trained = workspace.read("out/model.safetensors");
    const StoredBytes after = stored_bytes(trained, tensor);
    EXPECT_EQ(after.type, "F32") << arch;
    EXPECT_EQ(trained.substr(after.first, after.size), file.substr(before.first, before.size)) << arch;
    const StoredBytes moved = stored_bytes(trained, std::string("model.layers.1.") + router);
    const StoredBytes still = stored_bytes(file, std::string("model.layers.1.") + router);
    EXPECT_NE(trained.substr(moved.first, moved.size), file.substr(still.first, still.size)) << arch;
  }
}

/// Nothing trains what a block's output is multiplied by.
TEST(BlockScale, OfATrainedModel_IsThatOfItsBase) {
  const Workspace workspace;
  expect_run(workspace, {"init", "--arch=gemma4_text", "--output_dir=gemma", "--hidden_size=32", "--dtype=fp32"});
  std::string file = workspace.read("gemma/model.safetensors");
  const std::string name = "model.layers.1.layer_scalar";
  const StoredBytes before = stored_bytes(file, name);
  const float number = 0.3F;
  ASSERT_EQ(before.size, sizeof number);
  std::memcpy(file.data() + before.first, &number, sizeof number);
  workspace.write("gemma/model.safetensors", file);
  expect_run(workspace, train({"--model=gemma", "--finetuning_type=full", "--lr=1e-2", "--max_steps=2",
                               "--save_steps=0", "--dtype=fp32"}));
  const std::string trained = workspace.read("out/model.safetensors");
  const StoredBytes after = stored_bytes(trained, name);
  EXPECT_EQ(trained.substr(after.first, after.size), file.substr(before.first, before.size));
}

class Optimizers : public testing::TestWithParam<const char*> {};

TEST_P(Optimizers, InterruptedRun_EndsWithTheSameBytes) {
  const Workspace workspace;
  const auto words = [](const char* out, const char* steps) {
    return train({std::string("--optim=") + GetParam(), "--momentum=0.5", "--finetuning_type=full", "--lr=1e-3",
                  "--lr_scheduler_type=cosine_with_restarts", "--lr_scheduler_kwargs=num_cycles=2",
                  std::string("--output_dir=") + out, std::string("--max_steps=") + steps, "--save_steps=2",
                  "--dtype=bf16"});
  };
  expect_run(workspace, words("whole", "4"));
  expect_run(workspace, words("part", "4"));
  for (const char* file : {"part/checkpoint-4", "part/model.safetensors"}) workspace.remove(file);
  Words again = words("part", "4");
  again.push_back("--resume_from_checkpoint=auto");
  expect_run(workspace, again);
  EXPECT_TRUE(workspace.read("part/model.safetensors") == workspace.read("whole/model.safetensors"));
  EXPECT_TRUE(workspace.read("part/checkpoint-4/optimizer.safetensors") ==
              workspace.read("whole/checkpoint-4/optimizer.safetensors"));
  Words other = words("part", "6");
  other.insert(other.end(), {"--resume_from_checkpoint=auto", "--optim=adamw"});
  const Outcome outcome = workspace.run(other);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(GetParam()));
}

TEST_P(Optimizers, OfAProfile_UpdateAsThoseOfARun) {
  const Workspace workspace;
  const Words words = {"profile",
                       "--model=model",
                       "--finetuning_type=full",
                       "--devices=cpu",
                       "--cutoff_len=32",
                       "--steps=3",
                       std::string("--optim=") + GetParam()};
  expect_run(workspace, words);
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::Values("adamw_8bit", "sgd", "lion"),
                         [](const auto& one) { return std::string(one.param); });

/// What passes between layers is rounded on one device as between three, by every command of the run.
TEST(BoundariesInCodes, OnOneDeviceOrThree_EndWithTheSameBytes) {
  const Workspace workspace;
  const auto words = [](const char* out, const char* devices, const char* bits) {
    return train({std::string("--output_dir=") + out, std::string("--devices=") + devices,
                  std::string("--boundary_quantization_bit=") + bits, "--max_steps=3", "--lr=1e-2", "--save_steps=0",
                  "--gradient_accumulation_steps=3"});
  };
  expect_run(workspace, words("one", "cpu", "8"));
  expect_run(workspace, words("three", "emulated:rtx4090*3", "8"));
  expect_run(workspace, words("numbers", "cpu", "0"));
  const std::string one = workspace.read("one/adapter_model.safetensors");
  EXPECT_TRUE(one == workspace.read("three/adapter_model.safetensors"));
  EXPECT_FALSE(one == workspace.read("numbers/adapter_model.safetensors"));
  EXPECT_THAT(workspace.read("one/config.resolved.yaml"), HasSubstr("boundary_quantization_bit: 8"));
  expect_run(workspace, {"init", "--arch=llama", "--output_dir=odd", "--hidden_size=96", "--num_hidden_layers=2"});
  Words odd = words("never", "cpu", "4");
  odd.push_back("--model=odd");
  const Outcome outcome = workspace.run(odd);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("boundary_quantization_bit: the model's hidden_size is 96"));
}

/// Which codes a base gets follows from the data, not from the pool, and a resumed run gets them again.
TEST(CodesForData, OnAnyPoolAndResumed_EndWithTheSameBytes) {
  const Workspace workspace;
  const auto words = [](const char* out, const char* devices, const char* tokens) {
    return train({std::string("--output_dir=") + out, std::string("--devices=") + devices, "--quantization_bit=4",
                  std::string("--quantization_tokens=") + tokens, "--use_dora", "--max_steps=4", "--lr=1e-2",
                  "--save_steps=2"});
  };
  const Outcome first = workspace.run(words("one", "cpu", "200"));
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out + first.err, HasSubstr("4-bit codes were chosen for"));
  const std::string one = workspace.read("one/adapter_model.safetensors");
  expect_run(workspace, words("three", "emulated:rtx4090*3", "200"));
  EXPECT_TRUE(one == workspace.read("three/adapter_model.safetensors"));
  for (const char* file : {"one/checkpoint-4", "one/adapter_model.safetensors"}) workspace.remove(file);
  Words again = words("one", "cpu", "200");
  again.push_back("--resume_from_checkpoint=auto");
  expect_run(workspace, again);
  EXPECT_TRUE(one == workspace.read("one/adapter_model.safetensors"));
  const Outcome nearest = workspace.run(words("nearest", "cpu", "0"));
  EXPECT_EQ(nearest.status, 0) << nearest.err;
  EXPECT_THAT(nearest.out + nearest.err, Not(HasSubstr("codes were chosen")));
  EXPECT_FALSE(one == workspace.read("nearest/adapter_model.safetensors"));
  Words other = words("one", "cpu", "0");
  other.push_back("--resume_from_checkpoint=auto");
  const Outcome refused = workspace.run(other);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("quantization_tokens: 200"));
}

TEST(OptimizerPlan, PlannedMoments_AreThoseOfTheOptimizer) {
  const Workspace workspace;
  const auto host_peak = [&](const char* optim) {
    const Outcome outcome =
        workspace.run({"plan", "--model=model", "--finetuning_type=full", "--devices=cpu", "--cutoff_len=64",
                       "--dtype=fp32", std::string("--optim=") + optim, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(outcome.out, nullptr, false);
    return json.is_object() ? json["host_peak_bytes"].get<std::int64_t>() : 0;
  };
  const std::int64_t adamw = host_peak("adamw");
  const std::int64_t lion = host_peak("lion");
  const std::int64_t sgd = host_peak("sgd");
  const std::int64_t coded = host_peak("adamw_8bit");
  EXPECT_EQ(adamw - lion, lion - sgd) << "a moment each";
  EXPECT_GT(lion, coded);
  EXPECT_GT(coded, sgd);
}

class BadMethod : public testing::TestWithParam<BadInput> {};

TEST_P(BadMethod, Refused_WithNothingLeftBehind) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Keys, BadMethod,
    testing::Values(
        command("UnknownName", train({"--rank_pattern=c_attn=4"}), {"rank_pattern", "\"c_attn\"", "q_proj"}),
        command("NoNumber", train({"--rank_pattern=q_proj"}), {"rank_pattern", "\"q_proj\"", "q_proj=16"}),
        command("RankAndAHalf", train({"--rank_pattern=q_proj=1.5"}), {"rank_pattern", "whole number", "1.5"}),
        command("AlphaNotANumber", train({"--alpha_pattern=q_proj=nan"}), {"alpha_pattern", "q_proj=nan"}),
        command("RankTwice", train({"--rank_pattern=q_proj=4,v_proj=2,q_proj=8"}), {"rank_pattern", "q_proj", "twice"}),
        BadInput{"AlphaTwiceInAFile",
                 [](const Workspace& workspace) {
                   workspace.write("run.yaml", "alpha_pattern: {q_proj: 4, q_proj: 8}\n");
                   Words words = train();
                   words.insert(words.begin() + 1, "run.yaml");
                   return words;
                 },
                 {"alpha_pattern", "q_proj", "twice"}},
        command("AlphaZero", train({"--alpha_pattern=q_proj=0"}), {"alpha_pattern", "q_proj=0"}),
        command("LayerPastTheLast", train({"--layers_to_transform=0,99"}), {"layers_to_transform", "99"}),
        command("LayerWord", train({"--layers_to_transform=last"}), {"layers_to_transform", "last"}),
        command("SavedNorm", train({"--modules_to_save=norm"}), {"modules_to_save", "embed_tokens", "norm"}),
        BadInput{"SavedTiedHead",
                 [](const Workspace& workspace) {
                   const Outcome made =
                       workspace.run({"init", "--arch=llama", "--output_dir=tied", "--tie_word_embeddings"});
                   EXPECT_EQ(made.status, 0) << made.err;
                   return train({"--model=tied", "--modules_to_save=lm_head"});
                 },
                 {"modules_to_save", "lm_head", "embedding"}},
        command("TensorOfADenseModel", train({"--target_parameters=down_proj"}), {"target_parameters", "no experts"}),
        BadInput{"ExpertsWithDropout",
                 [](const Workspace& workspace) {
                   const Outcome made = workspace.run({"init", "--arch=mixtral", "--output_dir=experts"});
                   EXPECT_EQ(made.status, 0) << made.err;
                   return train({"--model=experts", "--lora_dropout=0.1"});
                 },
                 {"lora_dropout", "gate_up_proj", "lora_target: q_proj"}},
        command("RatioZero", train({"--loraplus_lr_ratio=0"}), {"--loraplus_lr_ratio"}),
        command("FreezeNothing", train({"--finetuning_type=freeze", "--freeze_trainable_layers=0"}),
                {"--freeze_trainable_layers"}),
        command("FreezeTooMany", train({"--finetuning_type=freeze", "--freeze_trainable_layers=99"}),
                {"freeze_trainable_layers", "99"}),
        command("MomentumOne", train({"--optim=sgd", "--momentum=1"}), {"--momentum"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
