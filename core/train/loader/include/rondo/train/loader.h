// Which samples each step sees, and their microbatches.
//
// Everything follows from the number of the step: to resume is to go on counting.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/base/units.h"
#include "rondo/data/packing.h"
#include "rondo/data/samples.h"
#include "rondo/schedule/batch.h"

namespace rondo::train {

struct LoaderOptions {
  std::uint32_t batch_size = 1;
  std::uint32_t accumulation = 1;
  bool shuffle = true;
  std::uint64_t seed = 42;
  std::uint32_t packing = 0;  // tokens of a packed sequence; 0: each sample is a sequence
};

class Loader {
 public:
  /// `dataset` outlives the loader and holds at least one sample.
  Loader(const data::Dataset& dataset, const LoaderOptions& options);

  /// Of the first epoch; later ones have as many unless a weight that is not whole meets packing.
  std::uint64_t steps_per_epoch() const { return starts_[1]; }
  /// Steps of that many epochs, rounded up; it stops counting at `most`.
  std::uint64_t steps_of(double epochs, std::uint64_t most = ~std::uint64_t{0});
  /// Epochs that `step` steps are, by the microbatches of each, as transformers counts: the last step may have fewer.
  double epochs_of(std::uint64_t step);
  /// Whether the first `steps` steps are whole epochs.
  bool ends_epoch(std::uint64_t steps) { return start_of(epoch_at(steps)) == steps; }
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
    std::uint64_t data_tokens = ~std::uint64_t{0};  // of all samples, once; the most there is where no data is known
  };
  Lengths lengths(std::uint64_t steps);

  /// How full the sequences of the first epoch are.
  data::PackingReport packing();

  /// What the order of an epoch takes, and what is beside it while it is made.
  Bytes order_bytes() const;

 private:
  data::Sequences sequences_of(std::uint64_t epoch) const;
  void add_epoch();  // the one that `sequences_` is of
  std::uint64_t start_of(std::uint64_t epoch);
  std::uint64_t epoch_at(std::uint64_t step);
  void go_to(std::uint64_t epoch);

  const data::Dataset& dataset_;
  const LoaderOptions options_;
  bool alike_ = true;                        // every epoch has as many steps as the first
  std::vector<std::uint64_t> starts_ = {0};  // first step of each epoch, as far as they were needed
  std::vector<std::uint64_t> microbatches_;  // of each epoch but the last of `starts_`
  std::uint64_t epoch_ = ~std::uint64_t{0};
  data::Sequences sequences_;  // of epoch_
};

/// The numbers mixed with the run's seed and the step, as OpKind::kDropout needs them.
schedule::Microbatch to_microbatch(data::TokenBatch batch, std::uint64_t seed, std::uint64_t step);

}  // namespace rondo::train
