// What counts as a spike, and which records are named.
#include "loss_watch.h"

#include <gmock/gmock.h>

#include <limits>

namespace rondo::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Losses of 2 +- 0.1, `count` of them.
void feed(LossWatch& watch, int count) {
  for (int i = 0; i < count; ++i) EXPECT_FALSE(watch.take(i % 2 == 0 ? 1.9 : 2.1)) << i;
}

TEST(LossWatch, LossFarAboveTheLastOnes_IsASpike) {
  LossWatch watch;
  feed(watch, 50);
  const auto spike = watch.take(3.2);
  ASSERT_TRUE(spike);
  EXPECT_NEAR(spike->mean, 2.0, 1e-12);
  EXPECT_NEAR(spike->sigma, 0.1, 1e-12);
  EXPECT_EQ(spike->losses, 50U);
}

TEST(LossWatch, SixSigmaAlone_AreNone) {
  LossWatch watch;
  feed(watch, 50);
  EXPECT_FALSE(watch.take(2.9));  // nine sigma, but not 1.5 times the mean
}

TEST(LossWatch, OneAndAHalfTimesTheMeanAlone_IsNone) {
  LossWatch watch;
  for (int i = 0; i < 50; ++i) watch.take(i % 2 == 0 ? 1.0 : 3.0);
  EXPECT_FALSE(watch.take(7.9));  // mean 2, sigma 1
  EXPECT_TRUE(watch.take(12.0));
}

TEST(LossWatch, FirstTwentySteps_AreNotJudged) {
  LossWatch watch;
  feed(watch, 19);
  EXPECT_FALSE(watch.take(100.0));
  LossWatch other;
  feed(other, 20);
  EXPECT_TRUE(other.take(100.0));
}

TEST(LossWatch, LossThatStaysUp_IsToldAFewTimesOnly) {
  LossWatch watch;
  feed(watch, 50);
  int spikes = 0;
  for (int i = 0; i < 100; ++i) spikes += watch.take(20.0) ? 1 : 0;
  EXPECT_GE(spikes, 1);
  EXPECT_LE(spikes, 5);
}

TEST(LossWatch, HistoryOfAResumedRun_CountsAmongTheLast) {
  std::deque<LogEntry> history;
  for (std::uint64_t i = 0; i < 30; ++i) {
    history.push_back({.step = i + 1, .loss = 2.0 + 0.01 * static_cast<double>(i % 2)});
  }
  history.push_back({.step = 30, .loss = 9.0, .of_evaluation = true});
  LossWatch watch;
  watch.remember(history);
  const auto spike = watch.take(9.0);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->losses, 30U);
}

TEST(DescribeSpike, Note_NamesStepLossAndEveryRecordOfTheBatch) {
  const std::string note = describe_spike(37, 9.25, {2.5, 0.125, 50}, {{12, 4}, {7}}, "chats.jsonl");
  for (const char* part : {"step 37", "9.25", "2.5", "0.125", "records 12, 4, 7 of chats.jsonl"}) {
    EXPECT_THAT(note, HasSubstr(part));
  }
}

TEST(DescribeRecords, ManyRecords_AreCounted) {
  std::vector<std::uint64_t> records(100);
  for (std::uint64_t i = 0; i < 100; ++i) records[i] = 1000 + i;
  const std::string text = describe_records(records, "d");
  EXPECT_THAT(text, HasSubstr("1063 and 36 more of d"));
  EXPECT_THAT(text, Not(HasSubstr("1064")));
}

TEST(DescribeNotFinite, LossOfOneMicrobatch_NamesItsRecordsAlone) {
  const std::string note = describe_not_finite("step 5", {1.0, kNan, 2.0}, {{1}, {22, 23}, {3}}, "d");
  EXPECT_THAT(note, HasSubstr("step 5"));
  EXPECT_THAT(note, HasSubstr("1 of 3 microbatches: records 22, 23 of d"));
}

TEST(DescribeNotFinite, EveryLossOrNone_NamesTheWholeBatch) {
  const StepRecords records = {{1}, {2}};
  EXPECT_THAT(describe_not_finite("step 5", {kNan, kNan}, records, "d"), HasSubstr("weights"));
  const std::string gradient = describe_not_finite("step 5", {1.0, 2.0}, records, "d");
  EXPECT_THAT(gradient, HasSubstr("a gradient"));
  EXPECT_THAT(gradient, HasSubstr("records 1, 2 of d"));
}

}  // namespace
}  // namespace rondo::train
