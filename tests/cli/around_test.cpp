// What surrounds training: evaluation by exact match, the doctor, imported configurations, completions, the manual.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ExactMatch, TrainedAnswers_AreCounted) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=60", "--lr=3e-3", "--batch_size=3", "--finetuning_type=full"})).status,
            0);
  const Words eval = {"eval",   "--model=model", "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32",
                      "--json", "--exact_match", "--max_new_tokens=8"};
  const Json before = json_of(workspace.run(eval));
  EXPECT_EQ(before["exact_match"], 0.0);
  EXPECT_EQ(before["samples"], 3);
  Words trained = eval;
  trained[1] = "--model=out";
  const Json after = json_of(workspace.run(trained));
  // Each answer as `rondo generate` gives it.
  int right = 0;
  const std::pair<const char*, const char*> questions[] = {
      {"Name a colour.", "Blue."}, {"Name a fruit.", "Pear."}, {"Name a tree.", "Oak."}};
  for (const auto& [question, answer] : questions) {
    const Outcome said = workspace.run({"generate", "--model=out", "--devices=cpu", "--dtype=fp32",
                                        "--max_new_tokens=8", std::string("--prompt=") + question});
    right += said.out == std::string(answer) + "\n" ? 1 : 0;
  }
  EXPECT_GT(right, 0);
  EXPECT_DOUBLE_EQ(after["exact_match"].get<double>(), right / 3.0);
  Words text = eval;
  text[5] = "--json=false";
  EXPECT_THAT(workspace.run(text).out, HasSubstr("exact match 0.0%: 0 of 3"));
}

/// Base models have templates too, but name an end that no turn has.
TEST(ExactMatch, EndOfTurnThatFilesDoNotName_EndsAnswers) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=60", "--lr=3e-3", "--batch_size=3", "--finetuning_type=full"})).status,
            0);
  const Words asked = {"generate", "--model=out",          "--devices=cpu", "--dtype=fp32", "--max_new_tokens=40",
                       "--json",   "--prompt=Name a tree."};
  const Words measured = {"eval",   "--model=out",   "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32",
                          "--json", "--exact_match", "--max_new_tokens=8"};
  const Json answer = json_of(workspace.run(asked));
  const Json result = json_of(workspace.run(measured));
  workspace.write("out/generation_config.json", R"({"eos_token_id":256})");
  EXPECT_EQ(json_of(workspace.run(asked)), answer);
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(json_of(workspace.run(measured)), result);
  EXPECT_GT(result["exact_match"].get<double>(), 0.0);
  // Without the template nothing is known but what files name.
  Words raw = asked;
  raw.push_back("--raw");
  raw[6] = "--prompt=<|im_start|>user\nName a tree.<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(json_of(workspace.run(raw))["finish_reason"], "length");
}

