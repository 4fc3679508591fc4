// Which weights a run ends with, when it stops by itself, what it keeps, and what it says of losses out of line.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

/// Answers that training moves away from after a few steps.
constexpr const char* kOther =
    R"({"messages":[{"role":"user","content":"Name a colour."},{"role":"assistant","content":"Red!"}]}
{"messages":[{"role":"user","content":"Name a fruit."},{"role":"assistant","content":"Fig!"}]}
)";

Words overfit(const char* output_dir, std::uint64_t steps, const Words& more) {
  Words words = train({"--eval_dataset=other.jsonl", "--eval_steps=1", "--save_steps=1", "--lr=1e-2",
                       "--lr_scheduler_type=constant", "--finetuning_type=full", "--batch_size=3",
                       std::string("--output_dir=") + output_dir, "--max_steps=" + std::to_string(steps)});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json state_of(const Workspace& workspace, const std::string& folder) {
  return Json::parse(workspace.read(folder + "/trainer_state.json"), nullptr, false);
}

std::vector<double> eval_losses(const Json& state) {
  std::vector<double> losses;
  for (const Json& entry : state["log_history"]) {
    if (entry.contains("eval_loss")) losses.push_back(entry["eval_loss"]);
  }
  return losses;
}

std::vector<std::string> checkpoints(const Workspace& workspace, const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(workspace.path(folder))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST(Best, LoadedAtTheEnd_IsTheCheckpointThatEvaluatedBest) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  const Outcome outcome = workspace.run(overfit("out", 8, {"--load_best_model_at_end", "--save_total_limit=2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json state = state_of(workspace, "out");
  const std::vector<double> losses = eval_losses(state);
  ASSERT_EQ(losses.size(), 8U);
  const auto best = std::ranges::min_element(losses);
  const auto step = static_cast<std::uint64_t>(best - losses.begin()) + 1;
  ASSERT_LT(step, 8U) << "the last step is the best: nothing is tested";
  EXPECT_EQ(state["best_metric"], *best);
  EXPECT_EQ(state["best_global_step"], step);
  const std::string folder = "checkpoint-" + std::to_string(step);
  EXPECT_EQ(state["best_model_checkpoint"], "out/" + folder);
  EXPECT_THAT(checkpoints(workspace, "out"), testing::UnorderedElementsAre(folder, "checkpoint-8"));
  const std::string result = workspace.read("out/model.safetensors");
  EXPECT_TRUE(result == workspace.read("out/" + folder + "/model.safetensors"));
  EXPECT_FALSE(result == workspace.read("out/checkpoint-8/model.safetensors"));
  EXPECT_THAT(workspace.read("out/train.log"), HasSubstr("weights of step " + std::to_string(step)));
}

TEST(Best, WithoutLoading_TheResultIsTheLastStep) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  ASSERT_EQ(workspace.run(overfit("out", 8, {"--save_strategy=best"})).status, 0);
  const std::string best = state_of(workspace, "out")["best_model_checkpoint"];
  EXPECT_THAT(checkpoints(workspace, "out"), testing::Contains(best.substr(4)));
  EXPECT_THAT(checkpoints(workspace, "out"), Not(testing::Contains("checkpoint-8")));
  EXPECT_FALSE(workspace.read("out/model.safetensors") == workspace.read(best + "/model.safetensors"));
}

TEST(EarlyStopping, InterruptedAndResumed_StopsAtTheSameStep) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  const Words stop = {"--early_stopping_patience=3", "--load_best_model_at_end"};
  const Outcome whole = workspace.run(overfit("whole", 30, stop));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("stopped early at step"));
  const Json state = state_of(workspace, "whole");
  const std::uint64_t end = state["global_step"];
  ASSERT_GT(end, 4U);
  ASSERT_LT(end, 30U);
  EXPECT_EQ(state["best_global_step"], end - 3);
  EXPECT_EQ(state["max_steps"], 30);
  // Two of the three evaluations are counted when the first part ends: they must count in the second.
  ASSERT_EQ(workspace.run(overfit("parts", end - 1, stop)).status, 0);
  Words again = overfit("parts", 30, stop);
  again.push_back("--resume_from_checkpoint");
  const Outcome resumed = workspace.run(again);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(state_of(workspace, "parts")["global_step"], end);
  EXPECT_EQ(state_of(workspace, "parts")["log_history"], state["log_history"]);
  EXPECT_TRUE(workspace.read("whole/model.safetensors") == workspace.read("parts/model.safetensors"));
  // A run that has stopped stays so.
  ASSERT_EQ(workspace.run(again).status, 0);
  EXPECT_EQ(state_of(workspace, "parts")["global_step"], end);
  EXPECT_TRUE(workspace.read("whole/model.safetensors") == workspace.read("parts/model.safetensors"));
}

std::vector<Json> evaluations(const Workspace& workspace, const std::string& folder) {
  std::vector<Json> lines = metrics_of(workspace, folder);
  std::erase_if(lines, [](const Json& line) { return line["kind"] != "eval"; });
  return lines;
}

/// A checkpoint without the evaluation that is due after its step is what an interruption leaves.
TEST(Evaluation, DueWhereARunGoesOn_IsMadeAsIfItHadNotEnded) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  for (const char* staleness : {"--staleness=0", "--staleness=1"}) {
    const Words best = {"--load_best_model_at_end", "--overwrite_output_dir", staleness};
    ASSERT_EQ(workspace.run(overfit("whole", 5, best)).status, 0);
    ASSERT_EQ(workspace.run(overfit("parts", 2, {"--eval_strategy=no", "--overwrite_output_dir", staleness})).status,
              0);
    workspace.remove("parts/checkpoint-1");
    const Outcome resumed =
        workspace.run(overfit("parts", 5, {best[0], "--resume_from_checkpoint=parts/checkpoint-2", staleness}));
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    std::vector<Json> expected = evaluations(workspace, "whole");
    ASSERT_EQ(expected.size(), 5U);
    expected.erase(expected.begin());
    EXPECT_EQ(evaluations(workspace, "parts"), expected);
    EXPECT_EQ(eval_losses(state_of(workspace, "parts/checkpoint-2")).size(), 1U) << "what is best must be kept";
  }
}

