// Greedy answers held against those of a data set.
#pragma once

#include "absl/status/statusor.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"

namespace rondo::train {

struct ExactMatch {
  std::uint64_t samples = 0;  // asked
  std::uint64_t matches = 0;
};

/// A sample's question is all that stands before its last run of targets, the expected answer is that run. An answer is
/// right when its text is the expected one, blanks at both ends and special tokens aside. Samples that cutoff_len has
/// shortened are left out and told. Each answer is what `rondo generate` gives with temperature 0.
/// Errors: InvalidArgument when no sample has a question, as in data of plain text.
absl::StatusOr<ExactMatch> measure_exact_match(const Config& config, const OpenModel& open, const TextParts& text,
                                               const data::Dataset& dataset, offload::ParameterStore& store,
                                               devices::Device& device, RunObserver& observer);

}  // namespace rondo::train
