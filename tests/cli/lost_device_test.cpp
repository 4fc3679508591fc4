// Devices that are lost while the program runs: what the user sees and what is left.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

std::string failing_card(const std::string& name, const std::string& fail_at) {
  return name +
         ": {flops: {fp32: 4e15, bf16: 4e15}, memory_bytes: 1e9, memory_bandwidth: 4e15, link_up: 4e12, "
         "link_down: 4e12, link_latency: 0, jitter: 0" +
         (fail_at.empty() ? "" : ", fail_at: '" + fail_at + "'") + "}\n";
}

Words on(const std::string& cards, const std::string& out, const Words& more = {}) {
  Words words = train({"--devices=" + cards, "--output_dir=" + out, "--max_steps=4", "--save_steps=0",
                       "--gradient_accumulation_steps=2", "--lr=1e-2"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(LostDevice, OneOfTwo_IsToldAndChangesNoNumber) {
  const Workspace workspace;
  workspace.write("cards.yaml", failing_card("good", "") + failing_card("bad", "error@compute:30"));
  const Outcome whole = workspace.run(on("emulated:cards.yaml#good*2", "whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Outcome outcome = workspace.run(on("emulated:cards.yaml#bad,emulated:cards.yaml#good", "out"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("emulated:bad:0 is lost ('"), HasSubstr("1 of 2 devices left")));
  const std::vector<Json> expected = metrics_of(workspace, "whole");
  const std::vector<Json> found = metrics_of(workspace, "out");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]["loss"], expected[i]["loss"]);
    EXPECT_EQ(found[i]["grad_norm"], expected[i]["grad_norm"]);
    EXPECT_EQ(expected[i]["lost_devices"], 0);
  }
  EXPECT_EQ(found.back()["lost_devices"], 1);
  EXPECT_GT(found.back().value("retries", 0), 0);
  EXPECT_EQ(workspace.read("out/adapter_model.safetensors"), workspace.read("whole/adapter_model.safetensors"));
}

TEST(LostDevice, TheLast_LeavesACheckpointAndExits1) {
  const Workspace workspace;
  workspace.write("cards.yaml", failing_card("good", "") + failing_card("bad", "error@compute:60") +
                                    failing_card("worse", "error@compute:1"));
  const Outcome outcome = workspace.run(on("emulated:cards.yaml#bad", "out"));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), HasSubstr("emulated:bad:0 is lost"),
                                 HasSubstr("no device is left"), HasSubstr("out/checkpoint-")));
  const std::size_t done = metrics_of(workspace, "out").size();
  ASSERT_GT(done, 0U);
  // Steps count on, in what is told of losses too.
  const Outcome resumed =
      workspace.run(on("emulated:cards.yaml#worse,emulated:cards.yaml#good", "out", {"--resume_from_checkpoint"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("step " + std::to_string(done + 1) + ": emulated:worse:0 is lost"));
  ASSERT_EQ(workspace.run(on("emulated:cards.yaml#good", "whole")).status, 0);
  EXPECT_EQ(workspace.read("out/adapter_model.safetensors"), workspace.read("whole/adapter_model.safetensors"));
}

/// The host's updates and the card's are the same bits; what only the card had is gone with it, and that is said.
TEST(LostDevice, WithTheStateOfWhatIsTrained_LeavesTheCheckpointBefore) {
  const Workspace workspace;
  workspace.write("cards.yaml", failing_card("good", "") + failing_card("bad", "error@compute:80"));
  const Words held = {"--optimizer_state=device", "--save_steps=1", "--finetuning_type=full"};
  const Outcome outcome = workspace.run(on("emulated:cards.yaml#bad", "out", held));
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), HasSubstr("emulated:bad:0 is lost")));
  ASSERT_FALSE(metrics_of(workspace, "out").empty());
  const Outcome resumed =
      workspace.run(on("emulated:cards.yaml#good", "out", {"--resume_from_checkpoint", held[0], held[1], held[2]}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  ASSERT_EQ(workspace.run(on("emulated:cards.yaml#good", "whole", {"--finetuning_type=full"})).status, 0);
  EXPECT_EQ(workspace.read("out/model.safetensors"), workspace.read("whole/model.safetensors"));
  const Outcome unsaved = workspace.run(
      on("emulated:cards.yaml#bad", "lost", {"--optimizer_state=device", "--save_steps=0", "--finetuning_type=full"}));
  EXPECT_EQ(unsaved.status, 1) << unsaved.err;
  EXPECT_THAT(unsaved.err, HasSubstr("what was trained since the last checkpoint was on emulated:bad:0"));
  EXPECT_FALSE(std::filesystem::exists(workspace.path("lost/model.safetensors")));
}

TEST(LostDevice, ChangedTransfer_IsRepeatedWhenVerified) {
  const Workspace workspace;
  workspace.write("cards.yaml", failing_card("good", "") + failing_card("bad", "corrupt@down:5"));
  const Outcome outcome = workspace.run(on("emulated:cards.yaml#bad", "out", {"--verify_transfers"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_EQ(workspace.run(on("emulated:cards.yaml#good", "whole")).status, 0);
  EXPECT_EQ(workspace.read("out/adapter_model.safetensors"), workspace.read("whole/adapter_model.safetensors"));
  EXPECT_EQ(metrics_of(workspace, "out").back().value("retries", 0), 1);
  EXPECT_EQ(metrics_of(workspace, "out").back().value("lost_devices", 9), 0);
}

}  // namespace
}  // namespace rondo::cli
