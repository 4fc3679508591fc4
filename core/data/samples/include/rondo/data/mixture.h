// Several data sets as one: read, counted apart, and mixed anew in every epoch.
//
// A weight says how often an epoch goes through a set: 1 once, 2 twice, 0.5 through half of it and through the other
// half in the next epoch. A set's samples are thus seen equally often, whatever the weight, and nothing is drawn at
// random but the order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/data/samples.h"

namespace rondo::data {

struct DataSource {
  std::filesystem::path path;
  double weight = 1;  // above 0
};

/// Reads the sets with load_dataset and puts them one after another; max_samples counts for each. One source of weight
/// 1 gives what load_dataset gives. Errors: those of load_dataset; InvalidArgument when an epoch would hold more
/// samples than can be numbered.
absl::StatusOr<Dataset> load_datasets(std::span<const DataSource> sources, const Renderer& renderer,
                                      const DataOptions& options);

/// Samples of `part` in one epoch: its count times its weight, rounded, and at least one of a set that is not empty.
std::uint64_t samples_in_epoch(const DatasetPart& part);

/// True when every epoch holds the same samples: all weights are whole.
bool epochs_are_alike(const Dataset& dataset);

/// The samples of an epoch in their order: epoch_order of one set; of several, what the epoch takes of each, set after
/// set in file order, or all of it shuffled by (seed, epoch).
std::vector<std::uint32_t> epoch_samples(const Dataset& dataset, bool shuffle, std::uint64_t seed, std::uint64_t epoch);

}  // namespace rondo::data
