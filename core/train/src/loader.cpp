#include "rondo/train/loader.h"

#include <algorithm>
#include <set>

#include "rondo/devices/op.h"
#include "rondo/devices/random.h"

namespace rondo::train {

Loader::Loader(const data::Dataset& dataset, const LoaderOptions& options) : dataset_(dataset), options_(options) {
  const std::uint64_t per_step = std::uint64_t{options.batch_size} * options.accumulation;
  steps_per_epoch_ = (dataset.samples.size() + per_step - 1) / per_step;
}

std::vector<std::vector<std::uint32_t>> Loader::samples_of(std::uint64_t step) {
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) {
    order_ = data::epoch_order(dataset_.samples.size(), options_.shuffle, options_.seed, epoch);
    epoch_ = epoch;
  }
  const std::uint64_t cursor = (step % steps_per_epoch_) * options_.batch_size * options_.accumulation;
  return data::step_samples(order_, cursor, options_.batch_size, options_.accumulation);
}

std::vector<schedule::Microbatch> Loader::step(std::uint64_t step) {
  std::vector<schedule::Microbatch> batches;
  for (const auto& samples : samples_of(step)) {
    batches.push_back(to_microbatch(data::make_batch(dataset_, samples), options_.seed, step));
  }
  return batches;
}

Loader::Lengths Loader::lengths(std::uint64_t steps) {
  Lengths lengths;
  std::set<std::uint32_t> buckets;
  double sum = 0;
  std::uint64_t count = 0;
  const std::uint64_t distinct = options_.shuffle ? steps : std::min(steps, steps_per_epoch_);
  for (std::uint64_t step = 0; step < distinct; ++step) {
    for (const auto& samples : samples_of(step)) {
      std::uint32_t tokens = 0;
      for (const std::uint32_t sample : samples) {
        const auto length = static_cast<std::uint32_t>(dataset_.samples[sample].ids.size());
        tokens += length;
        lengths.longest_sequence = std::max(lengths.longest_sequence, length);
      }
      lengths.longest = std::max(lengths.longest, tokens);
      buckets.insert(devices::token_bucket(tokens));
      sum += tokens;
      ++count;
    }
  }
  lengths.mean = count > 0 ? sum / static_cast<double>(count) : 0;
  lengths.buckets.assign(buckets.begin(), buckets.end());
  return lengths;
}

schedule::Microbatch to_microbatch(data::TokenBatch batch, std::uint64_t seed, std::uint64_t step) {
  schedule::Microbatch microbatch;
  microbatch.ids = std::move(batch.ids);
  microbatch.positions = std::move(batch.positions);
  microbatch.targets = std::move(batch.targets);
  microbatch.bounds = std::move(batch.bounds);
  microbatch.keys = std::move(batch.keys);
  microbatch.target_tokens = batch.target_tokens;
  const std::uint64_t salt = devices::combine_keys(seed, step);
  for (std::uint64_t& key : microbatch.keys) key = devices::combine_keys(salt, key);
  return microbatch;
}

}  // namespace rondo::train
