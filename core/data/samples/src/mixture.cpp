// Joining data sets and taking from each what an epoch sees of it.
#include "rondo/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "rondo/base/random.h"
#include "rondo/base/status.h"

namespace rondo::data {
namespace {

// Passes of a set draw from a stream of their own.
constexpr std::uint64_t kPassStream = 0x7061737365734f66ULL;

std::string same_or(const std::string& before, const std::string& now, const char* several) {
  return before.empty() || before == now ? now : several;
}

/// `report` of one set goes into `total`, whose parts keep it.
void add_report(DataReport& total, const DataReport& report) {
  total.path += (total.path.empty() ? "" : ", ") + report.path;
  total.format = same_or(total.format, report.format, "several formats");
  total.container = same_or(total.container, report.container, "several containers");
  total.records += report.records;
  total.kept += report.kept;
  total.truncated += report.truncated;
  total.without_target += report.without_target;
  total.tokens += report.tokens;
  total.target_tokens += report.target_tokens;
  total.dropped_symbols += report.dropped_symbols;
  total.longest = std::max(total.longest, report.longest);
  total.parts.push_back(report);
}

/// Appends to `taken` what `epoch` sees of the part, in the order of the set's own passes.
void take(const DatasetPart& part, std::size_t number, bool shuffle, std::uint64_t seed, std::uint64_t epoch,
          std::vector<std::uint32_t>& taken) {
  const std::uint64_t count = samples_in_epoch(part);
  // Whole passes need no order of their own: all of the epoch is shuffled afterwards.
  const bool draws = shuffle && count % std::max<std::uint64_t>(part.count, 1) != 0;
  std::vector<std::uint32_t> order;
  std::uint64_t ordered = 0;  // the pass of `order`
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = epoch * count + i;
    const std::uint64_t pass = at / part.count;
    if (draws && (order.empty() || pass != ordered)) {
      order = epoch_order(part.count, true, mix64(seed ^ kPassStream) + number, pass);
      ordered = pass;
    }
    const auto place = static_cast<std::uint32_t>(at % part.count);
    taken.push_back(part.first + (draws ? order[place] : place));
  }
}

}  // namespace

absl::StatusOr<Dataset> load_datasets(std::span<const DataSource> sources, const Renderer& renderer,
                                      const DataOptions& options) {
  if (sources.size() == 1 && sources[0].weight == 1) return load_dataset(sources[0].path, renderer, options);
  constexpr std::uint64_t kMost = 1U << 31U;
  Dataset joined;
  std::uint64_t epoch = 0;
  for (std::uint32_t number = 0; number < sources.size(); ++number) {
    RONDO_ASSIGN_OR_RETURN(Dataset one, load_dataset(sources[number].path, renderer, options));
    one.report.weight = sources[number].weight;
    const auto first = static_cast<std::uint32_t>(joined.samples.size());
    joined.parts.push_back({first, static_cast<std::uint32_t>(one.samples.size()), sources[number].weight});
    epoch += samples_in_epoch(joined.parts.back());
    if (epoch > kMost || joined.samples.size() + one.samples.size() > kMost) {
      return invalid_input("{}: an epoch would hold {} samples, expected at most {}; give smaller dataset_weights",
                           one.report.path, epoch, kMost);
    }
    for (Sample& sample : one.samples) sample.source = number;
    joined.samples.insert(joined.samples.end(), std::make_move_iterator(one.samples.begin()),
                          std::make_move_iterator(one.samples.end()));
    add_report(joined.report, one.report);
  }
  return joined;
}

std::uint64_t samples_in_epoch(const DatasetPart& part) {
  if (part.count == 0) return 0;
  return static_cast<std::uint64_t>(std::max(1.0, std::round(part.weight * static_cast<double>(part.count))));
}

bool epochs_are_alike(const Dataset& dataset) {
  return std::ranges::all_of(dataset.parts, [](const DatasetPart& part) {
    return part.count == 0 || samples_in_epoch(part) % part.count == 0;
  });
}

std::vector<std::uint32_t> epoch_samples(const Dataset& dataset, bool shuffle, std::uint64_t seed,
                                         std::uint64_t epoch) {
  if (dataset.parts.empty()) return epoch_order(dataset.samples.size(), shuffle, seed, epoch);
  std::vector<std::uint32_t> taken;
  for (std::size_t i = 0; i < dataset.parts.size(); ++i) take(dataset.parts[i], i, shuffle, seed, epoch, taken);
  if (!shuffle) return taken;
  std::vector<std::uint32_t> order = epoch_order(taken.size(), true, seed, epoch);
  for (std::uint32_t& place : order) place = taken[place];
  return order;
}

}  // namespace rondo::data
