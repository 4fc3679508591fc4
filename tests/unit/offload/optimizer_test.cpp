// AdamW against PyTorch's numbers and against the formula in double precision.
#include "rondo/offload/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "one_parameter.h"

namespace rondo::offload {
namespace {

using Trainer = OneParameter;

void expect_near(std::span<const float> found, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], relative * std::abs(expected[i])) << "element " << i;
  }
}

TEST(AdamW, ThreeSteps_ArePyTorchs) {
  // torch.optim.AdamW(lr 0.02, betas (0.9, 0.999), eps 1e-8, weight_decay 0.1, foreach and fused off), the rate divided
  // by the number of the step; PyTorch 2.15.
  Trainer trainer(5, {0.9, 0.999, 1e-8, 0.1});
  const float start[] = {0.5F, -1.25F, 0.003F, 2.0F, -0.75F};
  std::memcpy(trainer.store().master(0).data(), start, sizeof(start));
  trainer.step({0.1F, -0.2F, 0.3F, -0.004F, 5.0F}, 0.02);
  expect_near(trainer.store().master(0),
              {0.4790000021457672, -1.227500081062317, -0.017005998641252518, 2.0160000324249268, -0.7684999704360962},
              3e-7);
  trainer.step({0.05F, 0.2F, -0.1F, 0.0F, -4.0F}, 0.02 / 2);
  trainer.step({-0.3F, 0.01F, 0.02F, 1e-6F, 3.0F}, 0.02 / 3);
  expect_near(trainer.store().master(0),
              {0.47120124101638794, -1.2264026403427124, -0.023304596543312073, 2.022789478302002, -0.7698797583580017},
              3e-7);
  expect_near(
      trainer.store().first_moment(0),
      {-0.017400000244379044, 0.0027999987360090017, 0.01730000041425228, -0.00032389999250881374, 0.3449999988079071},
      1e-6);
  expect_near(trainer.store().second_moment(0),
              {0.00010247751924907789, 7.998004730325192e-05, 0.0001002101125777699, 1.5968021571666213e-08,
               0.0499340295791626},
              1e-6);
}

TEST(AdamW, FiftySteps_FollowTheFormulaInDoublePrecision) {
  constexpr std::size_t kElements = 16384 + 37;  // more than a block, and no whole number of vectors
  const OptimizerSettings settings{0.85, 0.98, 1e-6, 0.05};
  for (const bool decays : {true, false}) {
    Trainer trainer(kElements, settings, decays);
    std::vector<double> p(kElements);
    std::vector<double> m(kElements);
    std::vector<double> v(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      trainer.store().master(0)[i] = 1.0F + std::sin(static_cast<float>(i));
      p[i] = trainer.store().master(0)[i];
    }
    const double rate = 3e-3;
    const double factor = 0.25;
    for (int t = 1; t <= 50; ++t) {
      std::vector<float> gradient(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        gradient[i] = std::cos(static_cast<float>(i) * 0.7F + static_cast<float>(t)) + 1.5F;
        const double g = factor * static_cast<double>(gradient[i]);
        m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
        v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
        const double corrected = m[i] / (1 - std::pow(settings.beta1, t));
        const double scale = std::sqrt(v[i] / (1 - std::pow(settings.beta2, t))) + settings.epsilon;
        p[i] -= rate * ((decays ? settings.weight_decay * p[i] : 0.0) + corrected / scale);
      }
      trainer.step(gradient, rate, factor);
    }
    double worst = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(trainer.store().master(0)[i]) - p[i]));
    }
    EXPECT_LT(worst, 1e-5) << "decays: " << decays;  // fifty roundings of numbers up to 2
  }
}

TEST(AdamW, APlaceInTheTensor_AndThreads_DoNotEnterTheResult) {
  constexpr std::size_t kElements = 3 * 16384 + 5;
  for (const std::uint32_t threads : {1U, 3U}) {
    Trainer trainer(kElements, {0.9, 0.999, 1e-8, 0.1}, true, devices::DType::kBfloat16, threads);
    for (float& value : trainer.store().master(0)) value = 0.3F;
    for (const float g : {0.7F, -0.11F, 0.013F}) trainer.step(std::vector<float>(kElements, g), 1e-2, 0.37);
    const std::span<const float> values = trainer.store().master(0);
    for (const float value : values) ASSERT_EQ(value, values[0]);
    const std::vector<std::uint16_t> published = trainer.published();
    trainer.store().publish_from_master(0, 3);
    ASSERT_EQ(published, trainer.published()) << "what a resumed run would compute with";
  }
}

TEST(AdamW, Bfloat16_StepsBelowItsResolutionMoveThePublishedWeightsFromTheFirst) {
  constexpr std::size_t kElements = 20'000;
  Trainer trainer(kElements, {0.9, 0.999, 1e-8, 0.0}, true, devices::DType::kBfloat16);
  for (float& value : trainer.store().master(0)) value = 1.0F;
  for (int step = 1; step <= 4; ++step) {
    trainer.step(std::vector<float>(kElements, 1.0F), 1e-3);  // a quarter of bf16's step below 1
    const float master = trainer.store().master(0)[0];
    EXPECT_NEAR(master, 1 - 1e-3 * step, 1e-6);
    double sum = 0;
    for (const std::uint16_t bits : trainer.published()) {
      const float weight = std::bit_cast<float>(std::uint32_t{bits} << 16U);
      ASSERT_LE(std::abs(weight - master), 1.0F / 256);
      sum += weight;
    }
    // Five standard deviations of a draw between neighbours 2^-8 apart.
    EXPECT_NEAR(sum / kElements, master, 5 * 0.5 / 256 / std::sqrt(1.0 * kElements));
  }
}

TEST(AdamW, RateOfZero_MovesMomentsButNotWeights) {
  Trainer trainer(2, {0.9, 0.999, 1e-8, 0.1});
  trainer.store().master(0)[0] = 0.5F;
  trainer.step({1, 1}, 0.0);
  EXPECT_EQ(trainer.store().master(0)[0], 0.5F);
  EXPECT_FLOAT_EQ(trainer.store().first_moment(0)[0], 0.1F);
}

}  // namespace
}  // namespace rondo::offload
