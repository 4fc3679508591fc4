// Pools that only take time: no loss, no result, no checkpoint.
#include <gmock/gmock.h>

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

TEST(TimedRun, CheckpointToGoOnFrom_IsRefused) {
  expect_refusal({"Checkpoint",
                  [](const Workspace& workspace) {
                    EXPECT_EQ(workspace.run(train()).status, 0);
                    return timed({"--resume_from_checkpoint=auto"});
                  },
                  {"resume_from_checkpoint", "out/checkpoint-1", "timed:rtx4090"}});
}

}  // namespace
}  // namespace rondo::cli