TEST(ExactMatch, TextWithoutQuestions_IsRefused) {
  const Workspace workspace;
  workspace.write("texts.jsonl", "{\"text\":\"A colour is blue.\"}\n");
  const Outcome outcome = workspace.run(
      {"eval", "--model=model", "--eval_dataset=texts.jsonl", "--devices=cpu", "--dtype=fp32", "--exact_match"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("exact_match needs"));
}

/// Cards whose matrix units take one type of 16 bits and not the other.
TEST(MatrixUnits, ThatDoNotMultiplyBf16_AreNamed) {
  const Workspace workspace;
  const std::string rest =
      "memory_bytes: 1e10, memory_bandwidth: 1e12, link_up: 1e10, link_down: 1e10, link_latency: 1e-5}\n";
  workspace.write("cards.yaml", "half: {flops: {fp32: 1e13, bf16: 1e13, fp16: 9e13}, " + rest +
                                    "both: {flops: {fp32: 1e13, bf16: 9e13, fp16: 9e13}, " + rest);
  const auto says = [&workspace](const char* card, const char* dtype) {
    const Json plan = json_of(workspace.run({"plan", "--model=model", std::string("--devices=timed:cards.yaml#") + card,
                                             std::string("--dtype=") + dtype, "--json"}));
    return plan["advice"].dump();
  };
  EXPECT_THAT(says("half", "bf16"), HasSubstr("with dtype: fp16 timed:half:0 would be quicker"));
  EXPECT_THAT(says("half", "fp16"), testing::Not(HasSubstr("matrix units")));
  EXPECT_THAT(says("both", "bf16"), testing::Not(HasSubstr("matrix units")));
  const Json listed = json_of(workspace.run({"devices", "--devices=timed:cards.yaml#half", "--json"}));
  EXPECT_EQ(listed["devices"][0]["matrix_dtypes"], Json::array({"fp16"}));
}

TEST(Doctor, WhereTrainingIsPossible_Exits0AndLeavesNothing) {
  const Workspace workspace;
  const auto before = workspace.snapshot();
  const Json json = json_of(workspace.run({"doctor", "--devices=cpu", "--output_dir=new/out", "--json"}));
  EXPECT_EQ(json["possible"], true);
  std::vector<std::string> subjects;
  for (const Json& finding : json["findings"]) {
    EXPECT_THAT(finding.value("health", ""), testing::AnyOf("ok", "advice"));
    EXPECT_EQ(finding.value("text", "\n").find('\n'), std::string::npos);
    subjects.push_back(finding.value("subject", ""));
  }
  EXPECT_THAT(subjects,
              testing::IsSupersetOf({"processor", "memory", "memory lock", "vulkan", "cuda", "devices", "output",
                                     "disk space", "disk speed", "cache", "hugging face", "line editing"}));
  EXPECT_TRUE(workspace.snapshot() == before);
  EXPECT_THAT(workspace.run({"doctor", "--devices=cpu"}).out, HasSubstr("ok       processor"));
}

TEST(Doctor, WhereItIsNot_Exits1AndNamesTheProblem) {
  const Workspace workspace;
  const Outcome outcome = workspace.run({"doctor", "--devices=cuda:99", "--output_dir=chats.jsonl", "--json"});
  EXPECT_EQ(outcome.status, 1);
  const Json json = Json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(json["possible"], false);
  EXPECT_THAT(outcome.err, StartsWith("error: training is not possible here: devices: "));
  EXPECT_THAT(outcome.out, HasSubstr("chats.jsonl is a file"));
  EXPECT_THAT(workspace.run({"doctor", "--devices=cpu", "--output_dir=chats.jsonl/out"}).out,
              HasSubstr("chats.jsonl is a file"));
}

TEST(Import, IntoAFile_TrainsAtOnce) {
  const Workspace workspace;
  workspace.write(
      "theirs.yaml",
      "base_model: model\ndatasets:\n  - path: chats.jsonl\n    type: chat_template\nsequence_len: 64\n"
      "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmicro_batch_size: 1\nmax_steps: 1\n"
      "learning_rate: 0.001\nbf16: false\noutput_dir: out\nwandb_project: x\n");
  const Outcome imported = workspace.run({"import", "theirs.yaml", "--output", "ours.yaml"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(imported.out, "ours.yaml\n");
  EXPECT_THAT(imported.err, HasSubstr("not understood  line 15   wandb_project: "));
  const Outcome trained = workspace.run({"train", "ours.yaml", "--devices=cpu"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(std::filesystem::exists(workspace.path("out/adapter_model.safetensors")));
  const Json json = json_of(workspace.run({"import", "theirs.yaml", "--json"}));
  EXPECT_EQ(json["config"], workspace.read("ours.yaml"));
  EXPECT_EQ(json["missing"], "");
  EXPECT_EQ(json["from"], "Axolotl");
}

TEST(Shells, CompletionAndManual_GoToStandardOutput) {
  const Workspace workspace;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = workspace.run({"completion", shell});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("learning_rate"));
    EXPECT_EQ(workspace.run({"completion", "--shell", shell}).out, outcome.out);
  }
  EXPECT_THAT(workspace.run({"man"}).out, StartsWith(".TH RONDO 1"));
}

class BadAround : public testing::TestWithParam<BadInput> {};

TEST_P(BadAround, Refused_InOneLineWithoutATrace) { expect_refusal(GetParam()); }

BadInput import_of(const char* name, const std::string& text, Words named) {
  return {name,
          [text](const Workspace& workspace) {
            workspace.write("theirs.yaml", text);
            return Words{"import", "theirs.yaml", "--output=chats2.yaml"};
          },
          std::move(named)};
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, BadAround,
    testing::Values(
        command("NoShell", {"completion"}, {"bash, zsh or fish"}),
        command("UnknownShell", {"completion", "csh"}, {"'csh'"}),
        command("TwoShells", {"completion", "bash", "zsh"}, {"'zsh'"}),
        command("NothingToImport", {"import"}, {"file"}),
        command("FileMissing", {"import", "none.yaml"}, {"none.yaml"}),
        command("ImportOverAFile", {"import", "chats.jsonl", "--output=chats.jsonl"}, {"chats.jsonl exists"}),
        command("UnknownTool", {"import", "x.yaml", "--from=trl"}, {"--from", "'trl'"}),
        command("TrainingKeyOfImport", {"import", "x.yaml", "--lr=1"}, {"--lr"}),
        import_of("ImportOfNeither", "a: 1\n", {"theirs.yaml", "--from"}),
        import_of("ImportOfAList", "- a\n", {"theirs.yaml"}),
        command("ChatWithoutModel", {"chat"}, {"model_name_or_path"}),
        command("CompareWithoutAdapter", {"chat", "--model=model", "--compare"}, {"adapter_name_or_path"}),
        command("ChatOfNoModel", {"chat", "--model=nowhere", "--devices=cpu"}, {"nowhere"}),
        command("ExactMatchOfPrompts",
                {"eval", "--model=model", "--eval_dataset=chats.jsonl", "--exact_match", "--train_on_prompt"},
                {"--train_on_prompt"}),
        command("KeyOfEval", train({"--exact_match"}), {"--exact_match", "eval"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
