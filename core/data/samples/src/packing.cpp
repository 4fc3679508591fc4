// Packing by next fit, where the order must stay, and by best fit decreasing, where it is drawn anyway (Johnson et al.,
// "Worst-case performance bounds for simple one-dimensional packing algorithms", 1974: at most 11/9 of the best + 4
// sequences; samples that are short beside the capacity leave next to nothing).
#include "rondo/data/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "rondo/base/random.h"

namespace rondo::data {
namespace {

// The order of sequences draws from a stream beside the one of samples.
constexpr std::uint64_t kSequenceStream = 0x73657175656e6365ULL;

std::uint32_t length_of(const Dataset& dataset, std::uint32_t sample) {
  return static_cast<std::uint32_t>(dataset.samples[sample].ids.size());
}

}  // namespace

Sequences single_sequences(std::vector<std::uint32_t> order) {
  Sequences sequences;
  sequences.samples = std::move(order);
  sequences.ends.resize(sequences.samples.size());
  std::iota(sequences.ends.begin(), sequences.ends.end(), 1U);
  return sequences;
}

Sequences pack_in_order(const Dataset& dataset, std::vector<std::uint32_t> order, std::uint32_t capacity) {
  Sequences sequences;
  sequences.samples = std::move(order);
  std::uint64_t filled = 0;
  for (std::uint32_t i = 0; i < sequences.samples.size(); ++i) {
    const std::uint32_t length = length_of(dataset, sequences.samples[i]);
    if (i > 0 && filled + length > capacity) {
      sequences.ends.push_back(i);
      filled = 0;
    }
    filled += length;
  }
  if (!sequences.samples.empty()) sequences.ends.push_back(static_cast<std::uint32_t>(sequences.samples.size()));
  return sequences;
}

Sequences pack_best_fit(const Dataset& dataset, std::span<const std::uint32_t> order, std::uint32_t capacity,
                        std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> falling(order.begin(), order.end());
  std::ranges::stable_sort(
      falling, [&](std::uint32_t a, std::uint32_t b) { return length_of(dataset, a) > length_of(dataset, b); });
  std::vector<std::uint32_t> sequence_of(falling.size());
  std::vector<std::uint32_t> counts;                          // samples of each sequence
  std::map<std::uint32_t, std::vector<std::uint32_t>> rooms;  // sequences by their free tokens
  for (std::size_t i = 0; i < falling.size(); ++i) {
    const std::uint32_t length = length_of(dataset, falling[i]);
    std::uint32_t room = capacity > length ? capacity - length : 0;
    auto tightest = rooms.lower_bound(length);
    if (tightest == rooms.end()) {
      sequence_of[i] = static_cast<std::uint32_t>(counts.size());
      counts.push_back(0);
    } else {
      sequence_of[i] = tightest->second.back();
      room = tightest->first - length;
      tightest->second.pop_back();
      if (tightest->second.empty()) rooms.erase(tightest);
    }
    ++counts[sequence_of[i]];
    // No sample has less than one token: what is full is never looked at again.
    if (room > 0) rooms[room].push_back(sequence_of[i]);
  }
  const std::vector<std::uint32_t> drawn = epoch_order(counts.size(), true, mix64(seed ^ kSequenceStream), epoch);
  Sequences sequences;
  std::vector<std::uint32_t> next(counts.size());  // where the next sample of a sequence goes
  std::uint32_t end = 0;
  for (const std::uint32_t sequence : drawn) {
    next[sequence] = end;
    end += counts[sequence];
    sequences.ends.push_back(end);
  }
  sequences.samples.resize(falling.size());
  for (std::size_t i = 0; i < falling.size(); ++i) sequences.samples[next[sequence_of[i]]++] = falling[i];
  return sequences;
}

double PackingReport::fill() const {
  if (sequences == 0) return 0;
  return static_cast<double>(tokens) / (static_cast<double>(sequences) * capacity);
}

PackingReport packing_report(const Dataset& dataset, const Sequences& sequences, std::uint32_t capacity) {
  PackingReport report;
  report.samples = sequences.samples.size();
  report.sequences = sequences.size();
  for (const std::uint32_t sample : sequences.samples) report.tokens += length_of(dataset, sample);
  report.capacity = capacity;
  return report;
}

std::string describe_packing(const PackingReport& report) {
  return fmt::format("packing: {} samples in {} sequences of up to {} tokens, {:.1f}% full", report.samples,
                     report.sequences, report.capacity, 100 * report.fill());
}

nlohmann::ordered_json packing_json(const PackingReport& report) {
  return {{"samples", report.samples},
          {"sequences", report.sequences},
          {"tokens", report.tokens},
          {"capacity", report.capacity},
          {"fill", report.fill()}};
}

std::vector<std::vector<std::uint32_t>> step_samples(const Sequences& sequences, std::uint64_t cursor,
                                                     std::uint32_t batch_size, std::uint32_t accumulation) {
  std::vector<std::vector<std::uint32_t>> microbatches;
  if (batch_size == 0) return microbatches;
  for (std::uint32_t m = 0; m < accumulation && cursor < sequences.size(); ++m) {
    const std::uint64_t end = std::min<std::uint64_t>(sequences.size(), cursor + batch_size);
    std::vector<std::uint32_t>& samples = microbatches.emplace_back();
    for (; cursor < end; ++cursor) {
      const auto sequence = sequences[static_cast<std::size_t>(cursor)];
      samples.insert(samples.end(), sequence.begin(), sequence.end());
    }
  }
  return microbatches;
}

}  // namespace rondo::data
