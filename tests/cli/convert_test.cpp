// Merging an adapter into its base and exporting, from the outside: what is made, and every way to be refused.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "workspace.h"

namespace rondo::cli {
namespace {

/// An adapter that changes the model, in `adapter`.
void make_adapter(const Workspace& workspace) {
  const Outcome made = workspace.run(train({"--output_dir=adapter", "--save_steps=0", "--lr=1e-2", "--max_steps=3"}));
  EXPECT_EQ(made.status, 0) << made.err;
}

Words merge(const Words& more = {}) {
  Words words = {"merge", "--model=model", "--adapter_name_or_path=adapter", "--output_dir=merged"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Merge, Model_AnswersAsBaseWithAdapter) {
  const Workspace workspace;
  make_adapter(workspace);
  const Outcome merged = workspace.run(merge({"--json"}));
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(merged.out, "{\"output_dir\":\"merged\"}\n");
  const double alone = eval_loss(workspace, {"--model=model"});
  const double adapted = eval_loss(workspace, {"--model=model", "--adapter_name_or_path=adapter"});
  EXPECT_GT(alone - adapted, 1e-2);
  EXPECT_NEAR(eval_loss(workspace, {"--model=merged"}), adapted, 1e-5 * adapted);
  for (const char* file :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(workspace.read(std::string("merged/") + file), workspace.read(std::string("model/") + file)) << file;
  }
}

/// As in transformers 5: what the files hold counts.
TEST(HeadOfItsOwn, InAModelThatSaysToHaveNone_IsUsedAndKept) {
  const Workspace workspace;
  const double loss = eval_loss(workspace, {"--model=model"});
  workspace.edit("model/config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_EQ(eval_loss(workspace, {"--model=model"}), loss);
  make_adapter(workspace);
  ASSERT_EQ(workspace.run(merge()).status, 0);
  const double adapted = eval_loss(workspace, {"--model=model", "--adapter_name_or_path=adapter"});
  EXPECT_NEAR(eval_loss(workspace, {"--model=merged"}), adapted, 1e-5 * adapted);
  ASSERT_EQ(workspace.run({"export", "--model=model", "--output=model.gguf"}).status, 0);
  EXPECT_EQ(eval_loss(workspace, {"--model=model.gguf"}), loss);
}

TEST(Merge, Dora_TrainsResumesMergesAndIsNoGgufAdapter) {
  const Workspace workspace;
  const Words dora = {"--output_dir=adapter", "--use_dora", "--lora_dropout=0.1", "--lr=1e-2", "--save_steps=2"};
  Words run = train(dora);
  run.push_back("--max_steps=4");
  const Outcome made = workspace.run(run);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(workspace.read("adapter/adapter_config.json"), testing::HasSubstr("\"use_dora\": true"));
  EXPECT_THAT(workspace.read("adapter/adapter_model.safetensors"), testing::HasSubstr(".lora_magnitude_vector\""));
  const std::string whole = workspace.read("adapter/adapter_model.safetensors");
  workspace.remove("adapter/checkpoint-4");
  run.push_back("--resume_from_checkpoint=true");
  const Outcome resumed = workspace.run(run);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(workspace.read("adapter/adapter_model.safetensors"), whole);
  ASSERT_EQ(workspace.run(merge()).status, 0);
  const double alone = eval_loss(workspace, {"--model=model"});
  const double adapted = eval_loss(workspace, {"--model=model", "--adapter_name_or_path=adapter"});
  EXPECT_GT(alone - adapted, 1e-2);
  EXPECT_NEAR(eval_loss(workspace, {"--model=merged"}), adapted, 1e-5 * adapted);
  const Outcome exported = workspace.run({"export", "--adapter_name_or_path=adapter", "--output=a.gguf"});
  EXPECT_EQ(exported.status, 2);
  EXPECT_THAT(exported.err, testing::HasSubstr("use_dora: the format has no place for magnitudes; merge the adapter"));
}

TEST(Merge, OutputFolderWithFiles_IsLeftAsItIs) {
  const Workspace workspace;
  make_adapter(workspace);
  workspace.write("merged/mine", "x");
  const auto before = workspace.snapshot();
  const Outcome outcome = workspace.run(merge());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("not empty"));
  EXPECT_EQ(workspace.snapshot(), before);
}

/// Merging after `breaker` changed the workspace.
BadInput broken_adapter(const char* name, const std::function<void(const Workspace&)>& breaker, Words named) {
  return {name,
          [breaker](const Workspace& workspace) {
            make_adapter(workspace);
            breaker(workspace);
            return merge();
          },
          std::move(named)};
}

class BadMerge : public testing::TestWithParam<BadInput> {};

TEST_P(BadMerge, Refused_WithNothingLeftBehind) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadMerge,
    testing::Values(
        command("NoModel", {"merge", "--adapter_name_or_path=a", "--output_dir=o"}, {"model_name_or_path"}),
        command("NoAdapter", {"merge", "--model=model", "--output_dir=o"}, {"adapter_name_or_path"}),
        command("NoOutput", {"merge", "--model=model", "--adapter_name_or_path=a"}, {"output_dir"}),
        command("ModelMissing", {"merge", "--model=no", "--adapter_name_or_path=a", "--output_dir=o"}, {"no"}),
        command("AdapterMissing", merge(), {"adapter"}),
        command("KeyOfAnotherVerb", merge({"--prompt=x"}), {"--prompt", "generate"}),
        broken_adapter(
            "AnotherModel",
            [](const Workspace& workspace) {
              workspace.remove("model");
              const Outcome made = workspace.run({"init", "--arch=llama", "--output_dir=model", "--hidden_size=32"});
              EXPECT_EQ(made.status, 0) << made.err;
            },
            {"adapter_model.safetensors", "q_proj"}),
        broken_adapter("BaseCutOff",
                       [](const Workspace& workspace) {
                         std::filesystem::resize_file(workspace.path("model/model.safetensors"), 1000);
                       },
                       {"model.safetensors"}),
        broken_adapter("NumberNotFinite",
                       [](const Workspace& workspace) { workspace.end_not_finite("model/model.safetensors"); },
                       {"model.safetensors", "not finite"}),
        broken_adapter("OutputIsAFile", [](const Workspace& workspace) { workspace.write("merged", "mine"); },
                       {"merged"})),
    name_of);

TEST(Export, ModelAndAdapter_AreGgufFiles) {
  const Workspace workspace;
  make_adapter(workspace);
  const Outcome model =
      workspace.run({"export", "--model=model", "--format=gguf", "--output=m.gguf", "--quantization=q8_0", "--json"});
  ASSERT_EQ(model.status, 0) << model.err;
  EXPECT_EQ(model.out, "{\"output\":\"m.gguf\"}\n");
  const Outcome adapter = workspace.run({"export", "--adapter_name_or_path=adapter", "--output=a.gguf"});
  ASSERT_EQ(adapter.status, 0) << adapter.err;
  EXPECT_EQ(adapter.out, "a.gguf\n");
  const std::string start("GGUF\3\0\0\0", 8);
  EXPECT_THAT(workspace.read("m.gguf"), testing::StartsWith(start));
  EXPECT_THAT(workspace.read("a.gguf"), testing::StartsWith(start));
  EXPECT_THAT(workspace.read("a.gguf"), testing::HasSubstr("blk.1.ffn_down.weight.lora_b"));
}

Words exported(const Words& more = {}) {
  Words words = {"export", "--model=model", "--output=m.gguf"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

BadInput edited_for_export(const char* name, const std::string& file, const std::string& from, const std::string& to,
                           Words named) {
  return {name,
          [=](const Workspace& workspace) {
            workspace.edit(file, from, to);
            return exported();
          },
          std::move(named)};
}

class BadExport : public testing::TestWithParam<BadInput> {};

TEST_P(BadExport, Refused_WithNothingLeftBehind) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadExport,
    testing::Values(
        command("NoModel", {"export", "--output=m.gguf"}, {"model_name_or_path"}),
        command("NoOutput", {"export", "--model=model"}, {"output"}),
        command("OtherFormat", exported({"--format=onnx"}), {"--format", "'onnx'", "gguf"}),
        command("OtherQuantization", exported({"--quantization=q4_0"}), {"--quantization", "'q4_0'"}),
        command("OutputExists", exported({"--output=chats.jsonl"}), {"chats.jsonl", "exists"}),
        command("AdapterMissing", exported({"--adapter_name_or_path=no"}), {"no: ", "directory of an adapter"}),
        edited_for_export("UnnamedCut", "model/tokenizer.json", "\"add_prefix_space\": false",
                          "\"add_prefix_space\": true", {"tokenizer.json", "pre_tokenizer"}),
        edited_for_export("Activation", "model/config.json", "\"silu\"", "\"gelu\"", {"config.json", "hidden_act"})),
    name_of);

/// Runs until a hidden name shows that something is being written, then gets `signal`.
Outcome interrupted_while_writing(const Workspace& workspace, const Words& words, int signal) {
  const auto writes = [&] {
    return std::ranges::any_of(std::filesystem::directory_iterator(workspace.path()), [](const auto& entry) {
      const std::string name = entry.path().filename().string();
      return name.starts_with('.') && name.ends_with(".part");
    });
  };
  Process process(words, workspace.path().string());
  for (int tries = 0; tries < 100'000 && !writes(); ++tries)
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  process.send(signal);
  return process.wait();
}

/// What takes a second to write, and is as large as a model where it is left.
TEST(Interrupted, InitAndExport_LeaveNothing) {
  const Workspace workspace;
  const auto before = workspace.snapshot();
  const Words init = {"init", "--arch=llama", "--output_dir=large", "--hidden_size=1024", "--num_hidden_layers=4"};
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Outcome outcome = interrupted_while_writing(workspace, init, signal);
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    EXPECT_EQ(outcome.out + outcome.err, "");
    EXPECT_TRUE(workspace.snapshot() == before) << signal;
  }
  ASSERT_EQ(workspace.run(init).status, 0);
  const auto with_model = workspace.snapshot();
  const Outcome outcome = interrupted_while_writing(
      workspace, {"export", "--model=large", "--output=large.gguf", "--quantization=f32"}, SIGINT);
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_TRUE(workspace.snapshot() == with_model);
}

}  // namespace
}  // namespace rondo::cli
