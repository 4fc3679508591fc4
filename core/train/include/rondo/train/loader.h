// Which samples each step sees, and their microbatches.
//
// Everything follows from the number of the step: to resume is to go on counting.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/data/samples.h"
#include "rondo/schedule/batch.h"

namespace rondo::train {

struct LoaderOptions {
  std::uint32_t batch_size = 1;
  std::uint32_t accumulation = 1;
  bool shuffle = true;
  std::uint64_t seed = 42;
};

class Loader {
 public:
  /// `dataset` outlives the loader and holds at least one sample.
  Loader(const data::Dataset& dataset, const LoaderOptions& options);

  std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Sample numbers (into dataset.samples) of each microbatch of 0-based step `step`.
  std::vector<std::vector<std::uint32_t>> samples_of(std::uint64_t step);
  /// The microbatches of 0-based step `step`.
  std::vector<schedule::Microbatch> step(std::uint64_t step);

  /// Token counts of all microbatches of steps [0, steps).
  struct Lengths {
    std::uint32_t longest = 0;  // tokens of the longest microbatch
    double mean = 0;
    std::vector<std::uint32_t> buckets;  // sorted, each once
    std::uint32_t longest_sequence = 0;
  };
  Lengths lengths(std::uint64_t steps);

 private:
  const data::Dataset& dataset_;
  const LoaderOptions options_;
  std::uint64_t steps_per_epoch_ = 0;
  std::uint64_t epoch_ = ~std::uint64_t{0};
  std::vector<std::uint32_t> order_;  // of epoch_
};

/// The numbers mixed with the run's seed and the step, as OpKind::kDropout needs them.
schedule::Microbatch to_microbatch(data::TokenBatch batch, std::uint64_t seed, std::uint64_t step);

}  // namespace rondo::train
