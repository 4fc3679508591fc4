// Sample order, the split into training and evaluation data, and microbatches.
//
// Permutations are Fisher-Yates shuffles driven by the k-th output of SplitMix64 as a function of k (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014), so an order follows from (seed, epoch) alone, on any
// machine. Draws below a bound are unbiased by rejection.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "counting.h"
#include "rondo/base/random.h"
#include "rondo/base/status.h"
#include "rondo/data/samples.h"

namespace rondo::data {
namespace {

// The split draws from its own stream: an epoch number that no run reaches.
constexpr std::uint64_t kSplitEpoch = ~std::uint64_t{0};

class CounterStream {
 public:
  CounterStream(std::uint64_t seed, std::uint64_t epoch) : key_(spread64(mix64(seed) + epoch)) {}

  /// Uniform in [0, bound), bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    // 2^64 mod bound values at the bottom would make small results likelier: they are drawn again.
    const std::uint64_t reject = (std::uint64_t{0} - bound) % bound;
    std::uint64_t drawn = next();
    while (drawn < reject) drawn = next();
    return drawn % bound;
  }

 private:
  std::uint64_t next() { return draw64(key_, counter_++); }

  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

void forget_kept(DataReport& report) {
  report.kept = 0;
  report.tokens = 0;
  report.target_tokens = 0;
  report.longest = 0;
}

/// Counts again what is there, and finds where each part's samples lie now.
void recount(Dataset& dataset) {
  forget_kept(dataset.report);
  for (DataReport& part : dataset.report.parts) forget_kept(part);
  for (DatasetPart& part : dataset.parts) part.first = part.count = 0;
  for (const Sample& sample : dataset.samples) {
    count_kept(dataset.report, sample);
    if (dataset.parts.empty()) continue;
    count_kept(dataset.report.parts[sample.source], sample);
    ++dataset.parts[sample.source].count;
  }
  for (std::size_t i = 1; i < dataset.parts.size(); ++i) {
    dataset.parts[i].first = dataset.parts[i - 1].first + dataset.parts[i - 1].count;
  }
}

/// An empty data set that says of itself what `whole` does, each of its parts to be seen once.
Dataset held_out_of(const Dataset& whole, std::size_t samples) {
  const auto head_of = [](const DataReport& report) {
    DataReport head;
    head.path = report.path;
    head.format = report.format;
    head.container = report.container;
    return head;
  };
  Dataset held;
  held.report = head_of(whole.report);
  held.report.records = samples;
  for (const DataReport& part : whole.report.parts) held.report.parts.push_back(head_of(part));
  held.parts.resize(whole.parts.size());
  return held;
}

/// Samples to hold out of `dataset`.
absl::StatusOr<std::size_t> held_out(double share, const Dataset& dataset) {
  const std::size_t samples = dataset.samples.size();
  const auto total = static_cast<double>(samples);
  if (share < 1 && samples > 1) {
    return static_cast<std::size_t>(std::clamp(std::ceil(share * total), 1.0, total - 1));
  }
  if (share < 1 || std::floor(share) >= total) {
    return invalid_input("expected fewer than the {} samples of {}, found {}: none would be left to train on", samples,
                         dataset.report.path, share);
  }
  return static_cast<std::size_t>(share);
}

}  // namespace

std::vector<std::uint32_t> epoch_order(std::size_t samples, bool shuffle, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0U);
  if (!shuffle) return order;
  CounterStream stream(seed, epoch);
  for (std::size_t left = samples; left > 1; --left) {
    std::swap(order[left - 1], order[static_cast<std::size_t>(stream.below(left))]);
  }
  return order;
}

absl::StatusOr<std::pair<Dataset, Dataset>> split_dataset(Dataset dataset, double share, std::uint64_t seed) {
  const std::size_t count = dataset.samples.size();
  RONDO_ASSIGN_OR_RETURN(const std::size_t held, held_out(share, dataset));
  const std::vector<std::uint32_t> order = epoch_order(count, true, seed, kSplitEpoch);
  std::vector<bool> is_held(count, false);
  for (std::size_t i = count - held; i < count; ++i) is_held[order[i]] = true;
  Dataset second = held_out_of(dataset, held);
  std::vector<Sample> first;
  first.reserve(count - held);
  second.samples.reserve(held);
  for (std::size_t i = 0; i < count; ++i) {
    (is_held[i] ? second.samples : first).push_back(std::move(dataset.samples[i]));
  }
  dataset.samples = std::move(first);
  recount(dataset);
  recount(second);
  for (DataReport& part : second.report.parts) part.records = part.kept;
  return std::pair(std::move(dataset), std::move(second));
}

TokenBatch make_batch(const Dataset& dataset, std::span<const std::uint32_t> order) {
  std::size_t tokens = 0;
  for (const std::uint32_t index : order) tokens += dataset.samples[index].ids.size();
  TokenBatch batch;
  batch.ids.reserve(tokens);
  batch.positions.reserve(tokens);
  batch.targets.reserve(tokens);
  batch.keys.reserve(tokens);
  batch.bounds.reserve(order.size() + 1);
  for (const std::uint32_t index : order) {
    const Sample& sample = dataset.samples[index];
    batch.bounds.push_back(static_cast<std::int32_t>(batch.ids.size()));
    const std::uint64_t sample_key = mix64(sample.index ^ (std::uint64_t{sample.source} << 48U));
    for (std::size_t t = 0; t < sample.ids.size(); ++t) {
      const std::int32_t target = t + 1 < sample.ids.size() ? sample.labels[t + 1] : kMasked;
      batch.ids.push_back(sample.ids[t]);
      batch.positions.push_back(static_cast<std::int32_t>(t));
      batch.targets.push_back(target);
      batch.keys.push_back(draw64(sample_key, t));
      batch.target_tokens += target != kMasked ? 1U : 0U;
    }
  }
  batch.bounds.push_back(static_cast<std::int32_t>(batch.ids.size()));
  return batch;
}

}  // namespace rondo::data
