// Packing: every sample once and whole, no sequence too long, few of them, and the same on every machine.
#include "rondo/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace rondo::data {
namespace {

using testing::ElementsAre;

Dataset of_lengths(const std::vector<std::uint32_t>& lengths) {
  Dataset dataset;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Sample sample;
    for (std::uint32_t t = 0; t < lengths[i]; ++t) sample.ids.push_back(static_cast<TokenId>(100 * i + t));
    sample.labels.assign(sample.ids.begin(), sample.ids.end());
    sample.index = i;
    dataset.samples.push_back(std::move(sample));
  }
  return dataset;
}

/// Short ones are many, as in chats.
Dataset random_lengths(std::size_t samples, std::uint32_t longest, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> draw(4.0 / longest);
  std::vector<std::uint32_t> lengths;
  for (std::size_t i = 0; i < samples; ++i) {
    lengths.push_back(std::clamp(static_cast<std::uint32_t>(draw(random)), 2U, longest));
  }
  return of_lengths(lengths);
}

std::vector<std::vector<std::uint32_t>> listed(const Sequences& sequences) {
  std::vector<std::vector<std::uint32_t>> lists;
  for (std::size_t i = 0; i < sequences.size(); ++i) lists.emplace_back(sequences[i].begin(), sequences[i].end());
  return lists;
}

void expect_whole(const Dataset& dataset, const Sequences& sequences, std::uint32_t capacity) {
  std::vector<std::uint32_t> seen;
  for (const auto& samples : listed(sequences)) {
    std::size_t tokens = 0;
    for (const std::uint32_t sample : samples) tokens += dataset.samples[sample].ids.size();
    EXPECT_LE(tokens, capacity);
    EXPECT_FALSE(samples.empty());
    seen.insert(seen.end(), samples.begin(), samples.end());
  }
  std::ranges::sort(seen);
  std::vector<std::uint32_t> all(dataset.samples.size());
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(seen, all);
}

TEST(Packing, AnyLengths_EachSampleLiesOnceInASequenceThatHoldsIt) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Dataset dataset = random_lengths(500, 64, seed);
    const auto order = epoch_order(500, true, seed, 0);
    for (const std::uint32_t capacity : {64U, 100U, 4096U}) {
      expect_whole(dataset, pack_in_order(dataset, order, capacity), capacity);
      expect_whole(dataset, pack_best_fit(dataset, order, capacity, seed, 0), capacity);
    }
  }
}

TEST(Packing, InOrder_KeepsFileOrderAndClosesWhatIsFull) {
  const Dataset dataset = of_lengths({3, 4, 3, 10, 1, 9, 2});
  const auto order = epoch_order(7, false, 0, 0);
  EXPECT_THAT(listed(pack_in_order(dataset, order, 10)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 5), ElementsAre(6)));
  EXPECT_THAT(listed(pack_in_order(dataset, order, 11)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4), ElementsAre(5, 6)));
}

