// Softmax cross-entropy, of a whole vocabulary and in parts, against fp64.
#include <limits>

#include "entropy_support.h"
#include "kernels.h"

namespace rondo::devices::cpu::testing {
namespace {

struct LossReference {
  std::vector<double> losses, gradient;
};

LossReference reference(const std::vector<float>& logits, const std::vector<std::int32_t>& targets,
                        std::size_t vocabulary) {
  LossReference r{std::vector<double>(targets.size()), std::vector<double>(logits.size())};
  for (std::size_t t = 0; t < targets.size(); ++t) {
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

TEST(VocabularyLoss, OddVocabularies_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const std::size_t vocabulary : {1UL, 2UL, 17UL, 2048UL, 5003UL, 49152UL}) {
      constexpr std::int64_t kTokens = 4;
      const auto v = static_cast<std::int32_t>(vocabulary);
      const std::vector<std::int32_t> targets = {0, v - 1, v / 2, v / 3};
      const std::vector<float> logits = random_values(4 * vocabulary, static_cast<std::uint32_t>(vocabulary), 5.0F);
      Array gradient(storage, random_values(logits.size(), 9));
      ThreadPool pool(2);
      EntropyRows rows(kTokens);
      vocabulary_loss(pool, {logits.data(), targets.data(), kTokens, v}, rows.statistics.data(), rows.losses.data(),
                      rows.normalisers.data(), {gradient.data(), storage});
      const LossReference want = reference(logits, targets, vocabulary);
      for (std::size_t t = 0; t < 4; ++t) EXPECT_NEAR(rows.losses[t], want.losses[t], 3e-7 * (1 + want.losses[t]));
      expect_close(gradient, want.gradient, storage, 3e-6, 3e-7, "gradient");
    }
  });
}

/// Columns begin ... begin + count - 1.
std::vector<float> columns(const std::vector<float>& logits, std::size_t vocabulary, std::size_t begin,
                           std::size_t count) {
  std::vector<float> part;
  for (std::size_t at = 0; at < logits.size(); at += vocabulary) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(at + begin);
    part.insert(part.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
  return part;
}

TEST(VocabularyLoss, InParts_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    constexpr std::size_t kVocabulary = 3001;
    const std::vector<std::size_t> begins = {0, 700, 2900, kVocabulary};
    const std::vector<std::int32_t> targets = {0, 699, 700, 2899, 2900, 3000};
    constexpr float kScale = 4.0F;
    const std::vector<float> logits = random_values(targets.size() * kVocabulary, 3, 5.0F);
    const LossReference want = reference(logits, targets, kVocabulary);
    ThreadPool pool(2);
    const auto tokens = static_cast<std::int64_t>(targets.size());
    EntropyRows rows(tokens);
    for (int pass = 0; pass < 2; ++pass) {  // statistics and loss, then the gradients
      for (std::size_t part = 0; part < 3; ++part) {
        const std::size_t count = begins[part + 1] - begins[part];
        const std::vector<float> mine = columns(logits, kVocabulary, begins[part], count);
        std::vector<std::int32_t> places;
        for (const std::int32_t target : targets) {
          const auto place = static_cast<std::int64_t>(target) - static_cast<std::int64_t>(begins[part]);
          const bool here = place >= 0 && place < static_cast<std::int64_t>(count);
          places.push_back(here ? static_cast<std::int32_t>(place) : -1);
        }
        const PartLogits of{mine.data(), places.data(), tokens, static_cast<std::int64_t>(count)};
        Array gradient(storage, mine.size());
        const PartGradient to{gradient.data(), storage, kScale};
        if (pass == 0 && part < 2) {
          vocabulary_statistics(pool, of, rows.statistics.data());
        } else if (pass == 0) {
          vocabulary_loss(pool, of, rows.statistics.data(), rows.losses.data(), rows.normalisers.data(), to);
        } else if (part < 2) {
          vocabulary_gradient(pool, of, rows.normalisers.data(), to);
        }
        if ((pass == 0) != (part == 2)) continue;
        std::vector<double> expected;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const std::size_t at = i / count * kVocabulary + begins[part] + i % count;
          expected.push_back(static_cast<double>(kScale) * want.gradient[at]);
        }
        expect_close(gradient, expected, storage, 3e-6, kScale * 3e-7, "gradient");
      }
    }
    for (std::size_t t = 0; t < targets.size(); ++t) {
      EXPECT_NEAR(rows.losses[t], want.losses[t], 3e-7 * (1 + want.losses[t]));
    }
  });
}

TEST(VocabularyLoss, GradientInPlaceOrAbsent_GivesTheSameLosses) {
  constexpr std::int64_t kVocabulary = 3001;
  const std::vector<std::int32_t> targets = {5, 3000, 0};
  const std::vector<float> logits = random_values(4 * kVocabulary, 1, 3.0F);
  ThreadPool pool(2);
  EntropyRows alone(3), apart(3), in_place(3);
  std::vector<float> gradient(logits.size(), 7.0F);
  std::vector<float> shared = logits;
  const auto run = [&](const float* from, EntropyRows& rows, float* to) {
    vocabulary_loss(pool, {from, targets.data(), 3, kVocabulary}, rows.statistics.data(), rows.losses.data(),
                    rows.normalisers.data(), {to, Storage::kFloat32, 1.0F, 4});
  };
  run(logits.data(), alone, nullptr);
  run(logits.data(), apart, gradient.data());
  run(shared.data(), in_place, shared.data());
  EXPECT_EQ(alone.losses, apart.losses);
  EXPECT_EQ(alone.losses, in_place.losses);
  EXPECT_EQ(gradient, shared);
  for (std::size_t i = 3 * kVocabulary; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 0.0F) << "filled up";
}

TEST(VocabularyLoss, ExtremeLogits_StayFinite) {
  for_each_target([] {
    constexpr std::int64_t kVocabulary = 4500;
    std::vector<float> logits(2 * kVocabulary, -1e30F);
    // The first block of a row holds nothing but -infinity, the largest logit stands in the last.
    for (std::size_t i = 0; i < 2100; ++i) logits[i] = -std::numeric_limits<float>::infinity();
    logits[4499] = 1e30F;
    logits[static_cast<std::size_t>(kVocabulary)] = 3e38F;
    const std::vector<std::int32_t> targets = {4499, 0};
    EntropyRows rows(2);
    std::vector<float> gradient(logits.size(), 7.0F);
    ThreadPool pool(1);
    vocabulary_loss(pool, {logits.data(), targets.data(), 2, kVocabulary}, rows.statistics.data(), rows.losses.data(),
                    rows.normalisers.data(), {gradient.data(), Storage::kFloat32});
    EXPECT_EQ(rows.losses, (std::vector<double>{0.0, 0.0}));
    for (const float value : gradient) ASSERT_EQ(value, 0.0F);
  });
}

TEST(VocabularyLoss, NaNLogit_GivesNaNLoss) {
  for_each_target([] {
    for (const std::size_t vocabulary : {900UL, 5000UL}) {
      std::vector<float> logits = random_values(vocabulary, 1);
      logits[777] = std::numeric_limits<float>::quiet_NaN();
      const std::int32_t target = 3;
      EntropyRows rows(1);
      ThreadPool pool(1);
      vocabulary_loss(pool, {logits.data(), &target, 1, static_cast<std::int64_t>(vocabulary)}, rows.statistics.data(),
                      rows.losses.data(), rows.normalisers.data(), {});
      EXPECT_TRUE(std::isnan(rows.losses[0]));
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
