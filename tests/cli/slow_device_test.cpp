// A card that slows down while the program runs: the layers are dealt anew, and no number changes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "patience.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

/// So slow that what the machine under test adds does not matter.
std::string slow_card(const std::string& name, const std::string& slow_at) {
  const std::string flops = std::to_string(1000000000 / test::kSlowdown);
  return name + ": {flops: {fp32: " + flops + ", bf16: " + flops +
         "}, memory_bytes: 1e9, memory_bandwidth: 1e12, link_up: 1e11, "
         "link_down: 1e11, link_latency: 0, jitter: 0" +
         (slow_at.empty() ? "" : ", slow_at: '" + slow_at + "'") + "}\n";
}

Words steps_on(const std::string& cards, const std::string& out, int steps) {
  return train({"--devices=" + cards, "--output_dir=" + out, "--max_steps=" + std::to_string(steps), "--save_steps=0",
                "--gradient_accumulation_steps=6", "--lr=1e-2", "--finetuning_type=full"});
}

TEST(SlowDevice, OneOfTwo_GetsLessToDoAndChangesNoNumber) {
  const Workspace workspace;
  workspace.write("cards.yaml", slow_card("steady", "") + slow_card("fading", "4x@compute:60"));
  const Outcome whole = workspace.run(steps_on("emulated:cards.yaml#steady*2", "whole", 12));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, testing::Not(HasSubstr("dealt anew")));
  const Outcome outcome = workspace.run(steps_on("emulated:cards.yaml#steady,emulated:cards.yaml#fading", "out", 12));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("emulated:fading:0 takes "), HasSubstr("dealt anew")));
  const std::vector<Json> expected = metrics_of(workspace, "whole");
  const std::vector<Json> found = metrics_of(workspace, "out");
  ASSERT_EQ(found.size(), expected.size());
  double slowest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]["loss"], expected[i]["loss"]);
    EXPECT_EQ(found[i]["grad_norm"], expected[i]["grad_norm"]);
    slowest = std::max(slowest, found[i]["step_seconds"].get<double>());
  }
  EXPECT_LT(found.back()["step_seconds"].get<double>(), 0.8 * slowest) << outcome.err;
  EXPECT_EQ(workspace.read("out/model.safetensors"), workspace.read("whole/model.safetensors"));
}

TEST(SlowDevice, SlowAtInTheCatalogue_IsRefusedWithItsGrammar) {
  const Workspace workspace;
  workspace.write("cards.yaml", slow_card("bad", "often"));
  const Outcome outcome = workspace.run({"plan", "--model=model", "--devices=timed:cards.yaml#bad"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("slow_at"), HasSubstr("'often'"), HasSubstr("2x@compute:40")));
}

}  // namespace
}  // namespace rondo::cli