TEST(Packing, BestFit_PutsASampleWhereTheLeastRoomIsLeft) {
  // Falling: 7, 6, 4, 3. The 4 goes to the 6, the 3 to the 7: nothing is left over. First fit would start with the 7
  // too, next fit would need a third sequence.
  const Dataset dataset = of_lengths({6, 3, 7, 4});
  auto packed = listed(pack_best_fit(dataset, epoch_order(4, false, 0, 0), 10, 5, 0));
  for (auto& samples : packed) std::ranges::sort(samples);
  std::ranges::sort(packed);
  EXPECT_THAT(packed, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
}

TEST(Packing, ShortSamples_FillTheSequences) {
  const Dataset dataset = random_lengths(2000, 512, 7);
  const auto order = epoch_order(2000, true, 7, 0);
  const Sequences packed = pack_best_fit(dataset, order, 512, 7, 0);
  const PackingReport report = packing_report(dataset, packed, 512);
  EXPECT_GT(report.fill(), 0.99);
  // No packing can do with fewer than the tokens need: one more than that is the best or next to it.
  EXPECT_LE(packed.size(), (report.tokens + 511) / 512 + 1);
  EXPECT_LT(packing_report(dataset, pack_in_order(dataset, order, 512), 512).fill(), report.fill());
}

TEST(Packing, EveryEpoch_HasAsManySequencesInAnotherOrderWithOtherNeighbours) {
  const Dataset dataset = random_lengths(300, 40, 3);
  const auto pack = [&](std::uint64_t seed, std::uint64_t epoch) {
    return listed(pack_best_fit(dataset, epoch_order(300, true, seed, epoch), 64, seed, epoch));
  };
  const auto first = pack(42, 0);
  EXPECT_EQ(pack(42, 0), first);
  for (const auto& other : {pack(42, 1), pack(42, 2), pack(43, 0)}) {
    EXPECT_EQ(other.size(), first.size());
    EXPECT_NE(other, first);
    std::map<std::uint32_t, std::vector<std::uint32_t>> beside;
    for (const auto& samples : first) {
      for (const std::uint32_t sample : samples) beside[sample] = samples;
    }
    std::size_t moved = 0;
    for (const auto& samples : other) {
      for (const std::uint32_t sample : samples) moved += beside[sample] != samples ? 1U : 0U;
    }
    EXPECT_GT(moved, 150U);
  }
}

// A stored run repeats only if the algorithm never changes: by an independent implementation in another language.
TEST(Packing, KnownSeed_GivesTheDocumentedSequences) {
  const Dataset dataset = of_lengths({5, 3, 9, 2, 7, 4, 6, 8});
  const auto packed = listed(pack_best_fit(dataset, epoch_order(8, true, 42, 1), 12, 42, 1));
  EXPECT_THAT(packed, ElementsAre(ElementsAre(4, 0), ElementsAre(7, 5), ElementsAre(2, 1), ElementsAre(6, 3)));
}

TEST(Packing, NoneOrOneSample_Works) {
  const Dataset none;
  EXPECT_EQ(pack_best_fit(none, {}, 8, 1, 1).size(), 0U);
  EXPECT_EQ(pack_in_order(none, {}, 8).size(), 0U);
  EXPECT_EQ(packing_report(none, {}, 8).fill(), 0.0);
  const Dataset one = of_lengths({8});
  EXPECT_THAT(listed(pack_best_fit(one, std::vector<std::uint32_t>{0}, 8, 1, 1)), ElementsAre(ElementsAre(0)));
}

TEST(Packing, Report_SaysHowFullTheSequencesAre) {
  const Dataset dataset = of_lengths({3, 4, 3, 10, 5});
  const auto packed = pack_in_order(dataset, epoch_order(5, false, 0, 0), 10);
  const PackingReport report = packing_report(dataset, packed, 10);
  EXPECT_EQ(describe_packing(report), "packing: 5 samples in 3 sequences of up to 10 tokens, 83.3% full");
  const auto json = packing_json(report);
  EXPECT_EQ(json["sequences"], 3);
  EXPECT_EQ(json["tokens"], 25);
  EXPECT_DOUBLE_EQ(json["fill"].get<double>(), 25.0 / 30.0);
}

TEST(StepSamples, OfSequences_TakesThemWhole) {
  const Dataset dataset = of_lengths({3, 4, 3, 10, 1, 9, 2});
  const Sequences packed = pack_in_order(dataset, epoch_order(7, false, 0, 0), 10);  // 0 1 2 | 3 | 4 5 | 6
  EXPECT_THAT(step_samples(packed, 0, 2, 1), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(step_samples(packed, 1, 1, 2), ElementsAre(ElementsAre(3), ElementsAre(4, 5)));
  EXPECT_THAT(step_samples(packed, 3, 2, 2), ElementsAre(ElementsAre(6)));
  EXPECT_TRUE(step_samples(packed, 4, 2, 2).empty());
  EXPECT_THAT(step_samples(single_sequences({4, 3, 2}), 0, 2, 2), ElementsAre(ElementsAre(4, 3), ElementsAre(2)));
}

TEST(StepSamples, Epoch_IsCutIntoStepsAndTheLastMayBeShort) {
  const Sequences order = single_sequences({4, 3, 2, 1, 0});
  EXPECT_THAT(step_samples(order, 0, 2, 2), ElementsAre(ElementsAre(4, 3), ElementsAre(2, 1)));
  EXPECT_THAT(step_samples(order, 4, 2, 2), ElementsAre(ElementsAre(0)));
  EXPECT_THAT(step_samples(order, 1, 3, 2), ElementsAre(ElementsAre(3, 2, 1), ElementsAre(0)));
  EXPECT_TRUE(step_samples(order, 5, 2, 2).empty());
  EXPECT_TRUE(step_samples(Sequences(), 0, 2, 2).empty());
}

TEST(PackedBatch, LastTokenOfASample_HasNoTargetInTheNext) {
  const Dataset dataset = of_lengths({3, 2, 4});
  const Sequences packed = pack_in_order(dataset, epoch_order(3, false, 0, 0), 16);
  const TokenBatch batch = make_batch(dataset, packed[0]);
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, kMasked, 101, kMasked, 201, 202, 203, kMasked));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 0, 1, 2, 3));
  EXPECT_THAT(batch.bounds, ElementsAre(0, 3, 5, 9));
  EXPECT_EQ(batch.target_tokens, 6U);
}

}  // namespace
}  // namespace rondo::data
