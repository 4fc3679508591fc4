// The state of what is trained on the only device gives the bits that the host's updates give, wherever it lies
// meanwhile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rondo/devices/moment_tables.h"
#include "same_trace.h"

namespace rondo::tiny {
namespace {

using devices::DType;

struct HeldKind {
  const char* name;
  model::MethodSpec spec;
  bool tied = false;
  double decay = 0.01;
  offload::OptimizerKind optimizer = offload::OptimizerKind::kAdamW;
};
void PrintTo(const HeldKind& kind, std::ostream* stream) { *stream << kind.name; }

model::MethodSpec uneven_rates() {
  model::MethodSpec spec = lora_with_ends();
  spec.lora_b_rate = 4.0;
  return spec;
}

model::MethodSpec dora() {
  model::MethodSpec spec = lora(DType::kBfloat16);
  spec.lora->use_dora = true;
  return spec;
}

std::vector<HeldKind> coded_kinds() {
  return {{"full_tied_8bit", full(DType::kBfloat16), true, 0.01, offload::OptimizerKind::kAdamW8Bit},
          {"full_fp32_8bit", full(DType::kFloat32), false, 0.01, offload::OptimizerKind::kAdamW8Bit}};
}

std::vector<HeldKind> kinds() {
  return {{"full_tied", full(DType::kBfloat16), true},
          {"full_fp32", full(DType::kFloat32)},
          {"full_fp16_tied", full(DType::kFloat16), true},
          {"last_block", last_block(DType::kBfloat16), true},
          {"lora", lora(DType::kBfloat16), false, 0},
          {"lora_with_ends", uneven_rates()},
          {"dora", dora(), true}};
}

/// A table that takes more than one block of an update.
model::ModelConfig config_of(const HeldKind& kind) {
  model::ModelConfig config = small_config(kind.tied);
  config.vocab_size = 1500;
  config.pad_token_id = 3;
  return config;
}

class StateOnTheCard : public testing::TestWithParam<HeldKind> {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    job_.steps = steps_of(dataset_, {4, 4, 3, 4});
    job_.optimizer = {0.9, 0.99, 1e-8, GetParam().decay, GetParam().optimizer};
    job_.fill = [](const model::Architecture& one, offload::ParameterStore& store) { fill_weights(one, 9, store); };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Placement held(const std::string& name, const std::string& devices) {
    Placement placement{name, devices};
    placement.holds_state = true;
    return placement;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_state_" + std::to_string(::getpid()));
  const data::Dataset dataset_ = random_samples(61, 5, 64, 24);
  const model::Architecture model_ = *model::Architecture::make(config_of(GetParam()), GetParam().spec);
  Job job_;
};

TEST_P(StateOnTheCard, UnderAnyPlan_GivesTheBitsOfTheHostsUpdates) {
  const Trace reference = trace_of(model_, job_, {"on the host"});
  ASSERT_EQ(reference.loss_sums.size(), 4U);
  EXPECT_NE(reference.loss_sums[0], reference.loss_sums[1]);
  for (const partition::Keep keep : {partition::Keep::kNothing, partition::Keep::kSelective, partition::Keep::kAll}) {
    Placement placement = held("planned", fast_cards(1));
    placement.keep = keep;
    expect_trace(model_, job_, placement, reference);
  }
  Placement stages = held("stages, streamed", fast_cards(1));
  stages.stages = one_layer_each(model_);
  stages.threads = 2;
  expect_trace(model_, job_, stages, reference);
  stages.name = "stages, every second layer stays";
  stages.stays = 2;
  expect_trace(model_, job_, stages, reference);
}

TEST_P(StateOnTheCard, Memory_IsWhatThePlanSays) {
  auto run = TinyRun::make(model_, job_, held("planned", fast_cards(1)));
  ASSERT_TRUE(run.ok()) << run.status();
  for (std::size_t step = 0; step < job_.steps.size(); ++step) ASSERT_TRUE((*run)->train(step).ok());
  EXPECT_EQ((*run)->device(0).peak_bytes(), (*run)->plan().devices[0].peak_bytes);
}

TEST_P(StateOnTheCard, SavedAndResumedOnTheHost_GoesOnBitForBit) {
  const Trace whole = trace_of(model_, job_, {"uninterrupted"});
  ASSERT_NO_FATAL_FAILURE(run_to_checkpoint(model_, job_, held("before", fast_cards(1)), 2, folder_));
  const Job resumed = resumed_from(job_, folder_ / "checkpoint-2");
  for (const bool holds : {false, true}) {
    auto second = TinyRun::make(model_, resumed, holds ? held("on the card", fast_cards(1)) : Placement{"after"});
    ASSERT_TRUE(second.ok()) << second.status();
    (*second)->executor().set_updates(2);
    for (const std::size_t step : {2U, 3U}) {
      const auto result = (*second)->train(step);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, whole.loss_sums[step]);
      EXPECT_EQ(result->grad_norm, whole.norms[step]);
    }
    EXPECT_TRUE((*second)->bytes() == whole.bytes);
  }
}

/// Evaluation reads the newest weights, and taking the state home changes nothing on the card.
TEST_P(StateOnTheCard, EvaluatedAndReadBetweenSteps_GoesOnAsBefore) {
  const Trace whole = trace_of(model_, job_, {"uninterrupted"});
  auto host = TinyRun::make(model_, job_, {"on the host"});
  auto card = TinyRun::make(model_, job_, held("on the card", fast_cards(1)));
  ASSERT_TRUE(host.ok() && card.ok()) << host.status() << card.status();
  for (std::size_t step = 0; step < job_.steps.size(); ++step) {
    for (auto* run : {&*host, &*card}) {
      const auto result = (*run)->train(step);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, whole.loss_sums[step]);
    }
    const auto expected = (*host)->executor().evaluate(job_.steps[0]);
    const auto found = (*card)->executor().evaluate(job_.steps[0]);
    ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
    EXPECT_EQ(found->loss_sum, expected->loss_sum);
    if (step % 2 == 0) {
      EXPECT_TRUE((*card)->bytes() == (*host)->bytes());
    }
  }
  EXPECT_TRUE((*card)->bytes() == whole.bytes);
}

class CodedStateOnTheCard : public StateOnTheCard {};

/// Where a parameter ends in the middle of what shares a scale, nothing behind it counts. Moments of which all are
/// small beside their scale would show it.
TEST_P(CodedStateOnTheCard, BlocksThatEndWithAParameter_HaveItsScalesAlone) {
  int in_the_middle = 0;
  job_.fill = [&](const model::Architecture& one, offload::ParameterStore& store) {
    fill_weights(one, 9, store);
    for (offload::ParameterId id = 0; id < store.specs().size(); ++id) {
      const offload::ParameterSpec& spec = store.specs()[id];
      if (!spec.trained || spec.state.first != offload::MomentFormat::kBlocks8) continue;
      in_the_middle += spec.elements % devices::kMomentBlock != 0 ? 1 : 0;
      std::vector<std::byte> moment(store.moment_size(id, offload::StateArray::kFirstMoment),
                                    std::byte{devices::kSignedZero + 1});
      const float scale = 1;
      for (Bytes at = round_up(spec.elements, 4); at < moment.size(); at += sizeof(scale)) {
        std::memcpy(moment.data() + at, &scale, sizeof(scale));
      }
      EXPECT_TRUE(store.write_moment(id, offload::StateArray::kFirstMoment, moment).ok());
    }
  };
  const Trace reference = trace_of(model_, job_, {"on the host"});
  EXPECT_GT(in_the_middle, 0);
  expect_trace(model_, job_, held("on the card", fast_cards(1)), reference);
}

INSTANTIATE_TEST_SUITE_P(All, StateOnTheCard, testing::ValuesIn(kinds()),
                         [](const auto& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(Coded, StateOnTheCard, testing::ValuesIn(coded_kinds()),
                         [](const auto& one) { return std::string(one.param.name); });
INSTANTIATE_TEST_SUITE_P(All, CodedStateOnTheCard, testing::ValuesIn(coded_kinds()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
