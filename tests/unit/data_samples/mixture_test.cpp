// Several data sets with weights: what an epoch holds, that nothing is favoured within a set, and what is reported.
#include "rondo/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "rondo/data/describe.h"
#include "test_support.h"

namespace rondo::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::load_model;
using testing_support::Model;

/// `sets` of so many samples each.
Dataset joined(const std::vector<DatasetPart>& sets) {
  Dataset dataset;
  for (std::uint32_t source = 0; source < sets.size(); ++source) {
    dataset.parts.push_back(
        {static_cast<std::uint32_t>(dataset.samples.size()), sets[source].count, sets[source].weight});
    DataReport report;
    report.path = std::string(1, static_cast<char>('a' + source));
    report.weight = sets[source].weight;
    dataset.report.parts.push_back(report);
    for (std::uint32_t i = 0; i < sets[source].count; ++i) {
      dataset.samples.push_back({{1, 2, 3}, {kMasked, 2, 3}, i, source});
    }
  }
  return dataset;
}

std::map<std::uint32_t, int> counted(const std::vector<std::uint32_t>& samples) {
  std::map<std::uint32_t, int> counts;
  for (const std::uint32_t sample : samples) ++counts[sample];
  return counts;
}

TEST(Mixture, WholeWeights_AreSoManyPassesAnEpoch) {
  const Dataset dataset = joined({{0, 4, 2}, {0, 3, 1}});
  for (const std::uint64_t epoch : {0U, 1U, 7U}) {
    const auto counts = counted(epoch_samples(dataset, true, 42, epoch));
    for (std::uint32_t i = 0; i < 7; ++i) EXPECT_EQ(counts.at(i), i < 4 ? 2 : 1) << epoch;
  }
  EXPECT_TRUE(epochs_are_alike(dataset));
  EXPECT_THAT(epoch_samples(dataset, false, 42, 3), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6));
}

TEST(Mixture, WeightBelowOne_GoesThroughTheWholeSetInSeveralEpochs) {
  const Dataset dataset = joined({{0, 8, 0.25}, {0, 5, 1}});
  EXPECT_FALSE(epochs_are_alike(dataset));
  for (const bool shuffle : {true, false}) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<std::uint32_t> four;
      for (std::uint64_t epoch = 4 * round; epoch < 4 * round + 4; ++epoch) {
        const auto samples = epoch_samples(dataset, shuffle, 42, epoch);
        EXPECT_EQ(samples.size(), 7U);
        four.insert(four.end(), samples.begin(), samples.end());
      }
      const auto counts = counted(four);
      for (std::uint32_t i = 0; i < 13; ++i) EXPECT_EQ(counts.at(i), i < 8 ? 1 : 4) << round;
    }
  }
  EXPECT_THAT(epoch_samples(dataset, false, 42, 1), ElementsAre(2, 3, 8, 9, 10, 11, 12));
}

TEST(Mixture, AnyWeight_SeesNoSampleTwiceMoreThanAnother) {
  const Dataset dataset = joined({{0, 7, 1.5}, {0, 3, 0.4}});
  std::vector<std::uint32_t> seen;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    const auto samples = epoch_samples(dataset, true, 9, epoch);
    EXPECT_EQ(samples.size(), 12U);  // 10.5 and 1.2, rounded
    seen.insert(seen.end(), samples.begin(), samples.end());
    const auto counts = counted(seen);
    const auto spread = [&](std::uint32_t first, std::uint32_t end) {
      int least = 1 << 30;
      int most = 0;
      for (std::uint32_t i = first; i < end; ++i) {
        const auto found = counts.find(i);
        const int times = found == counts.end() ? 0 : found->second;
        least = std::min(least, times);
        most = std::max(most, times);
      }
      return most - least;
    };
    EXPECT_LE(spread(0, 7), 1);
    EXPECT_LE(spread(7, 10), 1);
  }
}

TEST(Mixture, TinyWeight_StillTakesASample) {
  const Dataset dataset = joined({{0, 3, 1e-6}, {0, 2, 1}});
  EXPECT_EQ(epoch_samples(dataset, true, 1, 0).size(), 3U);
}

