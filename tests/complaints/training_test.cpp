// Complaints about what training makes of data and leaves behind, each seen from the outside. The threads in which
// users of other tools report it stand beside.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A conversation of one question and its answer, as a line.
std::string chat(const std::string& question, const std::string& answer) {
  const Json messages = {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}};
  return Json::object({{"messages", messages}}).dump() + "\n";
}

/// Eight conversations whose answers have from 2 to 58 tokens, in `unlike.jsonl`.
void write_unlike(const Workspace& workspace) {
  std::string lines;
  for (const char* answer :
       {"Blue.", "Pear, or an apple if there is none.", "Oak.", "A river runs from the hills to the sea and back.",
        "No.", "It is the largest of them all, so they say in the valley.", "Seven.", "Yes, on Sundays."}) {
    lines += chat("Which of " + std::to_string(lines.size()) + "?", answer);
  }
  workspace.write("unlike.jsonl", lines);
}

/// A run of `steps` steps over unlike.jsonl in file order, into `out`.
Words run_over_unlike(const std::string& out, int steps, const Words& more = {}) {
  Words words = train({"--dataset=unlike.jsonl", "--output_dir=" + out, "--max_steps=" + std::to_string(steps),
                       "--cutoff_len=128", "--lr=1e-3", "--save_steps=0"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<double> losses_of(const Workspace& workspace, const std::string& out) {
  std::vector<double> losses;
  for (const Json& line : metrics_of(workspace, out)) losses.push_back(line.value("loss", std::nan("")));
  return losses;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_FALSE(found.empty());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], relative * expected[i]);
}

void expect_success(const Workspace& workspace, const Words& words) {
  const Outcome outcome = workspace.run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
}

/// transformers#34191, trl#2175, axolotl#2262: a mean of means weighs short answers too much.
TEST(Complaint, Accumulation_ChangesNoLoss) {
  const Workspace workspace;
  write_unlike(workspace);
  const auto course = [&](const std::string& out, const char* sequences, const char* microbatches) {
    expect_success(workspace, run_over_unlike(out, 3,
                                              {"--finetuning_type=full", "--shuffle=false",
                                               std::string("--per_device_train_batch_size=") + sequences,
                                               std::string("--gradient_accumulation_steps=") + microbatches}));
    return losses_of(workspace, out);
  };
  const std::vector<double> at_once = course("at_once", "8", "1");
  expect_near(course("apart", "1", "8"), at_once, 1e-6);
  expect_near(course("in_pairs", "2", "4"), at_once, 1e-6);
}

/// marin#7237, trl#4879: a template that the mask does not understand leaves nothing to learn, and nobody is told.
TEST(Complaint, EmptyMask_IsRefusedOrCounted) {
  const Workspace workspace;
  workspace.write("model/chat_template.jinja",
                  "{%- for turn in messages if turn['role'] == 'user' -%}{{- turn['content'] -}}{%- endfor -%}");
  const Outcome refused = workspace.run(train());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("error: "), HasSubstr("chats.jsonl"), HasSubstr("template")));
  EXPECT_FALSE(std::filesystem::exists(workspace.path("out")));

  const Workspace whole;
  whole.write("some.jsonl", chat("Name a colour.", "Blue.") + chat(std::string(200, 'x'), "Cut off."));
  const Outcome counted = whole.run(train({"--dataset=some.jsonl"}));
  EXPECT_EQ(counted.status, 0);
  EXPECT_THAT(counted.err, HasSubstr("1 sample has no target and is left out: record 1"));
}

/// trl#805, torchtune#892: samples in one sequence see each other, or go on with the position of the one before.
TEST(Complaint, Packing_LeaksNothing) {
  const Workspace workspace;
  write_unlike(workspace);
  // All samples in one step, so that both runs learn from the same.
  const auto course = [&](const std::string& out, const Words& more) {
    expect_success(workspace, run_over_unlike(out, 3, more));
    return losses_of(workspace, out);
  };
  const std::vector<double> apart = course("apart", {"--gradient_accumulation_steps=8", "--lr=1e-2"});
  // 436 tokens in sequences of 512.
  const std::vector<double> packed = course("packed", {"--packing", "--cutoff_len=512", "--lr=1e-2"});
  expect_near(packed, apart, 1e-5);
}

/// unsloth#416, LlamaFactory#7454: the end of a turn is masked, or is the padding too, and so is never learned.
TEST(Complaint, TrainedModel_Stops) {
  const Workspace workspace;
  // The end of a turn is what other tools pad with.
  Json settings = Json::parse(workspace.read("model/tokenizer_config.json"), nullptr, false);
  settings["pad_token"] = "<|im_end|>";
  workspace.write("model/tokenizer_config.json", settings.dump());
  expect_success(workspace,
                 train({"--finetuning_type=full", "--max_steps=60", "--lr=3e-3", "--batch_size=3", "--save_steps=0"}));
  for (const char* prompt : {"--prompt=Name a colour.", "--prompt=Name a fruit.", "--prompt=Name a tree."}) {
    const Json said = json_of(workspace.run(
        {"generate", "--model=out", "--devices=cpu", "--dtype=fp32", "--max_new_tokens=40", "--json", prompt}));
    EXPECT_EQ(said["finish_reason"], "stop") << said;
  }
}

