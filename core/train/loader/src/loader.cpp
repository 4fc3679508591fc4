#include "rondo/train/loader.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "rondo/data/mixture.h"
#include "rondo/devices/op.h"
#include "rondo/devices/random.h"

namespace rondo::train {

Loader::Loader(const data::Dataset& dataset, const LoaderOptions& options)
    : dataset_(dataset),
      options_(options),
      // Best fit decreasing gives as many sequences for the same lengths, whatever their order.
      alike_(options.packing == 0 || data::epochs_are_alike(dataset)) {
  go_to(0);
  add_epoch();
}

data::Sequences Loader::sequences_of(std::uint64_t epoch) const {
  std::vector<std::uint32_t> order = data::epoch_samples(dataset_, options_.shuffle, options_.seed, epoch);
  if (options_.packing == 0) return data::single_sequences(std::move(order));
  if (!options_.shuffle) return data::pack_in_order(dataset_, std::move(order), options_.packing);
  return data::pack_best_fit(dataset_, order, options_.packing, options_.seed, epoch);
}

void Loader::add_epoch() {
  const auto parts = [](std::uint64_t whole, std::uint64_t part) { return (whole + part - 1) / part; };
  microbatches_.push_back(parts(sequences_.size(), options_.batch_size));
  starts_.push_back(starts_.back() + parts(microbatches_.back(), options_.accumulation));
}

void Loader::go_to(std::uint64_t epoch) {
  if (epoch == epoch_) return;
  sequences_ = {};  // there is room for one epoch's order
  sequences_ = sequences_of(epoch);
  epoch_ = epoch;
}

Bytes Loader::order_bytes() const {
  // Packing goes over copies: sorted ones, and where each is put.
  const std::size_t copies = options_.packing > 0 ? 4 : dataset_.parts.empty() ? 0 : 1;
  return (sequences_.ends.size() + sequences_.samples.size() * (1 + copies)) * sizeof(std::uint32_t);
}

std::uint64_t Loader::start_of(std::uint64_t epoch) {
  if (alike_) return epoch * steps_per_epoch();
  while (starts_.size() <= epoch) {
    go_to(starts_.size() - 1);
    add_epoch();
  }
  return starts_[static_cast<std::size_t>(epoch)];
}

std::uint64_t Loader::epoch_at(std::uint64_t step) {
  if (alike_) return step / steps_per_epoch();
  while (starts_.back() <= step) start_of(starts_.size());
  const auto after = std::ranges::upper_bound(starts_, step);
  return static_cast<std::uint64_t>(after - starts_.begin()) - 1;
}

std::uint64_t Loader::steps_of(double epochs, std::uint64_t most) {
  if (alike_) {
    const double steps = std::ceil(epochs * static_cast<double>(steps_per_epoch()));
    return steps < static_cast<double>(most) ? static_cast<std::uint64_t>(steps) : most;
  }
  std::uint64_t whole = 0;
  while (static_cast<double>(whole + 1) <= epochs && start_of(whole + 1) < most) ++whole;
  const double rest = std::min(epochs - static_cast<double>(whole), 1.0);
  const std::uint64_t begin = start_of(whole);
  const auto length = static_cast<double>(start_of(whole + 1) - begin);
  return std::min(most, begin + static_cast<std::uint64_t>(std::ceil(rest * length)));
}

double Loader::epochs_of(std::uint64_t step) {
  const std::uint64_t epoch = epoch_at(step);
  const std::uint64_t done = (step - start_of(epoch)) * options_.accumulation;
  if (done == 0) return static_cast<double>(epoch);
  const std::uint64_t all = microbatches_[alike_ ? 0 : static_cast<std::size_t>(epoch)];
  return static_cast<double>(epoch) + static_cast<double>(done) / static_cast<double>(all);
}

data::PackingReport Loader::packing() {
  go_to(0);
  return data::packing_report(dataset_, sequences_, options_.packing);
}

std::vector<std::vector<std::uint32_t>> Loader::samples_of(std::uint64_t step) {
  const std::uint64_t epoch = epoch_at(step);
  const std::uint64_t cursor = (step - start_of(epoch)) * options_.batch_size * options_.accumulation;
  go_to(epoch);
  return data::step_samples(sequences_, cursor, options_.batch_size, options_.accumulation);
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
  const bool repeats = !options_.shuffle && data::epochs_are_alike(dataset_);
  const std::uint64_t distinct = repeats ? std::min(steps, steps_per_epoch()) : steps;
  for (std::uint64_t step = 0; step < distinct; ++step) {
    for (const auto& samples : samples_of(step)) {
      std::uint32_t tokens = 0;
      for (const std::uint32_t sample : samples) {
        const std::uint32_t length = dataset_.samples.length(sample);
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
  lengths.data_tokens = 0;
  for (std::uint32_t sample = 0; sample < dataset_.samples.size(); ++sample) {
    lengths.data_tokens += dataset_.samples.length(sample);
  }
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