TEST(Mixture, Epochs_FollowFromSeedAndNumberAlone) {
  const Dataset dataset = joined({{0, 40, 0.3}, {0, 30, 2}});
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    orders.insert(epoch_samples(dataset, true, 42, epoch));
    orders.insert(epoch_samples(dataset, true, 43, epoch));
  }
  EXPECT_EQ(orders.size(), 12U);
  EXPECT_EQ(epoch_samples(dataset, true, 42, 3), epoch_samples(dataset, true, 42, 3));
}

TEST(Mixture, WeightsOfOne_AreTheOrderOfOneSetOfAllSamples) {
  const Dataset dataset = joined({{0, 9, 1}, {0, 4, 1}});
  for (const std::uint64_t epoch : {0U, 3U}) {
    EXPECT_EQ(epoch_samples(dataset, true, 42, epoch), epoch_order(13, true, 42, epoch));
  }
}

TEST(Mixture, RandomNumbers_DifferBetweenSetsForTheSameRecord) {
  const Dataset dataset = joined({{0, 1, 1}, {0, 1, 1}});
  EXPECT_NE(make_batch(dataset, std::vector<std::uint32_t>{0}).keys,
            make_batch(dataset, std::vector<std::uint32_t>{1}).keys);
}

TEST(Mixture, HoldingOut_KeepsEachSetsSamplesAndWeights) {
  auto parts = split_dataset(joined({{0, 20, 2}, {0, 20, 0.5}}), 0.5, 3);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto& [rest, held] = *parts;
  ASSERT_EQ(rest.parts.size(), 2U);
  EXPECT_EQ(rest.parts[0].first, 0U);
  EXPECT_EQ(rest.parts[1].first, rest.parts[0].count);
  EXPECT_EQ(rest.parts[0].count + rest.parts[1].count, 20U);
  EXPECT_EQ(rest.parts[0].weight, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rest.report.parts[i].kept, rest.parts[i].count);
    EXPECT_EQ(held.report.parts[i].kept, held.parts[i].count);
    EXPECT_EQ(held.parts[i].weight, 1);
    for (std::uint32_t s = 0; s < held.parts[i].count; ++s) {
      EXPECT_EQ(held.samples[held.parts[i].first + s].source, i);
    }
  }
  EXPECT_EQ(epoch_samples(held, false, 0, 0).size(), 20U);
}

TEST(LoadDatasets, Several_AreReadInOrderAndReportedApart) {
  const Model model = load_model("chatml");
  const auto folder = testing_support::fresh_folder();
  const auto chats = testing_support::write(folder / "a.jsonl", R"({"messages":[{"role":"user","content":"q"},)"
                                                                R"({"role":"assistant","content":"one"}]})"
                                                                "\n");
  const auto texts = testing_support::write(folder / "b.jsonl", "{\"text\":\"a b\"}\n{\"text\":\"c\"}\n");
  const std::vector<DataSource> sources = {{chats, 3}, {texts, 0.5}};
  const auto dataset = load_datasets(sources, model.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->samples.size(), 3U);
  EXPECT_EQ(dataset->samples[2].source, 1U);
  EXPECT_EQ(dataset->samples[2].index, 1U);
  EXPECT_EQ(dataset->report.records, 3U);
  EXPECT_EQ(dataset->report.tokens, dataset->report.parts[0].tokens + dataset->report.parts[1].tokens);
  EXPECT_EQ(dataset->report.format, "several formats");
  EXPECT_EQ(dataset->report.container, "JSON lines");
  const std::string text = describe_report(dataset->report);
  EXPECT_THAT(text, HasSubstr("weight 3, "));
  EXPECT_THAT(text, HasSubstr("b.jsonl: text, JSON lines, 2 records"));
}

TEST(LoadDatasets, OneOfWeightOne_IsWhatLoadDatasetGives) {
  const Model model = load_model("chatml");
  const auto file = testing_support::write_data("{\"text\":\"a b\"}\n");
  const auto dataset = load_datasets(std::vector<DataSource>{{file}}, model.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE(dataset->parts.empty());
  EXPECT_TRUE(dataset->report.parts.empty());
}

TEST(LoadDatasets, ABadOneAmongThem_IsNamed) {
  const Model model = load_model("chatml");
  const auto good = testing_support::write_data("{\"text\":\"a b\"}\n");
  const auto missing = load_datasets(std::vector<DataSource>{{good}, {"no/such.jsonl"}}, model.renderer(), {});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("no/such.jsonl"));
}

}  // namespace
}  // namespace rondo::data
