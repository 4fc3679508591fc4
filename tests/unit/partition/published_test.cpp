// Predictions for the machine of the published RoundPipe results (docs/results/published.yaml, one fitted efficiency)
// against its table: one to eight RTX 4090, sequences of 2,048 tokens. docs/results/published.md tells
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "rondo/devices/profile.h"
#include "rondo/model/architecture.h"
#include "rondo/model/known_models.h"
#include "rondo/partition/plan.h"
#include "rondo/partition/schedules.h"
#include "rondo/schedule/shape.h"

namespace rondo::partition {
namespace {

constexpr std::uint32_t kSequence = 2048;
constexpr std::uint32_t kSequences = 4;  // of a microbatch: a published hop is one of 8,192 tokens
constexpr const char* kCard = "docs/results/published.yaml#rtx4090";
constexpr const char* kHost = "docs/results/published.yaml#box";

struct Row {
  const char* model;
  std::uint32_t batch;                   // sequences of a step
  std::map<std::size_t, double> tokens;  // by devices, tokens/s
  double synchronous;                    // eight devices
  double best_other;                     // eight devices
};
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"Qwen/Qwen3-1.7B", 512, {{1, 8881}, {2, 17026}, {4, 33178}, {8, 65417}}, 56489, 39370},
      {"meta-llama/Llama-3.1-8B", 256, {{1, 3142}, {2, 6259}, {4, 12278}, {8, 24275}}, 18888, 16412},
      {"Qwen/Qwen3-32B", 128, {{1, 740}, {2, 1476}, {4, 2897}, {8, 5516}}, 4164, 2552}};
  return rows;
}

model::MethodSpec full() {
  model::MethodSpec method;
  method.train_weights = true;
  return method;
}

/// The paper does not say what is adapted; this is what PEFT's all-linear adapts.
model::MethodSpec lora() {
  model::MethodSpec method;
  method.lora.emplace().targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  method.train_lora = true;
  return method;
}

/// A model on the published machine.
class Published {
 public:
  Published(const Row& row, std::size_t devices, const model::MethodSpec& method = full()) {
    const auto architecture = model::Architecture::make(*model::known_model(row.model), method);
    model = schedule::describe_model(*architecture, kSequence * kSequences, kSequence);
    work = schedule::describe_workload(*architecture, kSequence * kSequences, kSequence * kSequences,
                                       row.batch / kSequences, std::min(row.batch / kSequences, 16U));
    work.sequence_length = kSequence;
    work.microbatch_sequences = kSequences;
    const auto card = devices::find_card(kCard);
    const auto host = devices::load_host_profile(kHost);
    EXPECT_TRUE(card.ok() && host.ok()) << card.status() << host.status();
    for (std::size_t i = 0; i < devices; ++i) {
      machine.devices.push_back({"rtx4090:" + std::to_string(i), *card, card->memory_bytes, false, 0});
    }
    machine.host = *host;
    machine.host_budget_bytes = host->memory_bytes;
  }
  /// The published system recomputes whole stages: a forward more than is necessary, as a backward slot here that keeps
  /// all of its own forward.
  Plan plan(std::uint32_t staleness) const {
    PlanRequest request;
    request.keep = Keep::kAll;
    Workload lagging = work;
    lagging.staleness = staleness;
    auto plan = make_plan(model, lagging, machine, request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : Plan();
  }

  ModelShape model;
  Workload work;
  MachineShape machine;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

TEST(Published, ThroughputAndScaling_AreNearTheTable) {
  std::vector<double> errors;
  std::vector<double> scaling_errors;
  for (const Row& row : table()) {
    double one = 0;
    for (const auto& [devices, published] : row.tokens) {
      const double tokens = Published(row, devices).plan(1).predicted.tokens_per_second;
      if (devices == 1) one = tokens;
      errors.push_back(std::abs(tokens / published - 1));
      const double scaling = tokens / one / (published / row.tokens.at(1));
      if (devices > 1) scaling_errors.push_back(std::abs(scaling - 1));
      std::printf("%-24s %zu devices: %8.0f tokens/s, published %6.0f (%+5.1f%%), %.2f times one, published %.2f\n",
                  row.model, devices, tokens, published, 100 * (tokens / published - 1), tokens / one,
                  published / row.tokens.at(1));
    }
    const double drained = Published(row, 8).plan(0).predicted.tokens_per_second;
    errors.push_back(std::abs(drained / row.synchronous - 1));
    std::printf("%-24s synchronous: %8.0f tokens/s, published %6.0f (%+5.1f%%)\n", row.model, drained, row.synchronous,
                100 * (drained / row.synchronous - 1));
  }
  std::printf("median error of throughput %.1f%%, largest error of scaling %.1f%%\n", 100 * median(errors),
              100 * *std::ranges::max_element(scaling_errors));
  EXPECT_LE(median(errors), 0.15);
  for (const double error : scaling_errors) EXPECT_LE(error, 0.08);
}

/// Where a layer's experts are multiplied one by one and the host waits for each layer's counts, the published figures
/// are far below what the products would take.
TEST(Published, MixtureOfExperts_IsPredictedFaster) {
  const std::pair<Row, model::MethodSpec> rows[] = {
      {{"openai/gpt-oss-20b", 128, {{1, 3022}, {2, 5592}, {4, 9670}, {8, 18122}}, 12549, 8405}, full()},
      {{"Qwen/Qwen3-235B-A22B", 64, {{1, 480}, {2, 808}, {4, 1281}, {8, 1820}}, 1592, 0}, lora()}};
  for (const auto& [row, method] : rows) {
    for (const auto& [devices, published] : row.tokens) {
      const double tokens = Published(row, devices, method).plan(1).predicted.tokens_per_second;
      std::printf("%-24s %zu devices: %8.0f tokens/s, published %6.0f (%+5.1f%%)\n", row.model, devices, tokens,
                  published, 100 * (tokens / published - 1));
      EXPECT_GT(tokens, published);
    }
    const double drained = Published(row, 8, method).plan(0).predicted.tokens_per_second;
    std::printf("%-24s synchronous: %8.0f tokens/s, published %6.0f (%+5.1f%%)\n", row.model, drained, row.synchronous,
                100 * (drained / row.synchronous - 1));
  }
}

TEST(Published, Schedules_AreInThePublishedOrder) {
  for (const Row& row : table()) {
    Published published(row, 8);
    const Plan stale = published.plan(1);
    const Plan drained = published.plan(0);
    EXPECT_LT(stale.predicted.bubble, drained.predicted.bubble) << row.model;
    // The published bubbles are simulated without memory.
    for (DeviceShape& device : published.machine.devices) device.budget_bytes = Bytes{1} << 44U;
    const auto rows = compare(drained, published.model, published.work, published.machine);
    std::map<std::string, double> bubbles;
    for (const ComparedSchedule& compared : rows) bubbles[compared.name] = compared.bubble;
    std::printf(
        "%-24s bubbles: roundpipe %.1f%%, synchronous %.1f%%, looped_bfs %.1f%%, interleaved %.1f%%, 1f1b %.1f%%\n",
        row.model, 100 * stale.predicted.bubble, 100 * drained.predicted.bubble, 100 * bubbles["looped_bfs"],
        100 * bubbles["interleaved"], 100 * bubbles["1f1b"]);
    EXPECT_LT(drained.predicted.bubble, bubbles["1f1b"]) << row.model;
    EXPECT_LE(bubbles["interleaved"], bubbles["1f1b"]) << row.model;
  }
}

}  // namespace
}  // namespace rondo::partition
