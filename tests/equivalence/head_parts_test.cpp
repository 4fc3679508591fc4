// The first law for heads in parts: which parts a visit has, in which phase and on which device, is in no bit; and the
// loss is that of a head in one piece.
#include <gtest/gtest.h>

#include "same_trace.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;

constexpr std::uint32_t kRows = 13;  // of 61: five parts, layers 7 to 11

struct HeadCase {
  const char* name = "";
  bool lora = false;
  DType dtype = DType::kFloat32;
  bool tied = false;
  std::uint32_t group = 16;
};
void PrintTo(const HeadCase& one, std::ostream* stream) { *stream << one.name; }

/// The LoRA case trains an untied head beside the adapter.
model::Architecture model_of(const HeadCase& one, std::uint32_t rows) {
  model::MethodSpec method = one.lora ? lora(one.dtype) : full(one.dtype);
  if (one.lora && !one.tied) method.lora->modules_to_save = {"lm_head"};
  method.head_part_rows = rows;
  return *model::Architecture::make(small_config(one.tied), method);
}

class HeadParts : public testing::TestWithParam<HeadCase> {
 protected:
  HeadParts() {
    job_.steps = steps_of(dataset_, {5, 5, 3});
    job_.reduction_group = GetParam().group;
    job_.loss_scale = 1024;  // no step overflows
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 9, store); };
  }
  void expect_same(const Placement& placement) {
    if (reference_.bytes.empty()) reference_ = trace_of(model_, job_, {"reference"});
    for (const double norm : reference_.norms) EXPECT_GT(norm, 0) << "skipped";
    expect_trace(model_, job_, placement, reference_);
  }
  void expect_same(const std::string& pool, const Stages& stages) {
    Placement placement{pool, pool};
    placement.stages = stages;
    expect_same(placement);
  }
  static std::vector<std::string> pools() { return {"cpu", "cpu*2", fast_cards(3), "cpu," + slow_cards(1)}; }

  const data::Dataset dataset_ = random_samples(61, 5, 64, 24);
  const model::Architecture model_ = model_of(GetParam(), kRows);
  Job job_;
  Trace reference_;
};

TEST_P(HeadParts, Layers_AreTheVocabularyRowByRow) {
  ASSERT_EQ(model_.layers().size(), 12U);
  EXPECT_EQ(model_.first_head_layer(), 7U);
  std::int64_t row = 0;
  for (model::LayerIndex layer = 7; layer < 12; ++layer) {
    const model::Layer& part = model_.layers()[layer];
    EXPECT_EQ(part.name, "lm_head." + std::to_string(layer - 7));
    EXPECT_EQ(part.parameters.back().first_row, row);
    row += part.parameters.back().rows;
  }
  EXPECT_EQ(row, 61);
  // Of a vocabulary that is no larger than one and a half parts the head stays whole.
  EXPECT_EQ(model_of(GetParam(), 41).layers().size(), 8U);
  EXPECT_EQ(model_of(GetParam(), 40).layers().size(), 9U);
}

TEST_P(HeadParts, Numbers_AreThoseOfAWholeHead) {
  if (GetParam().dtype != DType::kFloat32) GTEST_SKIP() << "never: what passes between parts is rounded";
  const model::Architecture whole = model_of(GetParam(), 0);
  const Trace parts = trace_of(model_, job_, {"parts"});
  const Trace one = trace_of(whole, job_, {"whole"});
  for (std::size_t step = 0; step < one.norms.size(); ++step) {
    EXPECT_NEAR(parts.loss_sums[step], one.loss_sums[step], kLossTolerance * one.loss_sums[step]);
    EXPECT_NEAR(parts.norms[step], one.norms[step], kNormTolerance * one.norms[step]);
  }
}

TEST_P(HeadParts, OneLayerAStage_GivesTheSameBits) {
  for (const std::string& pool : pools()) expect_same(pool, one_layer_each(model_));
}

TEST_P(HeadParts, CutsAnywhere_GiveTheSameBits) {
  for (const std::string& pool : pools()) {
    expect_same(pool, {{0, 3}, 7, {4, 1}});            // all parts in the fused slot, and nothing else
    expect_same(pool, {{0}, 5, {1}});                  // and layers below
    expect_same(pool, {{0, 8}, 10, {9, 6, 1}});        // forward of one and two, backward across the first
    expect_same(pool, {{0, 5, 9}, 11, {8, 7, 3, 1}});  // backward of the upper ones without the first
    expect_same(pool, {{0, 5}, 11, {5, 1}});           // nearly the whole head in one backward slot
  }
}

TEST_P(HeadParts, PlannedPools_GiveTheSameBits) {
  for (const int n : {2, 5}) expect_same({fast_cards(n), fast_cards(n)});
  Placement rounds{"in rounds", fast_cards(2)};
  rounds.microbatches_per_round = std::min(GetParam().group, 5U);
  expect_same(rounds);
}

TEST_P(HeadParts, Schedules_GiveTheSameBits) {
  using partition::Schedule;
  const std::string file = card_file(card_entry("busy", 50, 1e-4)).string();
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::kOneFOneB, Schedule::kInterleaved,
                                  Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV}) {
    Placement placement{partition::name_of(schedule), "emulated:" + file + "#busy*3"};
    placement.schedule = schedule;
    expect_same(placement);
  }
}

TEST_P(HeadParts, StateAndBoundariesOnDisk_GiveTheSameBits) {
  Placement placement{"disk", fast_cards(2)};
  placement.stages = Stages{{0, 8}, 10, {9, 6, 1}};
  placement.disk_from = 4;
  placement.boundaries_on_disk = 0;
  expect_same(placement);
}

TEST_P(HeadParts, ResidentWeights_GiveTheSameBits) {
  Placement placement{"resident", fast_cards(2)};
  placement.stages = Stages{{0, 5, 9}, 11, {8, 7, 3, 1}};
  placement.stays = 2;
  expect_same(placement);
}

TEST_P(HeadParts, LostDevice_GivesTheSameBits) {
  for (const char* fail_at : {"error@compute:9", "error@compute:31", "error@down:12", "error@up:40"}) {
    const std::string file = card_file(card_entry("bad", 50, 50, fail_at)).string();
    Placement placement{fail_at, "emulated:" + file + "#bad," + fast_cards(2)};
    placement.stages = Stages{{0, 8}, 10, {9, 8, 6, 1}};
    placement.recover = true;
    placement.hang_seconds = hang_seconds_for(fail_at);
    expect_same(placement);
  }
}

TEST_P(HeadParts, Staleness_GivesTheSameBits) {
  job_.staleness = 1;
  for (const std::string& pool : {std::string("cpu"), fast_cards(2)}) {
    Placement placement{pool, pool};
    placement.stages = Stages{{0, 8}, 10, {9, 6, 1}};
    placement.ahead = true;
    expect_same(placement);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadParts,
                         testing::Values(HeadCase{"full_fp32", false, DType::kFloat32, false, 16},
                                         HeadCase{"full_fp32_tied_group2", false, DType::kFloat32, true, 2},
                                         HeadCase{"full_bf16_tied_group1", false, DType::kBfloat16, true, 1},
                                         HeadCase{"full_bf16", false, DType::kBfloat16, false, 2},
                                         HeadCase{"full_fp16_tied", false, DType::kFloat16, true, 2},
                                         HeadCase{"lora_fp16_saved_head", true, DType::kFloat16, false, 16},
                                         HeadCase{"lora_saved_head", true, DType::kFloat32, false, 2},
                                         HeadCase{"lora_bf16_tied", true, DType::kBfloat16, true, 16}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace rondo::tiny
