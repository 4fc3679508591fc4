// Speeds of devices: measured, remembered, and what `train` holds its steps against.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;

/// A cache of its own for the commands of a test.
class Speeds : public testing::Test {
 protected:
  Speeds() { ::setenv("XDG_CACHE_HOME", (workspace_.path() / "cache").c_str(), /*overwrite=*/1); }
  ~Speeds() override { ::unsetenv("XDG_CACHE_HOME"); }

  Json speeds(const Words& more = {}) const {
    Words words = {"devices", "--devices=cpu", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = workspace_.run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    Json device = Json::parse(outcome.out, nullptr, false)["devices"][0];
    device.erase("memory_bytes");  // what is free at the moment
    return device;
  }
  /// Lines of metrics.jsonl of a run of full fine-tuning.
  std::vector<Json> steps(const std::string& folder) const {
    const Outcome outcome = workspace_.run(
        train({"--max_steps=4", "--finetuning_type=full", "--overwrite_output_dir", "--output_dir=" + folder}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return metrics_of(workspace_, folder);
  }

  const Workspace workspace_;
};

TEST_F(Speeds, NeverMeasured_AreNullThenRemembered) {
  const Json unknown = speeds();
  EXPECT_TRUE(unknown["flops"]["fp32"].is_null());
  EXPECT_TRUE(unknown["memory_bandwidth"].is_null());
  EXPECT_TRUE(unknown["link"]["up_bytes_per_second"].is_null());
  const Json measured = speeds({"--bench"});
  EXPECT_GT(measured["flops"]["fp32"], 0);
  EXPECT_GT(measured["flops"]["bf16"], 0);
  EXPECT_GT(measured["memory_bandwidth"], 0);
  EXPECT_EQ(speeds(), measured);
}

TEST_F(Speeds, Training_IsHeldAgainstTheMeasuredPeak) {
  for (const Json& step : steps("out")) {
    EXPECT_GT(step.value("sol", 0.0), 0.0);
    EXPECT_LE(step.value("sol", 0.0), 1.0);
  }
  // What it measured, `devices` knows.
  EXPECT_GT(speeds()["flops"]["fp32"], 0);
}

TEST_F(Speeds, Training_TakesThePeakThatDevicesShows) {
  speeds({"--bench"});
  const std::string file = "cache/rondo/speeds.json";
  Json cache = Json::parse(workspace_.read(file), nullptr, false);
  constexpr double kPeak = 1e15;
  cache["speeds"][0]["flops"]["fp32"] = kPeak;
  workspace_.write(file, cache.dump());
  EXPECT_EQ(speeds()["flops"]["fp32"], kPeak);
  const Outcome planned = workspace_.run({"plan", "--model=model", "--devices=cpu", "--dtype=fp32", "--cutoff_len=64",
                                          "--finetuning_type=full", "--json"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  double forward = 0;  // of 64 tokens
  const Json plan = Json::parse(planned.out, nullptr, false);
  for (const Json& layer : plan["layers"]) forward += layer.value("forward_flops", 0.0);
  for (const Json& step : steps("out")) {
    const double necessary = step.value("sol", 0.0) * kPeak * step.value("step_seconds", 0.0);
    // A product's gradients are two products, and nothing is computed twice. Attention depends on the lengths.
    const double tokens = step.value("tokens", 0.0);
    EXPECT_NEAR(necessary, 3 * forward * tokens / 64, 0.1 * necessary);
  }
}

}  // namespace
}  // namespace rondo::cli
