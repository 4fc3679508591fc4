// plan and profile over several global batches and pools.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

/// A card on which arithmetic takes long beside everything that the machine under test adds.
constexpr const char* kCards = R"(
sluggish: {flops: {bf16: 2e9, fp32: 2e9}, memory_bytes: 1073741824, memory_bandwidth: 1e10, link_up: 1e9,
           link_down: 1e9, link_latency: 1e-5, efficiency: 0.5, jitter: 0}
tiny: {flops: {bf16: 2e9, fp32: 2e9}, memory_bytes: 65536, memory_bandwidth: 1e10, link_up: 1e9, link_down: 1e9,
       link_latency: 1e-5, efficiency: 0.5, jitter: 0}
)";

constexpr const char* kHosts =
    "even: {memory_bytes: 17179869184, memory_bandwidth: 2e10, optimizer_parameters_per_second: 1e9, disk_bandwidth: "
    "0}\n";

TEST(Sweep, PlanOverBatchesAndPools_IsThePlansOfItsPoints) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  workspace.write("hosts.yaml", kHosts);
  const Json json = json_of(
      workspace.run({"plan", "--model=model", "--cutoff_len=64", "--host=hosts.yaml#even", "--json", "--plot=sweep.svg",
                     "--sweep", "global_batch=1,4,16;devices=timed:cards.yaml#sluggish|timed:cards.yaml#sluggish*2"}));
  ASSERT_EQ(json["sweep"].size(), 6U);
  ASSERT_EQ(json["knees"].size(), 2U);
  for (const Json& point : json["sweep"]) {
    const Json alone = json_of(workspace.run({"plan", "--model=model", "--cutoff_len=64", "--host=hosts.yaml#even",
                                              "--json", "--devices=" + point["devices"].get<std::string>(),
                                              "--gradient_accumulation_steps=" + point["global_batch"].dump()}));
    for (const char* key : {"tokens_per_second", "step_seconds", "bubble"}) {
      EXPECT_DOUBLE_EQ(point[key].get<double>(), alone[key].get<double>()) << point;
    }
  }
  for (const Json& knee : json["knees"]) {
    double best = 0;
    double at_knee = 0;
    for (const Json& point : json["sweep"]) {
      if (point["devices"] != knee["devices"]) continue;
      best = std::max(best, point["tokens_per_second"].get<double>());
      if (point["global_batch"] == knee["global_batch"]) at_knee = point["tokens_per_second"];
    }
    EXPECT_GE(at_knee, 0.95 * best);
    for (const Json& point : json["sweep"]) {
      if (point["devices"] != knee["devices"] || point["global_batch"] >= knee["global_batch"]) continue;
      EXPECT_LT(point["tokens_per_second"].get<double>(), 0.95 * best) << "an earlier one is a knee already";
    }
  }
  const std::string picture = workspace.read("sweep.svg");
  EXPECT_THAT(picture, testing::StartsWith("<svg "));
  EXPECT_THAT(picture, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(picture, HasSubstr("timed:cards.yaml#sluggish*2"));
}

/// The host's speeds are measured, and no two measurements are alike.
TEST(Sweep, OnePoolTwice_HasTheSamePlanTwice) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  const Json json = json_of(workspace.run(
      {"plan", "--model=model", "--cutoff_len=64", "--finetuning_type=full", "--json", "--sweep",
       "global_batch=1,4;devices=timed:cards.yaml#sluggish|timed:cards.yaml#sluggish|timed:cards.yaml#sluggish"}));
  const Json& points = json["sweep"];
  ASSERT_EQ(points.size(), 6U);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(points[i], points[i % 2]) << i;
}

TEST(Sweep, PlanOfPackedData_IsThePlanOfItsPoint) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  workspace.write("hosts.yaml", kHosts);
  const auto run = [&](Words words, const char* packing) {
    words.insert(words.begin(), {"plan", "--model=model", "--dataset=chats.jsonl", "--cutoff_len=128",
                                 "--host=hosts.yaml#even", "--devices=timed:cards.yaml#sluggish", "--json"});
    words.emplace_back(packing);
    return json_of(workspace.run(words));
  };
  const auto sweep = [&](const char* packing) {
    return run({"--sweep=global_batch=2"}, packing)["sweep"].at(0).value("step_seconds", 0.0);
  };
  const Json alone = run({"--gradient_accumulation_steps=2"}, "--packing=true");
  EXPECT_DOUBLE_EQ(sweep("--packing=true"), alone.value("step_seconds", 0.0));
  EXPECT_GT(sweep("--packing=true"), 1.1 * sweep("--packing=false")) << "packing changes nothing here";
}

TEST(Sweep, PoolThatDoesNotFit_IsNamedBesideTheOthers) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  const Words words = {"plan", "--model=model", "--cutoff_len=64", "--sweep",
                       "global_batch=4;devices=timed:cards.yaml#tiny|timed:cards.yaml#sluggish"};
  const Outcome table = workspace.run(words);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("does not fit"), HasSubstr("refused"), HasSubstr("knee")));
  const Outcome none = workspace.run(
      {"plan", "--model=model", "--cutoff_len=64", "--sweep", "global_batch=4;devices=timed:cards.yaml#tiny"});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.out, "");
}

TEST(Sweep, Profile_SetsMeasuredBesidePredicted) {
  const Workspace workspace;
  workspace.write("cards.yaml", kCards);
  const Json json = json_of(workspace.run({"profile", "--model=model", "--cutoff_len=64", "--steps=2", "--json",
                                           "--sweep", "global_batch=2,4;devices=timed:cards.yaml#sluggish"}));
  ASSERT_EQ(json["sweep"].size(), 2U);
  for (const Json& point : json["sweep"]) {
    EXPECT_GT(point["predicted_step_seconds"].get<double>(), 0);
    EXPECT_GE(point["step_seconds"].get<double>(), 0.9 * point["predicted_step_seconds"].get<double>()) << point;
  }
}

class BadSweep : public testing::TestWithParam<BadInput> {};

TEST_P(BadSweep, Refused_InOneLineWithoutATrace) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Sweeps, BadSweep,
    testing::Values(command("NoAxis", {"plan", "--model=model", "--sweep=8"}, {"--sweep", "global_batch=", "'8'"}),
                    command("NoMultiple", {"plan", "--model=model", "--batch_size=3", "--sweep=global_batch=4"},
                            {"--sweep", "per_device_train_batch_size 3", "4"}),
                    command("UnknownPool", {"plan", "--model=model", "--sweep=devices=abacus"}, {"devices", "abacus"}),
                    command("PlotAlone", {"plan", "--model=model", "--plot=x.svg"}, {"--plot", "--sweep"}),
                    command("WithCompare", {"plan", "--model=model", "--compare", "--sweep=global_batch=4"},
                            {"--compare", "sweep"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
