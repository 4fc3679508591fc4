// Softmax cross-entropy against fp64.
#include <limits>

#include "kernels.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

struct LossReference {
  std::vector<double> losses, gradient;
};

LossReference reference(const std::vector<float>& logits, const std::vector<std::int32_t>& targets,
                        std::size_t vocabulary) {
  LossReference r{std::vector<double>(targets.size()), std::vector<double>(logits.size())};
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    const float* row = logits.data() + t * vocabulary;
    double maximum = static_cast<double>(row[0]);
    for (std::size_t i = 0; i < vocabulary; ++i) maximum = std::max(maximum, static_cast<double>(row[i]));
    double sum = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(row[i]) - maximum);
    const auto target = static_cast<std::size_t>(targets[t]);
    r.losses[t] = std::log(sum) + maximum - static_cast<double>(row[target]);
    for (std::size_t i = 0; i < vocabulary; ++i) {
      r.gradient[t * vocabulary + i] =
          std::exp(static_cast<double>(row[i]) - maximum) / sum - (i == target ? 1.0 : 0.0);
    }
  }
  return r;
}

TEST(SoftmaxCrossEntropy, OddVocabularies_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const std::size_t vocabulary : {1UL, 2UL, 17UL, 2048UL, 5003UL, 49152UL}) {
      constexpr std::size_t kTokens = 5;
      const auto v = static_cast<std::int32_t>(vocabulary);
      const std::vector<std::int32_t> targets = {0, v - 1, -1, v / 2, v / 3};
      const std::vector<float> logits =
          random_values(kTokens * vocabulary, static_cast<std::uint32_t>(vocabulary), 5.0F);
      Array gradient(storage, random_values(logits.size(), 9));
      std::vector<double> losses(kTokens, 7.0);
      ThreadPool pool(2);
      softmax_cross_entropy(pool, storage, logits.data(), targets.data(), losses.data(), gradient.data(), kTokens, v);
      const LossReference want = reference(logits, targets, vocabulary);
      for (std::size_t t = 0; t < kTokens; ++t) EXPECT_NEAR(losses[t], want.losses[t], 3e-7 * (1 + want.losses[t]));
      expect_close(gradient, want.gradient, storage, 3e-6, 3e-7, "gradient");
    }
  });
}

TEST(SoftmaxCrossEntropy, GradientInPlaceOrAbsent_GivesTheSameLosses) {
  constexpr std::int64_t kVocabulary = 3001;
  const std::vector<std::int32_t> targets = {5, 3000, -7, 0};
  const std::vector<float> logits = random_values(4 * kVocabulary, 1, 3.0F);
  ThreadPool pool(2);
  std::vector<double> alone(4);
  std::vector<double> apart(4);
  std::vector<double> in_place(4);
  std::vector<float> gradient(logits.size());
  std::vector<float> shared = logits;
  const Storage storage = Storage::kFloat32;
  softmax_cross_entropy(pool, storage, logits.data(), targets.data(), alone.data(), nullptr, 4, kVocabulary);
  softmax_cross_entropy(pool, storage, logits.data(), targets.data(), apart.data(), gradient.data(), 4, kVocabulary);
  softmax_cross_entropy(pool, storage, shared.data(), targets.data(), in_place.data(), shared.data(), 4, kVocabulary);
  EXPECT_EQ(alone, apart);
  EXPECT_EQ(alone, in_place);
  EXPECT_EQ(gradient, shared);
}

TEST(SoftmaxCrossEntropy, ExtremeLogits_StayFinite) {
  for_each_target([] {
    constexpr std::int64_t kVocabulary = 4500;
    std::vector<float> logits(2 * kVocabulary, -1e30F);
    // The first block of a row holds nothing but -infinity, the largest logit stands in the last.
    for (std::size_t i = 0; i < 2100; ++i) logits[i] = -std::numeric_limits<float>::infinity();
    logits[4499] = 1e30F;
    logits[static_cast<std::size_t>(kVocabulary)] = 3e38F;
    const std::vector<std::int32_t> targets = {4499, 0};
    std::vector<double> losses(2, -1.0);
    std::vector<float> gradient(logits.size());
    ThreadPool pool(1);
    softmax_cross_entropy(pool, Storage::kFloat32, logits.data(), targets.data(), losses.data(), gradient.data(), 2,
                          kVocabulary);
    EXPECT_EQ(losses, (std::vector<double>{0.0, 0.0}));
    for (const float value : gradient) ASSERT_EQ(value, 0.0F);
  });
}

TEST(SoftmaxCrossEntropy, NaNLogit_GivesNaNLoss) {
  for_each_target([] {
    std::vector<float> logits = random_values(5000, 1);
    logits[777] = std::numeric_limits<float>::quiet_NaN();
    const std::int32_t target = 3;
    double loss = 0;
    ThreadPool pool(1);
    softmax_cross_entropy(pool, Storage::kFloat32, logits.data(), &target, &loss, nullptr, 1, 5000);
    EXPECT_TRUE(std::isnan(loss));
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
