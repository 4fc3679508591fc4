// Several samples in one sequence: which samples lie together, and how full the sequences are.
//
// Samples of a sequence keep their own positions and bounds (make_batch), so that packing changes which samples a
// microbatch holds and nothing of what a sample computes. No sample is cut or left out. Everything is a function of its
// arguments: the same on every machine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/samples.h"

namespace rondo::data {

/// The samples of an epoch as sequences: number i holds samples[ends[i - 1]] (samples[0] for i = 0) to
/// samples[ends[i] - 1].
struct Sequences {
  std::vector<std::uint32_t> samples;  // numbers into Dataset::samples
  std::vector<std::uint32_t> ends;

  std::size_t size() const { return ends.size(); }
  std::span<const std::uint32_t> operator[](std::size_t i) const {
    const std::uint32_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(samples).subspan(begin, ends[i] - begin);
  }
};

/// Each sample a sequence of its own.
Sequences single_sequences(std::vector<std::uint32_t> order);

/// `order` cut into sequences of up to `capacity` tokens: one ends where the next sample does not fit.
Sequences pack_in_order(const Dataset& dataset, std::vector<std::uint32_t> order, std::uint32_t capacity);

/// Best fit decreasing over all of `order`: the longest sample first, each into the fullest sequence that has room. The
/// sequences come in an order that follows from (seed, epoch). How many there are and what lengths lie together follows
/// from the lengths alone; `order` decides which of the samples of one length lies where.
Sequences pack_best_fit(const Dataset& dataset, std::span<const std::uint32_t> order, std::uint32_t capacity,
                        std::uint64_t seed, std::uint64_t epoch);

/// How full the sequences of an epoch are.
struct PackingReport {
  std::uint64_t samples = 0;
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
  std::uint32_t capacity = 0;  // tokens of a sequence
  double fill() const;         // share of the room that tokens take, 0 without sequences
};
PackingReport packing_report(const Dataset& dataset, const Sequences& sequences, std::uint32_t capacity);

/// "packing: 120 samples in 14 sequences of up to 512 tokens, 96.3% full".
std::string describe_packing(const PackingReport& report);
nlohmann::ordered_json packing_json(const PackingReport& report);

/// The microbatches of the step that begins at sequence `cursor`: up to `accumulation` of up to `batch_size` sequences,
/// each as the numbers of its samples; short only at the end.
std::vector<std::vector<std::uint32_t>> step_samples(const Sequences& sequences, std::uint64_t cursor,
                                                     std::uint32_t batch_size, std::uint32_t accumulation);

}  // namespace rondo::data
