// Which samples a step sees follows from the step's number and the seed alone.
#include "rondo/train/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "batches_ahead.h"
#include "rondo/devices/op.h"
#include "tiny_model.h"

namespace rondo::train {
namespace {

using Samples = std::vector<std::vector<std::uint32_t>>;

constexpr std::uint32_t kVocabulary = 61;

data::Dataset samples(std::size_t count) { return tiny::random_samples(kVocabulary, 5, count, 30); }

/// The sample numbers of all steps of epoch `epoch`, in order.
std::vector<std::uint32_t> epoch(Loader& loader, std::uint64_t epoch) {
  std::vector<std::uint32_t> seen;
  for (std::uint64_t i = 0; i < loader.steps_per_epoch(); ++i) {
    for (const auto& batch : loader.samples_of(epoch * loader.steps_per_epoch() + i)) {
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  return seen;
}

TEST(Loader, EveryEpoch_SeesEachSampleOnceInAnOrderOfItsOwn) {
  const data::Dataset dataset = samples(23);
  Loader loader(dataset, {2, 3, true, 42});
  EXPECT_EQ(loader.steps_per_epoch(), 4U);
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint64_t number = 0; number < 5; ++number) {
    std::vector<std::uint32_t> seen = epoch(loader, number);
    orders.insert(seen);
    std::ranges::sort(seen);
    ASSERT_EQ(seen.size(), 23U);
    for (std::uint32_t i = 0; i < 23; ++i) EXPECT_EQ(seen[i], i);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(Loader, WithoutShuffle_KeepsFileOrderAndShortensTheLastBatch) {
  const data::Dataset dataset = samples(7);
  Loader loader(dataset, {2, 2, false, 42});
  EXPECT_EQ(loader.steps_per_epoch(), 2U);
  for (const std::uint64_t first : {0U, 2U, 20U}) {
    EXPECT_EQ(loader.samples_of(first), (Samples{{0, 1}, {2, 3}})) << first;
    EXPECT_EQ(loader.samples_of(first + 1), (Samples{{4, 5}, {6}})) << first;
  }
}

TEST(Loader, LastStepOfAnEpoch_HasNoEmptyMicrobatch) {
  const data::Dataset dataset = samples(5);
  Loader loader(dataset, {2, 4, false, 42});
  EXPECT_EQ(loader.steps_per_epoch(), 1U);
  EXPECT_EQ(loader.samples_of(0), (Samples{{0, 1}, {2, 3}, {4}}));
}

/// Each of `jumps` gives the samples that steps in a row, `jumps[0]` the last, have given, to a loader that begins
/// there and to the one that went through all.
void expect_the_same_wherever_one_begins(const data::Dataset& dataset, const LoaderOptions& options,
                                         const std::vector<std::uint64_t>& jumps) {
  Loader straight(dataset, options);
  std::vector<Samples> all;
  for (std::uint64_t step = 0; step <= jumps[0]; ++step) all.push_back(straight.samples_of(step));
  for (const std::uint64_t step : jumps) {
    Loader fresh(dataset, options);
    EXPECT_EQ(fresh.samples_of(step), all[step]) << step;
    EXPECT_EQ(straight.samples_of(step), all[step]) << step;
  }
}

TEST(Loader, AnyStep_IsTheSameWhereverOneBegins) {
  expect_the_same_wherever_one_begins(samples(23), {2, 3, true, 42}, {12, 3, 4, 0, 7});
}

TEST(Loader, AnotherSeed_GivesAnotherOrder) {
  const data::Dataset dataset = samples(23);
  Loader a(dataset, {1, 1, true, 42});
  Loader b(dataset, {1, 1, true, 43});
  EXPECT_NE(epoch(a, 0), epoch(b, 0));
}

TEST(Loader, Step_HoldsTheTokensOfItsSamples) {
  const data::Dataset dataset = samples(11);
  Loader loader(dataset, {2, 2, true, 9});
  for (const std::uint64_t step : {0U, 2U, 4U}) {
    const Samples numbers = loader.samples_of(step);
    const auto batches = loader.step(step);
    ASSERT_EQ(batches.size(), numbers.size());
    for (std::size_t m = 0; m < batches.size(); ++m) {
      const schedule::Microbatch& batch = batches[m];
      const data::TokenBatch plain = data::make_batch(dataset, numbers[m]);
      EXPECT_EQ(batch.ids, plain.ids);
      EXPECT_EQ(batch.targets, plain.targets);
      EXPECT_EQ(batch.positions, plain.positions);
      EXPECT_EQ(batch.bounds, plain.bounds);
      EXPECT_EQ(batch.target_tokens, plain.target_tokens);
    }
  }
}

TEST(ToMicrobatch, Keys_DifferByTokenStepAndSeedAndRepeat) {
  const data::Dataset dataset = samples(3);
  const std::vector<std::uint32_t> order = {0, 1, 2};
  const auto keys = [&](std::uint64_t seed, std::uint64_t step) {
    return to_microbatch(data::make_batch(dataset, order), seed, step).keys;
  };
  EXPECT_EQ(keys(42, 7), keys(42, 7));
  std::set<std::uint64_t> all;
  std::size_t drawn = 0;
  for (const std::uint64_t seed : {42U, 43U}) {
    for (const std::uint64_t step : {0U, 1U, 42U}) {
      for (const std::uint64_t key : keys(seed, step)) all.insert(key);
      drawn += keys(seed, step).size();
    }
  }
  EXPECT_EQ(all.size(), drawn);
}

TEST(Lengths, OfWholeEpochs_AreThoseOfTheBatches) {
  const data::Dataset dataset = samples(17);
  for (const bool shuffle : {false, true}) {
    Loader loader(dataset, {3, 2, shuffle, 42});
    const std::uint64_t steps = 2 * loader.steps_per_epoch();
    std::uint32_t longest = 0;
    double sum = 0;
    std::size_t count = 0;
    std::set<std::uint32_t> buckets;
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (const schedule::Microbatch& batch : loader.step(step)) {
        const auto tokens = static_cast<std::uint32_t>(batch.ids.size());
        longest = std::max(longest, tokens);
        sum += tokens;
        ++count;
        buckets.insert(devices::token_bucket(tokens));
      }
    }
    std::size_t longest_sequence = 0;
    for (const data::Sample& sample : dataset.samples) longest_sequence = std::max(longest_sequence, sample.ids.size());
    const Loader::Lengths lengths = loader.lengths(steps);
    EXPECT_EQ(lengths.longest, longest);
    EXPECT_EQ(lengths.longest_sequence, longest_sequence);
    EXPECT_DOUBLE_EQ(lengths.mean, sum / static_cast<double>(count));
    EXPECT_EQ(lengths.buckets, std::vector<std::uint32_t>(buckets.begin(), buckets.end()));
  }
}

TEST(Lengths, OfFewSteps_CountNoOthers) {
  data::Dataset dataset;
  for (data::Sample sample : samples(8).samples) {
    if (sample.index == 5) sample.ids.assign(500, 1);
    if (sample.index == 5) sample.labels.assign(500, 1);
    dataset.samples.push_back(sample);
  }
  Loader loader(dataset, {1, 2, false, 42});
  EXPECT_LT(loader.lengths(2).longest, 500U);
  EXPECT_EQ(loader.lengths(3).longest, 500U);
  EXPECT_EQ(loader.lengths(3).longest_sequence, 500U);
}

/// Packed into sequences of 64 tokens.
LoaderOptions packed(std::uint32_t batch_size, std::uint32_t accumulation, bool shuffle) {
  return {batch_size, accumulation, shuffle, 42, 64};
}

TEST(PackedLoader, EveryEpoch_SeesEachSampleOnceAndFillsItsSequences) {
  const data::Dataset dataset = samples(200);
  for (const bool shuffle : {true, false}) {
    Loader loader(dataset, packed(2, 3, shuffle));
    std::set<std::vector<std::uint32_t>> orders;
    for (std::uint64_t number = 0; number < 3; ++number) {
      std::vector<std::uint32_t> seen = epoch(loader, number);
      orders.insert(seen);
      std::ranges::sort(seen);
      ASSERT_EQ(seen.size(), 200U);
      for (std::uint32_t i = 0; i < 200; ++i) EXPECT_EQ(seen[i], i);
    }
    EXPECT_EQ(orders.size(), shuffle ? 3U : 1U);
    EXPECT_EQ(std::ranges::is_sorted(epoch(loader, 0)), !shuffle);
    EXPECT_GT(loader.packing().fill(), shuffle ? 0.95 : 0.7);
    EXPECT_EQ(loader.packing().samples, 200U);
    EXPECT_EQ(loader.steps_per_epoch(), (loader.packing().sequences + 5) / 6);
  }
}

/// The promise before the run: memory is laid out for `lengths`, so no step may be longer.
TEST(PackedLoader, Lengths_HoldForEveryStepOfTheRun) {
  const data::Dataset dataset = samples(150);
  for (const bool shuffle : {true, false}) {
    Loader loader(dataset, packed(3, 2, shuffle));
    const std::uint64_t steps = 3 * loader.steps_per_epoch();
    const Loader::Lengths lengths = loader.lengths(steps);
    EXPECT_LE(lengths.longest, 3U * 64U);
    EXPECT_GT(lengths.longest, 150U);
    EXPECT_LE(lengths.longest_sequence, 30U);  // attention sees samples, not sequences
    std::uint32_t longest = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (const schedule::Microbatch& batch : loader.step(step)) {
        const auto tokens = static_cast<std::uint32_t>(batch.ids.size());
        longest = std::max(longest, tokens);
        EXPECT_EQ(std::ranges::count(lengths.buckets, devices::token_bucket(tokens)), 1);
      }
    }
    EXPECT_EQ(lengths.longest, longest);
  }
}

TEST(PackedLoader, AnyStep_IsTheSameWhereverOneBegins) {
  data::Dataset dataset = samples(60);
  dataset.parts = {{0, 40, 0.35}, {40, 20, 1}};  // epochs of different samples, so of different numbers of steps
  for (const bool shuffle : {true, false}) {
    expect_the_same_wherever_one_begins(dataset, packed(1, 2, shuffle), {39, 3, 17, 0, 7});
  }
}

TEST(Loader, EpochsOfUnlikeLengths_AreCountedStepByStep) {
  data::Dataset dataset = samples(60);
  dataset.parts = {{0, 40, 0.35}, {40, 20, 1}};
  Loader loader(dataset, packed(1, 1, true));
  std::vector<std::uint64_t> lengths;
  std::uint64_t step = 0;
  std::map<std::uint32_t, int> seen;
  for (std::uint64_t number = 0; number < 20; ++number) {
    std::size_t count = 0;
    const std::uint64_t begin = step;
    while (count < 34) {  // 14 of the first set, 20 of the second
      for (const auto& batch : loader.samples_of(step)) {
        for (const std::uint32_t sample : batch) ++seen[sample];
        count += batch.size();
      }
      ++step;
    }
    EXPECT_EQ(count, 34U);  // epochs do not share a step
    lengths.push_back(step - begin);
    EXPECT_EQ(loader.steps_of(static_cast<double>(number + 1)), step);
    EXPECT_DOUBLE_EQ(loader.epochs_of(step), static_cast<double>(number + 1));
    EXPECT_DOUBLE_EQ(loader.epochs_of(begin + 1),
                     static_cast<double>(number) + 1 / static_cast<double>(step - begin));  // a microbatch a step
    EXPECT_TRUE(loader.ends_epoch(step));
    EXPECT_FALSE(loader.ends_epoch(step - 1));
  }
  EXPECT_NE(*std::ranges::min_element(lengths), *std::ranges::max_element(lengths));
  EXPECT_EQ(loader.steps_of(1.5), lengths[0] + (lengths[1] + 1) / 2);
  EXPECT_EQ(loader.steps_of(1e6, 1000), 1000U);
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(seen[i], 7) << i;  // 20 epochs of 0.35 passes
  for (std::uint32_t i = 40; i < 60; ++i) EXPECT_EQ(seen[i], 20) << i;
}

TEST(Loader, StepsOfEpochs_AreRoundedUp) {
  const data::Dataset dataset = samples(23);
  Loader loader(dataset, {2, 3, true, 42});
  EXPECT_EQ(loader.steps_of(1), 4U);
  EXPECT_EQ(loader.steps_of(2.1), 9U);
  EXPECT_EQ(loader.steps_of(1e300, 77), 77U);
  EXPECT_DOUBLE_EQ(loader.epochs_of(6), 1.5);
}

/// An epoch's last step may have fewer microbatches than others: 12 in steps of 5.
TEST(Loader, EpochsOfSteps_CountMicrobatches) {
  const data::Dataset dataset = samples(23);
  Loader loader(dataset, {2, 5, true, 42});
  for (const double epoch : {0.0, 1.0, 2.0}) {
    const auto begin = 3 * static_cast<std::uint64_t>(epoch);
    EXPECT_DOUBLE_EQ(loader.epochs_of(begin), epoch);
    EXPECT_DOUBLE_EQ(loader.epochs_of(begin + 1), epoch + 5.0 / 12);
    EXPECT_DOUBLE_EQ(loader.epochs_of(begin + 2), epoch + 10.0 / 12);
  }
}

TEST(BatchesAhead, EveryStep_IsTheLoadersOwn) {
  const data::Dataset dataset = samples(23);
  const LoaderOptions options{2, 3, true, 42, 64};
  Loader loader(dataset, options);
  BatchesAhead ahead(dataset, options, 15);
  for (const std::uint64_t step : {4U, 5U, 6U, 9U, 10U, 14U}) {  // a resumed run's first, and some that were skipped
    const auto expected = loader.step(step);
    const auto found = ahead.take(step);
    ASSERT_EQ(found.size(), expected.size()) << step;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids, expected[i].ids) << step;
      EXPECT_EQ(found[i].keys, expected[i].keys) << step;
      EXPECT_EQ(found[i].bounds, expected[i].bounds) << step;
    }
  }
}

}  // namespace
}  // namespace rondo::train
