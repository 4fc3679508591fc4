// The first law: losses, norms, weights and moments are the same bits on every pool, plan and number of threads.
//
// The reference is one CPU thread under the planner's own plan; every placement runs the same job and is compared byte
// by byte. The last step is short, as at the end of an epoch, so that its last group and its last rounds are short too.
#include <gtest/gtest.h>

#include <algorithm>

#include "same_trace.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using partition::Keep;

constexpr std::uint32_t kMicrobatches = 7;

const std::vector<Variant>& variants() {
  static const auto* const all = new std::vector<Variant>{
      {"full_fp32", false, DType::kFloat32, false, 16},
      {"full_fp32_tied_group2", false, DType::kFloat32, true, 2},
      {"full_bf16_group3", false, DType::kBfloat16, false, 3},
      {"full_bf16_tied", false, DType::kBfloat16, true, 16},
      {"full_bf16_tied_group1", false, DType::kBfloat16, true, 1},
      {"lora_fp32_group2", true, DType::kFloat32, true, 2},
      {"lora_bf16", true, DType::kBfloat16, false, 16},
      {"full_fp16_tied_group2", false, DType::kFloat16, true, 2},
      {"lora_fp16", true, DType::kFloat16, false, 16},
  };
  return *all;
}

/// What a variant's runs share.
class Bench {
 public:
  explicit Bench(const Variant& variant) : dataset_(random_samples(61, 5, 64, 24)), model_(model_of(variant)) {
    job_.steps = steps_of(dataset_, {kMicrobatches, kMicrobatches, 4});
    job_.reduction_group = variant.group;
    job_.loss_scale = 1024;  // that the first steps of this model take
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 9, store); };
    reference_ = trace_of(model_, job_, {"reference"});
  }
  const model::Architecture& model() const { return model_; }
  const Job& job() const { return job_; }
  const Trace& reference() const { return reference_; }

  void expect_same(const Placement& placement) { expect_trace(model_, job_, placement, reference_); }

 private:
  const data::Dataset dataset_;
  const model::Architecture model_;
  Job job_;
  Trace reference_;
};

class Placements : public testing::TestWithParam<Variant> {
 protected:
  Bench bench_{GetParam()};
  /// Three stages up, two down, cut at other places.
  Stages unequal() const { return {{0, 2, 3}, 6, {4, 1}}; }
  /// Whole reduction groups, as near to `wanted` as may be.
  std::uint32_t whole_groups(std::uint32_t wanted) const {
    const std::uint32_t group = std::min(GetParam().group, kMicrobatches);
    return (wanted + group - 1) / group * group;
  }
};

TEST_P(Placements, Reference_Learns) {
  const Trace& trace = bench_.reference();
  ASSERT_EQ(trace.loss_sums.size(), 3U);
  EXPECT_GT(trace.norms[0], 0);
  EXPECT_NE(trace.loss_sums[0], trace.loss_sums[1]);
  auto untrained = TinyRun::make(bench_.model(), bench_.job(), {"untrained"});
  ASSERT_TRUE(untrained.ok()) << untrained.status();
  EXPECT_NE((*untrained)->bytes(), trace.bytes);
}

TEST_P(Placements, PlannedPools_GiveTheSameBits) {
  for (const int n : {1, 2, 3, 5, 8}) bench_.expect_same({fast_cards(n), fast_cards(n)});
  bench_.expect_same({"unlike cards", fast_cards(1) + "," + slow_cards(2)});
  bench_.expect_same({"CPU and card", "cpu," + slow_cards(1)});
}

TEST_P(Placements, OneLayerAStage_GivesTheSameBits) {
  const Stages stages = one_layer_each(bench_.model());
  for (const int n : {1, 2, 3, 5, 8, 20}) {
    Placement placement{fast_cards(n), fast_cards(n)};
    placement.stages = stages;
    bench_.expect_same(placement);
  }
}

TEST_P(Placements, StagesCutAtOtherPlaces_GiveTheSameBits) {
  for (const std::string& pool :
       {std::string("cpu"), std::string("cpu*2"), fast_cards(1), fast_cards(2), fast_cards(1) + "," + slow_cards(2),
        "cpu," + slow_cards(1), slow_cards(1) + ",cpu*2"}) {
    Placement placement{pool, pool};
    placement.stages = unequal();
    bench_.expect_same(placement);
    placement.stages = Stages{{0}, 1, {}};
    bench_.expect_same(placement);
    placement.stages = Stages{{0, 5}, 7, {6, 3, 2, 1}};
    bench_.expect_same(placement);
  }
}

TEST_P(Placements, Rounds_GiveTheSameBits) {
  for (const std::uint32_t wanted : {1U, 3U, 5U}) {
    for (const std::string& pool : {std::string("cpu"), fast_cards(1), fast_cards(3), "cpu," + slow_cards(2)}) {
      Placement placement{pool + " in rounds of " + std::to_string(whole_groups(wanted)), pool};
      placement.microbatches_per_round = whole_groups(wanted);
      bench_.expect_same(placement);
      placement.stages = unequal();
      bench_.expect_same(placement);
    }
  }
}

