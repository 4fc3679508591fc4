// The plan in a checkpoint: what is written is read again, and what belongs to another run says why.
#include "rondo/train/stored_plan.h"

#include <gmock/gmock.h>

namespace rondo::train {
namespace {

using testing::HasSubstr;

class StoredPlan : public testing::Test {
 protected:
  StoredPlan() {
    for (const char* name : {"cpu:0", "vulkan:0"}) machine_.shape.devices.emplace_back().name = name;
    plan_.schedule = partition::Schedule::kZeroBubbleH1;
    plan_.keep = partition::Keep::kAll;
    plan_.reduction_group = 2;
    plan_.rounds = {{0, 1}, {1, 1}, {2, 1}};
    using partition::SlotPhase;
    plan_.slots = {{SlotPhase::kForward, 0, 1, 0, 0},
                   {SlotPhase::kFused, 2, 3, 1, 0, 0, true, true},
                   {SlotPhase::kBackward, 1, 1, 0, 1, 0, false, false},
                   {SlotPhase::kWeightGradient, 2, 3, 1, 2, 0, false, false}};
    config_.schedule = "zb_h1";
    config_.reduction_group = 2;
    config_.gradient_accumulation_steps = 3;
  }
  std::string refusal(const nlohmann::ordered_json& stored) const {
    const auto read = read_plan(stored, config_, machine_);
    return read.ok() ? "" : std::string(read.status().message());
  }

  Machine machine_;
  partition::Plan plan_;
  Config config_;
};

TEST_F(StoredPlan, ReadAgain_IsTheSame) {
  const auto read = read_plan(store_plan(plan_, machine_), config_, machine_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->schedule, plan_.schedule);
  EXPECT_EQ(read->keep, plan_.keep);
  EXPECT_EQ(read->reduction_group, 2U);
  ASSERT_EQ(read->rounds.size(), 3U);
  EXPECT_EQ(read->rounds[2].first_microbatch, 2U);
  ASSERT_EQ(read->slots.size(), plan_.slots.size());
  for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(read->slots[i].phase, plan_.slots[i].phase);
    EXPECT_EQ(read->slots[i].first_layer, plan_.slots[i].first_layer);
    EXPECT_EQ(read->slots[i].last_layer, plan_.slots[i].last_layer);
    EXPECT_EQ(read->slots[i].device, plan_.slots[i].device);
    EXPECT_EQ(read->slots[i].round, plan_.slots[i].round);
    EXPECT_EQ(read->slots[i].group_goes_on, plan_.slots[i].group_goes_on);
    EXPECT_EQ(read->slots[i].defers_weights, plan_.slots[i].defers_weights);
  }
}

TEST_F(StoredPlan, OfAnotherRun_SaysWhy) {
  auto stored = store_plan(plan_, machine_);
  EXPECT_THAT(refusal(nullptr), HasSubstr("holds no plan"));
  config_.schedule = "roundpipe";
  EXPECT_THAT(refusal(stored), HasSubstr("schedule \"zb_h1\""));
  config_.schedule = "zb_h1";
  config_.recompute = "full";
  EXPECT_THAT(refusal(stored), HasSubstr("recompute \"none\""));
  config_.recompute = "none";
  EXPECT_EQ(refusal(stored), "");
  stored["devices"] = {"cpu:0"};
  EXPECT_THAT(refusal(stored), HasSubstr("devices [\"cpu:0\"]"));
}

TEST_F(StoredPlan, InAnotherForm_CannotBeRead) {
  const auto stored = store_plan(plan_, machine_);
  for (const char* slot :
       {"", "forward", "sideways 0 1 0 0", "forward 0 1 0 9", "forward 0 1 0 0 more", "forward a b c d"}) {
    auto other = stored;
    other["slots"][0] = slot;
    EXPECT_THAT(refusal(other), HasSubstr("cannot be read")) << slot;
  }
  for (const char* key : {"rounds", "slots", "recompute"}) {
    auto other = stored;
    other[key] = 7;
    EXPECT_THAT(refusal(other), HasSubstr("cannot be read")) << key;
    other.erase(key);
    EXPECT_THAT(refusal(other), HasSubstr("cannot be read")) << key;
  }
  auto longer = stored;
  longer["rounds"][2] = 2;
  EXPECT_THAT(refusal(longer), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace rondo::train
