// GGUF files as models, from the outside: the verbs on them, what training makes of them, and every way to be refused.
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;

void make_gguf(const Workspace& workspace, const std::string& file = "m.gguf", const std::string& type = "f32",
               const std::string& model = "model") {
  const Outcome made = workspace.run({"export", "--model=" + model, "--output=" + file, "--quantization=" + type});
  EXPECT_EQ(made.status, 0) << made.err;
}

Json answer(const Workspace& workspace, const std::string& model, const Words& more = {}) {
  Words words = {"generate",      "--model=" + model,    "--prompt=Name a colour, na\u00efve \u4f60!",
                 "--devices=cpu", "--max_new_tokens=24", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return json_of(workspace.run(words));
}

TEST(Gguf, Exported_AnswersAsTheDirectory) {
  const Workspace workspace;
  make_gguf(workspace, "f32.gguf");
  make_gguf(workspace, "bf16.gguf", "bf16");
  const Json fp32 = answer(workspace, "model", {"--dtype=fp32"});
  EXPECT_EQ(fp32["token_ids"].size(), 24U);
  EXPECT_EQ(answer(workspace, "f32.gguf", {"--dtype=fp32"}), fp32);
  EXPECT_EQ(answer(workspace, "f32.gguf", {"--dtype=fp32", "--raw"}),
            answer(workspace, "model", {"--dtype=fp32", "--raw"}));
  EXPECT_EQ(answer(workspace, "bf16.gguf", {"--dtype=bf16"}), answer(workspace, "model", {"--dtype=bf16"}));
}

TEST(Gguf, EveryVerb_GivesWhatTheDirectoryGives) {
  const Workspace workspace;
  make_gguf(workspace, "folder/only.gguf");
  const std::vector<Words> kVerbs = {{"eval", "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32", "--json"},
                                     {"eval", "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32", "--json",
                                      "--exact_match", "--max_new_tokens=8"},
                                     {"data", "--dataset=chats.jsonl", "--samples=3", "--json"}};
  for (Words words : kVerbs) {
    words.emplace_back("--model=model");
    const Json expected = json_of(workspace.run(words));
    for (const char* place : {"folder/only.gguf", "folder"}) {
      words.back() = std::string("--model=") + place;
      EXPECT_EQ(json_of(workspace.run(words)), expected) << words[0] << place;
    }
  }
  Words plan = {"plan", "--devices=timed:rtx4090", "--json", "--model=model"};
  const Json expected = json_of(workspace.run(plan));
  plan.back() = "--model=folder/only.gguf";
  EXPECT_EQ(json_of(workspace.run(plan))["layers"], expected["layers"]);
}

TEST(Gguf, LoraTraining_LeavesTheSameAdapter) {
  const Workspace workspace;
  make_gguf(workspace);
  const Words steps = {"--max_steps=2", "--save_steps=0", "--lr=1e-2"};
  const auto trained = [&](Words more) {
    more.insert(more.end(), steps.begin(), steps.end());
    const Outcome made = workspace.run(train(more));
    EXPECT_EQ(made.status, 0) << made.err;
  };
  trained({"--output_dir=a"});
  trained({"--output_dir=b", "--model=m.gguf"});
  EXPECT_EQ(workspace.read("b/adapter_model.safetensors") == workspace.read("a/adapter_model.safetensors"), true);
  EXPECT_THAT(workspace.read("b/adapter_config.json"), testing::HasSubstr("m.gguf"));
  EXPECT_THAT(workspace.read("b/tokenizer.json"), testing::HasSubstr("<|im_end|>"));
  EXPECT_EQ(answer(workspace, "m.gguf", {"--adapter_name_or_path=b"}),
            answer(workspace, "model", {"--adapter_name_or_path=a"}));
  const Outcome exported = workspace.run({"export", "--adapter_name_or_path=b", "--output=b.gguf"});
  EXPECT_EQ(exported.status, 0) << exported.err;
  const Outcome again = workspace.run({"export", "--adapter_name_or_path=a", "--output=a.gguf"});
  EXPECT_EQ(again.status, 0) << again.err;
  // Only the model's name differs.
  EXPECT_EQ(workspace.read("b.gguf").substr(workspace.read("b.gguf").size() - 4096) ==
                workspace.read("a.gguf").substr(workspace.read("a.gguf").size() - 4096),
            true);
}

TEST(Gguf, FullTraining_LeavesADirectory) {
  const Workspace workspace;
  make_gguf(workspace);
  for (const char* model : {"model", "m.gguf"}) {
    const Outcome made = workspace.run(train(
        {"--finetuning_type=full", "--save_steps=0", "--model", model, std::string("--output_dir=full-") + model}));
    ASSERT_EQ(made.status, 0) << made.err;
  }
  EXPECT_EQ(workspace.read("full-m.gguf/model.safetensors") == workspace.read("full-model/model.safetensors"), true);
  EXPECT_EQ(workspace.read("full-m.gguf/chat_template.jinja"), workspace.read("full-model/chat_template.jinja"));
  EXPECT_EQ(answer(workspace, "full-m.gguf"), answer(workspace, "full-model"));
}

TEST(Gguf, Merge_WritesADirectoryOfPlainNumbers) {
  const Workspace workspace;
  const Outcome trained = workspace.run(train({"--output_dir=adapter", "--save_steps=0", "--lr=1e-2"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  make_gguf(workspace, "q.gguf", "q8_0");
  make_gguf(workspace);
  for (const std::string model : {"model", "m.gguf", "q.gguf"}) {
    const Outcome merged =
        workspace.run({"merge", "--model=" + model, "--adapter_name_or_path=adapter", "--output_dir=merged-" + model});
    ASSERT_EQ(merged.status, 0) << merged.err;
  }
  EXPECT_EQ(workspace.read("merged-m.gguf/model.safetensors") == workspace.read("merged-model/model.safetensors"),
            true);
  EXPECT_THAT(workspace.read("merged-q.gguf/config.json"), testing::HasSubstr("\"bfloat16\""));
  const Outcome answered = workspace.run(
      {"generate", "--model=merged-q.gguf", "--prompt=Name a colour.", "--devices=cpu", "--max_new_tokens=4"});
  EXPECT_EQ(answered.status, 0) << answered.err;
}

TEST(Gguf, ExportOfAnExport_IsTheSameFile) {
  const Workspace workspace;
  make_gguf(workspace, "m.gguf");
  make_gguf(workspace, "again/m.gguf", "f32", "m.gguf");
  make_gguf(workspace, "third/m.gguf", "f32", "again/m.gguf");
  EXPECT_EQ(workspace.read("third/m.gguf") == workspace.read("again/m.gguf"), true);
  EXPECT_EQ(answer(workspace, "again/m.gguf"), answer(workspace, "model"));
}

/// Training on a GGUF file that `breaker` broke.
BadInput broken_gguf(const char* name, const std::function<void(const Workspace&)>& breaker, Words named) {
  return {name,
          [breaker](const Workspace& workspace) {
            make_gguf(workspace);
            breaker(workspace);
            return train({"--model=m.gguf"});
          },
          std::move(named)};
}

/// The same with bytes of the file replaced by as many others.
BadInput edited_gguf(const char* name, const std::string& from, const std::string& to, Words named) {
  return broken_gguf(
      name,
      [=](const Workspace& workspace) {
        EXPECT_EQ(from.size(), to.size());
        workspace.edit("m.gguf", from, to);
      },
      std::move(named));
}

class BadGguf : public testing::TestWithParam<BadInput> {};

TEST_P(BadGguf, Refused_WithFileAndKeyOrTensor) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Files, BadGguf,
    testing::Values(
        command("Missing", train({"--model=no.gguf"}), {"no.gguf"}),
        broken_gguf("NotGguf", [](const Workspace& workspace) { workspace.write("m.gguf", "hello, this is text"); },
                    {"m.gguf", "GGUF"}),
        broken_gguf("CutOff",
                    [](const Workspace& workspace) { std::filesystem::resize_file(workspace.path("m.gguf"), 20000); },
                    {"m.gguf", "complete"}),
        broken_gguf("DataCutOff",
                    [](const Workspace& workspace) {
                      std::filesystem::resize_file(workspace.path("m.gguf"),
                                                   std::filesystem::file_size(workspace.path("m.gguf")) - 64);
                    },
                    {"m.gguf", "tensor"}),
        edited_gguf("UnknownCut", "gpt-2", "gpt-9", {"m.gguf", "tokenizer.ggml.pre", "gpt-9"}),
        edited_gguf("UnknownTokenizer", "gpt2", "bert", {"m.gguf", "tokenizer.ggml.model", "bert"}),
        edited_gguf("KeyMissing", "llama.block_count", "llama.block_cound", {"m.gguf", "llama.block_count"}),
        edited_gguf("TensorMissing", "blk.1.ffn_up.weight", "blk.1.ffn_xp.weight", {"m.gguf", "mlp.up_proj.weight"}),
        broken_gguf("OtherArchitecture",
                    [](const Workspace& workspace) {
                      std::string file = workspace.read("m.gguf");
                      const std::string key = "general.architecture";
                      file.replace(file.find(key) + key.size() + 12, 5, "mamba");  // after type and length
                      workspace.write("m.gguf", file);
                    },
                    {"m.gguf", "general.architecture", "mamba"}),
        broken_gguf("NumberNotFinite", [](const Workspace& workspace) { workspace.end_not_finite("m.gguf"); },
                    {"m.gguf", "not finite"}),
        BadInput{"SeveralInAFolder",
                 [](const Workspace& workspace) {
                   make_gguf(workspace, "folder/a.gguf");
                   make_gguf(workspace, "folder/b.gguf");
                   return train({"--model=folder"});
                 },
                 {"folder", "a.gguf, b.gguf"}},
        BadInput{"AsAdapter",
                 [](const Workspace& workspace) {
                   make_gguf(workspace);
                   return train({"--adapter_name_or_path=m.gguf"});
                 },
                 {"m.gguf", "PEFT"}},
        BadInput{
            "AnAdapter",
            [](const Workspace& workspace) {
              EXPECT_EQ(workspace.run(train({"--output_dir=adapter", "--save_steps=0"})).status, 0);
              const Outcome made = workspace.run({"export", "--adapter_name_or_path=adapter", "--output=adapter.gguf"});
              EXPECT_EQ(made.status, 0) << made.err;
              return train({"--model=adapter.gguf", "--output_dir=new"});
            },
            {"adapter.gguf", "general.type"}}),
    name_of);

}  // namespace
}  // namespace rondo::cli
