// Weights that stay on a device give the bits of weights that come anew for every visit, and are carried once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using devices::DType;

class Residents : public testing::TestWithParam<Variant> {
 protected:
  Residents() {
    job_.steps = steps_of(dataset_, {6, 6, 4, 6});
    job_.reduction_group = GetParam().group;
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }

  const data::Dataset dataset_ = random_samples(61, 5, 72, 24);
  const model::Architecture model_ = model_of(GetParam());
  Job job_;
  const Stages stages_ = {{0, 2, 3}, 6, {4, 1}};
};

TEST_P(Residents, OverPools_GiveTheBitsOfStreamedWeights) {
  Placement streamed{"streamed", fast_cards(1)};
  streamed.stages = stages_;
  const Trace reference = trace_of(model_, job_, streamed);
  for (const char* rest : {"", ",cpu"}) {
    for (const int count : {1, 2, 3}) {
      for (const std::uint32_t stays : {1U, 2U, 3U}) {
        for (const std::uint32_t round : {0U, 2U}) {
          Placement placement{"", fast_cards(count) + rest};
          placement.name =
              placement.devices + " keeping every " + std::to_string(stays) + " in rounds of " + std::to_string(round);
          placement.stages = stages_;
          placement.stays = stays;
          if (round != 0 && GetParam().group <= round) placement.microbatches_per_round = round;
          SCOPED_TRACE(placement.name);
          const Trace trace = trace_of(model_, job_, placement);
          EXPECT_EQ(trace.loss_sums, reference.loss_sums);
          EXPECT_EQ(trace.norms, reference.norms);
          EXPECT_EQ(trace.bytes == reference.bytes, true);
        }
      }
    }
  }
}

TEST_P(Residents, MemoryBetweenNoneAndAll_PlannedRunsAgreeAndStayWithin) {
  Placement free{"all", fast_cards(1)};
  auto all = TinyRun::make(model_, job_, free);
  ASSERT_TRUE(all.ok()) << all.status();
  const Trace reference = trace_of(model_, job_, free);
  bool some = false;
  for (int percent = 36; percent < 100; percent += 4) {
    Placement placement = free;
    placement.name = std::to_string(percent) + " % of the memory";
    const partition::DevicePlan& whole = (*all)->plan().devices[0];
    placement.memory_limit = whole.name + "=" + std::to_string(whole.peak_bytes * static_cast<Bytes>(percent) / 100);
    SCOPED_TRACE(placement.name);
    auto run = TinyRun::make(model_, job_, placement);
    if (!run.ok()) {
      EXPECT_EQ(run.status().code(), absl::StatusCode::kResourceExhausted) << run.status();
      continue;
    }
    const std::size_t kept = partition::residents_of((*run)->plan(), 0).size();
    some = some || (kept > 0 && kept < model_.layers().size());
    EXPECT_EQ((*run)->device(0).peak_bytes(), (*run)->plan().devices[0].peak_bytes);
    const Trace trace = trace_of(model_, job_, placement);
    EXPECT_EQ(trace.loss_sums, reference.loss_sums);
    EXPECT_EQ(trace.bytes == reference.bytes, true);
  }
  EXPECT_TRUE(some) << "no limit kept just a part";
}

/// Copies of weights, by the trace: of all steps, or of one.
std::size_t weight_copies(TinyRun& run, std::optional<std::uint32_t> step = std::nullopt) {
  std::size_t copies = 0;
  for (const schedule::DeviceTrace* trace : run.executor().traces()) {
    for (const schedule::TraceSpan& span : trace->spans()) {
      if (std::strcmp(span.tag.name, "weights") == 0 && step.value_or(span.tag.step) == span.tag.step) ++copies;
    }
  }
  return copies;
}

/// What no update changes of the first visit's weights comes before the next step begins, and then not again.
TEST_P(Residents, StreamedWeights_OfTheFirstVisitComeAheadAsFarAsTheyAreFrozen) {
  Placement placement{"streamed", fast_cards(1)};
  placement.stages = stages_;
  placement.trace_spans = 8192;
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  std::size_t frozen = 0;
  for (model::LayerIndex layer = 0; layer < stages_.forward[1]; ++layer) {
    frozen += std::ranges::any_of(model_.layers()[layer].parameters,
                                  [&](const model::ParameterUse& use) { return !model_.parameters()[use.id].trained; });
  }
  const auto settle = [&](std::uint32_t step, std::size_t expected) {
    for (int i = 0; i < 1000 && weight_copies(**run, step) < expected; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for what should not come
    EXPECT_EQ(weight_copies(**run, step), expected);
  };
  ASSERT_TRUE((*run)->train(0).ok());
  const std::size_t whole = weight_copies(**run, 1);
  settle(2, frozen);
  (*run)->executor().begin(job_.steps[1], true);
  ASSERT_TRUE((*run)->executor().finish({}).ok());
  // A layer's trained weights go apart from its frozen ones now, and may be late one by one.
  EXPECT_GE(weight_copies(**run, 2), whole);
  settle(3, 0);  // that step was said to be the last
  ASSERT_TRUE((*run)->train(2).ok());
  EXPECT_GE(weight_copies(**run, 3), whole);
}

/// A layer's frozen weights travel as one, and its trained ones; a table that the head shares lies apart from the
/// head's own.
TEST_P(Residents, AfterTheFirstStep_OnlyTrainedWeightsAreCarried) {
  Placement placement{"resident", fast_cards(1)};
  placement.stages = stages_;
  placement.stays = 1;
  placement.trace_spans = 8192;
  auto run = TinyRun::make(model_, job_, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  std::size_t frozen = 0;
  std::size_t trained = 0;
  std::size_t trained_parameters = 0;
  for (const model::Layer& layer : model_.layers()) {
    const auto is_trained = [&](const model::ParameterUse& use) { return model_.parameters()[use.id].trained; };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(layer.parameters, is_trained));
    trained_parameters += count;
    if (count > 0) ++trained;
    if (count < layer.parameters.size()) ++frozen;
  }
  if (model_.config().tie_word_embeddings) ++(frozen == 0 ? trained : frozen);
  ASSERT_TRUE((*run)->train(0).ok());
  EXPECT_EQ(weight_copies(**run), frozen + trained);
  // What is updated meanwhile may be late, and is not waited for by what is there.
  (*run)->executor().clear_traces();
  ASSERT_TRUE((*run)->train(1).ok());
  EXPECT_GE(weight_copies(**run), trained);
  EXPECT_LE(weight_copies(**run), trained_parameters);
  (*run)->executor().clear_traces();
  ASSERT_TRUE((*run)->executor().evaluate(job_.steps[2]).ok());  // of the version after the second update
  EXPECT_GE(weight_copies(**run), trained);
  EXPECT_LE(weight_copies(**run), trained_parameters);
  (*run)->executor().clear_traces();
  ASSERT_TRUE((*run)->train(3).ok());
  EXPECT_EQ(weight_copies(**run), 0U);
}

INSTANTIATE_TEST_SUITE_P(Methods, Residents,
                         testing::Values(Variant{"lora_bf16", true},
                                         Variant{"dora_bf16", true, DType::kBfloat16, false, 16, true},
                                         Variant{"full_bf16_group2", false, DType::kBfloat16, false, 2},
                                         Variant{"full_fp32_tied_group1", false, DType::kFloat32, true, 1}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
