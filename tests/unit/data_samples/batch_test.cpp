// Orders, splits, microbatches and steps: deterministic, complete, and with labels shifted by one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "rondo/data/samples.h"

namespace rondo::data {
namespace {

using testing::ElementsAre;

Dataset dataset_of(std::size_t samples) {
  Dataset dataset;
  for (std::size_t i = 0; i < samples; ++i) {
    Sample sample;
    for (std::size_t t = 0; t < i % 3 + 2; ++t) {
      sample.ids.push_back(static_cast<TokenId>(10 * i + t));
      sample.labels.push_back(t == 0 ? kMasked : sample.ids.back());
    }
    sample.index = i;
    dataset.samples.push_back(sample);
  }
  dataset.report.records = samples;
  return dataset;
}

TEST(EpochOrder, NoShuffle_KeepsFileOrder) { EXPECT_THAT(epoch_order(4, false, 7, 3), ElementsAre(0, 1, 2, 3)); }

TEST(EpochOrder, Shuffle_IsAPermutationThatFollowsFromSeedAndEpoch) {
  const auto order = epoch_order(1000, true, 42, 5);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::uint32_t> all(1000);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(sorted, all);
  EXPECT_EQ(order, epoch_order(1000, true, 42, 5));
  EXPECT_NE(order, epoch_order(1000, true, 42, 6));
  EXPECT_NE(order, epoch_order(1000, true, 43, 5));
}

// A stored run repeats only if the algorithm never changes: these values were computed by an independent
// implementation of SplitMix64 and Fisher-Yates.
TEST(EpochOrder, KnownSeed_GivesTheDocumentedPermutation) {
  EXPECT_THAT(epoch_order(8, true, 42, 0), ElementsAre(3, 4, 7, 6, 5, 0, 1, 2));
  EXPECT_THAT(epoch_order(8, true, 42, 1), ElementsAre(2, 1, 5, 3, 0, 6, 4, 7));
}

TEST(EpochOrder, EveryPositionIsEquallyLikely) {
  // 4! orders in 24,000 epochs: 1,000 each, standard deviation 31; 6 sigma.
  std::map<std::vector<std::uint32_t>, int> seen;
  for (std::uint64_t epoch = 0; epoch < 24000; ++epoch) ++seen[epoch_order(4, true, 1, epoch)];
  ASSERT_EQ(seen.size(), 24U);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 186);
}

TEST(EpochOrder, NoneOrOneSample_Works) {
  EXPECT_TRUE(epoch_order(0, true, 1, 1).empty());
  EXPECT_THAT(epoch_order(1, true, 1, 1), ElementsAre(0));
}

std::pair<Dataset, Dataset> split(std::size_t samples, double share, std::uint64_t seed) {
  auto parts = split_dataset(dataset_of(samples), share, seed);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.ok() ? *std::move(parts) : std::pair<Dataset, Dataset>();
}

TEST(SplitDataset, Share_PartsEverySampleOnceInFileOrder) {
  const auto [train, held] = split(10, 0.25, 42);
  EXPECT_EQ(held.samples.size(), 3U);  // rounded up
  EXPECT_EQ(train.samples.size(), 7U);
  std::set<std::uint64_t> seen;
  for (const Dataset* part : {&train, &held}) {
    for (std::size_t i = 0; i < part->samples.size(); ++i) {
      EXPECT_TRUE(seen.insert(part->samples[i].index).second);
      if (i == 0) continue;
      EXPECT_LT(part->samples[i - 1].index, part->samples[i].index);
    }
    EXPECT_EQ(part->report.kept, part->samples.size());
  }
  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(train.report.tokens + held.report.tokens, 29U);
  EXPECT_EQ(train.report.target_tokens + held.report.target_tokens, 19U);
}

TEST(SplitDataset, Count_IsTakenAsItIs) {
  for (const double count : {1.0, 4.0, 9.0}) {
    const auto [train, held] = split(10, count, 1);
    EXPECT_EQ(static_cast<double>(held.samples.size()), count);
    EXPECT_EQ(train.samples.size() + held.samples.size(), 10U);
  }
}

TEST(SplitDataset, ShareOfFew_LeavesOneSample) {
  EXPECT_EQ(split(2, 0.99, 1).first.samples.size(), 1U);
  EXPECT_EQ(split(2, 1e-9, 1).second.samples.size(), 1U);
}

TEST(SplitDataset, NothingLeftToTrainOn_IsRefusedWithTheNumbers) {
  for (const auto& [samples, share] :
       {std::pair<std::size_t, double>{10, 10}, {10, 99}, {10, 1e300}, {1, 1}, {1, 0.5}}) {
    Dataset dataset = dataset_of(samples);
    dataset.report.path = "chats.jsonl";
    const absl::Status status = split_dataset(std::move(dataset), share, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << samples << " " << share;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(fmt::format("fewer than the {} samples of chats.jsonl", samples)));
  }
}

TEST(SplitDataset, Seed_DecidesTheSplit) {
  const auto indices = [](std::uint64_t seed) {
    std::vector<std::uint64_t> found;
    for (const Sample& sample : split(50, 10, seed).second.samples) found.push_back(sample.index);
    return found;
  };
  EXPECT_EQ(indices(1), indices(1));
  EXPECT_NE(indices(1), indices(2));
}

TEST(MakeBatch, Samples_AreOneFlatListWithShiftedTargets) {
  const Dataset dataset = dataset_of(3);  // lengths 2, 3, 4
  const TokenBatch batch = make_batch(dataset, std::vector<std::uint32_t>{2, 0});
  EXPECT_THAT(batch.ids, ElementsAre(20, 21, 22, 23, 0, 1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(batch.targets, ElementsAre(21, 22, 23, kMasked, 1, kMasked));
  EXPECT_THAT(batch.bounds, ElementsAre(0, 4, 6));
  EXPECT_EQ(batch.target_tokens, 4U);
}

TEST(MakeBatch, LabelAtPositionZero_IsNoTarget) {
  Dataset dataset = dataset_of(1);
  dataset.samples[0].labels = dataset.samples[0].ids;
  EXPECT_EQ(make_batch(dataset, std::vector<std::uint32_t>{0}).target_tokens, 1U);
}

TEST(MakeBatch, Keys_DependOnSampleAndPositionAlone) {
  const Dataset dataset = dataset_of(30);
  const TokenBatch together = make_batch(dataset, std::vector<std::uint32_t>{7, 3});
  const TokenBatch alone = make_batch(dataset, std::vector<std::uint32_t>{3});
  const auto begin = static_cast<std::size_t>(together.bounds[1]);
  EXPECT_EQ(std::vector(together.keys.begin() + static_cast<std::ptrdiff_t>(begin), together.keys.end()), alone.keys);
  std::set<std::uint64_t> seen;
  std::size_t tokens = 0;
  for (std::uint32_t i = 0; i < 30; ++i) {
    for (const std::uint64_t key : make_batch(dataset, std::vector<std::uint32_t>{i}).keys) seen.insert(key), ++tokens;
  }
  EXPECT_EQ(seen.size(), tokens);
}

}  // namespace
}  // namespace rondo::data