TEST(Evaluation, OfARunThatIsAtItsEnd_IsInMetricsOnce) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  ASSERT_EQ(workspace.run(overfit("out", 3, {"--eval_steps=2"})).status, 0);
  const std::vector<Json> lines = metrics_of(workspace, "out");
  ASSERT_EQ(evaluations(workspace, "out").size(), 2U);  // after step 2 and at the end, behind the last checkpoint
  ASSERT_EQ(workspace.run(overfit("out", 3, {"--eval_steps=2", "--resume_from_checkpoint"})).status, 0);
  EXPECT_EQ(metrics_of(workspace, "out"), lines);
}

TEST(Strategies, Epoch_EvaluatesAndSavesAfterEveryPass) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  const Outcome outcome = workspace.run(train({"--eval_dataset=other.jsonl", "--eval_strategy=epoch",
                                               "--save_strategy=epoch", "--max_steps=0", "--num_train_epochs=2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json state = state_of(workspace, "out");
  EXPECT_EQ(state["global_step"], 6);
  EXPECT_EQ(eval_losses(state).size(), 2U);
  EXPECT_THAT(checkpoints(workspace, "out"), testing::UnorderedElementsAre("checkpoint-3", "checkpoint-6"));
}

TEST(Strategies, Epoch_FollowsPassesOfUnlikeLength) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  const std::string text(50, 'x');
  workspace.write("texts.jsonl", R"({"text":"a"}
{"text":"b"}
{"text":")" + text + R"("}
{"text":")" + text + "\"}\n");
  // The two short samples are one sequence, the two long ones two: passes of one step and of two take turns.
  const Outcome outcome =
      workspace.run(train({"--dataset=texts.jsonl", "--dataset_weights=0.5", "--packing", "--shuffle=false",
                           "--batch_size=1", "--eval_dataset=other.jsonl", "--eval_strategy=epoch",
                           "--save_strategy=epoch", "--max_steps=0", "--num_train_epochs=3"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json state = state_of(workspace, "out");
  EXPECT_EQ(state["global_step"], 4);
  EXPECT_EQ(eval_losses(state).size(), 3U);
  EXPECT_THAT(checkpoints(workspace, "out"),
              testing::UnorderedElementsAre("checkpoint-1", "checkpoint-3", "checkpoint-4"));
}

TEST(Strategies, No_LeavesTheResultAlone) {
  const Workspace workspace;
  workspace.write("other.jsonl", kOther);
  const Outcome outcome =
      workspace.run(train({"--eval_dataset=other.jsonl", "--eval_strategy=no", "--save_strategy=no"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(eval_losses(state_of(workspace, "out")).empty());
  EXPECT_TRUE(checkpoints(workspace, "out").empty());
  EXPECT_TRUE(fs::exists(workspace.path("out/adapter_model.safetensors")));
}

TEST(Result, CompletionsThatNothingEnds_AreTold) {
  const Workspace workspace;
  workspace.write("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  EXPECT_THAT(workspace.run(train({"--dataset=pairs.jsonl"})).err, testing::Not(HasSubstr("learn to stop")));
  workspace.write("model/tokenizer_config.json", "{\"eos_token\": \"<nowhere>\"}");
  EXPECT_THAT(workspace.run(train({"--dataset=pairs.jsonl", "--output_dir=other"})).err,
              testing::AllOf(HasSubstr("does not learn to stop"), HasSubstr("<nowhere>")));
}

TEST(Result, AnswersThatNothingEnds_AreTold) {
  const Workspace workspace;
  EXPECT_THAT(workspace.run(train()).err, testing::Not(HasSubstr("learn to stop")));
  workspace.write("model/chat_template.jinja",
                  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_THAT(
      workspace.run(train({"--output_dir=other"})).err,
      HasSubstr("the chat template ends an answer with no token of its own, so the model does not learn to stop"));
}

TEST(Result, SamplesBeyondTheModelsPositions_AreTold) {
  const Workspace workspace;
  EXPECT_THAT(workspace.run(train()).err, testing::Not(HasSubstr("max_position_embeddings")));
  Json config = Json::parse(workspace.read("model/config.json"));
  config["max_position_embeddings"] = 36;
  workspace.write("model/config.json", config.dump());
  const Outcome outcome = workspace.run(train({"--output_dir=other"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("the longest sample has 40 tokens"), HasSubstr("cutoff_len: 36")));
  EXPECT_THAT(workspace.run(train({"--output_dir=cut", "--cutoff_len=36"})).err,
              testing::Not(HasSubstr("max_position_embeddings")));
}

TEST(Result, EveryTokenizerFileAndTheTemplate_AreTheModelsOwn) {
  for (const char* method : {"lora", "full"}) {
    const Workspace workspace;
    workspace.write("model/special_tokens_map.json", "{\"eos_token\": \"<|im_end|>\"}");
    ASSERT_EQ(workspace.run(train({std::string("--finetuning_type=") + method})).status, 0);
    for (const char* folder : {"out/", "out/checkpoint-1/"}) {
      for (const char* file :
           {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"}) {
        EXPECT_TRUE(workspace.read(std::string("model/") + file) == workspace.read(folder + std::string(file)))
            << method << " " << folder << file;
      }
      EXPECT_THAT(workspace.read(folder + std::string("chat_template.jinja")), HasSubstr("messages"));
    }
  }
}

/// Sets every number of row `row` of an fp32 tensor.
void fill_row(const Workspace& workspace, const std::string& tensor, std::uint64_t row, float value) {
  std::string file = workspace.read("model/model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length), nullptr, false);
  ASSERT_TRUE(header.contains(tensor));
  const std::uint64_t width = header[tensor]["shape"][1];
  const std::uint64_t first = header[tensor]["data_offsets"][0];
  for (std::uint64_t i = 0; i < width; ++i) {
    std::memcpy(file.data() + sizeof length + length + first + (row * width + i) * sizeof value, &value, sizeof value);
  }
  workspace.write("model/model.safetensors", file);
}

TEST(NotFinite, SampleAtFault_IsNamed) {
  const Workspace workspace;
  ASSERT_EQ(
      workspace.run({"init", "--arch=llama", "--output_dir=model2", "--dtype=fp32", "--tie_word_embeddings=false"})
          .status,
      0);
  workspace.remove("model");
  fs::rename(workspace.path("model2"), workspace.path("model"));
  workspace.write("texts.jsonl",
                  "{\"text\": \"one two\"}\n{\"text\": \"three\"}\n{\"text\": \"one ~ two\"}\n{\"text\": \"six\"}\n");
  const Outcome data = workspace.run({"data", "--model=model", "--dataset=texts.jsonl", "--samples=4", "--json"});
  const Json samples = Json::parse(data.out, nullptr, false)["samples"];
  std::vector<int> others;
  for (const std::size_t sample : {0U, 1U, 3U}) {
    for (const int id : samples[sample]["input_ids"]) others.push_back(id);
  }
  int rare = -1;
  for (const int id : samples[2]["input_ids"]) {
    if (std::ranges::count(others, id) == 0) rare = id;
  }
  ASSERT_GE(rare, 0);
  // Finite in fp32, infinite when it is rounded to bf16.
  fill_row(workspace, "model.embed_tokens.weight", static_cast<std::uint64_t>(rare), std::numeric_limits<float>::max());
  const Outcome outcome = workspace.run(
      train({"--dataset=texts.jsonl", "--dtype=bf16", "--finetuning_type=full", "--gradient_accumulation_steps=4"}));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 1: the loss is not finite in 1 of 4 microbatches: record 2 of texts.jsonl"));
  EXPECT_THAT(workspace.read("out/train.log"), HasSubstr("record 2 of texts.jsonl"));
}

TEST(Spike, LossOutOfLine_NamesStepAndRecords) {
  const Workspace workspace;
  std::string texts;
  for (int i = 0; i < 60; ++i) texts += "{\"text\": \"the same words again\"}\n";
  workspace.write("texts.jsonl", texts + "{\"text\": \"QZX 9#7 ~~ VKW\"}\n");
  const Words words = {"--dataset=texts.jsonl",        "--shuffle=false", "--lr=1e-2", "--finetuning_type=full",
                       "--lr_scheduler_type=constant", "--max_steps=61"};
  const Outcome outcome = workspace.run(train(words));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("loss spike at step 61: "));
  EXPECT_THAT(outcome.err, HasSubstr("record 60 of texts.jsonl"));
  EXPECT_THAT(workspace.read("out/train.log"), HasSubstr("loss spike at step 61: "));
  EXPECT_EQ(outcome.err.find("loss spike"), outcome.err.rfind("loss spike"));
}

class BadBest : public testing::TestWithParam<BadInput> {};

TEST_P(BadBest, Refused_NamingTheCulprit) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Keys, BadBest,
    testing::Values(
        command("LoadBestWithoutData", train({"--load_best_model_at_end"}), {"--load_best_model_at_end"}),
        command("EarlyStoppingWithoutData", train({"--early_stopping_patience=2"}),
                {"--early_stopping_patience", "eval_steps"}),
        command("LoadBestWithoutEvaluations", train({"--load_best_model_at_end", "--eval_dataset=chats.jsonl"}),
                {"--load_best_model_at_end", "eval_steps"}),
        command("SaveBestWithoutEvaluations", train({"--save_strategy=best"}), {"--save_strategy"}),
        command("EpochsWithoutData", train({"--eval_strategy=epoch"}), {"--eval_strategy"}),
        command("UnknownStrategy", train({"--save_strategy=hourly"}), {"--save_strategy", "'hourly'"}),
        command("UnknownMetric", train({"--metric_for_best_model=bleu"}), {"'bleu'", "eval_loss"}),
        command("NegativeThreshold", train({"--early_stopping_threshold=-1"}), {"--early_stopping_threshold"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
