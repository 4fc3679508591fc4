// Bad model directories and adapters.
#include <cstring>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Breaker = std::function<void(const Workspace&)>;

/// Training on a model that `breaker` broke.
BadInput broken(const char* name, Breaker breaker, Words named) {
  return {name,
          [breaker = std::move(breaker)](const Workspace& workspace) {
            breaker(workspace);
            return train();
          },
          std::move(named)};
}

BadInput edited(const char* name, const std::string& file, const std::string& from, const std::string& to,
                Words named) {
  return broken(
      name, [=](const Workspace& workspace) { workspace.edit(file, from, to); }, std::move(named));
}

BadInput rewritten(const char* name, const std::string& file, const std::string& text, Words named) {
  return broken(
      name, [=](const Workspace& workspace) { workspace.write(file, text); }, std::move(named));
}

BadInput removed(const char* name, const std::string& file, Words named) {
  return broken(
      name, [=](const Workspace& workspace) { workspace.remove(file); }, std::move(named));
}

BadInput header(const char* name, const std::string& from, const std::string& to, Words named) {
  return broken(
      name, [=](const Workspace& workspace) { workspace.edit_header("model/model.safetensors", from, to); },
      std::move(named));
}

class BadModel : public testing::TestWithParam<BadInput> {};

TEST_P(BadModel, Refused_WithFileAndKeyOrTensor) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Folder, BadModel,
                         testing::Values(command("Missing", train({"--model=nowhere/model"}), {"nowhere/model"}),
                                         command("MissingAbove", train({"--model=../nowhere"}),
                                                 {"no directory ../nowhere, and it is no id of the Hub's"}),
                                         command("MissingBelow", train({"--model=a/b/c"}), {"no id of the Hub's"}),
                                         command("File", train({"--model=chats.jsonl"}), {"chats.jsonl"}),
                                         removed("NoConfig", "model/config.json", {"config.json"}),
                                         removed("NoWeights", "model/model.safetensors", {"model.safetensors"}),
                                         removed("NoTokenizer", "model/tokenizer.json", {"tokenizer.json"}),
                                         broken("TokenizerOfAnotherKind",
                                                [](const Workspace& workspace) {
                                                  workspace.remove("model/tokenizer.json");
                                                  workspace.write("model/tokenizer.model", "pieces");
                                                },
                                                {"model: expected tokenizer.json, found tokenizer.model",
                                                 "save_pretrained"}),
                                         broken("EmptyFolder",
                                                [](const Workspace& workspace) {
                                                  workspace.remove("model");
                                                  std::filesystem::create_directory(workspace.path("model"));
                                                },
                                                {"config.json"})),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Config, BadModel,
    testing::Values(
        rewritten("NoJson", "model/config.json", "{\"hidden_size\": 64,", {"config.json"}),
        rewritten("NoObject", "model/config.json", "[1]", {"config.json"}),
        rewritten("Empty", "model/config.json", "", {"config.json"}),
        edited("UnknownArchitecture", "model/config.json", "\"llama\"", "\"mamba\"", {"config.json", "mamba"}),
        edited("KeyMissing", "model/config.json", "\"hidden_size\"", "\"hidden_sise\"", {"config.json", "hidden_size"}),
        edited("TextForANumber", "model/config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"two\"",
               {"config.json", "num_hidden_layers"}),
        edited("NegativeNumber", "model/config.json", "\"vocab_size\": ", "\"vocab_size\": -",
               {"config.json", "vocab_size"}),
        edited("HeadsDoNotDivide", "model/config.json", "\"num_key_value_heads\": ",
               "\"num_key_value_heads\": 3, \"was\": ", {"config.json", "num_key_value_heads"}),
        edited("MoreLayersThanWeights", "model/config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
               {"model.layers.2"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Weights, BadModel,
    testing::Values(rewritten("Empty", "model/model.safetensors", "", {"model.safetensors"}),
                    rewritten("Garbage", "model/model.safetensors", "this is no tensor file at all",
                              {"model.safetensors"}),
                    broken("CutOff",
                           [](const Workspace& workspace) {
                             const auto path = workspace.path("model/model.safetensors");
                             std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
                           },
                           {"model.safetensors"}),
                    broken("HeaderLongerThanTheFile",
                           [](const Workspace& workspace) {
                             std::string file = workspace.read("model/model.safetensors");
                             std::memset(file.data(), 0x7f, 8);
                             workspace.write("model/model.safetensors", file);
                           },
                           {"model.safetensors"}),
                    header("TensorMissing", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.wait",
                           {"model.layers.1.mlp.up_proj.weight"}),
                    header("UnknownType", "\"F32\"", "\"F33\"", {"model.safetensors", "F33"}),
                    header("HeaderNoJson", "\"dtype\"", "\"dtype", {"model.safetensors"}),
                    broken("ShardMissing",
                           [](const Workspace& workspace) {
                             workspace.remove("model/model.safetensors");
                             workspace.write("model/model.safetensors.index.json",
                                             R"({"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors"}})");
                           },
                           {"model-00001-of-00002.safetensors"}),
                    broken("ShardOutside",
                           [](const Workspace& workspace) {
                             workspace.remove("model/model.safetensors");
                             workspace.write("model/model.safetensors.index.json",
                                             R"({"weight_map":{"lm_head.weight":"../chats.jsonl"}})");
                           },
                           {"model.safetensors.index.json"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(Tokenizer, BadModel,
                         testing::Values(rewritten("NoJson", "model/tokenizer.json", "{", {"tokenizer.json"}),
                                         rewritten("NoModel", "model/tokenizer.json", "{}", {"tokenizer.json"}),
                                         rewritten("NoObject", "model/tokenizer.json", "3", {"tokenizer.json"}),
                                         rewritten("TemplateBroken", "model/chat_template.jinja",
                                                   "{% for m in messages %}{{ m.content }", {"chat_template.jinja"}),
                                         rewritten("TemplateUnknownFilter", "model/chat_template.jinja",
                                                   "{{ messages | no_such_filter }}", {"no_such_filter"})),
                         name_of);

/// `arguments` on a model whose generation_config.json says `text`.
BadInput stops(const char* name, const std::string& text, Words arguments, Words more = {}) {
  Words named = {"model/generation_config.json"};
  named.insert(named.end(), more.begin(), more.end());
  return {name,
          [text, arguments = std::move(arguments)](const Workspace& workspace) {
            workspace.write("model/generation_config.json", text);
            return arguments;
          },
          std::move(named)};
}

const std::string kWrongStop = R"({"eos_token_id": "<|im_end|>"})";

INSTANTIATE_TEST_SUITE_P(
    WhereAnswersEnd, BadModel,
    testing::Values(stops("NoJson", "{\"eos_token_id\": 2,", {"generate", "--model=model", "--prompt=a"}),
                    stops("Generate", kWrongStop, {"generate", "--model=model", "--prompt=a"}, {"eos_token_id"}),
                    stops("Chat", kWrongStop, {"chat", "--model=model"}, {"eos_token_id"}),
                    stops("Evaluate", kWrongStop,
                          {"eval", "--model=model", "--eval_dataset=chats.jsonl", "--exact_match"}, {"eos_token_id"}),
                    stops("Export", kWrongStop, {"export", "--model=model", "--format=gguf", "--output=m.gguf"},
                          {"eos_token_id"})),
    name_of);

/// Training that goes on from `adapter`, made by a short run and then broken.
BadInput adapter(const char* name, Breaker breaker, Words named) {
  return {name,
          [breaker = std::move(breaker)](const Workspace& workspace) {
            const Outcome made = workspace.run(train({"--output_dir=adapter", "--save_steps=0"}));
            EXPECT_EQ(made.status, 0) << made.err;
            breaker(workspace);
            return train({"--adapter_name_or_path=adapter"});
          },
          std::move(named)};
}

INSTANTIATE_TEST_SUITE_P(
    Adapter, BadModel,
    testing::Values(command("Missing", train({"--adapter_name_or_path=nowhere"}), {"nowhere", "no such directory"}),
                    adapter("NoConfig", [](const Workspace& w) { w.remove("adapter/adapter_config.json"); },
                            {"adapter_config.json"}),
                    adapter("NoWeights", [](const Workspace& w) { w.remove("adapter/adapter_model.safetensors"); },
                            {"adapter_model.safetensors"}),
                    adapter("WeightsOfAnotherKind",
                            [](const Workspace& w) {
                              w.remove("adapter/adapter_model.safetensors");
                              w.write("adapter/adapter_model.bin", "pickled");
                            },
                            {"adapter: expected adapter_model.safetensors, found adapter_model.bin"}),
                    adapter("NoJson", [](const Workspace& w) { w.write("adapter/adapter_config.json", "{"); },
                            {"adapter_config.json"}),
                    adapter("AnotherKind",
                            [](const Workspace& w) { w.edit("adapter/adapter_config.json", "LORA", "IA3"); },
                            {"adapter_config.json", "IA3"}),
                    adapter("AnotherRank",
                            [](const Workspace& w) { w.edit("adapter/adapter_config.json", "\"r\": 8", "\"r\": 4"); },
                            {"adapter_model.safetensors"}),
                    adapter("CutOff",
                            [](const Workspace& w) {
                              std::filesystem::resize_file(w.path("adapter/adapter_model.safetensors"), 1000);
                            },
                            {"adapter_model.safetensors"}),
                    adapter("TensorMissing",
                            [](const Workspace& w) {
                              w.edit_header("adapter/adapter_model.safetensors", "layers.0.self_attn.q_proj.lora_A",
                                            "layers.0.self_attn.x_proj.lora_A");
                            },
                            {"q_proj.lora_A"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
