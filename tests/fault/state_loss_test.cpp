// The state of what is trained on a card that fails: what is at home stays whole, and nothing else is taken for it.
#include <gmock/gmock.h>

#include "fault_case.h"
#include "rondo/devices/host_memory.h"

namespace rondo::tiny {
namespace {

using testing::HasSubstr;

class StateOnTheCard : public Fault {
 protected:
  StateOnTheCard() { job_.reduction_group = 16; }

  static Placement holding(const std::string& fail_at) {
    Placement placement = pool({fail_at}, 0);
    placement.microbatches_per_round = 0;
    placement.holds_state = true;
    return placement;
  }
};

TEST_F(StateOnTheCard, NumberThatIsNotFinite_HasTheStepRepeatedFromTheSameState) {
  for (const int work : {3, 14, 30, 47, 60, 71}) {
    expect_step_repeated(holding("corrupt@compute:" + std::to_string(work)));
  }
}

TEST_F(StateOnTheCard, LostWithTheCard_IsSaidAndLeavesWhatWasBroughtHome) {
  std::size_t lost = 0;
  std::size_t first = 0;
  for (const char* fail_at :
       {"error@up:60", "hang@up:90", "error@up:190", "hang@up:191", "error@compute:80", "hang@compute:90",
        "error@compute:120", "error@compute:150", "hang@compute:151", "error@down:140", "hang@down:139"}) {
    SCOPED_TRACE(fail_at);
    auto run = TinyRun::make(model_, job_, holding(fail_at));
    ASSERT_TRUE(run.ok()) << run.status();
    std::size_t step = 0;
    std::size_t at_home = 0;
    absl::StatusOr<schedule::StepResult> result = (*run)->train(step);
    const bool comes_home = std::string_view(fail_at).find("down") == std::string_view::npos;
    if (result.ok() && comes_home) {
      EXPECT_TRUE((*run)->bytes() == course().bytes[1]);
      at_home = 1;
    }
    while (result.ok() && step + 1 < job_.steps.size()) result = (*run)->train(++step);
    const std::string bytes = (*run)->bytes();
    EXPECT_EQ(result.ok(), !comes_home);
    EXPECT_TRUE(!comes_home || bytes == course().bytes[at_home]) << "what came home last";
    if (step == 0) ++first;
    if (step == at_home) {
      EXPECT_TRUE((*run)->executor().update_status().ok()) << "nothing was updated since";
    }
    if (step > 1) {
      ++lost;
      EXPECT_THAT(std::string((*run)->executor().update_status().message()),
                  HasSubstr("what was trained since the last checkpoint was on emulated:bad0:0"));
    }
    EXPECT_FALSE((*run)->train(step).ok()) << "it goes on without a device";
  }
  EXPECT_GT(first, 0U);
  EXPECT_GT(lost, 0U);
}

TEST_F(StateOnTheCard, HangWhileItIsBrought_LeavesWhatTheCardMayStillRead) {
  const auto optimizer = [] { return devices::host_memory_account()["optimizer"].now; };
  // What training has more of in main memory than what was there before.
  const auto more_held = [&](const std::string& fail_at, bool fails) -> Bytes {
    auto run = TinyRun::make(model_, job_, holding(fail_at));
    EXPECT_TRUE(run.ok()) << run.status();
    const Bytes before = optimizer();
    EXPECT_EQ((*run)->train(0).ok(), !fails);
    return optimizer() - before;
  };
  EXPECT_EQ(more_held("hang@up:100000", false), 0U);
  for (const char* fail_at : {"hang@up:1", "hang@up:2", "hang@up:9"}) {
    EXPECT_GT(more_held(fail_at, true), 0U) << fail_at;
  }
}

TEST_F(StateOnTheCard, Abandoned_StaysThatOfTheStepBefore) {
  auto run = TinyRun::make(model_, job_, holding("error@compute:100000"));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->train(0).ok());
  (*run)->executor().abandon();
  EXPECT_EQ((*run)->train(1).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE((*run)->bytes() == course().bytes[1]);
  EXPECT_TRUE((*run)->executor().update_status().ok());
}

}  // namespace
}  // namespace rondo::tiny
