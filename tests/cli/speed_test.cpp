// Speeds of devices: measured, remembered, and what `train` holds its steps against.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sqlite3.h>

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
  void write_sql(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(workspace_.path("cache/rondo/calibration.sqlite").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
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

TEST_F(Speeds, MeasuredWhereNothingCanBeKept_AreNotSaidToBeKnownLater) {
  workspace_.write("cache", "no folder");
  const Outcome outcome = workspace_.run({"plan", "--model=model", "--devices=cpu", "--cutoff_len=32"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr("measured first; there is no place to keep them"));
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
  constexpr double kPeak = 1e15;
  write_sql(fmt::format("UPDATE speeds SET rate = {} WHERE what = 'product' AND dtype = 'fp32'", kPeak));
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

TEST_F(Speeds, Plan_MeasuresOnceAndSaysSo) {
  const Words plan = {"plan", "--model=model", "--devices=cpu", "--dtype=fp32", "--cutoff_len=64", "--json"};
  const Outcome first = workspace_.run(plan);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, testing::HasSubstr("its speeds on this model's shapes were measured"));
  const Json known = speeds()["calibration"];
  EXPECT_GT(known["shapes"], 10);
  EXPECT_GT(known["seen"], 0);
  const Outcome second = workspace_.run(plan);
  EXPECT_THAT(second.err, testing::Not(testing::HasSubstr("measured")));
  EXPECT_EQ(json_of(second)["slots"], json_of(first)["slots"]);
  EXPECT_EQ(speeds()["calibration"], known);
}

/// Weights are read after the device was measured: the word of that is left unsaid.
TEST_F(Speeds, NothingKnownYet_RefusalIsOneLine) {
  expect_refusal({"WeightsNotFinite",
                  [](const Workspace& workspace) {
                    workspace.end_not_finite("model/model.safetensors");
                    return train({"--output_dir=out"});
                  },
                  {"model.safetensors"}});
  EXPECT_GT(speeds()["calibration"]["shapes"], 10);
}

TEST_F(Speeds, BrokenStore_IsNamedAndTheRunGoesOn) {
  workspace_.write("cache/rondo/calibration.sqlite", std::string(4096, 'x'));
  const Outcome trained = workspace_.run(train({"--max_steps=3", "--output_dir=out"}));
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.err, testing::HasSubstr("calibration.sqlite: it is no SQLite file"));
  EXPECT_GT(speeds()["calibration"]["shapes"], 10);
}

TEST_F(Speeds, ARun_RefinesWhatWasMeasured) {
  ASSERT_EQ(workspace_.run(train({"--max_steps=4", "--output_dir=one"})).status, 0);
  const Json first = speeds()["calibration"];
  EXPECT_EQ(first["samples"], 2);  // a measurement and a run
  const Outcome again = workspace_.run(train({"--max_steps=4", "--output_dir=two"}));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, testing::Not(testing::HasSubstr("measured")));
  EXPECT_EQ(speeds()["calibration"]["samples"], 3);
  EXPECT_EQ(speeds()["calibration"]["shapes"], first["shapes"]);
  // Other times make other plans at most: the numbers are the same.
  EXPECT_EQ(workspace_.read("one/adapter_model.safetensors"), workspace_.read("two/adapter_model.safetensors"));
}

}  // namespace
}  // namespace rondo::cli