/// Cards whose arithmetic takes so much longer than everything else that a plan uses all that its schedule can.
TEST_P(Placements, Schedules_GiveTheSameBits) {
  using partition::Schedule;
  const std::string file = card_file(card_entry("busy", 50, 1e-4) + card_entry("busier", 50, 7e-5)).string();
  const auto busy = [&](int count) { return "emulated:" + file + "#busy*" + std::to_string(count); };
  for (const Schedule schedule :
       {Schedule::kGPipe, Schedule::kLoopedBreadthFirst, Schedule::kOneFOneB, Schedule::kInterleaved}) {
    for (const std::string& pool : {std::string("cpu"), std::string("cpu*2"), busy(2), busy(3), busy(4),
                                    busy(1) + ",emulated:" + file + "#busier"}) {
      for (const std::uint32_t wanted : {0U, 1U, 2U}) {
        Placement placement{
            std::string(partition::name_of(schedule)) + " on " + pool + " in rounds of " + std::to_string(wanted),
            pool};
        placement.schedule = schedule;
        placement.microbatches_per_round = wanted;
        bench_.expect_same(placement);
        if (wanted != 0 || pool.find("#busy*") == std::string::npos || pool.find("busier") != std::string::npos)
          continue;
        auto run = TinyRun::make(bench_.model(), bench_.job(), placement);
        ASSERT_TRUE(run.ok()) << run.status();
        EXPECT_GT((*run)->used_devices(), 1U) << placement.name;
      }
    }
  }
}

/// What weight gradients read is left on the device, whatever was kept of the way forward.
TEST_P(Placements, BackwardsInHalves_GiveTheSameBits) {
  using partition::Schedule;
  const std::string file = card_file(card_entry("busy", 50, 1e-4)).string();
  for (const Schedule schedule : {Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV}) {
    for (const Keep keep : {Keep::kNothing, Keep::kSelective, Keep::kAll}) {
      for (const std::string& pool : {std::string("cpu"), std::string("cpu*2"), "emulated:" + file + "#busy*3"}) {
        Placement placement{std::string(partition::name_of(schedule)) + " on " + pool + " keeping " +
                                std::to_string(static_cast<int>(keep)),
                            pool};
        placement.schedule = schedule;
        placement.keep = keep;
        bench_.expect_same(placement);
        auto run = TinyRun::make(bench_.model(), bench_.job(), placement);
        ASSERT_TRUE(run.ok()) << run.status();
        EXPECT_TRUE(std::ranges::any_of((*run)->plan().slots, &partition::Slot::defers_weights)) << placement.name;
      }
    }
  }
}

/// Two slots a round over five cards: the fifth begins with the third round, whose boundaries share the first round's
/// memory, and needs nothing that a late first card must do before.
TEST_P(Placements, OneLateCard_GivesTheSameBits) {
  const std::string late = "emulated:" + card_file(card_entry("late", 1e-7, 1e-8)).string() + "#late";
  for (const std::string& pool : {late + "," + fast_cards(4), fast_cards(2) + "," + late + "," + fast_cards(2)}) {
    Placement placement{pool, pool};
    placement.microbatches_per_round = whole_groups(1);
    placement.stages = Stages{{0}, 1, {}};
    bench_.expect_same(placement);
  }
}

TEST_P(Placements, Recomputation_GivesTheSameBits) {
  for (const Keep keep : {Keep::kNothing, Keep::kSelective, Keep::kAll}) {
    for (const std::string& pool : {std::string("cpu"), fast_cards(1), fast_cards(2)}) {
      Placement placement{pool + " keeping " + std::to_string(static_cast<int>(keep)), pool};
      placement.keep = keep;
      bench_.expect_same(placement);
      placement.stages = unequal();
      bench_.expect_same(placement);
      placement.stages = Stages{{}, 0, {}};
      bench_.expect_same(placement);
    }
  }
}

TEST_P(Placements, Threads_GiveTheSameBits) {
  for (const std::uint32_t threads : {2U, 3U}) {
    for (const std::string& pool : {std::string("cpu"), fast_cards(3)}) {
      Placement placement{pool + " with " + std::to_string(threads) + " threads", pool};
      placement.threads = threads;
      bench_.expect_same(placement);
      placement.stages = unequal();
      bench_.expect_same(placement);
    }
  }
}

TEST_P(Placements, Evaluation_LeavesNoTrace) {
  for (const std::string& pool : {std::string("cpu"), fast_cards(2)}) {
    Placement placement{pool, pool};
    placement.stages = unequal();
    placement.microbatches_per_round = whole_groups(3);
    auto run = TinyRun::make(bench_.model(), bench_.job(), placement);
    ASSERT_TRUE(run.ok()) << run.status();
    Trace trace;
    std::vector<double> evaluated;
    for (std::size_t step = 0; step < bench_.job().steps.size(); ++step) {
      for (const auto& batches : {bench_.job().steps[2], bench_.job().steps[0]}) {
        const auto loss = (*run)->executor().evaluate(batches);
        ASSERT_TRUE(loss.ok()) << loss.status();
        evaluated.push_back(loss->loss_sum);
      }
      const auto result = (*run)->train(step);
      ASSERT_TRUE(result.ok()) << result.status();
      trace.loss_sums.push_back(result->loss_sum);
    }
    EXPECT_EQ(trace.loss_sums, bench_.reference().loss_sums);
    EXPECT_EQ((*run)->bytes(), bench_.reference().bytes);
    // Without dropout the loss of the batch that is trained on next is the one that training reports.
    if (!GetParam().lora) {
      EXPECT_EQ(evaluated[1], trace.loss_sums[0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Placements, testing::ValuesIn(variants()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
