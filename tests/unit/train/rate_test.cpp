// Learning rates are those of transformers' schedules, step by step.
#include "rondo/train/rate.h"

#include <gtest/gtest.h>

#include <vector>

namespace rondo::train {
namespace {

struct Known {
  const char* kind;
  std::uint64_t warmup;
  std::uint64_t total;
  std::vector<double> factors;  // of steps 0, 1, ...; from transformers 5.23, get_scheduler
};

void PrintTo(const Known& known, std::ostream* stream) {
  *stream << known.kind << ", " << known.warmup << " of " << known.total;
}

class Rate : public testing::TestWithParam<Known> {};

TEST_P(Rate, EveryStep_IsThatOfTransformers) {
  const Known& known = GetParam();
  const RateSchedule schedule{known.kind, 3e-4, known.warmup, known.total};
  for (std::size_t step = 0; step < known.factors.size(); ++step) {
    EXPECT_NEAR(schedule.at(step), 3e-4 * known.factors[step], 1e-18) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Rate,
    testing::Values(
        Known{"constant", 0, 5, {1, 1, 1, 1, 1, 1, 1}},
        Known{"constant", 3, 10, {0, 1.0 / 3, 2.0 / 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        Known{"linear", 0, 5, {1, 0.8, 0.6, 0.4, 0.2, 0, 0}},
        Known{"linear",
              3,
              10,
              {0, 1.0 / 3, 2.0 / 3, 1, 0.8571428571428571, 0.7142857142857143, 0.5714285714285714, 0.42857142857142855,
               0.2857142857142857, 0.14285714285714285, 0, 0}},
        Known{"cosine", 0, 5, {1, 0.9045084971874737, 0.6545084971874737, 0.34549150281252633, 0.09549150281252633, 0}},
        Known{"cosine",
              3,
              10,
              {0, 1.0 / 3, 2.0 / 3, 1, 0.9504844339512095, 0.8117449009293668, 0.6112604669781572, 0.38873953302184283,
               0.18825509907063326, 0.04951556604879048, 0}}));

TEST(Rate, WarmupLongerThanTheRun_StillRises) {
  const RateSchedule schedule{"linear", 1.0, 10, 4};
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.3);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.0);
}

TEST(ResolveWarmup, Ratio_IsRoundedUp) {
  EXPECT_EQ(resolve_warmup(0.0, 0, 100), 0U);
  EXPECT_EQ(resolve_warmup(0.1, 0, 25), 3U);
  EXPECT_EQ(resolve_warmup(0.03, 0, 100), 3U);
  EXPECT_EQ(resolve_warmup(1.0, 0, 7), 7U);
  // transformers multiplies in the same doubles: 0.07 * 100 lies above 7.
  EXPECT_EQ(resolve_warmup(0.07, 0, 100), 8U);
}

TEST(ResolveWarmup, Steps_WinOverTheRatio) { EXPECT_EQ(resolve_warmup(0.5, 2, 100), 2U); }

}  // namespace
}  // namespace rondo::train