/// LlamaFactory#8399: the result has no chat template, or another one.
TEST(Complaint, TokenizerAndTemplate_AreCopied) {
  const Workspace workspace;
  workspace.write("model/special_tokens_map.json", R"({"eos_token":"<|im_end|>"})");
  workspace.write("model/added_tokens.json", R"({"<|im_end|>":258})");
  expect_success(workspace, train({"--finetuning_type=full"}));
  expect_success(workspace, train({"--output_dir=adapter"}));
  expect_success(workspace, {"merge", "--model=model", "--adapter_name_or_path=adapter", "--output_dir=merged"});
  for (const char* folder : {"out/", "out/checkpoint-1/", "adapter/", "merged/"}) {
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                             "special_tokens_map.json", "added_tokens.json"}) {
      EXPECT_EQ(workspace.read(std::string(folder) + file), workspace.read(std::string("model/") + file))
          << folder << file;
    }
  }
}

/// transformers#21934, accelerate#2016, ms-swift#6049: a resumed run sees other data, or its loss jumps.
TEST(Complaint, ResumedRun_EndsAsTheUninterruptedOne) {
  const Workspace workspace;
  write_unlike(workspace);
  // Shuffled over several epochs, with dropout: order and random numbers must go on too.
  const auto words = [](const std::string& out, const Words& more = {}) {
    Words all = {"--batch_size=3", "--lora_dropout=0.2", "--save_steps=4", "--lr=1e-2", "--num_train_epochs=3"};
    all.insert(all.end(), more.begin(), more.end());
    return run_over_unlike(out, 8, all);
  };
  expect_success(workspace, words("whole"));
  expect_success(workspace, words("parts"));
  workspace.remove("parts/checkpoint-8");
  workspace.remove("parts/adapter_model.safetensors");
  expect_success(workspace, words("parts", {"--resume_from_checkpoint=auto"}));
  EXPECT_EQ(losses_of(workspace, "parts"), losses_of(workspace, "whole"));
  EXPECT_TRUE(workspace.read("parts/adapter_model.safetensors") == workspace.read("whole/adapter_model.safetensors"));
}

/// transformers#31293, peft#1043: merging into the 4-bit base rounds the whole model to 4 bits.
TEST(Complaint, MergeAfterQuantizedTraining_IsIntoTheUnquantizedWeights) {
  const Workspace workspace;
  expect_success(workspace, train({"--quantization_bit=4", "--max_steps=3", "--lr=1e-2", "--save_steps=0"}));
  expect_success(workspace, {"merge", "--model=model", "--adapter_name_or_path=out", "--output_dir=merged"});
  const double merged = eval_loss(workspace, {"--model=merged"});
  const double unquantized = eval_loss(workspace, {"--model=model", "--adapter_name_or_path=out"});
  const double quantized =
      eval_loss(workspace, {"--model=model", "--adapter_name_or_path=out", "--quantization_bit=4"});
  EXPECT_NEAR(merged, unquantized, 1e-6 * unquantized);
  EXPECT_GT(std::abs(quantized - unquantized), 1e-5 * unquantized);  // the two can be told apart
}

/// llama.cpp#10551, mlx-lm#1119: an adapter that only its own tool reads.
TEST(Complaint, Adapter_HasTheNamesOfPeft) {
  const Workspace workspace;
  expect_success(workspace, train({"--lora_rank=4", "--lora_alpha=12"}));
  const std::string file = workspace.read("out/adapter_model.safetensors");
  std::uint64_t length = 0;
  ASSERT_GE(file.size(), sizeof length);
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length), nullptr, false);
  std::set<std::string> expected;
  for (const char* layer : {"0", "1"}) {
    for (const char* module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::string stem = std::string("base_model.model.model.layers.") + layer + "." + module;
      for (const char* factor : {".lora_A.weight", ".lora_B.weight"}) expected.insert(stem + factor);
    }
  }
  std::set<std::string> found;
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") found.insert(name);
  }
  EXPECT_EQ(found, expected);
  const char* first = "base_model.model.model.layers.0.mlp.down_proj";
  EXPECT_EQ(header[std::string(first) + ".lora_A.weight"]["shape"][0], 4);
  EXPECT_EQ(header[std::string(first) + ".lora_B.weight"]["shape"], Json::array({64, 4}));
  const Json config = Json::parse(workspace.read("out/adapter_config.json"), nullptr, false);
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 12);
}

}  // namespace
}  // namespace rondo::cli
